"""bench/growth.py: what its page says of what was measured, and a run of a small series."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))  # last, as both folders have a replicas.py

import growth


def _found(ms: float, check: float = 1.0) -> dict:
    return {"ms": {"0": ms}, "first_s": 0.5, "peak_mb": 100.0, "host_ms": 0.25, "check": check}


def test_combinations_are_told_beside_the_fastest_peer(monkeypatch):
    monkeypatch.setattr(growth, "KINDS", {"MLP": "mlp"})
    every = [program for _, row in growth.list_combinations() for program in row]
    measured = {program: {"xla": _found(2.0), "eager": _found(4.0), "inductor": _found(1.0)} for program in every}
    measured[every[0]] = {"xla": _found(2.0), "eager": _found(4.0, 1.5), "inductor": {"gave_up": "inductor: no"}}
    measured[every[1]] = {"xla": {"gave_up": "xla: no"}, "eager": _found(4.0)}
    measured[every[2]] = {"xla": _found(2.0), "eager": {"gave_up": "eager: no"}}
    text = "\n".join(growth.combination_lines(measured))
    assert "| MLP, inference, float32 | **differs** 0.50 (2) | **gave up** | no peer (2) | 2.00 (2) | " in text
    assert "| MLP, training, bfloat16 | 2.00 (2) | " in text


def test_a_run(monkeypatch, tmp_path):
    monkeypatch.setattr(growth, "SERIES", (growth.Series("Adam", "adam", "tensors", (1, 3)),))
    path, values = tmp_path / "page.md", tmp_path / "values.json"
    arguments = ["--only", "series", "--seconds", "0.01", "--page", str(path), "--values", str(values)]
    monkeypatch.setattr(sys, "argv", ["growth.py", *arguments])
    assert growth.main() == 0
    text = path.read_text(encoding="utf-8")
    assert "### Adam" in text and "| 3 | " in text and "differs" not in text
    assert path.with_suffix(".svg").is_file()

    measured = json.loads(values.read_text(encoding="utf-8"))
    measured["adam tensors=3"] = {"xla": {"gave_up": "xla: no"}, "eager": _found(4.0)}
    values.write_text(json.dumps(measured), encoding="utf-8")
    monkeypatch.delattr(growth.compare, "measure")  # all is there
    assert growth.main() == 1
    assert "| 3 |" in (text := path.read_text(encoding="utf-8")) and "- tensors 3: xla: no" in text


@pytest.mark.parametrize("arguments", [["--impls", "eager,xla"], ["--only", "other"]])
def test_bad_options_are_refused(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["growth.py", *arguments])
    with pytest.raises(SystemExit):
        growth.main()
    assert "wanted is" in (told := capsys.readouterr().err) or "there are" in told
