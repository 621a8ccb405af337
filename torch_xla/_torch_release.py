"""Differences between the releases of PyTorch that this package serves; no other module asks for the release."""

import re
import warnings

import torch

# The releases that the tests pass with. CMake reads these two lines.
OLDEST = (2, 13)
NEWEST = (2, 15)


def parse(version: str) -> tuple[int, int]:
    """Major and minor number of a version: (2, 16) of "2.16.0.dev20261130+cpu"."""
    major, minor = re.match(r"(\d+)\.(\d+)", version).groups()
    return int(major), int(minor)


RELEASE = parse(torch.__version__)

# The operator of `x.data = y` in a graph: the first up to 2.13, the second from 2.14 on.
STORAGE_EXCHANGES = tuple(
    getattr(torch.ops.aten, name) for name in ("set_", "shallow_copy_data_") if hasattr(torch.ops.aten, name)
)


def warn_of_unknown(version: str = torch.__version__) -> None:
    """Warns once if the release is newer than all known ones."""
    if parse(version) > NEWEST:
        known = " to ".join(".".join(map(str, release)) for release in (OLDEST, NEWEST))
        warnings.warn(
            f"torch {version} is newer than the releases that this torch_xla is tested with ({known}). Operators that "
            "it no longer has are left out (torch_xla._XLAC._missing_operators()); those that are new run on the CPU.",
            stacklevel=2,
        )
