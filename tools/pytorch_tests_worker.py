"""The process that runs tests of one file for run_pytorch_tests.py, and tells of each as it happens: it may die of any.

Arguments: a file descriptor to write to, the folder of the tests, the file in it. Each line that it writes is a JSON
object: the names of the file's tests, then, for those of them that a line of standard input asks for, start and end.
"""

import contextlib
import faulthandler
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import pytorch_tests_settings

PROGRAM = Path(__file__).resolve().parent / "pytorch_tests_program.py"
TEXT = 200  # characters of an error on the page


def one_line(error: BaseException) -> str:
    """The exception's class and the first two lines of its text, without addresses and the folders of paths."""
    own = str(error).split("\nTo execute this test, run")[0]  # PyTorch's advice follows
    lines = [line.strip() for line in own.splitlines() if line.strip()]
    text = " ".join([type(error).__name__ + ":", *lines[:2]])
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/){2,}", "", text)[:TEXT]


def name_of(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """The tests of a suite of suites, in order."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def drop_marks() -> None:
    """PyTorch's tests mark what its older device of this name cannot do. The marks do not hold for this one."""
    from torch.testing._internal import common_device_type as marks

    marks.skipXLA = marks.expectedFailureXLA = lambda test: test
    marks.skipXLAIf = lambda condition, reason: lambda test: test


def load(folder: Path, file: str) -> unittest.TestSuite:
    """The tests of a file, imported as `python FILE` does: with its folder on the path, and the folder of all tests."""
    path = folder / file
    sys.path[:0] = dict.fromkeys([str(path.parent), str(folder)])
    sys.argv = [str(path)]
    settings = pytorch_tests_settings.read()
    if settings.get("program"):
        return unittest.TestSuite([program_test(path, settings.get("torchrun", 0))])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if flags := sys.modules.get("absl.flags"):
        flags.FLAGS.mark_as_parsed()  # as its main() does
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def program_test(path: Path, processes: int) -> unittest.TestCase:
    """A test that passes if the program exits with 0; torchrun starts it if `processes` are wanted."""
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes else []

    def run(test: unittest.TestCase) -> None:
        os.environ["PYTORCH_TESTS_PROGRAM"] = str(path)
        command = [sys.executable, *start, PROGRAM]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        errors = re.findall(r"^(?:\[rank\d+\]: *)?((?:\w+\.)*\w*Error: .*)$", done.stdout, re.MULTILINE)
        if done.returncode:
            raise AssertionError("; ".join([f"exit status {done.returncode}", *errors[:1]]))

    return type("Program", (unittest.TestCase,), {path.stem: run})(path.stem)


class Teller(unittest.TestResult):
    """Writes what becomes of each test."""

    def __init__(self, stream):
        super().__init__()
        self._stream, self._process = stream, os.getpid()
        self._outcome, self._text, self._failures = "", "", 0

    def tell(self, **event) -> None:
        """Writes an event. A forked child tells nothing."""
        if os.getpid() == self._process:
            self._stream.write(json.dumps(event) + "\n")
            self._stream.flush()

    def startTest(self, test):
        super().startTest(test)
        self._outcome, self._text, self._failures = "", "", 0
        metrics.clear_counters()
        self.tell(kind="start", name=name_of(test))

    def stopTest(self, test):
        try:
            if _XLAC._xla_runtime_is_initialized():  # else a test may fork
                torch_xla.sync(wait=True)
        except Exception as error:
            if self._outcome == "passed":
                self._fail("when what it left pending is computed: " + one_line(error))
        more = f" (and {self._failures - 1} more)" if self._failures > 1 else ""
        known = {"aten::_local_scalar_dense"}  # reading a number is no fallback
        fallbacks = sorted(name for name in metrics.counter_names() if name.startswith("aten::") and name not in known)
        self.tell(kind="end", name=name_of(test), outcome=self._outcome, text=self._text + more, fallbacks=fallbacks)
        super().stopTest(test)

    def _fail(self, text: str) -> None:
        """The test has failed; the first text counts."""
        self._text = text if self._outcome != "failed" else self._text
        self._outcome = "failed"
        self._failures += 1

    def _tell_fixture(self, test, outcome: str, text: str) -> None:
        """A fixture of a class failed or skipped its tests: its id is `setUpClass (module.Class)`."""
        match = re.fullmatch(r"(\w+) \((?:.*\.)?(\w+)\)", test.id())
        fixture, owner = match.groups() if match else (test.id(), "")
        # of a module, all tests
        self.tell(
            kind="fixture", owner="" if "Module" in fixture else owner, outcome=outcome, text=f"{fixture}: {text}"
        )

    def addSuccess(self, test):
        self._outcome = self._outcome or "passed"

    def addError(self, test, err):
        if isinstance(test, unittest.TestCase):
            self._fail(one_line(err[1]))
        else:
            self._tell_fixture(test, "failed", one_line(err[1]))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._fail(one_line(err[1]))

    def addSkip(self, test, reason):
        if not isinstance(test, unittest.TestCase):
            self._tell_fixture(test, "skipped", reason)
        elif self._outcome != "failed":
            self._outcome, self._text = "skipped", reason[:TEXT]

    def addExpectedFailure(self, test, err):
        self._outcome = "passed"

    def addUnexpectedSuccess(self, test):
        self._fail("passes, and is marked as one that fails")


def main(descriptor: int, folder: Path, file: str) -> None:
    os.set_inheritable(descriptor, False)
    teller = Teller(os.fdopen(descriptor, "w", encoding="utf-8"))
    try:
        pytorch_tests_settings.apply()
        if os.environ.get("PYTORCH_TESTING_DEVICE_ONLY_FOR") == "xla":
            drop_marks()
        found = {name_of(test): test for test in flatten(load(folder, file))}
    except BaseException as error:  # SystemExit and unittest.SkipTest too
        teller.tell(kind="unloadable", text=one_line(error))
        return
    teller.tell(kind="loaded", names=list(found))
    wanted = json.loads(sys.stdin.readline() or "[]")
    with contextlib.suppress(KeyboardInterrupt):
        unittest.TestSuite([found[name] for name in wanted])(teller)
    teller.tell(kind="done")


if __name__ == "__mp_main__":  # a process that a test has started
    pytorch_tests_settings.apply()
if __name__ == "__main__":
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import torch_xla
    import torch_xla.debug.metrics as metrics
    from torch_xla import _XLAC

    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
