"""The original's experimental modules: eager mode, loops as operations of the graph, plugins."""

from .._api import compile
from .eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = ["compile", "eager_mode", "eager_mode_context", "is_eager_mode"]
