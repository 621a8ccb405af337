"""Programs of other libraries with this package installed: on the CPU, and on the device.

Each library has a virtual environment of its own, which tools/setup_libraries.py makes (`make test-libraries`).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import setup_libraries  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "xla"])
@pytest.mark.parametrize("library", setup_libraries.LIBRARIES)
def test_library(library, device, tmp_path):
    if not setup_libraries.is_ready(library):
        pytest.skip(f"there is no environment for {library}: `make test-libraries` makes it where packages can be had")
    done = subprocess.run(
        [setup_libraries.find_python(library), PROGRAMS / f"{library}_{device}.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
