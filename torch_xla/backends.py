"""Switches of the device: the precision of float32 products."""

import torch

from . import _XLAC

# The original's words and PyTorch's.
_WORDS = {"highest": "highest", "high": "high", "default": "medium"}


def set_mat_mul_precision(precision: str) -> None:
    """Sets how an accelerator multiplies float32 matrices; the same setting as torch.set_float32_matmul_precision.

    Args:
        precision: "highest" (float32), "high" (TF32, or three products of bfloat16) or "default" (the fastest on the
            device: TF32, or one product of bfloat16).

    While neither function has been called, CPUs and GPUs multiply in float32 ("highest") and other devices, TPUs among
    them, as their plugin does by default ("default"). There convolutions follow this setting too, unless
    torch.backends.mkldnn.conv.fp32_precision is set.

    Raises ValueError for other words. It holds for later runs; their programs are compiled again.
    """
    if precision not in _WORDS:
        raise ValueError(f"precision {precision!r} is not known; allowed are {', '.join(_WORDS)}")
    torch.set_float32_matmul_precision(_WORDS[precision])


def get_mat_mul_precision() -> str:
    """The present precision: "highest", "high" or "default". It opens the device, whose default it may be."""
    return _XLAC._precision_of_products()
