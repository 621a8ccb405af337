"""Whether reads take memory that was given away."""

import contextlib
from collections.abc import Iterator

from .. import _XLAC


@contextlib.contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """Context manager in which every run may write over tensors marked as donors, by `should_alias`.

    By default only steps do (torch_xla.sync()), and programs that a read runs leave them. Gives, and sets again at its
    end, what held before.
    """
    before = _XLAC._xla_get_enable_alias_with_buffer_donor_config()
    _XLAC._xla_set_enable_alias_with_buffer_donor_config(should_alias)
    try:
        yield before
    finally:
        _XLAC._xla_set_enable_alias_with_buffer_donor_config(before)
