"""Environment variables: one parser, clear errors, and a page that lists them all."""

import re
from pathlib import Path

import pytest

import torch_xla

ROOT = Path(__file__).resolve().parents[2]
USE = """
import torch, torch_xla
def use():
    x = torch.ones(2, device="xla", requires_grad=True)
    (x * 2).sum().backward()
    torch.optim.SGD([x], lr=1.0).step()
    torch_xla.sync()
    print(x.tolist())
for _ in range(2):  # the second try tells the same
    try:
        use()
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])
print((torch.ones(2) + 1).tolist())
"""
SWITCH = "it can be 1, true, yes or on, or 0, false, no or off"


@pytest.mark.parametrize(
    "variable, value, allowed",
    [
        ("XLA_LAZY", "maybe", SWITCH),
        ("XLA_AUTO_SYNC", "offf", SWITCH),
        ("XLA_DEBUG", "abc", "it can be a whole number from 0 to 5"),
        ("XLA_COMPILATION_CACHE_SIZE", "0", "it can be a whole number from 1 to 1048576"),
    ],
)
def test_first_use_tells_what_is_not_understood(run_python, variable, value, allowed):
    first, second, last = run_python(USE, **{variable: value}).splitlines()
    assert first == second == f"ValueError: the environment variable {variable}={value} is not understood; {allowed}"
    assert last == "[2.0, 2.0]"  # the CPU is not concerned


@pytest.mark.parametrize("value", ["2", "-1", "truee", "yes no", " 1"])
def test_what_is_no_switch(monkeypatch, value):
    monkeypatch.setenv("XLA_SYNC_WAIT", value)
    with pytest.raises(ValueError, match=f"XLA_SYNC_WAIT={value} is not understood; {SWITCH}"):
        torch_xla.sync()


@pytest.mark.parametrize("value", ["0", "1.5", "-0.5", "x", "0.5x", "nan", "inf"])
def test_what_is_no_share(monkeypatch, value):
    monkeypatch.setenv("XLA_TEST_SHARE", value)
    with pytest.raises(
        ValueError, match=f"XLA_TEST_SHARE={value} is not understood; it can be a number over 0, at most 1"
    ):
        torch_xla._XLAC._env_share("XLA_TEST_SHARE", 1.0)


def test_debug_file_that_cannot_be_written(run_python, tmp_path):
    path = tmp_path / "none/debug.txt"
    first, second, _ = run_python(USE, XLA_DEBUG="1", XLA_DEBUG_FILE=str(path)).splitlines()
    assert first == second and first.startswith("ValueError: the file that XLA_DEBUG_FILE names")
    assert str(path) in first and "No such file" in first


@pytest.mark.parametrize("words, on", [("TRUE yes on 1", True), ("False NO off 0", False)])
def test_words_of_a_switch(run_python, words, on):
    values = dict(zip(["XLA_LAZY", "XLA_FUSION", "XLA_AUTO_SYNC", "XLA_TEST_WORD"], words.split(), strict=True))
    source = """
        import torch_xla
        from torch_xla.utils import utils as xu
        print(torch_xla._XLAC._lazy(), torch_xla._XLAC._fusion(), torch_xla.auto_sync())
        print(xu.getenv_as("XLA_TEST_WORD", bool))
    """
    assert run_python(source, **values).split() == [str(on)] * 4


def test_empty_is_not_set(run_python):
    empty = dict.fromkeys(
        ["XLA_LAZY", "XLA_FUSION", "XLA_AUTO_SYNC", "XLA_DEBUG", "XLA_DEBUG_FILE", "XLA_SYNC_WAIT"], ""
    )
    assert run_python(USE, **empty).splitlines() == ["[-1.0, -1.0]"] * 2 + ["[2.0, 2.0]"]


def _sources() -> dict[str, str]:
    files = [*ROOT.glob("src/**/*.cpp"), *ROOT.glob("src/**/*.h"), *ROOT.glob("torch_xla/**/*.py")]
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def test_all_variables_are_read_by_the_parser():
    sources = _sources()
    assert [name for name, text in sources.items() if "getenv(" in text] == ["src/core/env.cpp"]
    reads = re.compile(r"os\.getenv|os\.environ(?!\[[^]]+\] = )")
    assert [name for name, text in sources.items() if reads.search(text)] == ["torch_xla/utils/utils.py"]


def test_page_lists_all_variables():
    read = re.compile(r'(?:\b(?:find|text|flag|integer|share)|_env_(?:text|flag|share))\("([A-Z][A-Z_]+)"')
    used = {name for text in _sources().values() for name in read.findall(text)}
    rows = set(re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs/environment.md").read_text(), re.MULTILINE))
    assert rows == used - {"HOME"}
