"""Programs of other libraries with this package installed: on the CPU, and on the device.

Each library has a virtual environment of its own, which tools/setup_libraries.py makes (`make test-libraries`).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import setup_libraries  # noqa: E402


def run_program(library: str, program: str | Path, *arguments: str | Path, **env) -> str:
    """What a program prints in the library's environment; fails if it does. Skips the test where there is none."""
    if not setup_libraries.is_ready(library):
        pytest.skip(f"there is no environment for {library}: `make test-libraries` makes it where packages can be had")
    done = subprocess.run(
        [setup_libraries.find_python(library), PROGRAMS / program, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **env},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "xla"])
@pytest.mark.parametrize("library", [name for name in setup_libraries.LIBRARIES if name not in ("jax", "torchvision")])
def test_library(library, device, tmp_path):
    run_program(library, f"{library}_{device}.py", tmp_path)


@pytest.mark.slow
def test_accelerate_told_to_leave_the_device_alone(tmp_path):
    run_program("accelerate", "accelerate_cpu.py", tmp_path, USE_TORCH_XLA="0")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_two_processes(library, tmp_path):
    run_program(library, f"{library}_two_processes.py", tmp_path, XLA_COLLECTIVE_TIMEOUT="100")


@pytest.mark.slow
def test_the_lines_of_the_readme(tmp_path):
    run_program("transformers", "transformers_readme.py", tmp_path)


@pytest.mark.slow
def test_the_example_of_trainer(tmp_path):
    text = run_program("transformers", EXAMPLES / "trainer.py", "--steps", "100", "--out", tmp_path / "model")
    (first, last), (other, least) = re.findall(r"loss ([\d.]+) -> ([\d.]+)", text)
    assert float(last) < float(first) - 1 and float(least) < float(other), text
    assert int(re.search(r"(\d+) % of other pieces is right", text)[1]) > 50, text
    assert (tmp_path / "model/model.safetensors").is_file()


@pytest.mark.slow
def test_the_example_of_detection():
    program = ("torchvision_example.py", EXAMPLES / "detection.py")
    text = run_program("torchvision", *program, "--steps", "12", "--images", "3", "--size", "96", "--batch", "4")
    first, last = map(float, re.search(r"loss ([\d.]+) -> ([\d.]+)", text).groups())
    assert last < first and re.search(r"detection: \d+ of \d+ objects", text), text
    assert len(re.findall(r"programs: \d+ compiled, \d+ planned .*, \d+ run again", text)) == 2, text


@pytest.mark.slow
def test_generation(tmp_path):
    run_program("transformers", "transformers_generate.py", tmp_path)


@pytest.mark.slow
def test_exported_models_run_in_jax(tmp_path):
    run_program("jax", "jax_stablehlo.py", tmp_path)
