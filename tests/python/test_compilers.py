"""What `make test-compilers` stands on: faults of a compiler, the table of refusals, wheels, texts of models."""

import os
import re
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from compilers import expected, programs, targets, wheels
from compilers.client import RefusedError
from compilers.pool import Child, Outcome

ADD = """module @program {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }
}
"""
# Answers as the worker does; what a text is called says what becomes of it.
WORKER = """
import json, os, signal, sys, time
for line in sys.stdin:
    if "fault" in line:
        print("a last word", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif "endless" in line:
        while True:
            pass
    elif "sleeping" in line:
        time.sleep(1000)
    print(json.dumps({"refusal": "bad" if "bad" in line else "", "seconds": 0.5, "cycles": os.getpid()}), flush=True)
"""


# ---- Children ----
@pytest.fixture
def child():
    child = Child([sys.executable, "-c", WORKER], limit=20)
    yield child
    child.close()


def test_texts_share_a_process(child):
    first, bad, last = (child.compile(Path(name)) for name in ("a", "bad", "b"))
    assert (first.refusal, bad.refusal, last.refusal) == ("", "bad", "")
    assert first.cycles == bad.cycles == last.cycles


def test_a_fault_ends_one_text_alone(child):
    first, fault, last = (child.compile(Path(name)) for name in ("a", "fault", "b"))
    assert fault.refusal == "the compiler's process ended by SIGSEGV: a last word"
    assert last.refusal == "" and last.cycles != first.cycles


@pytest.mark.parametrize("text", ["endless", "sleeping"])
def test_a_text_without_end_is_cut(text):
    child = Child([sys.executable, "-c", WORKER], limit=0.25)
    assert child.compile(Path(text)).refusal.startswith("no end within")
    child.close()


# ---- The table ----
TABLE = """
[[refusal]]
targets = ["n150"]
programs = ["aten::tan(*", "aten::mm(f32[2,2], f32[2,2])"]
error = "no tan"
reason = "it has none"
"""


@pytest.fixture
def table(tmp_path):
    (tmp_path / "table.toml").write_text(TABLE)
    return expected.read(tmp_path / "table.toml")


def test_what_the_table_lists_is_no_problem(table):
    outcomes = {"aten::tan(f32[3])": Outcome("there is no tan here", 1), "aten::sin(f32[3])": Outcome("", 1)}
    assert list(expected.problems(table, "n150", outcomes)) == []


@pytest.mark.parametrize(
    "target, program, refusal, words",
    [
        ("n150", "aten::sin(f32[3])", "no sin", "n150 refuses aten::sin(f32[3]): no sin"),
        ("n150", "aten::tan(f32[3])", "another fault", "n150 refuses aten::tan(f32[3]): another fault"),
        ("v5e", "aten::tan(f32[3])", "no tan", "v5e refuses"),
        ("n150", "aten::mm(f32[2,2], f32[2,2])", "", "its entry in refusals.toml is stale: it has none"),
    ],
)
def test_problems(table, target, program, refusal, words):
    (problem,) = expected.problems(table, target, {program: Outcome(refusal, 1)})
    assert words in problem


def test_the_table_knows_its_targets_and_programs():
    files = Path("tests/rows").glob("*.cases")
    cases = [line.split(" #")[0] for path in files for line in path.read_text().splitlines()]
    for entry in expected.read():
        assert entry.targets and set(entry.targets) <= targets.TARGETS.keys() and entry.reason and entry.error
        for pattern in entry.programs:
            alone = expected.Refusal(entry.targets, (pattern,), entry.error, entry.reason)
            names = [*cases, *programs.MODEL_NAMES]
            assert any(alone.is_for(entry.targets[0], name) for name in names), f"{pattern} is no program"


# ---- Wheels ----
def test_a_wheel_with_another_hash_is_not_used(tmp_path, monkeypatch):
    def download(wheel, folder):
        with zipfile.ZipFile(folder / wheel.file, "w") as archive:
            archive.writestr(wheel.plugin, "not what was pinned")
        return folder / wheel.file

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wheels, "_download", download)
    with pytest.raises(SystemExit, match=r"has the sha256 \w+, expected is \w+: it is not used"):
        wheels.fetch(wheels.CPU)
    assert not list(tmp_path.rglob("*.so"))


def test_unknown_wheels_are_an_error(run_python):
    program = f"import runpy, sys; sys.argv[1:] = ['nothing']; runpy.run_path({wheels.__file__!r}, run_name='__main__')"
    error = run_python(program, returncode=1)
    assert "nothing is no wheel with a plugin that is known here; these are: libtpu" in error


# ---- Texts ----
def test_the_texts_of_a_training_step_and_of_a_function(run_python, tmp_path):
    program = f"""
        import sys
        sys.path.insert(0, "tools")
        from compilers import programs
        sys.argv[1:] = [{str(tmp_path)!r}, "mlp.training.bfloat16", "cumsum.float32"]
        programs.main()
    """
    run_python(program, PJRT_DEVICE="CPU", XLA_INTERPRETED_OPERATIONS="1000000000")
    step, cumsum = ((tmp_path / f"{name}.mlir").read_text() for name in ("mlp.training.bfloat16", "cumsum.float32"))
    # Three layers, and their gradients; the images need none.
    assert len(re.findall(r"stablehlo.dot_general.*bf16", step)) == 8
    assert "-> (tensor<1024x1024xf32>)" in cumsum


# ---- The client ----
@pytest.fixture(scope="module")
def compiler():
    """The compiler of the plugin under test."""
    if not os.environ.get("XLA_TEST_PJRT_PLUGIN"):
        pytest.skip("XLA_TEST_PJRT_PLUGIN names no plugin; `make test-pjrt` does")
    return targets.Compiler(targets.TARGETS["cpu"], os.environ["XLA_TEST_PJRT_PLUGIN"])


def test_a_client_compiles(compiler):
    executable = compiler.compile(ADD)
    found = executable.describe()
    executable.destroy()
    assert found.memory["arguments"] == found.memory["outputs"] == 16


def test_a_client_raises_the_plugins_text(compiler):
    with pytest.raises(RefusedError, match=r"tensor<5xf32>"):
        compiler.compile(ADD.replace('tensor<4xf32>\n    "', 'tensor<5xf32>\n    "'))
