"""tools/run_pytorch_tests.py: what its page says of tests that pass, fail, skip, are excluded, crash or hang."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tomllib", reason="the tool needs Python 3.11")
TOOL = Path(__file__).resolve().parents[2] / "tools" / "run_pytorch_tests.py"

LIST = """
title = "A few tests"
about = "They show each outcome."
page = "docs/unused.md"
only = ["*PRIVATEUSE1.*", "*XLA.*"]

[environment]
PYTORCH_TESTING_DEVICE_ONLY_FOR = "xla"

[[exclude]]
tests = "*cuda_graph*"
reason = "CUDA only"

[files."test_outcomes.py"]
environment = { OUTCOMES_FILE = "{temporary}/outcomes" }

[files."nn/test_deaths.py"]
exclude = [{ tests = "TestDeathsPRIVATEUSE1.test_fork_*", reason = "a child | of a device" }]

[files."test_broken.py"]

[files."test_absent.py"]

[files."test_program.py"]
program = true
hardware = "TPU"
environment = { CPU_NUM_DEVICES = "2" }
only = "*"

[files."test_failing_program.py"]
program = true
only = "*"

[files."test_torchrun.py"]
program = true
torchrun = 2
only = "*"

[files."test_asks.py"]
absent = ["torch_xla._XLAC._a_name_that_is_not_there"]
only = "*"
"""

HEAD = """
import os, signal, time, unittest
import torch, torch_xla
from torch.testing._internal.common_device_type import (
    dtypes, expectedFailureXLA, instantiate_device_type_tests, skipXLA, skipXLAIf
)
from torch.testing._internal.common_utils import TestCase, run_tests
"""

TAIL = """
instantiate_device_type_tests({name}, globals())

if __name__ == "__main__":
    run_tests()
