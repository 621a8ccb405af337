"""The entry point `torch.backends` that `import torch` calls: it loads torch_xla where that helps.

`import torch` must work as without the package: a problem is one warning, and an error at a use of the device. A
separate module, so that it loads alone.
"""

import contextlib
import glob
import importlib
import importlib.metadata
import multiprocessing
import os
import sys
import types
import warnings
from collections.abc import Iterator

# One of these exists if the driver has a GPU: on Linux, in WSL, on Jetson. Asking the driver would start it, and then
# the process may not fork. The variables choose among the GPUs.
_CUDA_FILES = ("/dev/nvidia[0-9]*", "/usr/lib/wsl/lib/libcuda.so.1", "/dev/nvhost-gpu", "/dev/nvgpu")
_CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES",)
_ROCM_FILES = ("/dev/kfd",)
_ROCM_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_failures: list[BaseException] = []  # the first error of an import of torch_xla that has begun to register the device
_kept: list = []  # the library of PyTorch's in which use of the device is refused: it lasts as long as this


def _autoload() -> None:
    """The entry point. Never raises an Exception."""
    if "torch_xla" in sys.modules:  # `import torch_xla` imports torch, or has
        return
    try:
        import torch

        accelerator = "" if os.environ.get("PJRT_DEVICE") else _find_accelerator(torch)
        if accelerator:
            _refuse_uses(
                torch,
                f"torch_xla is installed, but `import torch` does not load it beside the accelerator {accelerator}: "
                "`import torch_xla` does, and so does PJRT_DEVICE=CPU in the environment",
            )
            return
        importlib.import_module("torch_xla")
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        if not isinstance(error, ImportError):
            reason = f"{type(error).__name__}: {reason}"
        _warn(
            f"torch_xla is installed but cannot be loaded: {reason}. All else of torch works; "
            "`pip uninstall torch_xla`, or TORCH_DEVICE_BACKEND_AUTOLOAD=0 in the environment, ends this warning."
        )
        _refuse_uses(torch, f"torch_xla is installed but cannot be loaded: {reason}")
        _say_unavailable(torch)


def _find_accelerator(torch) -> str:
    """The name of another accelerator that torch has here; empty if there is none.

    PyTorch prefers a package's device, such as xla, to all of its own, and has room for one such device.
    """
    for entry in importlib.metadata.entry_points(group="torch.backends"):
        if entry.value.partition(":")[0] != __name__:
            return entry.name
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "xla"):
        return name
    device = torch.accelerator.current_accelerator()
    if device is None or device.type == "xla":
        return ""
    is_there = _has_gpu(torch) if device.type == "cuda" else torch.get_device_module(device).is_available()
    return device.type if is_there else ""


def _has_gpu(torch) -> bool:
    """Whether a build with CUDA or ROCm finds a GPU. Asks no driver."""
    files, variables = (_ROCM_FILES, _ROCM_VARIABLES) if torch.version.hip else (_CUDA_FILES, _CUDA_VARIABLES)
    visible = [os.environ[name].strip() for name in variables if name in os.environ]
    are_visible = all(text[:1].isdigit() or text.startswith(("GPU-", "MIG-")) for text in visible)
    return are_visible and any(glob.glob(pattern) for pattern in files)


def _warn(text: str) -> None:
    """Warns once for a program, not in its child processes; prints a line if warnings are errors."""
    if multiprocessing.parent_process() is not None:
        return
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=5)  # the line that imports torch
    except RuntimeWarning:
        print(f"RuntimeWarning: {text}", file=sys.stderr)


def _refuse_uses(torch, text: str) -> None:
    """Makes operations that create tensors of the device raise RuntimeError(text) while it is not registered."""

    def refuse(*args, **kwargs):
        raise RuntimeError(text)

    with contextlib.suppress(Exception):  # a torch without these functions reports the missing device itself
        library = torch.library.Library("_", "IMPL")
        library.fallback(refuse, "XLA")  # under which PyTorch has the name xla
        _kept.append(library)


def _say_unavailable(torch) -> None:
    """For a registration that failed between the device and its module: torch.accelerator finds none available."""
    if torch._C._get_privateuse1_backend_name() == "xla" and not hasattr(torch, "xla"):
        torch.xla = types.ModuleType("torch.xla", "Of a device that cannot be loaded.")
        torch.xla.is_available = lambda: False
        torch.xla.device_count = lambda: 0


@contextlib.contextmanager
def keep_first_error() -> Iterator[None]:
    """Makes later imports of torch_xla raise the first one's error:

    PyTorch keeps a partial registration, so they would fail at that and hide the cause.
    """
    if _failures:
        error = _failures[0]
        raise error if isinstance(error, Exception) else ImportError(f"the first import of torch_xla ended: {error!r}")
    try:
        yield
    except BaseException as error:
        _failures.append(error)
        raise
