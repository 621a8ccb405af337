"""The programs and notebooks of examples/ run, with small settings; train_digits.py and lstm_ensemble.py elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("notebooks/*.ipynb"))


@pytest.fixture
def run(tmp_path, users_environment):
    """Function that runs a program in a folder of its own and returns what it prints."""

    def run_there(name: str, *arguments: str) -> str:
        command = [sys.executable, EXAMPLES / name, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, cwd=tmp_path, env=users_environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_there


def losses(text: str) -> list[tuple[float, float]]:
    """The first and the last loss of each part."""
    return [(float(first), float(last)) for first, last in re.findall(r"loss ([\d.]+) -> ([\d.]+)", text)]


def test_a_small_llama_is_trained_and_generates(run):
    text = run("fine_tune.py", "--steps", "25", "--layers", "2", "--width", "64")
    parts = losses(text)
    assert len(parts) == 2 and parts[0][1] < parts[0][0] - 1 and parts[1][1] < parts[1][0] + 0.2, text
    parts = [("--formats", "float32", "--temperature", "0", "--device", device) for device in ("xla", "cpu")]
    texts = [run("generate.py", "--model", "results/small_llama", "--tokens", "24", *part) for part in parts]
    assert texts[0].splitlines()[0] == texts[1].splitlines()[0], texts  # the likeliest bytes are eager's


def test_text_is_generated_in_four_formats(run):
    text = run("generate.py", "--tokens", "16")
    found = re.findall(r"^(\w+): ([\d.]+) MB, [\d.]+ tokens/s$", text, re.MULTILINE)
    assert [form for form, _ in found] == ["float32", "bfloat16", "int8", "int4"], text
    sizes = [float(size) for _, size in found]
    assert sizes[0] > 1.9 * sizes[1] and sizes[1] > 1.7 * sizes[2] and sizes[2] > 1.4 * sizes[3], text


def test_poles_stand_longer(run):
    text = run("reinforcement_learning.py", "--updates", "12", "--carts", "32", "--turns", "30")
    first, last = re.search(r"stood ([\d.]+) of 30 turns at first, ([\d.]+) at the end", text).groups()
    assert float(last) > float(first), text


def test_noise_becomes_digits(run, tmp_path):
    text = run("diffusion.py", "--steps", "60", "--levels", "10", "--channels", "16")
    ((first, last),) = losses(text)
    assert last < 0.7 * first, text
    assert (tmp_path / "results/diffusion.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("way", ["processes", "threads"])
def test_replicas(way, run):
    text = run("data_parallel.py", "--way", way, "--epochs", "2")
    assert 0 < float(re.fullmatch(rf"2 {way}: loss ([\d.]+)\n", text)[1]) < 2, text


def test_a_mesh(run):
    text = run("spmd.py", "--steps", "60")
    ((first, last),) = losses(text)
    assert last < 0.8 * first and "on 4 devices" in text, text


def test_spread_weights(run):
    text = run("fsdp.py", "--steps", "40")
    ((first, last),) = losses(text)
    assert last < first - 0.1 and "49,957 of 99,914 numbers" in text and "loaded on the CPU" in text, text


def test_an_export(run, tmp_path):
    text = run("export_stablehlo.py", "--steps", "40")
    assert float(re.match(r"([\d.]+) % of the digits", text)[1]) > 80, text
    assert text.count("stablehlo.dot_general") == 2 and (tmp_path / "results/exported/data/0.weight").is_file()


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(program):
    whole = ("train_digits.py", "lstm_ensemble.py")  # they compare devices and report
    assert program.name in whole or len(program.read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path, tmp_path, users_environment):
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}})
    client.execute(env=users_environment)
    text = "\n".join(str(output) for cell in notebook.cells for output in cell.get("outputs", []))
    if path.name == "why_is_this_slow.ipynb":
        assert "item in the loop" in text and "Cell In[2], line 10" in text and "Timeline" in text
