"""bench/glance.py: its page is that of the measured pages, and a figure of each is on it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))  # last, as both folders have a replicas.py

import glance


def test_the_page_is_up_to_date():
    assert glance.PAGE.read_text(encoding="utf-8") == glance.page(), "run bench/glance.py"


def test_a_table_below_its_heading():
    text = "\n### A\n\n| n | x |\n|---|---|\n| a | 1 |\n\n### B\n\n| n | x |\n|---|---|\n| a | 2 |\n| b |  |\n"
    assert glance.read_table(text, "### A") == {"a": {"n": "a", "x": "1"}}
    assert glance.read_table(text, "### B") == {"a": {"n": "a", "x": "2"}, "b": {"n": "b", "x": ""}}


def test_the_bad_cases_are_all_that_is_lost():
    found = [float(ratio) for _, _, ratio in glance.bad_cases()]
    assert (
        found == sorted(found, reverse=True)
        and min(found) > glance.BAD
        and len(found) == len(set(map(tuple, glance.bad_cases())))
    )
    assert [glance.is_bad(cell) for cell in ("1.05", "1.06", "0.9", "", "64.00")] == [False, True, False, False, True]


def test_a_picture(tmp_path):
    glance.draw_bars(tmp_path / "bars.svg", ["a", "b"], {"eager": [0.5, 64.0], "jax": [None, 1.0]})
    assert "<svg" in (tmp_path / "bars.svg").read_text(encoding="utf-8")
