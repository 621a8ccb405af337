"""The texts that `make test-compilers` compiles: those of all rows, of the models, and what is measured beside JAX."""

import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import setup_libraries

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "compilers"
_BUILT = ROOT / "build/release/tests/cpp"
_CPP_TESTS = _BUILT / "torch_xla_tests"
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


@functools.cache
def rows(platform: str) -> dict[str, Path]:
    """The text of each case of tests/rows for a platform, by its line."""
    folder = _empty(f"rows-{platform}")
    written = FOLDER / "rows.mlir"
    written.unlink(missing_ok=True)
    command = [_CPP_TESTS, "--gtest_brief=1", "--gtest_filter=RowTexts.*"]
    _run(command, XLA_ROW_TEXTS=str(written), XLA_ROW_PLATFORM=platform)
    texts = {}
    for number, part in enumerate(written.read_text(encoding="utf-8").split("\n" + _CASE)):
        name, _, text = part.removeprefix(_CASE).partition("\n")
        texts[name] = folder / f"{number}.mlir"
        texts[name].write_text(text, encoding="utf-8")
    return texts


@functools.cache
def programs(kind: str, platform: str, names: tuple[str, ...]) -> dict[str, Path]:
    """The texts of programs.py of those names for a platform."""
    folder = _empty(f"{kind}-{platform}")
    environment = {  # a compile-only device of that platform that compiles nothing
        "PJRT_DEVICE": "LIBRARY",
        "PJRT_LIBRARY_PATH": str(_BUILT / "libfake_pjrt_plugin.so"),
        "XLA_COMPILE_ONLY": "1",
        "FAKE_PJRT_PLATFORM": platform,
        "XLA_PERSISTENT_CACHE_PATH": "",
    }
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
