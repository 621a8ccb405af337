"""XLA_LIB: the namespace `xla` of torch.ops, in which programs define operations of their own."""

import torch


class _Library(torch.library.Library):
    """A library in which "XLA" is this device's dispatch key, not that of PyTorch's former device."""

    def impl(self, op_name, fn, dispatch_key: str = "", **kwargs) -> None:
        """As torch.library.Library.impl()."""
        super().impl(op_name, fn, dispatch_key.replace("XLA", "PrivateUse1"), **kwargs)


XLA_LIB = _Library("xla", "FRAGMENT")
