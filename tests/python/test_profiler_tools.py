"""What is made of torch.profiler's events: memory, collectives, traces from outside, files for TensorBoard."""

import http.client
import json
import re
import socket
import time
from pathlib import Path
from urllib.parse import quote

import pytest
import replicas_training
import torch

import torch_xla.debug.profiler as xp
import torch_xla.distributed.xla_multiprocessing as xmp
from torch_xla.debug import _profiler_server

ENGINE = {"PJRT_DEVICE": "CPU"}  # the embedded one, also where a plugin is under test
PRIVATEUSE1 = 20  # DeviceType, in traces

# A model, a training step of it, and the events of a Chrome trace.
PROGRAM = """
import json, threading, time, torch, torch_xla
import torch.nn.functional as F
import torch_xla.debug.profiler as xp
from pathlib import Path
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to("xla")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(32, 64).to("xla"), torch.randint(10, (32,)).to("xla")
def step():
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    return loss
for _ in range(2):
    step()
torch_xla.sync(wait=True)
"""


def events_of(path: Path) -> list[dict]:
    return json.loads(path.read_text())["traceEvents"]


# ---- Memory ----
@pytest.fixture
def memory(run_python, tmp_path) -> dict:
    """Two steps and an upload of 4 MB that is kept, with memory: the trace, the table, what the device tells."""
    source = f"""
used = torch.xla.memory_allocated()
with profile(activities=BOTH, profile_memory=True) as profiler:
    step(), step()
    torch_xla.sync(wait=True)  # a table counts for the upload what goes on meanwhile
    kept = torch.ones(1024, 1024).to("xla")
    torch_xla.sync(wait=True)
profiler.export_chrome_trace({str(tmp_path / "trace.json")!r})
rows = {{row.key: row.self_device_memory_usage for row in profiler.key_averages()}}
told = {{"used": torch.xla.memory_allocated() - used, "rows": rows, "table": profiler.key_averages().table()}}
with profile(activities=BOTH) as profiler:
    step()
told["unasked"] = sum(event.name == "[memory]" for event in profiler.events())
Path({str(tmp_path / "told.json")!r}).write_text(json.dumps(told))
"""
    run_python(PROGRAM + source, **ENGINE)
    told = json.loads((tmp_path / "told.json").read_text())
    changes = [event for event in events_of(tmp_path / "trace.json") if event.get("name") == "[memory]"]
    return {**told, "changes": [event for event in changes if event["args"]["Device Type"] == PRIVATEUSE1]}


def test_device_memory_is_in_tables_and_traces(memory):
    """Of the thread that uploads and of the one that runs programs; what was not given back is what is used."""
    changes = [event["args"] for event in memory["changes"]]
    assert "XLA Mem" in memory["table"] and "Self XLA Mem" in memory["table"]
    assert memory["rows"]["xla::upload"] > 4_000_000, "4 MB, less what was freed meanwhile"
    assert sum(change["Bytes"] for change in changes) == memory["used"] > 4_000_000
    assert len({event["tid"] for event in memory["changes"]}) == 2
    assert memory["unasked"] == 0


def test_frees_are_of_what_was_taken(memory):
    """Addresses, sizes and totals of the device agree, in the order of time."""
    taken = {}
    changes = [event["args"] for event in sorted(memory["changes"], key=lambda event: event["ts"])]
    for change in changes:
        address, size = change["Addr"], change["Bytes"]
        assert 0 < change["Total Allocated"] <= change["Total Reserved"] and change["Device Id"] == 0
        if size > 0:
            assert address not in taken
            taken[address] = size
        else:
            assert taken.pop(address, -size) == -size  # or it was there before
    assert any(change["Bytes"] < 0 for change in changes)


def test_a_timeline_of_memory(run_python, tmp_path):
    source = f"""
with profile(activities=BOTH, profile_memory=True, record_shapes=True, with_stack=True) as profiler:
    kept = torch.ones(1024, 1024).to("xla")
    step()
    torch_xla.sync(wait=True)
profiler.export_memory_timeline({str(tmp_path / "timeline.json")!r}, device="xla:0")
"""
    run_python(PROGRAM + source, **ENGINE)
    times, sizes = json.loads((tmp_path / "timeline.json").read_text())
    assert len(times) == len(sizes) > 4 and max(sum(row) for row in sizes) >= 4 << 20


