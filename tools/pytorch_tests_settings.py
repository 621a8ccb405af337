"""What the list says about how a file runs, for run_pytorch_tests.py's processes and those that these start.

Settings of a file in the list:
    program: true: the file is a program and one test, which passes if it exits with 0.
    torchrun: how many processes torchrun starts of that program; without it the program is started once.
    plugin_devices: with how many devices of XLA's CPU client, as a plugin, the file runs; else on the default device.
    hardware: the hardware that the file is made to see, "TPU"; for those that do nothing on other hardware.
    absent: names that the file looks for at its import and that do not exist here; a call of one fails.
"""

import importlib
import json
import os
import sys
from types import ModuleType

VARIABLE = "PYTORCH_TESTS_SETTINGS"
NAMES = ("program", "torchrun", "hardware", "absent")


def read() -> dict:
    """The settings of this process's file."""
    return json.loads(os.environ.get(VARIABLE, "{}"))


def apply() -> None:
    """Prepares this process for its file, before it is imported."""
    settings = read()
    if hardware := settings.get("hardware"):
        _tell_hardware(hardware)
    for name in settings.get("absent", []):
        _add_absent(name)


def _tell_hardware(hardware: str) -> None:
    from torch_xla import runtime
    from torch_xla.core import xla_model

    xla_model.xla_device_hw = lambda device: hardware
    runtime.device_type = lambda: hardware


def _add_absent(name: str) -> None:
    """Puts a function that raises, or an empty module, where the name is missing."""
    parent, _, own = name.rpartition(".")
    if not parent:
        sys.modules.setdefault(name, ModuleType(name))
        return

    def missing(*args, **kwargs):
        raise NotImplementedError(f"{name} does not exist here")

    owner = importlib.import_module(parent)
    if hasattr(owner, own):
        raise ValueError(f"the list calls {name} absent, which it is not")
    setattr(owner, own, missing)
