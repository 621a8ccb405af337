"""Gradient accumulation as one operation of the graph, which runs forward and backward of the parts of a batch."""

from collections.abc import Callable, Sequence

import torch

from .. import _XLAC
from . import _bodies


def _check(iterable_tensors: Sequence[torch.Tensor]) -> int:
    """Checks the tensors; the number of parts."""
    if not iterable_tensors:
        raise ValueError("iterable_tensors cannot be empty")
    for i, tensor in enumerate(iterable_tensors):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Element {i} of iterable_tensors is not a tensor")
        if tensor.numel() == 0 or tensor.dim() == 0:
            raise ValueError(f"Element {i} of iterable_tensors has no elements along a first dimension")
        if tensor.size(0) != iterable_tensors[0].size(0):
            raise ValueError(f"Element {i} of iterable_tensors has inconsistent first dimension")
    return iterable_tensors[0].size(0)


def _take_gradients(parameters: Sequence[torch.nn.Parameter], run: Callable[[], object]) -> list[torch.Tensor | None]:
    """The gradients that `run` gives the parameters; the parameters keep their old ones."""
    before = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    try:
        run()
        return [p.grad for p in parameters]
    finally:
        for p, grad in zip(parameters, before, strict=True):
            p.grad = grad


def _record(
    recorder: _bodies.Recorder,
    train_step: Callable,
    parameters: Sequence[torch.nn.Parameter],
    carried_tensors: Sequence[torch.Tensor],
    iterable_tensors: Sequence[torch.Tensor],
):
    """Records the body: it carries the sum of the losses, the sums of the gradients, and the carried tensors."""
    loss = recorder.argument(torch.zeros((), dtype=torch.float32, device=iterable_tensors[0].device))
    sums = recorder.arguments(parameters)
    state = recorder.arguments(carried_tensors)
    parts = recorder.arguments(iterable_tensors, sliced=True)
    results: list[torch.Tensor] = []

    def run():
        result = train_step(*parts, *state)
        part_loss, *following = result if carried_tensors else (result,)
        part_loss = part_loss / iterable_tensors[0].size(0)
        part_loss.backward()
        results.extend(t.detach() for t in (part_loss, *following))

    gradients = _take_gradients(parameters, run)
    recorder.check_not_written(AssertionError)
    added = [before if grad is None else before + grad for before, grad in zip(sums, gradients, strict=True)]
    following = [(loss + results[0]).to(torch.float32), *added, *results[1:]]
    return recorder.take([loss, *sums, *state, *parts], following)


def gradient_accumulation(
    train_step: Callable,
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    *carried_tensors: torch.Tensor,
):
    """Gradients of a batch in parts: with the memory of one part, and a program of one part in a loop.

    Args:
        train_step: gets one slice along dim 0 of each of `iterable_tensors`, then the carried tensors. Returns the
            loss, or a tuple of the loss and the next carried tensors. It is called once, for recording.
        iterable_tensors: tensors of one xla device with equal first dims: the number of parts.
        model: its parameters that require gradients get the mean over the parts, added to their old gradients.
        carried_tensors: of any dtype, each of the same shape in all turns.

    Returns the mean loss as float32, or a tuple of it and the last carried tensors. Raises ValueError for
    iterable_tensors that do not fit each other, AssertionError if train_step writes in-place into its arguments, and
    RuntimeError if it writes into other tensors, as batch norm does, or needs a tensor's value.
    """
    steps = _check(iterable_tensors)
    number = _bodies.device_of([*iterable_tensors, *carried_tensors], "the tensors of gradient_accumulation")
    parameters = [p for p in model.parameters() if p.requires_grad]
    with _bodies.recording(number) as recorder, torch.enable_grad():
        body = _record(recorder, train_step, parameters, carried_tensors, iterable_tensors)
    loss = torch.zeros((), dtype=torch.float32, device=iterable_tensors[0].device)
    carried = [loss, *(torch.zeros_like(p) for p in parameters), *carried_tensors]
    loss, *last = _XLAC._record_loop(number, body, carried, list(iterable_tensors), steps)
    for p, grad in zip(parameters, last, strict=False):
        p.grad = grad if p.grad is None else p.grad.add_(grad)
    last = last[len(parameters) :]
    return (loss, *last) if last else loss