# ---- Collectives ----
def test_collectives_are_on_a_track_of_their_own(tmp_path, monkeypatch):
    """Of two processes: the sums of gradients, with their bytes, beside the steps of the same run."""
    monkeypatch.setenv("PJRT_DEVICE", ENGINE["PJRT_DEVICE"])
    xmp.spawn(replicas_training.profiles_sums, (str(tmp_path),), 2)
    for rank in range(2):
        events = events_of(tmp_path / f"{rank}.json")
        tracks = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        steps = [e for e in events if e.get("cat") == "kernel"]
        sums = [e for e in steps if e["name"] == "xla::all_reduce"]
        assert [e["args"]["bytes"] for e in sums] == [(512 * 512 + 512) * 4] * 4
        assert {e["tid"] for e in sums} == {tracks["collectives"]}
        waits = [e["tid"] for e in steps if e["name"] == "wait for xla::all_reduce"]
        assert waits == [tracks["programs"]] * 3  # nothing goes on beside the last one
        runs = {e["args"]["run"] for e in steps if e["tid"] == tracks["programs"]}
        assert {e["args"]["run"] for e in sums} <= runs
        assert all(re.search(r"replicas_training\.py:\d+ in", e["args"]["line"]) for e in sums)


# ---- The original's profiler ----
def test_a_trace_from_outside_has_the_device(run_python, tmp_path):
    """trace() in another process, while this one trains: steps of runs, operations, and ranges of its own thread."""
    source = f"""
import subprocess, sys
server = xp.start_server(0)
folder = {str(tmp_path)!r}
call = f"import torch_xla.debug.profiler as xp; xp.trace('localhost:{{server.port}}', {{folder!r}}, duration_ms=1000)"
client = subprocess.Popen([sys.executable, "-c", call])
while client.poll() is None:
    with xp.StepTrace("train", step_num=3):
        step()
assert client.returncode == 0
"""
    run_python(PROGRAM + source, **ENGINE)
    (path,) = tmp_path.glob("*.pt.trace.json")
    events = events_of(path)
    names = {(event.get("cat"), event["name"]) for event in events}
    assert ("kernel", "aten::addmm") in names and ("gpu_user_annotation", "xla::run") in names
    assert ("cpu_op", "aten::linear") in names and ("user_annotation", "train#step_num=3") in names


def test_a_detached_trace(run_python, tmp_path):
    """The program goes on while it is traced, and ends when the file is there; one trace at a time."""
    source = f"""
server = xp.start_server(0)
address = f"localhost:{{server.port}}"
xp.trace_detached(address, {str(tmp_path)!r}, duration_ms=700)
time.sleep(0.3)
try:
    xp.trace(address, {str(tmp_path)!r}, duration_ms=10, num_tracing_attempts=1)
except OSError as error:
    print("refused:", error)
for _ in range(5):
    step()
"""
    out = run_python(PROGRAM + source, **ENGINE)
    assert "gives no trace: the process is being traced already" in out
    (path,) = tmp_path.glob("*.pt.trace.json")
    assert "aten::addmm" in {event["name"] for event in events_of(path) if event.get("cat") == "kernel"}


def test_what_a_trace_from_outside_needs(tmp_path):
    with pytest.raises(OSError):
        xp.trace("localhost:1", str(tmp_path), num_tracing_attempts=1)
    for numbers in ({"duration_ms": 0}, {"num_tracing_attempts": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(numbers))} must be positive"):
            xp.trace("localhost:1", str(tmp_path), **numbers)
    with pytest.raises(ValueError, match="duration_ms must be at most 600000, and is 600001"):
        xp.trace("localhost:1", str(tmp_path), duration_ms=600_001)
    with pytest.raises(ValueError, match="duration_ms must be positive, and is -5"):
        xp.trace_detached("localhost:1", str(tmp_path), duration_ms=-5)
    server = xp.start_server(0)
    with pytest.raises(OSError):
        xp.start_server(server.port)


def test_traces_beside_threads_that_record(run_python):
    """A trace has the operations and ranges of all threads, however they stand when it ends, and no process dies."""
    source = """
import http.client
port, stop = xp.start_server(0).port, False
def work():
    while not stop:
        with xp.Trace("work"):
            (torch.ones(100, device="xla") * 2).sum().item()
            torch.ones(100).mul(3)
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
events = []
for _ in range(25):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/trace?duration_ms=20")
    events += json.loads(connection.getresponse().read())["traceEvents"]
stop = True
[thread.join() for thread in threads]
found = {(event.get("cat"), event.get("name")) for event in events}
assert {("cpu_op", "aten::mul"), ("user_annotation", "work"), ("gpu_user_annotation", "xla::run")} <= found, found
assert len({event["tid"] for event in events if event.get("cat") == "user_annotation"}) == 3
"""
    run_python(PROGRAM + source, **ENGINE)


