"""docs/vendors.md: the code of each step runs, with a plugin of the tests as the vendor's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "vendors.md").read_text(encoding="utf-8")
STEPS = {
    int(number): re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for number, text in re.findall(r"^## (\d+)\..*?\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
}


@pytest.fixture
def vendor(tmp_path, python_path):
    """Function that runs a program where the vendor's package of step 2 is installed, and returns what it printed."""
    library = ROOT / "build/release/tests/cpp/libfake_pjrt_plugin.so"
    if not Path(library).is_file():
        pytest.skip("the fake PJRT plugin is not built: run cmake --build --preset release-tests")
    (tmp_path / "vendor.py").write_text(STEPS[2][0])
    site = tmp_path / "vendor-1.dist-info"
    site.mkdir()
    entry_points = re.search(r"```toml\n\[project.entry-points.\"(.*?)\"\]\n(.*?)```", PAGE, re.DOTALL)
    (site / "entry_points.txt").write_text(f"[{entry_points[1]}]\n{entry_points[2].replace(chr(34), '')}")
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1\n")

    def run(source: str, **env) -> str:
        settings = {
            "PJRT_DEVICE": "VENDOR",
            "VENDOR_LIBRARY": str(library),
            "VENDOR_CACHE": str(tmp_path / "cache"),
            "XLA_PERSISTENT_CACHE_PATH": "",
            "PYTHONPATH": python_path(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, "-c", source], capture_output=True, text=True, env={**os.environ, **settings, **env}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_page_has_ten_steps():
    assert sorted(STEPS) == list(range(1, 11)) and all(STEPS.values())


# What each step prints, as far as a plugin has no part in it.
PRINTED = {
    1: r"torch.Size\(\[2, 3\]\) \w+\n",
    2: r"tensor\(\[.*\], device='xla:0'\)\n",
    3: r"tensor\(.*, device='xla:0'\) VendorPlugin\n",
    4: r"\w+ \d+\n\{'name': '\w+:0'.*\}\n",
    5: r"module .*stablehlo\.dot_general.*",
    6: "",
    7: "",
    8: r"tensor\(.*\)\n",
    9: r"tensor\(.*\)\n\['\w+\.o'\]\n",
    10: r"torch.Size\(\[4, 2\]\)\ntorch.Size\(\[6, 2\]\)\n",
}


@pytest.mark.parametrize("step", range(1, 11))
def test_step(vendor, step):
    env = {"PJRT_DEVICE": ""} if step in (1, 2) else {}
    assert re.fullmatch(PRINTED[step], vendor(STEPS[step][-1], **env), re.DOTALL)


# ---- Executables as files ----
COUNTED = (
    STEPS[9][0]
    + """
count = torch_xla._XLAC._xla_counter_value
print([count(name) or 0 for name in ("PersistentCacheHit", "PersistentCacheMiss", "UncachedCompile")])
"""
)


def test_plain_executables_are_found_again(vendor, tmp_path):
    first = vendor(COUNTED).splitlines()
    (file,) = [entry for entry in (tmp_path / "cache").iterdir() if entry.is_file()]
    executable = file.read_bytes()
    assert first[-2:] == [f"['{file.name}']", "[0, 1, 1]"]
    assert vendor(COUNTED).splitlines()[-2:] == [f"['{file.name}']", "[1, 0, 0]"]
    # Without the switch the program is another file's, and the plain one is no part of it.
    assert (
        vendor(COUNTED.replace('"XLA_PLAIN_EXECUTABLES"] = "1"', '"XLA_PLAIN_EXECUTABLES"] = "0"')).splitlines()[-1]
        == "[0, 1, 1]"
    )
    (program,) = [entry for entry in (tmp_path / "cache" / "programs").glob("*.o") if executable in entry.read_bytes()]
    assert program.read_bytes() != executable


@pytest.mark.parametrize("damage", ["deleted", "changed", "open"])
def test_a_plain_executable_that_cannot_be_used_is_written_again(vendor, tmp_path, damage):
    vendor(COUNTED)
    (file,) = [entry for entry in (tmp_path / "cache").iterdir() if entry.is_file()]
    executable = file.read_bytes()
    if damage == "deleted":
        file.unlink()
    elif damage == "changed":
        file.write_bytes(executable + b" ")
    else:
        file.chmod(0o666)  # others may write: it may be theirs
    assert vendor(COUNTED).splitlines()[-1] == "[0, 1, 1]"
    assert file.read_bytes() == executable and file.stat().st_mode & 0o777 == 0o600


# ---- Settings of torch.compile ----
SHAPES = """
import torch
import torch._dynamo
seen = []
def backend(graph, inputs):
    seen.append([tuple(v.shape) if isinstance(v, torch.Tensor) else type(v).__name__ for v in inputs])
    return graph
SET
f = torch.compile(lambda x, scale: x * scale, backend=backend)
torch.ones(1, device="xla")
for rows in (4, 6, 8):
    f(torch.ones(rows, device="xla"), rows / 2)
print(seen)
"""


def test_backends_get_fixed_shapes_and_no_floats(vendor):
    assert vendor(SHAPES.replace("SET", "")) == "[[(4,)], [(6,)], [(8,)]]\n"


def test_settings_of_the_program_go_before(vendor):
    own = "torch._dynamo.config.automatic_dynamic_shapes = True\ntorch._dynamo.config.specialize_float = False"
    seen = vendor(SHAPES.replace("SET", own))
    assert seen.startswith("[[(4,)") and "SymInt" in seen


def test_the_embedded_engine_changes_no_settings(run_python):
    source = "import torch, torch._dynamo, torch_xla; torch.ones(1, device='xla')\n"
    source += "print([getattr(torch._dynamo.config, n) for n in ('automatic_dynamic_shapes', 'specialize_float')])"
    assert run_python(source, timeout=600, PJRT_DEVICE="CPU") == "[True, False]\n"


# ---- Options of one device ----
OPTIONS = """
import ctypes, os, torch, torch_xla
from torch_xla._XLAC import _xla_counter_value as count
def run(device):
    before = count("UncachedCompile") or 0
    (torch.ones(3, device=device) + 1).cpu()
    return (count("UncachedCompile") or 0) - before
print(run("xla:0"), run("xla:1"))
torch_xla.set_custom_compile_options({"level": 2}, device="xla:1")
print(run("xla:0"), run("xla:1"))
torch_xla.set_custom_compile_options({"level": 1})  # before which the device's own goes
print(run("xla:0"), run("xla:1"))
torch_xla.set_custom_compile_options({}, device="xla:1")
print(run("xla:0"), run("xla:1"))
"""


def test_options_of_one_device(vendor):
    assert vendor(OPTIONS).splitlines() == ["1 1", "0 1", "1 0", "0 1"]
