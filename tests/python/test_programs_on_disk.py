"""Whole programs on disk: a second start compiles nothing; what is damaged, foreign or missing is compiled again."""

import concurrent.futures
import functools
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ENGINE = {"PJRT_DEVICE": "CPU"}  # the embedded one, also where a plugin is under test

# Trains a small network with kernels, ATen's calls, dropout and updates in place, by hand, as an import of the
# optimizers takes a second. Reports what was compiled.
TRAIN = """
import torch, torch_xla
import torch_xla.debug.metrics as met
def count(name):
    return met.counter_value(name) or 0
def train(steps=3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Dropout(0.2), torch.nn.Linear(64, 5)).to("xla")
    for step in range(steps):
        x = torch.randn(8, 1, 4, 4).to("xla")
        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(8).to("xla") % 5)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        torch_xla.sync()
    values = [*model.parameters(), model.eval()(x)]
    return [value.detach().cpu().numpy().tobytes().hex() for value in values]
def report():
    names = ["UncachedCompile", "PersistentCacheHit", "PersistentCacheMiss", "PersistentCacheNotStored"]
    print(*(count(name) for name in names))
"""
RUN = TRAIN + "print(*train())\nreport()"


def start_in(run_python: Callable, directory: Path, source: str = RUN, **env) -> tuple[list[str], list[int]]:
    """Starts a program with a directory of compiled code and returns its lines, the last one as numbers."""
    *lines, counts = run_python(source, **{"XLA_PERSISTENT_CACHE_PATH": str(directory), **ENGINE, **env}).splitlines()
    return lines, [int(number) for number in counts.split()]


@pytest.fixture
def empty(run_python, tmp_path):
    """Function that starts a program as start_in(), in a directory that is empty at first."""
    return functools.partial(start_in, run_python, tmp_path / "cache")


# What the first start of RUN has left: its directory, its lines and the number of programs.
FIRST = {}


@pytest.fixture
def second(run_python, tmp_path, tmp_path_factory):
    """As `empty`, where RUN was started once already; the lines and the number of programs of that come with it."""
    if not FIRST:
        directory = tmp_path_factory.mktemp("first") / "cache"
        lines, (compiled, hits, misses, not_stored) = start_in(run_python, directory)
        assert compiled >= 2 and misses == compiled and hits == not_stored == 0
        FIRST.update(directory=directory, lines=lines, compiled=compiled)
    shutil.copytree(FIRST["directory"], tmp_path / "cache")
    return functools.partial(start_in, run_python, tmp_path / "cache"), FIRST["lines"], FIRST["compiled"]


@pytest.fixture
def programs(tmp_path):
    """Function that lists the program files."""
    return lambda: sorted((tmp_path / "cache" / "programs").glob("*.o"))


def test_second_start_compiles_nothing_and_computes_the_same(second):
    start, expected, compiled = second
    assert start() == (expected, [0, compiled, 0, 0])


def test_digit_example_compiles_nothing_at_its_second_start(run_python, tmp_path):
    example = Path(__file__).parents[2] / "examples/train_digits.py"
    source = f"""
    import runpy, sys
    sys.argv = ["train_digits.py", "--epochs", "2", "--out", {str(tmp_path / "curves.png")!r}]
    runpy.run_path({str(example)!r}, run_name="__main__")
    """
    env = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache"), **ENGINE}
    runs = [run_python(source, **env) for _ in range(2)]
    assert "Metric: CompileTime" in runs[0] and "Metric: CompileTime" not in runs[1]
    assert "Metric: PersistentCacheLoad" in runs[1] and "Metric: PersistentCacheLoad" not in runs[0]
    assert "Counter: PersistentCacheHit" in runs[1] and "Counter: UncachedCompile" not in runs[1]
    losses = [re.findall(r"xla:0 epoch \d: loss \S+ test accuracy \S+", out) for out in runs]
    assert losses[0] == losses[1] and len(losses[0]) == 2


def test_errors_of_programs_from_disk_name_the_lines_of_this_process(empty):
    source = """
index = torch.tensor([7]).to("xla")
weight = torch.zeros(4, 2).to("xla")
y = torch.nn.functional.embedding(index, weight)  # this line
try:
    print(y.tolist())
except IndexError as error:
    print(str(error).splitlines()[-1].split(":")[-1].split()[0])
report()
"""
    first, counts = empty(TRAIN + source)
    assert counts[0] == 1
    again, counts = empty(TRAIN + "\n\n" + source)
    assert counts[:2] == [0, 1] and int(again[0]) == int(first[0]) + 2


SOFTMAX = """
for length in ({},):
    x = torch.arange(float(length)).to("xla")
    print(torch.softmax(x.sin() * 2, -1).cumsum(0).mul(3).tolist())
print(count("UncachedCompile"), count("ReplannedProgram"), count("PersistentCacheHit"))
"""


def test_a_size_that_is_new_takes_the_code_for_any_size_of_earlier_processes(empty):
    first, counts = empty(TRAIN + SOFTMAX.format("30, 33"))
    assert counts == [2, 0, 0]
    other, counts = empty(TRAIN + SOFTMAX.format("37"))
    assert counts == [0, 1, 0]
    again, counts = empty(TRAIN + SOFTMAX.format("37, 33, 30"))
    assert counts == [0, 2, 1]
    assert again == [*other, *reversed(first)]


