"""Modules that were saved from the device in one language are loaded in the other: python modules.py FOLDER.

FOLDER has module_of_xla.pt, which examples/cpp/load_module has saved, and example.pt. Writes FOLDER/of_python, for
load_module to load: a module that Python has saved from the device, and the example.
"""

import shutil
import sys
from pathlib import Path

import torch

folder = Path(sys.argv[1])
example = torch.load(folder / "example.pt")
for device, map_location in (("xla", None), ("cpu", "cpu")):
    module = torch.jit.load(str(folder / "module_of_xla.pt"), map_location=map_location)
    assert {parameter.device.type for parameter in module.parameters()} == {device}
    with torch.no_grad():
        torch.testing.assert_close(module(example["input"].to(device)).cpu(), example["output"])

target = folder / "of_python"
target.mkdir(exist_ok=True)
torch.jit.load(str(folder / "module.pt"), map_location="xla").save(str(target / "module.pt"))
shutil.copy(folder / "example.pt", target)
