"""The first name of the module that PyTorch's backends "openxla" and "openxla_eval" of torch.compile call."""

from .._dynamo.dynamo_bridge import extract_compiled_graph, GraphInputMatcher

__all__ = ["GraphInputMatcher", "extract_compiled_graph"]
