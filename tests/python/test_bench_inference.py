"""bench/inference.py: it runs without peers, the programs give eager's values, and what the page says."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import inference
import inference_page
import inference_programs

PROGRAM = Path(inference.__file__)


def test_a_small_decoder_is_measured(tmp_path, users_environment):
    command = [sys.executable, PROGRAM, "--small", "--rounds", "1", "--seconds", "0.01"]
    command += ["--programs", "decode int8", "--impls", "xla,replay,OpenVINO,eager", "--settings", "two threads"]
    done = subprocess.run(
        [*command, "--values", tmp_path / "values.json"],
        capture_output=True,
        text=True,
        env=users_environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| decode int8"))
    assert [cell for cell in row.split(" | ")[1:] if cell == "-"] == [] and "eager" in row, done.stdout
    assert "- OpenVINO: no module openvino (all programs)." in done.stdout
    assert '"decode int8"' in (tmp_path / "values.json").read_text(encoding="utf-8")


def test_the_page_names_the_best_peer_and_why_others_are_missing():
    found = {"xla": 4.0, "replay": 3.0, "llama.cpp": 2.0, "OpenVINO": "no module openvino", "eager": 6.0}
    busy = {"xla": 8.0, "replay": 6.0, "llama.cpp": 20.0, "eager": 60.0}
    programs = {"decode int4": {"one core": found, "two threads": found, "busy": busy}}
    options = argparse.Namespace(rounds=1, seconds=1.0, page=None)
    kept = {"programs": programs, "speed": {"1": 1e9, "2": 2e9}}
    text = "\n".join(inference_page.page(kept, {"decode int4": 1_500_000}, options, 0.0))
    assert "| decode int4 | 4 | 3 | llama.cpp | 2 | 1.50 | 50% |" in text
    assert "| decode int4 | 2.0 | 10.0 | - | - | - | 10.0 |" in text
    assert "- OpenVINO: no module openvino (2 programs)." in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV3", "U-Net"])
def test_networks_give_eagers_values(device, name):
    model, inputs = inference_programs.Program(f"{name} float32").make_network()
    with torch.no_grad():
        expected = model(*inputs)
        result = model.to(device)(*(x.to(device) for x in inputs))
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-3, atol=1e-3)


def test_bytes_of_a_token():
    assert inference.bytes_of("decode float32", True) > inference.bytes_of("decode int8", True) > 0
    assert inference.bytes_of("prefill int8", True) is None
