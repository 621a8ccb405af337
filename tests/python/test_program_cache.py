"""Caches of programs and kernels: what they hold, what is freed, Ctrl-C, whom the one on disk trusts."""

import os

import pytest

# Counts mappings of the process, and bytes of code that is no file's.
PRELUDE = """
import re, torch, torch_xla
import torch_xla.debug.metrics as met
def count_mappings():
    return len(open("/proc/self/maps").readlines())
def code_bytes():
    blocks = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/self/smaps").read(), flags=re.M)
    code = [b for b in blocks if re.match(r"\\S+ r-xp \\S+ 00:00 0 *\\n", b)]
    return 1024 * sum(int(re.search(r"^Rss: +(\\d+) kB", b, re.M)[1]) for b in code)
def run(n):  # a program of its own for each n up to 511
    x = torch.arange(8.0)
    y = x.to("xla")
    for bit in range(9):
        function = torch.sin if n >> bit & 1 else torch.cos
        x, y = function(x), function(y)
    torch_xla.sync(wait=True)
    assert torch.allclose(y.cpu(), x)
run(1)
"""
ENGINE = {"PJRT_DEVICE": "CPU"}  # the embedded one, also where a plugin is under test


def test_kernels_share_mappings(run_python):
    source = """
before = count_mappings()
for n in range(2, 302):
    run(n)
print(count_mappings() - before)
"""
    assert int(run_python(PRELUDE + source, **ENGINE)) < 100


def test_kernels_of_dropped_programs_are_freed(run_python):
    source = """
for n in range(2, 202):
    run(n)
few = code_bytes()
for n in range(2, 202):  # each has been dropped by now
    run(n)
print(few, code_bytes(), met.counter_value("UncachedCompile") + (met.counter_value("ReplannedProgram") or 0))
"""
    few, again, compiled = map(int, run_python(PRELUDE + source, XLA_COMPILATION_CACHE_SIZE="8", **ENGINE).split())
    assert 0 < again <= few + 4096 * 16 < 4096 * 100 and compiled == 401


def test_program_that_runs_is_not_freed(run_python):
    source = """
import threading
def work(kind):
    for n in range(2, 150):
        x = torch.arange(float(n)) + kind
        values = [x.to("xla").mul(i) + kind for i in range(4)]
        torch_xla.sync()
        for i, y in enumerate(values):
            assert torch.equal(y.cpu(), x * i + kind)
    done.append(kind)
done = []
threads = [threading.Thread(target=work, args=(kind,)) for kind in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(done))
"""
    assert run_python(PRELUDE + source, XLA_COMPILATION_CACHE_SIZE="1", **ENGINE).strip() == "[0, 1]"


def test_threads_compile_a_program_once(run_python):
    source = """
import threading
x = torch.ones(8).to("xla")
torch_xla.sync(wait=True)
before = met.counter_value("UncachedCompile")
start, end = threading.Barrier(4), threading.Barrier(4)
def work():
    for _ in range(20):
        start.wait()
        torch_xla.sync()
        end.wait()
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
for _ in range(20):
    y = x * 3
    start.wait()
    torch_xla.sync()
    end.wait()
    assert y.tolist() == [3.0] * 8
[t.join() for t in threads]
print(met.counter_value("UncachedCompile") - before)
"""
    assert run_python(PRELUDE + source, **ENGINE).strip() == "1"


# ---- Ctrl-C ----
# Pending: one kernel for each of 300 sizes. Ctrl-C comes when the first one has been compiled, which its file tells.
INTERRUPTED = """
import glob, os, signal, threading, time
folder = os.environ["XLA_PERSISTENT_CACHE_PATH"]
def count_kernels():
    return len(glob.glob(folder + "/*.o"))
compiled = count_kernels()
def interrupt():
    while count_kernels() == compiled:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
weight = torch.ones(3).to("xla")
torch_xla.sync(wait=True)
values = [torch.ones(n).to("xla") * 3 + 1 for n in range(2, 302)]
weight.add_(1)
"""


