"""The functions that PyTorch's backends "openxla" and "openxla_eval" of torch.compile call."""

import dataclasses
from collections.abc import Sequence

import torch

from . import RecordedGraph


@dataclasses.dataclass(init=False)
class GraphInputMatcher:
    """Gives a compiled graph its inputs: a call's arguments and other tensors of the graph.

    This package does not use it, as a recorded graph knows its inputs; random numbers are not inputs of a graph.

    Args:
        tensor_id_to_arg_idx: positions of arguments by the ids of their stand-in tensors.
        graph_input_tensor_ids: the ids of the graph's inputs, in their order.
        graph_input_xla_values: their tensors.
        xla_args_tensor_id: the ids of the stand-ins; their tensors are not kept.
    """

    tensor_id_to_arg_idx: dict[int, int]
    graph_input_tensor_ids: list[int]
    graph_input_xla_values: list[torch.Tensor | None]
    arg_idxs: list[int | None]

    def __init__(
        self,
        tensor_id_to_arg_idx: dict[int, int],
        graph_input_tensor_ids: list[int],
        graph_input_xla_values: list[torch.Tensor],
        xla_args_tensor_id: set[int],
    ):
        self.tensor_id_to_arg_idx, self.graph_input_tensor_ids = tensor_id_to_arg_idx, graph_input_tensor_ids
        self.graph_input_xla_values = [
            None if number in xla_args_tensor_id else value
            for number, value in zip(graph_input_tensor_ids, graph_input_xla_values, strict=True)
        ]
        self.arg_idxs = [tensor_id_to_arg_idx.get(number) for number in graph_input_tensor_ids]

    def __call__(self, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs for a call with these arguments. Raises ValueError for an input that is neither."""
        inputs = [
            kept if position is None else args[position]
            for position, kept in zip(self.arg_idxs, self.graph_input_xla_values)
        ]
        if any(value is None for value in inputs):
            raise ValueError("an input of the graph is no argument, and its tensor was not kept")
        return inputs


def extract_compiled_graph(xla_model: torch.fx.GraphModule, xla_args: Sequence) -> torch.fx.GraphModule:
    """A module that runs the graph on tensors of the device: one call, of all the graph's inputs.

    Args:
        xla_model: a graph of ATen operations.
        xla_args: its first arguments; accepted for the original's sake.

    The graph is recorded once, and each call appends it to the trace; the next sync runs it. A TorchDispatchMode sees
    its operations only while it is recorded. In eager mode it is a program by itself, which runs at once.
    """
    del xla_args
    recorded = RecordedGraph(xla_model, shows_operations=False)

    def compiled_graph(*args):
        return recorded(list(args))

    graph = torch.fx.Graph()
    inputs = [graph.placeholder(node.target) for node in xla_model.graph.find_nodes(op="placeholder")]
    graph.output(graph.call_function(compiled_graph, tuple(inputs)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)