@pytest.fixture
def served(monkeypatch):
    """A server with short limits, and a function that sends it a request and gives the answer's status and reason."""
    monkeypatch.setattr(_profiler_server, "_REQUEST_SECONDS", 0.5)
    port = xp.start_server(0).port

    def ask(path: str = "/trace?duration_ms=1", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.putrequest("POST", path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.reason

    ask.port = port
    return ask


def test_a_trace_is_for_programs_of_this_machine(served):
    port = served.port
    for headers in (
        {},
        {"Host": f"localhost:{port}"},
        {"Host": f"LOCALHOST:{port}", "Origin": f"http://localhost:{port}"},
    ):
        assert served(**headers)[0] == 200, headers
    for headers, reason in (
        ({"Host": f"example.org:{port}"}, "wanted one Host, 127.0.0.1"),
        ({"Host": "127.0.0.1:1"}, "wanted one Host"),
        ({"Host": "127.0.0.1"}, "wanted one Host"),
        ({"Origin": "http://example.org"}, "another origin"),
        ({"Origin": "null"}, "another origin"),
        ({"Host": f"localhost:{port}", "Origin": f"http://127.0.0.1:{port}"}, "another origin"),
    ):
        status, text = served(**headers)
        assert status == 403 and reason in text, (headers, text)


@pytest.mark.parametrize("duration", ["", "0", "-1", "1.5", "x", "600001", "9" * 5000, "1&duration_ms=2", "\u0663"])
def test_durations_that_are_refused(served, duration):
    status, reason = served("/trace?duration_ms=" + quote(duration, safe="&="))
    assert (status, reason) == (400, "wanted a duration_ms from 1 to 600000")


def test_what_a_server_of_traces_does_not_take(served):
    assert served("/other")[0] == 404
    assert served(**{"Content-Length": "5"}) == (400, "a request has no body")
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as slow:
        slow.sendall(b"POST /trace?duration_ms=1 HTTP/1.1\r\nHost: ")
        assert slow.recv(1) == b""  # it was given up
    waiting = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(30)]
    assert sum(each.recv(1) == b"" for each in waiting) == 30
    assert served()[0] == 200


def test_a_trace_ends_with_its_client(served, monkeypatch):
    monkeypatch.setattr(_profiler_server, "_REQUEST_SECONDS", 60)  # starting a trace may hold all threads for seconds
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as client:
        client.sendall(f"POST /trace?duration_ms=600000 HTTP/1.1\r\nHost: localhost:{served.port}\r\n\r\n".encode())
        limit = time.monotonic() + 60
        while not torch.autograd.profiler._is_profiler_enabled:
            assert time.monotonic() < limit, "no trace begins"
        assert served()[0] == 409
    limit = time.monotonic() + 60
    while served()[0] != 200:
        assert time.monotonic() < limit, "the trace goes on though nobody waits for it"
    assert not torch.autograd.profiler._is_profiler_enabled


# ---- TensorBoard ----
def test_files_for_tensorboard(run_python, tmp_path):
    """What its plugin takes a kernel, a step and a change of memory from; and the name by which it finds the file."""
    source = f"""
handler = tensorboard_trace_handler({str(tmp_path)!r}, worker_name="worker0")
plan = schedule(wait=1, warmup=1, active=2)
with profile(activities=BOTH, schedule=plan, on_trace_ready=handler, profile_memory=True) as profiler:
    for _ in range(4):
        step()
        profiler.step()
"""
    run_python(PROGRAM + source, **ENGINE)
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"worker0\.\d+\.pt\.trace\.json", path.name)
    document = json.loads(path.read_text())
    assert document["schemaVersion"] == 1
    events = document["traceEvents"]
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")]
    assert len(steps) == 2
    kernels = [e for e in events if e.get("cat") == "kernel"]
    operations = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op"}
    assert kernels and all({"device", "stream"} <= e["args"].keys() and e["dur"] >= 0 for e in kernels)
    linked = [e for e in kernels if e["args"].get("External id") in operations]
    assert {"aten::linear", "aten::addmm"} & {operations[e["args"]["External id"]]["name"] for e in linked}
    assert any(e["name"] == "[memory]" and e["args"]["Device Type"] == PRIVATEUSE1 for e in events)
    ranges = [e for e in events if e.get("cat") == "gpu_user_annotation" and e["name"].startswith("ProfilerStep#")]
    assert len(ranges) == 2 and ranges[0]["ts"] != ranges[1]["ts"]
