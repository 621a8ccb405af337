"""What PyTorch's backends "openxla" and "openxla_eval" of torch.compile call."""

from collections.abc import Callable, Sequence

import torch

from .. import _XLAC
from .._api import compile


def extract_compiled_graph(xla_model: torch.fx.GraphModule, xla_args: Sequence) -> Callable:
    """A function that runs the graph on tensors of the device.

    Args:
        xla_model: a graph of ATen operations.
        xla_args: its first arguments; accepted for the original's sake.

    The graph's operations are recorded by each call and run by the next sync, as a program that is compiled once. In
    eager mode they are a program by themselves, which runs at once.
    """
    del xla_args
    alone = compile(xla_model.forward)

    def run(*args):
        return xla_model.forward(*args) if _XLAC._lazy() else alone(*args)

    return run
