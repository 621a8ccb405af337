"""The main job: the digit classifier trains on the device, with few programs and no fallback."""

import os
import re
import subprocess
import sys

import pytest

SCRIPT = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "train_digits.py")


def run(tmp_path, *args: str) -> str:
    png = tmp_path / "curves.png"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", str(png), *args], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert png.read_bytes().startswith(b"\x89PNG")
    return done.stdout


@pytest.mark.slow
def test_ten_epochs(tmp_path):
    out = run(tmp_path)
    assert float(re.search(r"^Test accuracy ([\d.]+) %", out, re.MULTILINE).group(1)) >= 97
    assert "Ops that fell back to the CPU: none" in out
    assert "Metric: CompileTime" in out
    assert re.search(r"^Time per epoch: [\d.]+ s on xla, [\d.]+ s on eager", out, re.MULTILINE)
    places = re.search(r"Programs were compiled at:\n((?:  .*\n)*)", out).group(1)
    assert not [line for line in places.splitlines() if not allowed(line)], places


def allowed(place: str) -> bool:
    """A compile in the first three batches, the first partial batch, or at the end of the first epoch."""
    first = re.fullmatch(r"\s*xla:0 epoch 1, (batch (\d+) of (\d+) images|mean loss|evaluation) \(\d+\)", place)
    return bool(first) and (first[2] is None or int(first[2]) <= 3 or int(first[3]) < 64)


def test_on_the_cpu(tmp_path):
    out = run(tmp_path, "--device", "cpu", "--epochs", "1")
    assert "cpu epoch 1: loss" in out
    assert "xla" not in out.replace("torch_xla", "")
