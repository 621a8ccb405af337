"""Copies between devices for torch.nn.DataParallel: PyTorch has them only for GPUs, in builds with CUDA."""

import functools
from collections.abc import Callable

import torch


def _scatter(tensor, devices, chunk_sizes=None, dim=0, streams=None) -> list[torch.Tensor]:
    """The chunks of the tensor along `dim`, one on each device: of these sizes, or as torch.chunk() cuts."""
    del streams  # a device runs in one order
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return [chunk.to(torch.device("xla", index)) for chunk, index in zip(chunks, devices)]


def _scatter_out(tensor, out, dim=0, streams=None) -> list[torch.Tensor]:
    """As _scatter() into given tensors, whose sizes are those of the chunks."""
    del streams
    chunks = tensor.split([part.size(dim) for part in out], dim)
    return [part.copy_(chunk) for part, chunk in zip(out, chunks)]


def _gather(tensors, dim=0, destination=None) -> torch.Tensor:
    """The tensors side by side along `dim`, on the device of that index: None is the current one, -1 the CPU."""
    index = torch.accelerator.current_device_index() if destination is None else destination
    device = torch.device("cpu") if index == -1 else torch.device("xla", index)
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def _gather_out(tensors, out, dim=0) -> torch.Tensor:
    """As _gather() into a given tensor."""
    return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))


def _broadcast(tensor, devices) -> list[torch.Tensor]:
    """The tensor on each device; itself on its own device."""
    return [tensor.to(torch.device("xla", index)) for index in devices]


def _broadcast_out(tensor, out) -> list[torch.Tensor]:
    """Copies the tensor into each tensor of `out`."""
    return [part.copy_(tensor) for part in out]


def _broadcast_coalesced(tensors, devices, buffer_size) -> list[list[torch.Tensor]]:
    """For each device all tensors."""
    del buffer_size  # copies of one recording are run together
    return [[tensor.to(torch.device("xla", index)) for tensor in tensors] for index in devices]


def _beside(ours: Callable, theirs: Callable) -> Callable:
    """The function of a build with CUDA: it serves tensors of a GPU, and of the CPU if there is a GPU."""

    @functools.wraps(ours)
    def call(tensors, *args, **kwargs):
        first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        kind = "xla" if first is None else first.device.type
        is_theirs = kind == "cuda" or (kind == "cpu" and torch.cuda.is_available())
        return (theirs if is_theirs else ours)(tensors, *args, **kwargs)

    return call


def install() -> None:
    """Called once, when torch_xla is imported."""
    functions = (_scatter, _scatter_out, _gather, _gather_out, _broadcast, _broadcast_out, _broadcast_coalesced)
    for ours in functions:
        theirs = getattr(torch._C, ours.__name__, None)
        setattr(torch._C, ours.__name__, _beside(ours, theirs) if theirs else ours)
