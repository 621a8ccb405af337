#!/usr/bin/env python3
"""Checks that no source file and no function of the package and the tools is too long to be read in one go.

Prints each offender as file:line and exits with 1 if there is one.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["src", "torch_xla", "tools"]
FILE_LINES = 350
FUNCTION_LINES = 50


def python_functions(text: str) -> Iterator[tuple[int, int]]:
    """The first and the last line of each function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def cpp_functions(text: str) -> Iterator[tuple[int, int]]:
    """The first and the last line of each block that clang-format lets end in a brace alone at column 0 or 2."""
    starts: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        column = len(line) - len(line.lstrip())
        if line.strip() == "}" and column in starts:
            yield starts[column], number
        elif line.strip():
            starts[column] = number


def problems_of(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield 1, f"the file has {lines} lines, more than {FILE_LINES}"
    functions = python_functions if path.suffix == ".py" else cpp_functions
    for first, last in functions(text):
        if last - first >= FUNCTION_LINES:
            yield first, f"the function has {last - first + 1} lines, more than {FUNCTION_LINES}"


def main() -> int:
    found = 0
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")):
        if path.suffix in {".cpp", ".h", ".py"}:
            for line, problem in problems_of(path):
                print(f"{path.relative_to(ROOT)}:{line}: {problem}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
