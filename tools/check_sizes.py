#!/usr/bin/env python3
"""Checks that no source file, function or folder of the package and the tools is too large to be read in one go.

Prints each offender as file:line and exits with 1 if there is one.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["src", "torch_xla", "tools"]
FILE_LINES = 350
FUNCTION_LINES = 50
FOLDER_FILES = 40

# In C++: what may hold braces that are none, lines of the preprocessor, and macros that go over several of them.
LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)+[^\n]*", re.MULTILINE)


def python_functions(text: str) -> Iterator[tuple[int, int]]:
    """The first and the last line of each function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def blank(match: re.Match[str]) -> str:
    """As many lines of nothing."""
    return "\n" * match[0].count("\n")


def cpp_functions(text: str) -> Iterator[tuple[int, int]]:
    """The first and the last line of each macro, function and lambda: of each block behind parentheses or brackets."""
    for match in MACRO.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        yield first, first + match[0].count("\n")
    code = DIRECTIVE.sub(blank, LITERAL.sub(blank, text))
    line = 1
    head, head_line = "", 0  # what stands since the last statement, and where it begins
    blocks: list[tuple[str, int, int]] = []  # those that are open: head, its line, the line of the brace
    for at, char in enumerate(code):
        line += char == "\n"
        if char == "{":
            blocks.append((head, head_line, line))
        elif char == "}" and blocks:
            opened, first, brace = blocks.pop()
            opened = opened.rstrip()
            if opened.endswith("]") or (")" in opened and not opened.endswith("=")):
                yield first, line
            if brace == line and re.match(r"\s*[,{]", code[at + 1 :]):  # a member's value, before a constructor's body
                head, head_line = opened, first
                continue
        if char in ";{}":
            head = ""
        elif head or not char.isspace():
            head_line = head_line if head else line
            head += char


def problems_of(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield 1, f"the file has {lines} lines, more than {FILE_LINES}"
    functions = python_functions if path.suffix == ".py" else cpp_functions
    for first, last in functions(text):
        if last - first >= FUNCTION_LINES:
            yield first, f"the function has {last - first + 1} lines, more than {FUNCTION_LINES}"


def crowded(files: Iterable[Path]) -> Iterator[str]:
    """A line for each folder with too many of the files."""
    for folder, count in Counter(path.parent for path in files).items():
        if count > FOLDER_FILES:
            yield f"{folder}: {count} files, more than {FOLDER_FILES}"


def main() -> int:
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    sources = [path.relative_to(ROOT) for path in paths if path.suffix in {".cpp", ".h", ".py"}]
    problems = [f"{path}:{line}: {problem}" for path in sources for line, problem in problems_of(ROOT / path)]
    problems += crowded(path for path in sources if path.parts[0] == "src")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
