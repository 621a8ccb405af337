"""What the pages refer to is there: files, headings, names in files, tests; pages are in an index, and easy to read."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

# A path of the tree in backquotes, or `path::name` for what is in it; <family>, FAMILY, * and {a,b} stand for names.
ROOTS = "src|torch_xla|tests|tools|bench|docs|examples|include|cmake"
PATH = re.compile(rf"(?<![\w./-])((?:{ROOTS})/[\w./*<>{{}},-]*[\w*>}}/])(?:::(\w+))?")


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def links_of(page: Path) -> list[str]:
    """Where a page's links go within the tree."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text)
    return [target for target in targets if not re.match(r"\w+://", target)]


def missing_paths(text: str) -> list[str]:
    """The paths in a text's backquotes that nothing in the tree fits, and names that their files lack."""
    missing = []
    for path, name in (found for span in re.findall(r"`([^`\n]+)`", text) for found in PATH.findall(span)):
        pattern = re.sub(r"<\w+>|\b[A-Z]{3,}\b", "*", path).rstrip("/")
        head, _, tail = pattern.partition("{")
        within, _, tail = tail.partition("}")
        for each in [head + choice + tail for choice in within.split(",")]:
            files = [*ROOT.glob(each), *(ROOT / "include").glob(each)]
            if not files or (name and not any(name in file.read_text(encoding="utf-8") for file in files)):
                missing.append(f"{each}::{name}" if name else each)
    return missing


@of_each_page
def test_links(page):
    for target in links_of(page):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in headings(file), target


@of_each_page
def test_names_of_tests(page):
    for name in re.findall(r"`(test_\w+\.py)`", page.read_text(encoding="utf-8")):
        assert list(ROOT.glob(f"tests/**/{name}")), name


@of_each_page
def test_paths(page):
    assert missing_paths(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text, missing",
    [
        ("`src/ops/<family>.cpp`, `src/core/{env,hash}.h`, `python tools/list_api.py --x`, `tests/rows/*.cases`", []),
        ("`src/ops/no_such_family.cpp`, [a](src/gone.h)", ["src/ops/no_such_family.cpp"]),
        ("`src/core/{env,gone}.h`", ["src/core/gone.h"]),
        ("`src/core/hash.h::Hash128`, `tools/list_api.py::page()`", []),
        ("`src/core/hash.h::NoSuchClass`, `tools/list_api.py::no_such_function()`", 2),
    ],
)
def test_paths_that_are_missing_are_found(text, missing):
    found = missing_paths(text)
    assert found == missing or len(found) == missing


def test_each_page_is_in_an_index():
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for index in (ROOT / "README.md", ROOT / "docs" / "README.md")
        for target in links_of(index)
    }
    assert [str(page) for page in PAGES if page not in linked and page.name != "README.md"] == []


# ---- Readability ----


def test_pages_are_easy_to_read():
    assert list(check_pages.all_problems()) == []


LONG = " ".join(["word"] * 36)


@pytest.mark.parametrize(
    "text, problem",
    [
        (f"{LONG}.", "a sentence of 36 words"),
        (f"- An item: {LONG}.", "a sentence of 38 words"),
        (f"| a cell | {LONG} |", "a sentence of 36 words"),
        (f"Short. {LONG} `one name` [a link](of/many/words.md).", "a sentence of 39 words"),
        ("The name of which the page says which one it is.", "a chain of relative clauses"),
        ("| a | b | c | d | e | f | g | h |\n|---|---|---|---|---|---|---|---|", "a table of 8 columns"),
    ],
)
def test_what_is_hard_to_read(text, problem):
    assert [what for _, what in check_pages.problems_of(text) if what.startswith(problem)]


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG[5:]}. A second sentence; and libgomp. starts a third.",
        f"```\n{LONG}\n```",
        f"# {LONG}",
        "Names: " + ", ".join(f"`name_{i}`" for i in range(50)) + ".",
        "| a | b | c | d | e | f | g |\n|---|---|---|---|---|---|---|",
    ],
)
def test_what_is_easy_to_read(text):
    assert list(check_pages.problems_of(text)) == []


@pytest.mark.parametrize(
    "text, problem",
    [
        ("# A page\n\nIt says something.", "the first line"),
        ("# A page\n\nFor users.\n" + "\nA line.\n" * 1500, "a page of "),
        ("# A page\n\nFor users. Written by `tools/no_such_program.py`.", "no program tools/no_such_program.py"),
    ],
)
def test_pages_as_a_whole(text, problem):
    assert [what for _, what in check_pages.problems_of_page(text) if what.startswith(problem)]


def test_a_page_that_a_program_writes_may_be_long():
    text = "# A page\n\nFor users. Written by `tools/list_api.py`.\n" + "\nA line.\n" * 1500
    assert list(check_pages.problems_of_page(text)) == []


def test_the_rows_of_the_readme_are_measured():
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in README.splitlines() if "|" in line]
    measured = (ROOT / "docs/performance.md").read_text(encoding="utf-8").split("## Intel")[0]
    steps = measured.split("### A step, recorded once")[0]
    found = [row for row in rows if len(row) == 5 and row[0] != "program" and not row[0].startswith("-")]
    assert len(found) == 4
    for row in found:
        assert f"| {' | '.join(row)} |" in re.sub(r" \|[^|\n]*\|$", " |", steps, flags=re.MULTILINE), row
