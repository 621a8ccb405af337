"""Deprecated names of functions, with one warning each."""

import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType


def deprecated(
    module: ModuleType, new: Callable, old_name: str | None = None, extra_msg: str | None = None
) -> Callable:
    """A function that calls `new` and at its first call logs a warning with both names.

    Args:
        module: the module of the old name.
        old_name: by default the name of `new`.
        extra_msg: an additional sentence.
    """
    old = f"{module.__name__}.{old_name or new.__name__}"
    message = f"{old} is deprecated. Use {new.__module__}.{new.__name__} instead."
    warn = functools.cache(lambda: logging.getLogger(__name__).warning(" ".join(filter(None, (message, extra_msg)))))

    @functools.wraps(new)
    def call(*args, **kwargs):
        warn()
        return new(*args, **kwargs)

    return call


def mark_deprecated(new: Callable, extra_msg: str | None = None) -> Callable:
    """Decorator that replaces a function by `deprecated(its module, new, its name, extra_msg)`."""

    def decorator(old: Callable) -> Callable:
        return deprecated(sys.modules[old.__module__], new, old.__name__, extra_msg)

    return decorator


def register_deprecated(module: ModuleType, new: Callable, extra_msg: str | None = None) -> None:
    """Gives the module a deprecated alias of `new` with the same name: `deprecated(module, new)`."""
    setattr(module, new.__name__, deprecated(module, new, extra_msg=extra_msg))