@pytest.mark.parametrize("use", ["torch_xla.sync()", "values[0].tolist()"])
def test_ctrl_c_ends_a_compile(run_python, tmp_path, use):
    source = f"""
threading.Thread(target=interrupt).start()
try:
    {use}
    print("not interrupted")
except KeyboardInterrupt:
    print(count_kernels() - compiled < 200)
torch_xla.sync()  # nothing is lost
print(all(torch.equal(v.cpu(), torch.full_like(v, 4, device="cpu")) for v in values), weight.tolist())
"""
    env = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache"), **ENGINE}
    assert run_python(PRELUDE + INTERRUPTED + source, **env).splitlines() == ["True", "True [2.0, 2.0, 2.0]"]


def test_ctrl_c_ends_the_compile_of_what_another_thread_has_pending(run_python, tmp_path):
    source = """
done = threading.Event()
def record():
    global others
    others = [x.mul(3) + 1 for x in values]
    recorded.set()
    done.wait(60)
values, recorded = [v * 1 for v in values], threading.Event()
torch_xla.sync(wait=True)
compiled = count_kernels()
threading.Thread(target=record).start()
recorded.wait(60)
threading.Thread(target=interrupt).start()
try:
    others[0] * 2
    print("not interrupted")
except KeyboardInterrupt:
    print(count_kernels() - compiled < 200)
print(all(torch.equal(v.cpu(), torch.full_like(v, 13, device="cpu")) for v in others), weight.tolist())
done.set()
"""
    env = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache"), **ENGINE}
    assert run_python(PRELUDE + INTERRUPTED + source, **env).splitlines() == ["True", "True [2.0, 2.0, 2.0]"]


@pytest.mark.parametrize("use", ["weight + 1", "weight.tolist()", "torch_xla.sync()"])
def test_ctrl_c_ends_a_wait_for_another_threads_compile(run_python, tmp_path, use):
    source = f"""
torch_xla.sync(wait=True)
compiled = count_kernels()
def compile_many():
    global others
    others = [x.mul(3).sin() for x in values]
    torch_xla.sync(wait=True)
thread = threading.Thread(target=compile_many)
thread.start()
while count_kernels() == compiled:
    time.sleep(0.001)
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    {use}
    while count_kernels() - compiled < 299:
        time.sleep(0.001)
    print("not interrupted")
except KeyboardInterrupt:
    print(count_kernels() - compiled < 299)
thread.join()
torch_xla.sync()
print(all(torch.allclose(v.cpu(), torch.full_like(v, 12, device="cpu").sin()) for v in others), weight.tolist())
"""
    env = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache"), **ENGINE}
    assert run_python(PRELUDE + INTERRUPTED + source, **env).splitlines() == ["True", "True [2.0, 2.0, 2.0]"]


def test_signal_handler_runs_after_the_compile_of_what_another_thread_has_pending(run_python, tmp_path):
    source = """
done = threading.Event()
def record():
    global others
    others = [x.mul(3) + 1 for x in values]
    recorded.set()
    done.wait(60)
seen, recorded = [], threading.Event()
signal.signal(signal.SIGINT, lambda *_: seen.append(weight.tolist()))
threading.Thread(target=record).start()
recorded.wait(60)
thread = threading.Thread(target=interrupt)
thread.start()
print((others[0] * 2).tolist())
thread.join()
print(seen)
done.set()
"""
    env = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache"), **ENGINE}
    assert run_python(PRELUDE + INTERRUPTED + source, **env).splitlines() == ["[26.0, 26.0]", "[[2.0, 2.0, 2.0]]"]


def test_signal_handler_uses_the_device_during_a_compile(run_python, tmp_path):
    source = """
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(weight.tolist()))
y = torch.zeros(4).to("xla")
def write():
    for i in range(50):
        y[0] = float(i)  # waits for the recording lock, with the GIL at first
threads = [threading.Thread(target=interrupt), threading.Thread(target=write)]
[t.start() for t in threads]
torch_xla.sync()
[t.join() for t in threads]
print(seen, y.tolist())
"""
    env = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache"), **ENGINE}
    out = run_python(PRELUDE + INTERRUPTED + source, **env)
    assert out.strip() == "[[2.0, 2.0, 2.0]] [49.0, 0.0, 0.0, 0.0]"


# ---- On disk ----
def test_directory_that_others_may_write_is_refused(run_python, tmp_path):
    os.chmod(tmp_path, 0o1777)
    out = run_python(PRELUDE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path), **ENGINE)
    assert out.count("torch_xla: the cache of compiled code at") == 1 and "others may write to it" in out
    assert not list(tmp_path.iterdir())
