"""Whether reads use donated memory."""

import contextlib
from collections.abc import Iterator

from .. import _XLAC


@contextlib.contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """Context manager: with `should_alias` every run may overwrite tensors marked as donors.

    By default only steps do (torch_xla.sync()), not programs run by a read. Returns the old setting, and restores it at
    its end.
    """
    before = _XLAC._xla_get_enable_alias_with_buffer_donor_config()
    _XLAC._xla_set_enable_alias_with_buffer_donor_config(should_alias)
    try:
        yield before
    finally:
        _XLAC._xla_set_enable_alias_with_buffer_donor_config(before)
