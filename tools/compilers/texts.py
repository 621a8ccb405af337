"""The texts that `make test-compilers` compiles: those of all rows, of the models, and what is measured beside JAX."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import setup_libraries

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "compilers"
_CPP_TESTS = ROOT / "build/release/tests/cpp/torch_xla_tests"
_CASE = "// "  # before the name of a case, on the line before its module


def _empty(name: str) -> Path:
    """That folder, without the texts of earlier runs."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    return folder


def _run(command: Sequence, **environment: str) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT / "tools"), os.environ.get("PYTHONPATH")]))
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, **environment}, check=True)


def rows() -> dict[str, Path]:
    """The text of each case of tests/rows, by its line."""
    folder = _empty("rows")
    written = FOLDER / "rows.mlir"
    written.unlink(missing_ok=True)
    _run([_CPP_TESTS, "--gtest_brief=1", "--gtest_filter=RowTexts.*"], XLA_ROW_TEXTS=str(written))
    texts = {}
    for number, part in enumerate(written.read_text(encoding="utf-8").split("\n" + _CASE)):
        name, _, text = part.removeprefix(_CASE).partition("\n")
        texts[name] = folder / f"{number}.mlir"
        texts[name].write_text(text, encoding="utf-8")
    return texts


def programs(kind: str, names: Sequence[str]) -> dict[str, Path]:
    """The texts of programs.py of those names."""
    folder = _empty(kind)
    # The steps before those that are recorded run operation by operation: compiling them would take minutes.
    environment = {"PJRT_DEVICE": "CPU", "XLA_INTERPRETED_OPERATIONS": "1000000000"}
    _run([sys.executable, "-m", "compilers.programs", folder, *names], **environment)
    return {name: folder / f"{name}.mlir" for name in names}


def of_jax(ours: dict[str, Path]) -> dict[str, Path]:
    """JAX's texts of the same computations, at the precision that ours ask for. Empty where JAX cannot be had."""
    if not setup_libraries.is_ready("jax") and not setup_libraries.make("jax"):
        return {}
    folder = _empty("jax")
    _run([setup_libraries.find_python("jax"), "-m", "compilers.jax_programs", folder], JAX_PLATFORMS="cpu")
    found = {}
    for name, path in ours.items():
        highest = "precision HIGHEST" in path.read_text(encoding="utf-8")
        found[name] = folder / f"{name}{'.highest' if highest and name.endswith('float32') else ''}.mlir"
    return found
