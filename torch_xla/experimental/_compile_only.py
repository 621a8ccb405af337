"""Compiles programs for hardware that is not there: `with compile_only("v5e:2x2"):`."""

import os

from .. import _api, _XLAC
from ..debug import program_reports
from . import _compile_targets


class compile_only:
    """Makes `xla` a device that is compiled for and not there.

    Within the context programs are recorded and compiled, and never run: tensors have shapes and types, and reading one
    raises RuntimeError. Memory of the device costs none of the host's. At its end what is pending is compiled.
    docs/compile_only.md tells more.

    The device stays what it is until the process ends: the context has to begin before its first use, and later ones
    have to name the same target. It is the same as PJRT_DEVICE and XLA_COMPILE_ONLY in the environment.

    Args:
        target: a TPU and how many there are, "v5e:2x2"; a GPU, "h100"; or a file that describes one (.txtpb of XLA's
            GpuTargetConfigProto, .ttsys of Tenstorrent).
        plugin: the value of PJRT_DEVICE; by default the one that knows the target.

    Raises ValueError for an unknown target, RuntimeError if the device was used before as another one.
    """

    def __init__(self, target: str, plugin: str | None = None):
        self.target = target
        self.plugin = plugin or _compile_targets.device_of(target)

    def __enter__(self) -> "compile_only":
        device, target = _XLAC._xla_chosen_device(), _XLAC._env_text("XLA_COMPILE_ONLY")
        if device and (device, target) != (self.plugin, self.target):
            now = target or device
            raise RuntimeError(
                f"the device runs as {now} already: begin compile_only({self.target!r}) before its first use"
            )
        os.environ["PJRT_DEVICE"] = self.plugin
        os.environ["XLA_COMPILE_ONLY"] = self.target
        _XLAC._xla_num_devices()  # opens it: errors of the target come here
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None:
            _api.sync()

    def reports(self) -> list:
        """What the compiler says of the programs so far: torch_xla.debug.program_reports()."""
        return program_reports()
