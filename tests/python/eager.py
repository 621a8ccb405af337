"""Compares what a program gives on the device with what it gives on the CPU."""

import contextlib
import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.utils import _pytree as pytree

import torch_xla


def strides(t: torch.Tensor) -> tuple:
    """Those of the dims in which there are neighbours."""
    return tuple(stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1)


def tensors_of(results) -> list[torch.Tensor]:
    """The tensors of a tree."""
    return [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]


def attempt(program: Callable, device: str) -> list[torch.Tensor] | Exception:
    """What program(device) gives, on the CPU, where memory lies as it lay there, or its exception."""
    try:
        return [(strides(t), t.detach().cpu()) for t in tensors_of(program(device))]
    except Exception as error:
        with contextlib.suppress(RuntimeError):
            torch_xla.sync(wait=True)  # the next sync repeats an error of a run
        return error


def check(program: Callable, what: str = "", tolerance: float = 1e-5, atol: float | None = None, order: bool = False):
    """program(device) gives tensors of the same values, or raises an exception of the same class, on both devices.

    Args:
        tolerance: relative and, unless `atol` says it, absolute; 2e-2 at least for bfloat16.
        order: the tensors lie in the same order in memory too.
    """
    expected, actual = attempt(program, "cpu"), attempt(program, "xla")
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert type(expected) is type(actual), f"{what}: {expected!r} on the CPU, {actual!r} on the device"
        return
    for (wanted_strides, a), (found_strides, b) in zip(expected, actual, strict=True):
        least = 2e-2 if torch.bfloat16 in (a.dtype, b.dtype) else 0.0
        rtol, atol_ = max(tolerance, least), max(tolerance if atol is None else atol, least)
        torch.testing.assert_close(b, a, rtol=rtol, atol=atol_, equal_nan=True, msg=lambda m: f"{what}: {m}")
        assert not order or found_strides == wanted_strides, what


def differentiated(function: Callable, *inputs: torch.Tensor, model: nn.Module | None = None, grad: bool = True):
    """The program that calls function(*inputs), or function(model, *inputs).

    It gives the results and, of the sum of their squares, the gradients of the model's parameters and the inputs.
    """

    def program(device: str) -> list[torch.Tensor]:
        models = [copy.deepcopy(model).to(device)] if model is not None else []
        leaves = [t.detach().to(device).requires_grad_(grad) for t in inputs]
        with torch.set_grad_enabled(grad):
            results = tensors_of(function(*models, *leaves))
        if not grad:
            return results
        wanted = [*(p for each in models for p in each.parameters()), *leaves]
        return [*results, *torch.autograd.grad(sum(t.square().sum() for t in results), wanted)]

    return program
