"""What PyTorch's backends "openxla" and "openxla_eval" of torch.compile call."""

from collections.abc import Callable, Sequence

import torch


def extract_compiled_graph(xla_model: torch.fx.GraphModule, xla_args: Sequence) -> Callable:
    """A function that runs the graph on tensors of the device.

    Args:
        xla_model: a graph of ATen operations.
        xla_args: its first arguments; accepted for the original's sake.

    The graph's operations are recorded by each call and run by the next sync, as a program that is compiled once.
    """
    del xla_args
    return xla_model.forward
