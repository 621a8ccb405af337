"""Environment variables: one table, one parser, clear errors, and a page that lists them all."""

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torch_xla
from torch_xla.core import xla_env_vars

ROOT = Path(__file__).resolve().parents[2]
table = torch_xla._XLAC._env_variables
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
SHARE = "PJRT_ALLOCATOR_FRACTION"
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
    monkeypatch.setenv(SHARE, value)
    with pytest.raises(ValueError, match=f"{SHARE}={value} is not understood; it can be a number over 0, at most 1"):
        torch_xla._XLAC._env_share(SHARE)


def test_debug_file_that_cannot_be_written(run_python, tmp_path):
    path = tmp_path / "none/debug.txt"
    first, second, _ = run_python(USE, XLA_DEBUG="1", XLA_DEBUG_FILE=str(path)).splitlines()
    assert first == second and first.startswith("ValueError: the file that XLA_DEBUG_FILE names")
    assert str(path) in first and "No such file" in first


PLACES = """
import os
os.chdir(START)
import torch, torch_xla  # where relative paths are seen from
os.chdir("/")
(torch.ones(3, device="xla").sin() * 2).sum().item()
torch_xla.sync()
"""
LOGS = {"XLA_DEBUG_FILE": "debug", "PT_XLA_DEBUG_FILE": "analysis", "XLA_SAVE_TENSORS_FILE": "graphs"}
LEVELS = {"XLA_DEBUG": "1", "PT_XLA_DEBUG_LEVEL": "2"}


@pytest.mark.parametrize("before", ["", "~/", "~USER/"])
def test_paths_from_home_and_from_the_start_of_the_process(run_python, tmp_path, before):
    home, start = tmp_path / "home", tmp_path / "start"
    home.mkdir(), start.mkdir()
    names = {**LOGS, "XLA_METRICS_FILE": "metrics", "XLA_PERSISTENT_CACHE_PATH": "cache/deep"}
    if before == "~USER/":
        user = pwd.getpwuid(os.getuid())
        before, folder = f"~{user.pw_name}/", Path(os.path.relpath(tmp_path, user.pw_dir))
        names = {variable: f"{folder}/home/{name}" for variable, name in names.items()}
    paths = {variable: before + name for variable, name in names.items()}
    run_python(PLACES.replace("START", repr(str(start))), HOME=str(home), **LEVELS, **paths)
    written = {path.name for path in (home if before else start).iterdir()}
    assert written - {".cache"} == {"debug", "analysis", "graphs.0", "metrics", "cache"}
    assert not before or list(start.iterdir()) == []