"""

OUTCOMES = """
class TestOutcomes(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_add(self, device, dtype):
        self.assertEqual(torch.ones(3, dtype=dtype, device=device) + 1, torch.full((3,), 2, dtype=dtype))
        self.assertEqual(os.listdir(os.path.dirname(os.environ["OUTCOMES_FILE"])), [])

    def test_equal(self, device):
        self.assertEqual(torch.ones(2, device=device), torch.zeros(2))

    def test_not_here(self, device):
        self.skipTest("needs a printer")

    def test_cuda_graph(self, device):
        self.fail("this one is excluded")

    def test_falls_back(self, device):
        self.assertEqual(torch.nonzero(torch.ones(1, device=device)).tolist(), [[0]])

    @unittest.expectedFailure
    def test_known(self, device):
        self.fail("as it is known to")

    @expectedFailureXLA
    def test_marked_as_failing(self, device):
        self.assertEqual(torch.ones(1, device=device), torch.ones(1))

    @skipXLA
    @skipXLAIf(True, "the older device of this name has it not")
    def test_marked_as_skipped(self, device):
        self.assertEqual(torch.ones(1, device=device), torch.ones(1))

    def test_parts(self, device):
        for part in range(3):
            with self.subTest(part=part):
                self.assertEqual(part, 0)

    def test_pending(self, device):
        self.kept = torch.zeros(2, device=device)[torch.tensor([7], device=device)]  # nobody looks at the value


class TestClass(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if "is_made" in vars(cls):
            raise RuntimeError("no class today")
        cls.is_made = True  # instantiate_device_type_tests() has called it

    def test_never(self, device):
        pass


class TestWithoutDevice(TestCase):
    def test_nothing(self):
        pass


instantiate_device_type_tests(TestClass, globals())
"""

DEATHS = """
class TestDeaths(TestCase):
    def test_a_passes(self, device):
        self.assertTrue(torch.ones(1, device=device).item())

    def test_b_kills(self, device):
        os.kill(os.getpid(), signal.SIGSEGV)

    def test_c_exits(self, device):
        os._exit(3)

    def test_d_hangs(self, device):
        time.sleep(600)

    def test_e_passes(self, device):
        self.assertTrue(torch.ones(1, device=device).item())

    def test_fork_server(self, device):
        pass
"""


PROGRAM = """
import torch_xla
import torch_xla.core.xla_model as xm

def _mp_fn(index):
    assert xm.xla_device_hw(torch_xla.device()) == "TPU"
    assert xm.mesh_reduce("sum", index, sum) == 1

if __name__ == "__main__":
    torch_xla.launch(_mp_fn)
"""

TORCHRUN = """
import os
assert os.environ["WORLD_SIZE"] == "2" and __name__ == "__main__"
"""

ASKS = """
import unittest
import torch_xla

class TestAsks(unittest.TestCase):
    function = torch_xla._XLAC._a_name_that_is_not_there

    def test_others(self):
        pass

    def test_that_calls_it(self):
        TestAsks.function(1)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """The page of a run over a folder of small files."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "nn").mkdir()
    (folder / "list.toml").write_text(LIST)
    (folder / "test_outcomes.py").write_text(HEAD + OUTCOMES + TAIL.format(name="TestOutcomes"))
    (folder / "nn" / "test_deaths.py").write_text(HEAD + DEATHS + TAIL.format(name="TestDeaths"))
    (folder / "test_broken.py").write_text("import a_module_that_is_not_there\n")
    (folder / "test_program.py").write_text(PROGRAM)
    (folder / "test_failing_program.py").write_text("raise ValueError('not today')\n")
    (folder / "test_torchrun.py").write_text(TORCHRUN)
    (folder / "test_asks.py").write_text(ASKS)
    page = folder / "page.md"
    options = ["--list", folder / "list.toml", "--page", page, "--shards", "2", "--jobs", "2", "--timeout", "40"]
    done = subprocess.run([sys.executable, TOOL, folder, *options], capture_output=True, text=True, timeout=280)
    assert done.returncode == 1, done.stdout + done.stderr
    return page.read_text()


def row_of(page: str, start: str) -> list[str]:
    """The cells of the row that begins so."""
    rows = [line for line in page.splitlines() if line.startswith(f"| {start} |")]
    assert len(rows) == 1, page
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", rows[0])[2:-1]]


# passed, did not pass, skipped, excluded, left out, fell back
NUMBERS = {
    "test_outcomes.py": ["6", "4", "1", "1", "1", "1"],
    "nn/test_deaths.py": ["2", "3", "0", "1", "0", "0"],
    "test_broken.py": ["-"] * 6,
    "test_absent.py": ["-"] * 6,
    "test_program.py": ["1", "0", "0", "0", "0", "0"],
    "test_failing_program.py": ["0", "1", "0", "0", "0", "0"],
    "test_torchrun.py": ["1", "0", "0", "0", "0", "0"],
    "test_asks.py": ["1", "1", "0", "0", "0", "0"],
    "all": ["11", "9", "1", "2", "1", "1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("file", NUMBERS)
def test_numbers(page, file):
    assert row_of(page, file) == NUMBERS[file]


BAD = {
    "TestOutcomesXLA.test_equal_xla": ("failed", "AssertionError: Tensor-likes are not close! Mismatched elements: 2"),
    "TestOutcomesXLA.test_parts_xla": ("failed", r"AssertionError: .*\(and 1 more\)"),
    "TestOutcomesXLA.test_pending_xla": ("failed", "when what it left pending is computed: IndexError"),
    "TestClassPRIVATEUSE1.test_never_xla": ("failed", "setUpClass: RuntimeError: no class today"),
    "TestDeathsPRIVATEUSE1.test_b_kills_xla": ("crashed", r"SIGSEGV; in test_b_kills, line \d+"),
    "TestDeathsPRIVATEUSE1.test_c_exits_xla": ("crashed", "exit status 3"),
    "TestDeathsPRIVATEUSE1.test_d_hangs_xla": ("timed out", r"out of time; in test_d_hangs, line \d+"),
    "Program.test_failing_program": ("failed", "AssertionError: exit status 1; ValueError: not today"),
    "TestAsks.test_that_calls_it": (
        "failed",
        "NotImplementedError: torch_xla._XLAC._a_name_that_is_not_there does not",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("test", BAD)
def test_what_happened(page, test):
    outcome, text = row_of(page, f"`{test}`")
    assert outcome == BAD[test][0]
    assert re.match(BAD[test][1], text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "# A few tests",
        "They show each outcome.",
        "| 1 | CUDA only |",
        "Of 23 tests 11 passed (47.8%), 9 did not pass (39.1%), 1 skip themselves (4.3%), 2 are excluded (8.7%).",
        "| 1 | a child \\| of a device |",
        "| 1 | needs a printer |",
        "Operations that ran on the CPU, and in how many tests: `nonzero` 1",
        "Not run: ModuleNotFoundError: No module named 'a_module_that_is_not_there'",
        "Not run: the folder has no such file",
        "Told that the hardware is TPU, without which it tests nothing.",
    ],
)
def test_other_lines(page, line):
    assert line in page.splitlines()


def test_a_file_on_the_devices_of_a_plugin(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(TOOL.parent)
    import pytorch_tests_page
    import run_pytorch_tests

    (tmp_path / "list.toml").write_text('title = ""\npage = ""\n[files."a.py"]\nplugin_devices = 3\n[files."b.py"]\n')
    tests = run_pytorch_tests.TestList(tmp_path / "list.toml")
    monkeypatch.setattr(run_pytorch_tests.wheels, "fetch", lambda name: Path("client.so"))
    environment = tests.find_environment("a.py")
    assert environment["PJRT_DEVICE"] == "LIBRARY" and environment["PJRT_LIBRARY_PATH"] == "client.so"
    assert environment["PJRT_LIBRARY_OPTIONS"] == "cpu_device_count=3" and "PJRT_DEVICE" not in tests.find_environment(
        "b.py"
    )
    reports = [pytorch_tests_page.FileReport(name, "", tests.find_plugin_devices(name)) for name in ("a.py", "b.py")]
    page = pytorch_tests_page.write_page("", "", "", reports)
    assert "## a.py\n\nOn 3 devices of XLA's CPU client, as a plugin.\n" in page and "## b.py" not in page
