"""bench/dynamic.py: its programs give eager's values, and what the page says of a run and of one that fails."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))  # last, as both folders have a replicas.py

import dynamic
import dynamic_cases

STEPS = 3


def run_bench(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, dynamic.__file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def values_of(name: str, device: str) -> list[float]:
    torch.manual_seed(0)
    values = dynamic_cases.CASES[name].run(device, STEPS)
    assert next(values) is None
    return dynamic_cases.numbers_of(list(values))


@pytest.mark.parametrize("name", [name for name, case in dynamic_cases.CASES.items() if not case.library])
def test_programs_give_eagers_values(device, name):
    expected = values_of(name, "cpu")
    assert len(expected) >= STEPS and len(set(expected)) >= STEPS
    assert dynamic.difference(values_of(name, str(device)), expected) < dynamic.TOLERANCE


def test_shapes_of_many_are_distinct():
    assert len(set(dynamic_cases.shapes_of_many())) >= dynamic_cases.CASES["many"].steps


def test_page(tmp_path):
    path = tmp_path / "page.md"
    done = run_bench("--only", "rollout", "--rounds", "1", "--steps", str(STEPS), "--warm", "--page", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    text = path.read_text(encoding="utf-8")
    assert text.strip() == done.stdout.strip() and f"Steps: {STEPS}, first ones: {STEPS - 1}." in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| rollout | ")]
    assert list(map(len, rows)) == [*map(len, (dynamic.TIMES, dynamic.WARM_TIMES, dynamic.PROGRAMS, dynamic.WORK))]
    assert float(rows[0][2]) > 0 and float(rows[1][1]) > 0 and int(rows[2][1]) >= 1 and "differs" not in rows[3][-1]


def test_a_program_that_fails_or_lacks_its_library(monkeypatch, tmp_path):
    options = argparse.Namespace(rounds=2, steps=2, threads=1, warm=False)
    broken = dynamic_cases.Case(print, 2, 1, 1.0, 1)  # the worker does not know it
    lacking = dynamic_cases.Case(print, 2, 1, 1.0, 1, "no_such_library")
    monkeypatch.setitem(dynamic.CASES, "broken", broken)
    monkeypatch.setitem(dynamic.CASES, "lacking", lacking)
    monkeypatch.setattr(dynamic.setup_libraries, "is_ready", lambda library: False)
    found, failures = dynamic.measure(["broken", "lacking"], options)
    assert not found and "failed on cpu: KeyError: 'broken'" in str(failures["broken"])
    assert isinstance(failures["lacking"], dynamic.MissingError) and "no no_such_library" in str(failures["lacking"])
    lines = dynamic.page(found, failures, options, 0.0)
    assert any(line.startswith("| broken | failed on cpu: KeyError: 'broken' |") for line in lines)


def test_values_that_differ_are_told():
    run = {"figures": {"seconds": 2.0}}
    turns = [{"eager": {"values": [1.0, 2.0], **run}, "cold": {"values": [1.0, 2.1], **run}}]
    assert dynamic.summary(turns)["cold"]["difference"] == pytest.approx(0.05)
    assert dynamic.difference([1.0], [1.0, 2.0]) == float("inf")
    assert dynamic.difference([float("nan")], [1.0]) == float("inf")
    assert dynamic.difference([0.0, 1e-5], [0.0, 0.0]) == pytest.approx(0.01)


@pytest.mark.parametrize("arguments", [("--only", "sort"), ("--rounds", "0"), ("--threads", "0"), ("--steps", "1")])
def test_arguments_that_are_refused(arguments):
    done = run_bench(*arguments)
    assert done.returncode == 2 and " ".join(arguments) in done.stderr
