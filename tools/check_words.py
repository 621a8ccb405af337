#!/usr/bin/env python3
"""Checks pages, Python files and C++ files for words that make a reader read a sentence twice.

Prints each as file:line with what to write and exits with 1 if there is one.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = [
    *("*.md", "docs/**/*.md", "include/**/*.h"),
    *(f"{folder}/**/*.py" for folder in ("torch_xla", "tools", "bench", "examples")),
    *("src/**/*.h", "src/**/*.cpp"),
]
WORDS = {
    r"anew": "again",
    r"likewise": "the same, as a sentence of its own",
    r"so that what": "the noun that is meant",
    r"(?:is|are|was|were|be|been) told": "who learns it, gets it or raises it",
    r"whoever": "the thread, process or user that is meant",
    r"for want of": "for lack of",
    r"to be had": "what is available, or what failed",
    r"in vain": "without effect",
    r"push(?:ed|es|ing)? (?:\w+ ){0,3}aside": "preempt",
    r"what (?:it|they) ha(?:s|ve|d)(?=[,.;:)])": "the noun that is meant",
    r"whatever (?:it|they) (?:is|are|ha(?:s|ve))": "for any, and the noun",
    r"beside which": "two sentences",
}
# Words may stand on two lines of a text or of a comment.
GAP = r"\s+(?:(?://|#)\s+)?"
PATTERN = re.compile(
    "|".join(rf"(?P<w{i}>\b{word.replace(' ', GAP)}\b)" for i, word in enumerate(WORDS)), re.IGNORECASE
)


def problems_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines with such a word, each with what to write."""
    for match in PATTERN.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield line, f'"{re.sub(GAP, " ", match[0])}": write {list(WORDS.values())[int(match.lastgroup[1:])]}'


def main() -> int:
    """Looks at all pages and files."""
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
