#!/usr/bin/env python3
"""Checks the pages and Python texts for words that make a reader read a sentence twice.

Prints each as file:line with what to write and exits with 1 if there is one.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ["*.md", "docs/**/*.md", *(f"{folder}/**/*.py" for folder in ("torch_xla", "tools", "bench", "examples"))]
WORDS = {
    r"anew": "again",
    r"likewise": "the same, as a sentence of its own",
    r"so that what": "the noun that is meant",
    r"(?:is|are|was|were|be|been) told": "who learns it, gets it or raises it",
}
PATTERN = re.compile("|".join(rf"(?P<w{i}>\b{word}\b)" for i, word in enumerate(WORDS)), re.IGNORECASE)


def problems_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines with such a word, each with what to write. A word may go over the end of a line."""
    for match in PATTERN.finditer(re.sub(r"\s", " ", text)):
        line = text.count("\n", 0, match.start()) + 1
        yield line, f'"{match[0]}": write {list(WORDS.values())[int(match.lastgroup[1:])]}'


def main() -> int:
    """Looks at all pages and Python files."""
    paths = sorted({path for place in PLACES for path in ROOT.glob(place)} - {Path(__file__).resolve()})
    problems = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path in paths
        for line, problem in problems_of(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(problems), end="\n" * bool(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
