"""What PyTorch's backends "openxla" and "openxla_eval" of torch.compile call."""

from collections.abc import Callable, Sequence

import torch

from .._dynamo import RecordedGraph


def extract_compiled_graph(xla_model: torch.fx.GraphModule, xla_args: Sequence) -> Callable:
    """A function that runs the graph on tensors of the device.

    Args:
        xla_model: a graph of ATen operations.
        xla_args: its first arguments; accepted for the original's sake.

    The graph is recorded once, and appended to what is pending by each call; the next sync runs it. In eager mode it is
    a program by itself, which runs at once.
    """
    del xla_args
    graph = RecordedGraph(xla_model)
    return lambda *args: graph(list(args))