def test_initialize_cache_takes_a_home_and_a_path_from_here(monkeypatch, tmp_path):
    import torch_xla.runtime as xr

    before = [os.environ.get(name) for name in ("XLA_PERSISTENT_CACHE_PATH", "XLA_PERSISTENT_CACHE_READ_ONLY")]
    monkeypatch.setenv("XLA_PERSISTENT_CACHE_PATH", before[0] or "")
    monkeypatch.setenv("XLA_PERSISTENT_CACHE_READ_ONLY", before[1] or "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    try:
        for path, expected in [
            ("~/a", tmp_path / "a"),
            ("b", tmp_path / "b"),
            (tmp_path / "c", tmp_path / "c"),
            ("", ""),
        ]:
            xr.initialize_cache(path)
            assert os.environ["XLA_PERSISTENT_CACHE_PATH"] == str(expected)
    finally:
        monkeypatch.undo()
        torch_xla._XLAC._reopen_caches()


def test_a_full_disk_ends_no_program(run_python, tmp_path):
    for name in LOGS.values():
        (tmp_path / name).symlink_to("/dev/full")
    (tmp_path / "graphs.0").symlink_to("/dev/full")
    source = """
        import torch, torch_xla
        for number in range(3):
            x = torch.ones(3 + number, device="xla") + 1
            torch_xla.sync()
        print(x.tolist())
    """
    files = {variable: str(tmp_path / name) for variable, name in LOGS.items()}
    out = run_python(source, XLA_METRICS_FILE="/dev/full", **LEVELS, **files)
    assert "[2.0, 2.0, 2.0, 2.0, 2.0]" in out
    for variable in (*LOGS, "XLA_METRICS_FILE"):
        assert out.count(f"that {variable} names" if variable in LOGS else f"written to {variable}") == 1, out
    assert out.count("No space left on device") == 4


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


# ---- The table ----
def test_the_table_is_printed_with_what_is_set(tmp_path):
    values = {"XLA_DEBUG": "3", "XLA_LAZY": "maybe", "XLA_SYNC_WAIT": "", "XLA_RUN_SECRET": "swordfish"}
    run = [sys.executable, "-m", "torch_xla.env"]
    out = subprocess.run(
        run, env={**os.environ, **values}, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    blocks = {re.match(r"\w+", block)[0]: block.splitlines() for block in out.split("\n\n")}
    assert blocks["XLA_DEBUG"] == [
        "XLA_DEBUG=3",
        "    each level prints more",
        "    a whole number from 0 to 5; default: 0",
        "    read by src/core/env.cpp",
    ]
    assert blocks["XLA_LAZY"][-1] == (f"    ERROR: the environment variable XLA_LAZY=maybe is not understood; {SWITCH}")
    assert blocks["XLA_SYNC_WAIT"][0] == "XLA_SYNC_WAIT=" and len(blocks["XLA_SYNC_WAIT"]) == 4
    assert blocks["XLA_DEBUG_FILE"][0] == "XLA_DEBUG_FILE"
    assert blocks["XLA_RUN_SECRET"][0] == "XLA_RUN_SECRET=(not shown)" and "swordfish" not in out
    assert blocks.keys() > {row["name"] for row in table()}


def test_each_default_is_understood(monkeypatch):
    for row in table():
        if not row["default"].startswith(("XLA's", "on in debug builds")):  # no text of the variable
            monkeypatch.setenv(row["name"], row["default"])
    assert [row["problem"] for row in table() if row["problem"]] == []


def test_what_the_original_had_is_read_or_listed_as_ignored():
    names = {value for name, value in vars(xla_env_vars).items() if name.isupper()}
    ignored = torch_xla._XLAC._env_ignored()
    assert names <= {row["name"] for row in table()} | ignored.keys()
    assert not {row["name"] for row in table()} & ignored.keys()
    assert {"XLA_IR_DEBUG", "XLA_HLO_DEBUG", "XRT_TPU_CONFIG", "TF_CPP_MIN_LOG_LEVEL"} <= ignored.keys()


def test_variables_of_the_original_change_nothing(run_python):
    assert run_python(USE, **dict.fromkeys(torch_xla._XLAC._env_ignored(), "1")) == run_python(USE)


@pytest.mark.parametrize("name, stored", [("XLA_USE_BF16", "bf16"), ("XLA_DOWNCAST_BF16", "bf16")])
def test_variables_of_the_original_that_are_honoured(run_python, name, stored):
    source = """
        import torch, torch_xla
        x = torch.ones(2, device="xla")
        print(torch_xla._XLAC._get_xla_tensor_shape_type(x), x.dtype)
    """
    assert run_python(source, **{name: "1", "XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}).split() == [
        stored,
        "torch.float32",
    ]
    assert run_python(source).split() == ["f32", "torch.float32"]


def test_the_page_says_what_the_table_says():
    page = (ROOT / "docs/environment.md").read_text()
    rows = [
        f"| `{row['name']}` | {row['accepts']} | {row['default']} | {row['purpose']} | {code(row['readers'])} |"
        for row in table()
    ]
    assert [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 6] == rows
    ignored = (ROOT / "docs/ignored_variables.md").read_text()
    for name, why in torch_xla._XLAC._env_ignored().items():
        assert any(f"`{name}`" in line and line.endswith(f"| {why} |") for line in ignored.splitlines()), name


def code(readers: str) -> str:
    return ", ".join(f"`{file}`" for file in readers.split(", "))


def _sources() -> dict[str, str]:
    files = [*ROOT.glob("src/**/*.cpp"), *ROOT.glob("src/**/*.h"), *ROOT.glob("torch_xla/**/*.py")]
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def test_all_variables_are_read_by_the_parser():
    sources = _sources()
    assert [name for name, text in sources.items() if "getenv(" in text] == ["src/core/env.cpp"]
    reads = re.compile(r"os\.getenv|os\.environ(?!\[[^]]+\] = )")
    assert [name for name, text in sources.items() if reads.search(text)] == ["torch_xla/utils/utils.py"]


def test_all_that_is_read_is_in_the_table_with_its_readers():
    read = re.compile(r'(?:\bvariable|\b_env_(?:text|flag|share|integer|is_set))\(\s*"([^"]+)"')
    uses = sorted({(name, file) for file, text in _sources().items() for name in read.findall(text)})
    assert uses == sorted((row["name"], file) for row in table() for file in row["readers"].split(", "))


def test_a_name_without_a_row_is_no_variable():
    with pytest.raises(RuntimeError, match="XLA_NOTHING has no row"):
        torch_xla._XLAC._env_text("XLA_NOTHING")
