"""XLA_USE_BF16 and XLA_DOWNCAST_BF16: tensors report float32 and float64, the device stores narrower types."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torch_xla

HERE = Path(__file__).parent
EXAMPLE = HERE.parent.parent / "examples" / "train_digits.py"
VARIABLES = ["XLA_USE_BF16", "XLA_DOWNCAST_BF16"]


def run(*command: object, **env: str) -> str:
    """What the program printed; the test fails where it fails."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=280, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("variable", VARIABLES)
def test_checks(variable):
    out = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", HERE / "stored_floats_checks.py", **{variable: "1"})
    assert " passed" in out


def test_one_wins_where_both_are_set(run_python):
    source = """
        import torch, torch_xla
        print(torch.tensor([1 + 2**-10], dtype=torch.float64, device="xla").item())
    """
    assert run_python(source, XLA_USE_BF16="1", XLA_DOWNCAST_BF16="1") == "1.0\n"
    assert run_python(source, XLA_DOWNCAST_BF16="1") == f"{1 + 2**-10}\n"


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_digits_are_learned(tmp_path, variable):
    out = run(EXAMPLE, "--epochs", 2, "--out", tmp_path / "curves.png", **{variable: "1"})
    accuracy = float(out.split("Test accuracy ")[1].split(" ")[0])
    assert accuracy >= 90, out
    assert "Ops that fell back to the CPU: none" in out


def test_it_is_off_by_default():
    import torch

    assert torch.tensor([1 + 2**-20], device=torch_xla.device()).item() == 1 + 2**-20
