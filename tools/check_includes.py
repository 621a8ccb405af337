#!/usr/bin/env python3
"""Checks that includes and imports point one way, who sees torch, LLVM and engines, and that files open in words.

A function of another folder is included, never declared again: such a declaration would be an include that nobody sees.

Prints each offender as file:line and exits with 1 if there is one.
"""

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A folder of src/ may include itself and what stands before it.
ORDER = [
    *"core ir ops passes stablehlo engine runtime".split(),
    *"trace program recording aten kernels replay".split(),
    *"device distributed cpp python".split(),
]

# An engine is seen through engine/engine.h: what stands above engine/ includes no header of one.
ENGINES = re.compile(r"engine/\w+/")

# Who may include headers of ATen, c10 and torch; LLVM; Python and pybind11.
TORCH_FOLDERS = ORDER[ORDER.index("trace") :]
TORCH_FILES = [
    "src/core/torch_release.h",
    *(f"src/engine/cpu/{each}" for each in ["few_rows/", "library/", "threads/team.", "program/cpu_executable.cpp"]),
]
TORCH_ALLOWED = re.compile(
    "|".join(map(re.escape, [*(f"src/{folder}/" for folder in TORCH_FOLDERS), *TORCH_FILES]))
    + "|(include|tests|bench|examples)/"
)
LLVM_ALLOWED = re.compile(r"src/engine/cpu/codegen/")
PYTHON_ALLOWED = re.compile(r"src/python/")

TORCH_HEADER = re.compile(r"(ATen|c10|torch|caffe2)/")
LLVM_HEADER = re.compile(r"llvm(-c)?/")
PYTHON_HEADER = re.compile(r"Python\.h|pybind11/|torch/csrc/utils/pybind\.h|torch/csrc/autograd/python_")
# Sixteen seconds and more to compile, for nothing that smaller headers do not give.
FORBIDDEN = {"torch/extension.h", "torch/torch.h", "torch/all.h"}

# A function's declaration at the outermost level, where clang-format indents nothing.
DECLARATION = re.compile(r"^(?!using |typedef |return )\w[\w:<>,&* ]*[ &*]\w+\([^;{}]*\)[^;{}()]*;", re.MULTILINE)
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')
CPP_SUFFIXES = {".cpp", ".h"}
SOURCE_FOLDERS = "include src tests torch_xla torch_xla_autoload torch_xla_py examples tools bench".split()
BUILT = ROOT / "torch_xla" / "include"


def source_files() -> Iterator[Path]:
    for folder in SOURCE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            is_built = "__pycache__" in path.parts or BUILT in path.parents
            if path.suffix in CPP_SUFFIXES | {".py"} and not is_built:
                yield path


def layer(name: str) -> int | None:
    """The position of an include's or a file's folder in ORDER, or None for what is no part of src/."""
    folder = name.split("/", 1)[0]
    return ORDER.index(folder) if "/" in name and folder in ORDER else None


def opening_problem(path: Path, lines: list[str]) -> str | None:
    code = [line for line in lines if line.strip() and not line.startswith("#!")]
    if not code:
        return None
    opens_well = ("//", "/*") if path.suffix in CPP_SUFFIXES else ('"""', "#", 'r"""')
    return None if code[0].startswith(opens_well) else "does not open with a comment that says what the file is for"


def include_problem(name: str, header: str) -> str | None:
    """What is wrong with the file `name` (relative to the root) including `header`, or None."""
    if header in FORBIDDEN and not name.startswith("examples/"):
        return f"{header} is forbidden: include the few headers that are needed"
    if PYTHON_HEADER.match(header):
        return None if PYTHON_ALLOWED.match(name) else f"{header}: only src/python sees Python"
    if TORCH_HEADER.match(header):
        may = ", ".join([*TORCH_FOLDERS, *TORCH_FILES])
        return None if TORCH_ALLOWED.match(name) else f"{header}: only {may} see torch"
    if LLVM_HEADER.match(header):
        return None if LLVM_ALLOWED.match(name) else f"{header}: only engine/cpu/codegen sees LLVM"
    own = layer(name.removeprefix("src/")) if name.startswith("src/") else None
    other = layer(header)
    if own is not None and other is not None and other > own:
        return f"{header}: {ORDER[own]} may not include {ORDER[other]}"
    if own is not None and own > ORDER.index("engine") and ENGINES.match(header):
        return f"{header}: only engine/ knows its engines, all else asks engine/engine.h"
    return None


def imported_names(path: Path) -> Iterator[str]:
    """What a file of the package imports by relative paths, within functions too, and the modules it takes it from."""
    package = path.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{name.name}" for name in node.names)


def import_circle() -> str | None:
    """A circle of the package's modules, each of which imports the next. Packages are in none."""
    files = [path for path in sorted((ROOT / "torch_xla").rglob("*.py")) if path.name != "__init__.py"]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    try:
        TopologicalSorter({module: modules.keys() & imported_names(path) for module, path in modules.items()}).prepare()
    except CycleError as error:
        return " imports ".join(reversed(error.args[1]))
    return None


def second_declarations(declared: dict[str, list[str]]) -> Iterator[str]:
    """What is declared in several folders of src/, given the places ("file:line") of each declaration."""
    for text, places in sorted(declared.items()):
        folders = {place.split("/")[1] for place in places}
        if len(folders) > 1:
            yield from (f"{place}: declared in {' and '.join(sorted(folders))}: {text}" for place in places)


def main() -> int:
    problems = []
    if circle := import_circle():
        problems.append(f"torch_xla: a circle of imports: {circle}")
    declared: dict[str, list[str]] = {}
    for path in source_files():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        if problem := opening_problem(path, lines):
            problems.append(f"{name}:1: {problem}")
        if path.suffix not in CPP_SUFFIXES:
            continue
        for number, line in enumerate(lines, start=1):
            if (match := INCLUDE.match(line)) and (problem := include_problem(name, match[1])):
                problems.append(f"{name}:{number}: {problem}")
        for match in DECLARATION.finditer(text) if name.startswith("src/") else ():
            line = text.count("\n", 0, match.start()) + 1
            declared.setdefault(" ".join(match[0].split()), []).append(f"{name}:{line}")
    problems += second_declarations(declared)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
