"""python -m torch_xla.collect_env: the report of an environment."""

import re
import subprocess
import sys

import torch

import torch_xla
from torch_xla import collect_env


def test_the_report():
    facts = dict(re.split(r": +", line, maxsplit=1) for line in collect_env.report().splitlines())
    assert facts["torch_xla"].startswith(torch_xla.__version__) and facts["torch"].startswith(torch.__version__)
    assert ".".join(torch.__version__.split(".")[:2]) in facts["built for torch"]
    assert facts["Python"].startswith(sys.version.split()[0]) and "glibc" in facts["system"]
    assert re.match(r"[\d.]+ GB, [\d.]+ GB", facts["memory"]) and "numpy" in facts["packages"]


def test_it_names_variables_without_secrets(monkeypatch, tmp_path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "a").write_bytes(bytes(3 * 2**20))
    monkeypatch.setenv("XLA_PERSISTENT_CACHE_PATH", str(tmp_path))
    monkeypatch.setenv("XLA_RUN_SECRET", "swordfish")
    monkeypatch.setenv("XLA_LAZY", "maybe")
    text = collect_env.report()
    assert f"{tmp_path}: 1 files, 3 MB" in text and "XLA_RUN_SECRET=(set)" in text and "swordfish" not in text
    assert "XLA_LAZY=maybe is not understood" in text


def test_the_command():
    command = [sys.executable, "-m", "torch_xla.collect_env"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[0].startswith("torch_xla:") and not done.stderr
