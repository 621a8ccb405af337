"""The original's experimental modules: eager mode, loops as operations of the graph, plugins; compile-only devices."""

from .._api import compile
from ._compile_only import compile_only
from .eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = ["compile", "compile_only", "eager_mode", "eager_mode_context", "is_eager_mode"]
