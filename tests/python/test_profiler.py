"""torch.profiler on the device: steps of runs are on a track of their own, linked with what recorded them."""

import json

import pytest

# A training step, and a profile of some, which gives the Chrome trace's events by their category.
PROFILE = """
import json, torch, torch_xla
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)).to("xla")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(32, 64).to("xla"), torch.randint(10, (32,)).to("xla")
def step():
    with record_function("forward"):
        loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    return loss
step(), step()
def events_of(profiler, path):
    profiler.export_chrome_trace(path)
    with open(path) as file:
        return json.load(file)["traceEvents"]
"""
ENGINE = {"PJRT_DEVICE": "CPU"}  # the embedded one, also where a plugin is under test


_kept: list[list] = []  # of the module: what the program below has told


@pytest.fixture
def events(run_python, tmp_path) -> list:
    """The Chrome trace of three steps; the last element is what Python's tables tell by name: device time of the host's
    operation in us, and how many of that name the device did."""
    source = f"""
with profile(activities=BOTH) as profiler:
    for _ in range(3):
        step()
    torch_xla.sync(wait=True)
found = events_of(profiler, {str(tmp_path / "trace.json")!r})
table = {{}}
for row in profiler.key_averages():
    time, count = table.get(row.key, [0, 0])
    of_host = row.device_type == torch.autograd.DeviceType.CPU
    table[row.key] = [time + (row.device_time_total if of_host else 0), count + (0 if of_host else row.count)]
with open({str(tmp_path / "events.json")!r}, "w") as file:
    json.dump([*found, table], file)
"""
    if not _kept:
        run_python(PROFILE + source, **ENGINE)
        _kept.append(json.loads((tmp_path / "events.json").read_text()))
    return _kept[0]


def of(events: list[dict], category: str) -> list[dict]:
    """The events of a category that last."""
    return [event for event in events if event.get("cat") == category and event.get("ph") == "X"]


def inside(inner: dict, outer: dict) -> bool:
    """Whether a time lies in another one, but for what rounding to nanoseconds changes."""
    ends = inner["ts"] + inner.get("dur", 0), outer["ts"] + outer["dur"]
    return outer["ts"] - 0.002 <= inner["ts"] and ends[0] <= ends[1] + 0.002


def test_steps_of_runs_are_on_the_device(events):
    steps, runs = of(events, "kernel"), of(events, "gpu_user_annotation")
    runs = {event["args"]["run"]: event for event in runs if event["name"] == "xla::run"}
    names = {event["name"] for event in steps}
    assert len(runs) >= 3 and {"aten::addmm", "aten::mm"} <= names
    assert any("reduce_sum" in name for name in names), names  # a kernel, by its primitives
    for event in steps:
        assert inside(event, runs[event["args"]["run"]]), event
        assert event["args"]["line"].endswith("in step"), event


def test_the_host_track_has_what_a_step_costs(events):
    told = {event["name"].split()[0] for event in of(events, "privateuse1_runtime")}
    assert {"xla::sync", "xla::queue", "xla::wait", "xla::record"} <= told
    assert "aten::linear" in {event["name"] for event in of(events, "cpu_op")}


def test_arrows_go_from_operations_to_steps(events):
    """An arrow begins within the operation that recorded the step; `addmm` steps come from `aten::addmm`."""
    starts = {e["id"]: e for e in events if e.get("cat") == "ac2g" and e.get("ph") == "s"}
    ends = [e for e in events if e.get("cat") == "ac2g" and e.get("ph") == "f"]
    steps = {(e["ts"], e["tid"]): e for e in of(events, "kernel")}
    operations = of(events, "cpu_op")
    found = 0
    for end in ends:
        step, start = steps[(end["ts"], end["tid"])], starts[end["id"]]
        around = {e["name"] for e in operations if e["tid"] == start["tid"] and inside(start, e)}
        assert around, start
        if step["name"] == "aten::addmm":
            assert "aten::addmm" in around or "aten::linear" in around, around
            found += 1
    assert found >= 6


def test_tables_have_device_times(events):
    """A host operation has the time of its steps; steps are rows of their own."""
    table = events[-1]
    assert table["aten::addmm"][0] > 0 and table["aten::addmm"][1] >= 6
    assert table["forward"][0] >= table["aten::addmm"][0] > 0


def test_profiles_are_apart(run_python, tmp_path):
    """Without the device's activity there is nothing of it, and a second profile has its own events only."""
    source = f"""
path = {str(tmp_path / "trace.json")!r}
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    step()
    torch_xla.sync(wait=True)
told = [sum(e.get("cat") == "kernel" for e in events_of(profiler, path))]
counts = []
for steps in (1, 3):
    with profile(activities=BOTH) as profiler:
        for _ in range(steps):
            step()
        torch_xla.sync(wait=True)
    counts.append(sum(e["name"] == "aten::mm" for e in events_of(profiler, path) if e.get("cat") == "kernel"))
told += [counts[0] > 0, counts[1] == 3 * counts[0]]
kept = []
with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=kept.append) as profiler:
    for _ in range(4):
        step()
        profiler.step()
told += [len(kept), sum(e.get("name") == "aten::mm" for e in events_of(kept[0], path)) > 0]
x = torch.randn(100).to("xla")
with profile(activities=BOTH) as profiler:
    nothing = torch.nonzero(x > 9)
fallbacks = [e for e in events_of(profiler, path) if e.get("name", "").startswith("xla::fallback")]
told += [fallbacks[0]["name"], bool(fallbacks[0]["args"]["detail"])]
print("told", json.dumps(told))
"""
    (line,) = [line for line in run_python(PROFILE + source, **ENGINE).splitlines() if line.startswith("told ")]
    assert json.loads(line[5:]) == [0, True, True, 1, True, "xla::fallback aten::nonzero", True]
