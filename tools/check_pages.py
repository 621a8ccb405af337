#!/usr/bin/env python3
"""Checks that README and docs are easy to read: sentences, tables, the length of a page, its first line.

Prints each problem as file:line with what to do and exits with 1 if there is one. CONTRIBUTING.md lists the rules.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "examples/**/*.md"]
WORDS = 35  # of a sentence
COLUMNS = 7  # of a table
BYTES = 12 * 1024  # of a page that no program writes

# A page that a program writes says so: "Written by `tools/list_api.py`".
WRITTEN = re.compile(r"[Ww]ritten by\s+`(?:python )?([\w/.-]+\.py)")
# Two of these in a sentence are a chain that the reader has to unwind.
CHAIN = re.compile(r"\b(?:(?:of|in|to|from|for|with|by|on|at) wh(?:ich|om|at)|whose|which|what (?:is|are|it|they))\b")
ENDS = re.compile(r"(?<=[.!?])[\"')*]*\s+")


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items of lists and cells of tables, each with its first line. Code and headings are left out."""
    paragraph, first, is_code = [], 0, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_code = is_code != is_fence
        plain = line.strip()
        ends = is_fence or is_code or not plain or plain[0] in "#|<" or re.match(r"[-*] |\d+\. ", plain)
        if ends and paragraph:
            yield first, " ".join(paragraph)
            paragraph = []
        if is_fence or is_code or not plain or plain[0] in "#<":
            continue
        if plain[0] == "|":
            yield from ((number, cell.strip()) for cell in cells(plain))
            continue
        first = first if paragraph else number
        paragraph.append(re.sub(r"^(?:[-*]|\d+\.) ", "", plain))


def cells(row: str) -> list[str]:
    """The cells of a line of a table."""
    return re.split(r"(?<!\\)\|", row.strip().strip("|"))


def sentences(block: str) -> list[str]:
    """The sentences of a block. A link is its text; code is one word, and so is a list of names."""
    block = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]+`", "`code`", block))
    block = re.sub(r"`code`(?:,? (?:and |or )?`code`)+", "`code`", block)
    return ENDS.split(block)


def problems_of(text: str) -> Iterator[tuple[int, str]]:
    """Sentences and tables that are hard to read, each with what to do."""
    for line, block in blocks(text):
        for sentence in sentences(block):
            words = len(re.findall(r"\S*\w\S*", sentence))
            if words > WORDS:
                yield line, f"a sentence of {words} words, {WORDS} are allowed: {sentence[:60]}..."
            if len(CHAIN.findall(sentence)) > 1:
                yield line, f"a chain of relative clauses, write two sentences: {sentence[:60]}..."
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\|[ :|-]+\|$", line) and len(cells(line)) > COLUMNS:
            yield number, f"a table of {len(cells(line))} columns, {COLUMNS} are allowed: split it"


def problems_of_page(text: str) -> Iterator[tuple[int, str]]:
    """The same, and those of the page as a whole: its length, its first line."""
    yield from problems_of(text)
    written = WRITTEN.search(text)
    if written and not (ROOT / written[1]).exists():
        yield 1, f"no program {written[1]} writes it"
    if not written and len(text.encode()) > BYTES:
        yield 1, f"a page of {len(text.encode())} bytes, {BYTES} are allowed: split it"
    first = next((block for _, block in blocks(text)), "")
    if not first.startswith("For "):
        yield 1, 'the first line says whom the page is for: "For users who ..."'


def all_problems() -> Iterator[str]:
    """Those of all pages, as file:line with what to do. Pages at the top need no line of readers."""
    for path in sorted({path for place in PLACES for path in ROOT.glob(place)}):
        text = path.read_text(encoding="utf-8")
        found = problems_of(text) if path.parent == ROOT else problems_of_page(text)
        yield from (f"{path.relative_to(ROOT)}:{line}: {problem}" for line, problem in found)


def main() -> int:
    """Looks at all pages."""
    problems = list(all_problems())
    print("\n".join(problems), end="\n" * bool(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