def test_a_size_that_is_new_gets_its_own_code_where_no_process_met_two(empty):
    for length in (30, 33, 37):
        assert empty(TRAIN + SOFTMAX.format(length))[1] == [1, 0, 0]
    assert empty(TRAIN + SOFTMAX.format(33))[1] == [0, 0, 1]


def test_fusion_off_has_programs_of_its_own(second):
    start, _, compiled = second
    plain, counts = start(XLA_FUSION="0")
    assert counts == [compiled, 0, compiled, 0]
    assert start(XLA_FUSION="0") == (plain, [0, compiled, 0, 0])


# ---- Damage ----
def test_damaged_programs_are_compiled_again_and_mended(second, programs):
    start, expected, compiled = second
    for file in programs():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert start() == (expected, [compiled, 0, compiled, 0])
    assert start() == (expected, [0, compiled, 0, 0])


# ---- Disks ----
def test_full_disk_is_no_error(second, tmp_path):
    start, expected, compiled = second
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2048, {resource.RLIM_INFINITY}))\n"
    env = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "full")}
    assert start(limit + RUN, **env) == (expected, [compiled, 0, compiled, 0])
    assert all(file.name == "pruned" or file.stat().st_size <= 2048 for file in (tmp_path / "full").rglob("*.*"))
    assert not list((tmp_path / "full").rglob("*.o.*")), "no halves are left"


def test_directory_that_cannot_be_had_is_no_error(second):
    start, expected, compiled = second
    assert start(XLA_PERSISTENT_CACHE_PATH="/proc/none") == (expected, [compiled, 0, 0, 0])
    assert start(XLA_PERSISTENT_CACHE_PATH="") == (expected, [compiled, 0, 0, 0])


def test_read_only_directory_is_left_as_it_is(second, programs, tmp_path):
    start, expected, compiled = second
    max(programs(), key=lambda file: file.stat().st_size).unlink()
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert start(XLA_PERSISTENT_CACHE_READ_ONLY="1") == (expected, [1, compiled - 1, 1, 0])
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_processes_write_at_once(empty, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [done.result() for done in [pool.submit(empty) for _ in range(4)]]
    assert all(lines == runs[0][0] for lines, _ in runs)
    assert not list(tmp_path.rglob("*.o.*"))
    assert empty()[1][0] == 0


# ---- xr.initialize_cache ----
INITIALIZE = """
import torch_xla.runtime as xr
torch_xla.device()
xr.initialize_cache({path!r}, readonly={readonly})
"""


def test_initialize_cache_names_the_directory(empty, tmp_path):
    path = str(tmp_path / "named")
    use = "print((torch.ones(3).to('xla') + 1).tolist())\nreport()"
    writing, reading = (TRAIN + INITIALIZE.format(path=path, readonly=readonly) for readonly in (False, True))
    assert empty(writing + use, XLA_PERSISTENT_CACHE_PATH="")[1] == [1, 0, 1, 0]
    files = sorted(tmp_path.rglob("*"))
    assert tmp_path / "named/programs" in files
    assert empty(reading + use, XLA_PERSISTENT_CACHE_PATH="") == (["[2.0, 2.0, 2.0]"], [0, 1, 0, 0])
    other = use.replace("+ 1", "* 3")
    assert empty(reading + other, XLA_PERSISTENT_CACHE_PATH="") == (["[3.0, 3.0, 3.0]"], [1, 0, 1, 0])
    assert sorted(tmp_path.rglob("*")) == files


def test_initialize_cache_holds_for_processes_that_start_later(run_python, tmp_path):
    source = f"""
    import subprocess, sys
    import torch_xla.runtime as xr
    xr.initialize_cache({str(tmp_path / "named")!r})
    child = "import torch, torch_xla; (torch.ones(3).to('xla') + 1).tolist()"
    subprocess.run([sys.executable, "-c", child], check=True)
    """
    run_python(source, **ENGINE)
    assert len(list((tmp_path / "named/programs").glob("*.o"))) == 2  # the program, and which one its structure has


# ---- What counts programs ----
def test_different_graphs_are_counted_whether_compiled_or_from_disk(empty):
    source = """
import torch_xla.runtime as xr
@torch_xla.compile(max_different_graphs=1)
def share(x):
    return x.softmax(-1)
share(torch.ones(2, 3).to("xla"))
try:
    share(torch.ones(2, 4).to("xla"))
    print("taken")
except RuntimeError:
    print("refused", xr.get_num_cached_compilation_graph() >= 2)
report()
"""
    first, counts = empty(TRAIN + source)
    assert first == ["refused True"] and counts[0] >= 2
    # The program for rows of four is not kept: it is planned anew, with the code that is.
    assert empty(TRAIN + source) == (first, [0, counts[0] - 1, 0, 0])


def test_dumps_show_how_programs_are_made(second, tmp_path):
    start, expected, compiled = second
    assert start(XLA_DEBUG="3", XLA_DEBUG_FILE=str(tmp_path / "dump")) == (expected, [compiled, 0, 0, 0])
    assert (tmp_path / "dump").read_text().count("graph after lower") == compiled
