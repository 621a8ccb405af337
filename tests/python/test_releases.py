"""The releases of PyTorch: what the one at hand lacks, one that nobody knows, tools that compare and set them up."""

import re
import sys
import warnings
from pathlib import Path

import pytest
import torch

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla import _torch_release

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import compare_release
import made_up_release
import release_probe
import run_release_tests
import setup_release
import used_names

ROOT = Path(__file__).resolve().parents[2]
IS_MADE_UP = torch.__version__.startswith(made_up_release.VERSION)


def operators_of_some_releases() -> dict[str, str]:
    """The last release that has an operator, by the table of core/torch_release.h."""
    text = (ROOT / "src/core/torch_release.h").read_text(encoding="utf-8")
    return dict(re.findall(r'\{"(aten::[\w.]+)", "([\d.]+)"', text))


def test_the_operators_that_are_missing_are_those_of_the_table():
    """Where a new release takes one away, this says which; compare_release.py says what else is new."""
    last = operators_of_some_releases()
    assert len(last) >= 2
    gone = {name for name, release in last.items() if _torch_release.parse(release) < _torch_release.RELEASE}
    missing = torch_xla._XLAC._missing_operators()
    if IS_MADE_UP:
        old = made_up_release.OLD_NAME.decode()
        assert missing.pop(f"aten::{old}") is None
        assert missing.pop(f"aten::{old}.out", None) is None
        gone = set()  # but for that it is the release of its operators
    assert set(missing) == gone
    for name, (release, instead) in missing.items():
        assert release == last[name] and torch._C._dispatch_has_kernel(instead)


@pytest.mark.skipif(not IS_MADE_UP, reason="needs the made-up release: make test-release RELEASE=2.99.0")
def test_an_operator_that_nobody_knows_runs_on_the_cpu(device):
    x, alpha, total = (torch.rand(4, 3) + 0.1 for _ in range(3))
    name = made_up_release.NEW_NAME.decode()
    before = met.counter_value(f"aten::{name}") or 0
    result = getattr(torch.ops.aten, name)(x.to(device), alpha.to(device), total.to(device))
    assert torch.equal(result.cpu(), getattr(torch.ops.aten, name)(x, alpha, total))
    assert met.counter_value(f"aten::{name}") == before + 1


