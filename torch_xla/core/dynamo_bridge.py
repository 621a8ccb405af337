"""What PyTorch's backends "openxla" and "openxla_eval" of torch.compile call, by its first name."""

from .._dynamo.dynamo_bridge import extract_compiled_graph, GraphInputMatcher

__all__ = ["GraphInputMatcher", "extract_compiled_graph"]
