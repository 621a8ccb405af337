"""What the pages refer to is there: files, headings, names in files, tests; each page is found from an index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
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
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"\w+://", target)]


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