def test_a_release_that_nobody_knows_is_told_once():
    oldest, newest = (".".join(map(str, release)) for release in (_torch_release.OLDEST, _torch_release.NEWEST))
    for version in (f"{oldest}.0+cpu", f"{newest}.3+cu132", "2.14.1"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _torch_release.warn_of_unknown(version)
    for version in ("2.99.0+cpu", "2.16.0.dev20261130", "3.0.0"):
        with pytest.warns(UserWarning, match=rf"torch {re.escape(version)} is newer .*\({oldest} to {newest}\)"):
            _torch_release.warn_of_unknown(version)


def test_names_that_a_python_file_uses():
    source = """
import torch
import torch.distributed as dist
from torch import nn
from torch.utils import checkpoint as again

def change(module):
    module._check = module._old

def install():
    torch.Tensor.cpu = dist.Reducer.run
    setattr(torch._C, "_gather", nn.Linear)
    when_imported("torch.nn.attention.flex", change)
    return again.run(getattr(torch, "ones"), mine.torch.zeros)
"""
    used, patched = used_names.names_of_source(source)
    assert patched == {"torch.Tensor.cpu", "torch._C._gather", "torch.nn.attention.flex._check"}
    assert {"torch.distributed.Reducer.run", "torch.nn.Linear", "torch.nn.attention.flex._old"} <= used
    assert {"torch.utils.checkpoint.run", "torch.ones"} <= used
    assert not any("zeros" in name for name in used)


def test_names_that_a_cpp_file_uses():
    source = """
#include <ATen/ops/view_native.h>
namespace {
struct Hooks final : at::HooksInterface, Mine {
  bool isBuilt() const override {
    return c10::impl::State::get(true);
  }
  int own();
  void seed(int a, int b) override;
};
}
static const char* names[] = {"aten::add.Tensor", "qr"};
"""
    assert used_names.overridden_methods(source) == {"HooksInterface": {"isBuilt", "seed"}}
    assert used_names.operators_of_source(source) == {"view", "add.Tensor", "qr"}
    assert used_names.headers_of_source(source) == {"ATen/ops/view_native.h"}
    assert used_names.members_of_source(source) == {"State::get"}


HEADER = """
// struct Hooks { virtual int no(); };
struct Hooks;
struct TORCH_API C10_API2 Hooks : Base<int> {
  virtual ~Hooks() = default;
  virtual bool isBuilt( ) const { return false; }
  virtual void seed(
      int a, // the first
      int b = 2) = 0;
  virtual void seed(int a);
  int plain();
};
"""


def test_virtual_methods_of_a_header(tmp_path):
    (tmp_path / "hooks.h").write_text(HEADER)
    body = release_probe.bodies(tmp_path, {"Hooks", "Others"})
    assert list(body) == ["Hooks"]
    assert release_probe.virtual_methods(body["Hooks"]) == {
        "Hooks": "~Hooks() = default",
        "isBuilt": "bool isBuilt() const",
        "seed": "void seed(int, int = 2)",
        "seed (2)": "void seed(int)",
    }
    first = release_probe.headers(tmp_path, ["hooks.h", "gone.h"])
    assert first["gone.h"] is None
    (tmp_path / "hooks.h").write_text(HEADER.replace("the first", "a comment").replace("int plain();", ""))
    assert release_probe.headers(tmp_path, ["hooks.h"])["hooks.h"] != first["hooks.h"]


def test_what_a_python_name_means():
    described = release_probe.describe("torch.Tensor.__deepcopy__")
    assert described["signature"] == "(self, memo)" and described["source"]
    assert release_probe.describe("torch.utils.checkpoint")["kind"] == "module"
    assert release_probe.describe("torch.no_such_name") is None


def snapshot(**changes) -> dict:
    """What the probe tells of a small release."""
    base = {
        "schemas": {"aten::qr": "qr(Tensor self)", "aten::add.out": "add(Tensor a)", "aten::add_": "add_(Tensor grad)"},
        "keys": ["CPU"],
        "types": ["float"],
        "classes": {"Hooks": {"seed": "void seed(int a)"}},
        "members": ["State::get"],
        "headers": {"ATen/a.h": "1", "ATen/b_native.h": "2"},
        "names": {
            "torch.f": {"kind": "function", "signature": "(a)", "source": "1"},
            "torch.g": {"kind": "function", "signature": "(a)", "source": "1"},
            "torch.h": {"kind": "function", "signature": "(a)", "source": "1"},
        },
    }
    return {**base, **changes}


def test_what_changed_between_two_releases():
    used = used_names.Used(ROOT / "tests/no_such_folder")
    used.operators["add"].add("src/a.cpp")
    used.operators["qr"].add("src/b.cpp")
    used.methods["Hooks"]["seed"].add("src/c.cpp")
    used.members["State::get"].add("src/d.cpp")
    used.headers["ATen/a.h"].add("src/e.cpp")
    used.patched["torch.f"].add("f.py")
    used.names["torch.g"].add("g.py")
    new = snapshot(
        schemas={"aten::add.out": "add(Tensor b)", "aten::add_": "add_(Tensor grad_output)", "aten::polar": "polar()"},
        keys=["CPU", "XLA"],
        classes={"Hooks": {"seed": "void seed(int a, int b)"}},
        members=[],
        headers={"ATen/a.h": None, "ATen/b_native.h": "3"},
        names={
            "torch.f": {"kind": "function", "signature": "(a)", "source": "2"},
            "torch.g": {"kind": "function", "signature": "(a)", "source": "2"},
            "torch.h": {"kind": "function", "signature": "(a, b=1)", "source": "2"},
        },
    )
    changes = compare_release.compare(snapshot(), new, used)
    found = {(change.kind, change.name): (change.what, change.used) for change in changes}
    assert found == {
        ("gone", "aten::qr"): ("qr(Tensor self)", ("src/b.cpp",)),
        ("changed", "aten::add.out"): ("a -> b", ("src/a.cpp",)),
        ("changed", "aten::add_"): ("grad -> grad_output", ("src/a.cpp",)),
        ("new", "aten::polar"): ("polar()", ()),
        ("new", "XLA"): ("", ()),
        ("changed", "Hooks::seed"): ("nothing -> int b", ("src/c.cpp",)),
        ("gone", "State::get"): ("", ("src/d.cpp",)),
        ("gone", "ATen/a.h"): ("", ("src/e.cpp",)),
        ("changed", "ATen/b_native.h"): ("", ()),
        ("changed", "torch.f"): ("its code; we replace it", ("f.py",)),
        ("changed", "torch.h"): ("nothing -> b=1", ()),
    }
    assert not compare_release.compare(snapshot(), snapshot(), used)
    page = compare_release.page("2.1.0", "2.2.0", changes)
    assert "| gone | `aten::qr` | `qr(Tensor self)` | src/b.cpp |" in page
    assert "## Operators of ATen\n\n4 changes, 3 of what this tree names." in page


PAGES = sorted(ROOT.glob("docs/releases/*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_names_the_files_that_use_what_changed(page):
    """Else: tools/compare_release.py OLD NEW --page, with the two releases that the page names."""
    used = used_names.Used()
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:gone|changed|new) \| `([^`]+)` \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    assert len(rows) > 10
    for name, files in rows:
        if name.startswith("aten::"):
            expected = {file for form in compare_release.operator_forms(name) for file in used.operators.get(form, ())}
        elif name.startswith("torch."):
            expected = used.names.get(name, set()) | used.patched.get(name, set())
        else:
            continue
        assert sorted(expected) == [file for file in files.split(", ") if file], name


def test_an_operator_is_renamed_where_its_name_stands_alone():
    old, new = made_up_release.OLD_NAME, made_up_release.NEW_NAME
    binary = b"\0%b(Tensor x)\0aten::%b\0%b.out(\0my%b\0%bs(\0%b_backward\0" % ((old,) * 6)
    renamed, number = made_up_release.rename_operator(binary)
    assert number == 3
    assert renamed == b"\0%b(Tensor x)\0aten::%b\0%b.out(\0my%b\0%bs(\0%b_backward\0" % ((new,) * 3 + (old,) * 3)


def test_a_release_that_is_not_what_it_is_taken_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(setup_release, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["setup_release.py", f"2.12.0={sys.executable}"])
    assert setup_release.main() == setup_release.UNAVAILABLE
    installed = torch.__version__.split("+")[0]
    assert f"torch 2.12.0 cannot be had: {sys.executable} has torch {installed}" in capsys.readouterr().err


def test_a_release_that_is_installed_is_linked(tmp_path, monkeypatch):
    for file in ("pyproject.toml", "torch_xla/version.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text((ROOT / file).read_text(encoding="utf-8"))
    monkeypatch.setattr(setup_release, "ROOT", tmp_path)
    installed = torch.__version__.split("+")[0]
    monkeypatch.setattr(sys, "argv", ["setup_release.py", installed])
    assert setup_release.main() == 0
    folder = tmp_path / "build/releases" / installed
    assert (folder / "venv/bin/python").samefile(sys.executable)
    entry = next(folder.glob("path/torch_xla-*.dist-info/entry_points.txt")).read_text()
    assert re.fullmatch(r"\[torch\.backends\]\ntorch_xla = [\w.:]+\n", entry)


def test_the_table_of_a_run_over_releases():
    assert (
        run_release_tests.summary("...\n= 2 failed, 70 passed, 1 skipped in 3.1s =") == "2 failed, 70 passed, 1 skipped"
    )
    assert (
        run_release_tests.summary("[  PASSED  ] 12 tests.\n[  FAILED  ] 1 test, listed below:") == "12 passed, 1 failed"
    )
    assert run_release_tests.summary("") == "no summary"
    outcome = run_release_tests.Outcome("2.14.1")
    outcome.add("build", 0, "done", 120)
    assert outcome.is_sound
    outcome.add("Python tests", 1, "2 failed", 60)
    assert not outcome.is_sound
    assert "2.14.1     build: done (2 min), Python tests: 2 failed (1 min)" in run_release_tests.table([outcome])


def test_releases_that_cannot_be_had_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(setup_release, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run_release_tests.py", f"2.12.0={sys.executable}"])
    assert run_release_tests.main() == setup_release.UNAVAILABLE
    assert re.search(r"^2\.12\.0 +cannot be had: .* has torch ", capsys.readouterr().out, re.MULTILINE)
