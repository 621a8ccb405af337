"""bench/compare.py: its programs give eager's values, and what the page says."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_xla

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))  # last, as both folders have a replicas.py

import compare
import pages
import workloads

SIZED = [f"{name} batch=2 layers=2 train={train}" for name in ("mlp", "residual", "gpt length=8") for train in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*workloads.WORKLOADS, *SIZED, "mlp bf16=1"])
def test_programs_give_eagers_values(device, name):
    results = []
    for where in ("cpu", str(device)):
        torch.manual_seed(0)
        step = workloads.find(name)(where, lambda model: model)
        step()
        results.append(step().float().cpu())
        torch_xla.sync()
    bf16 = "bf16" in name
    torch.testing.assert_close(results[1], results[0], rtol=2e-2 if bf16 else 1e-3, atol=2e-2 if bf16 else 1e-4)


def _found(ms: float, **busy: float) -> dict:
    return {
        "ms": {"0": ms, **busy},
        "first_s": 0.5,
        "peak_mb": 100.0,
        "flops": 1e6,
        "bytes": 2e6,
        "host_ms": 0.5,
        "check": 1.0,
    }


def _options(**changed) -> argparse.Namespace:
    values = {
        "impls": ["xla", "eager", "jax"],
        "busy": [0, 2],
        "rounds": 1,
        "seconds": 1.0,
        "peak_flops": 1e9,
        "peak_bytes": 1e9,
    }
    return argparse.Namespace(**{**values, "page": None, **changed})


def test_the_page_has_the_ratios():
    measured = {"mlp": {"xla": _found(2.0, **{"2": 4.0}), "eager": _found(4.0, **{"2": 40.0})}}
    text = "\n".join(compare.page(measured, _options(), 0.0))
    title = "MLP 784-512-512-10, training, batch 64, SGD with momentum"
    tables = ("A step", "The limit and recording", "The first step", "Memory")
    rows = ("2 | 0.50 |  |  |", "3 | 0.7 | 0.5 |", "0.5 | 0.5 |  |", "100 | 100 |  |")
    for name, row in zip(tables, rows):
        assert f"| {title} | {row}" in text.split(f"### {name}\n")[1].split("\n### ")[0]
    assert "| mlp | 2.0 | 10.0 |  | 0.10 |" in text
    assert "This device's time divided by the peer's: below 1 this device is faster." in text


def test_the_least_that_a_step_must_do():
    weight, x = torch.ones(8, 4), torch.ones(16, 4)

    def step():
        weight.mul_(2)
        return x @ weight.T + 1

    assert compare._counted_work(step) == {"flops": 2 * 16 * 4 * 8, "bytes": 4 * (2 * 8 * 4 + 16 * 4 + 16 * 8)}


def test_each_kind_of_processor_has_its_part(tmp_path):
    path = tmp_path / "page.md"
    for part in (["## A, monday", "", "1"], ["## B, monday", "", "2"], ["## A, tuesday", "", "3"]):
        pages.show_part(["# Page"], part, path)
    assert path.read_text(encoding="utf-8") == "# Page\n\n## A, tuesday\n\n3\n\n## B, monday\n\n2\n"


def test_what_is_replayed_has_ratios_of_its_own():
    measured = {"mlp": {"xla": _found(2.0), "replay": _found(1.0), "eager": _found(4.0), "jax": _found(2.0)}}
    text = "\n".join(compare.page(measured, _options(impls=["xla", "replay", "eager", "jax"], busy=[0]), 0.0))
    assert "| program | xla ms | xla / eager | xla / jax | remarks |" in text
    assert "| program | replay / eager | replay / jax |" in text
    assert "| MLP 784-512-512-10, training, batch 64, SGD with momentum | 2 | 0.50 | 1.00 |  |" in text
    assert "| MLP 784-512-512-10, training, batch 64, SGD with momentum | 0.25 | 0.50 |" in text


def test_other_values_are_told():
    measured = {"mlp": {"xla": _found(2.0), "eager": {**_found(4.0), "check": 1.5}}}
    assert "**eager differs: 5.0e-01**" in "\n".join(compare.page(measured, _options(busy=[0]), 0.0))


def test_a_peer_that_gives_up_is_told():
    measured = {"mlp": {"xla": _found(2.0), "eager": {"gave_up": "eager: no first step in 1 s"}}}
    text = "\n".join(compare.page(measured, _options(busy=[0]), 0.0))
    assert "| eager: no first step in 1 s |" in text


def test_what_became_slower():
    baseline = {"mlp": {"xla": _found(2.0), "eager": _found(4.0)}}
    assert compare.slower({"mlp": {"xla": _found(2.1), "eager": _found(4.0)}}, baseline) == []
    told = compare.slower({"mlp": {"xla": _found(3.0), "eager": _found(4.0)}}, baseline)
    assert told == ["mlp, 0 busy processes: 0.75 x eager, in the baseline 0.50"]


def test_a_plot(tmp_path):
    measured = {"mlp": {"xla": _found(2.0), "eager": _found(4.0)}}
    compare.plot(measured, _options(page=tmp_path / "page.md"))
    (plot,) = tmp_path.glob("page_*.svg")
    assert plot.read_text(encoding="utf-8").lstrip().startswith("<?xml")


@pytest.mark.parametrize("arguments", [["--impls", "xla,other"], ["--impls", "eager"], ["--workloads", "other"]])
def test_bad_options_are_refused(arguments):
    done = subprocess.run([sys.executable, compare.__file__, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "there are" in done.stderr or "has no xla" in done.stderr


@pytest.mark.slow
def test_a_run(tmp_path):
    command = [sys.executable, compare.__file__, "--impls", "xla,replay,eager", "--workloads", "adam", "--rounds", "1"]
    command += ["--seconds", "0.05", "--busy", "0,1", "--page", tmp_path / "page.md"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Adam over 200 tensors" in page and "differs" not in page and "cannot run it" not in page
