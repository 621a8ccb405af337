"""torch.profiler on the device: steps of runs are on a track of their own, linked with what recorded them."""

import itertools
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
torch_xla.sync(wait=True)
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
    assert {"xla::sync", "xla::wait", "xla::record"} <= told
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


def test_an_operation_with_several_nodes_begins_one_arrow(run_python, tmp_path):
    """The LSTM's backward records views, too; more beginnings than one would each be warned of."""
    source = f"""
lstm, sequence = nn.LSTM(8, 8, num_layers=2).to("xla"), torch.randn(5, 2, 8).to("xla")
with profile(activities=BOTH) as profiler:
    lstm(sequence)[0].sum().backward()
    torch_xla.sync(wait=True)
events = events_of(profiler, {str(tmp_path / "trace.json")!r})
begun = [e["id"] for e in events if e.get("ph") == "s" and e["cat"] == "ac2g"]
assert begun and len(begun) == len(set(begun)), begun
"""
    run_python(PROFILE + source, **ENGINE)


def test_ranges_of_the_user_are_on_the_device_too(events):
    """From the first to the last step that an operation within the range recorded, and no other range's."""
    ranges = [e for e in of(events, "gpu_user_annotation") if e["name"] == "forward"]
    hosts = {e["args"]["External id"]: e for e in of(events, "user_annotation") if e["name"] == "forward"}
    operations = {e["args"]["External id"]: e for e in of(events, "cpu_op")}
    assert len(ranges) == len(hosts) == 3
    for found in ranges:
        host = hosts[found["args"]["External id"]]
        steps = [e for e in of(events, "kernel") if inside(operations[e["args"]["External id"]], host)]
        assert {"aten::addmm"} <= {e["name"] for e in steps} and all(inside(e, found) for e in steps)
        assert len({e["args"]["run"] for e in steps}) == 1
        times = [e["ts"] for e in steps], [e["ts"] + e["dur"] for e in steps]
        assert abs(min(times[0]) - found["ts"]) < 0.01 and abs(max(times[1]) - found["ts"] - found["dur"]) < 0.01


def test_runs_and_their_queue_are_on_the_device(events):
    """A run's wait in the queue ends where the run begins."""
    runs = {e["args"]["run"]: e for e in of(events, "gpu_user_annotation") if e["name"] == "xla::run"}
    queue = [e for e in of(events, "gpu_user_annotation") if e["name"] == "xla::queue"]
    assert len(queue) == len(runs)
    for event in queue:
        assert event["tid"] != runs[event["args"]["run"]]["tid"]
        assert abs(event["ts"] + event["dur"] - runs[event["args"]["run"]]["ts"]) < 0.01


def test_how_long_a_trace_is_recorded(events):
    """From its first operation to its sync, with the number of its nodes."""
    traces = [e for e in of(events, "gpu_user_annotation") if e["name"] == "xla::trace"]
    assert len(traces) == 3 and len({e["args"]["nodes"] for e in traces}) == 1
    for trace in traces:
        inner = [e for e in of(events, "cpu_op") if inside(e, trace)]
        assert {"aten::addmm", "aten::layer_norm"} <= {e["name"] for e in inner}


def test_tables_have_device_times(events):
    """A host operation has the time of its steps; steps are rows of their own."""
    table = events[-1]
    assert table["aten::addmm"][0] > 0 and table["aten::addmm"][1] >= 6
    assert table["forward"][0] >= table["aten::addmm"][0] > 0


def test_profiles_are_apart(run_python, tmp_path):
    """Without the device's activity there are no tracks of it, and a second profile has its own events only."""
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
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    step()
    torch_xla.sync(wait=True)
told += [sum(e.get("cat") in ("kernel", "privateuse1_runtime") for e in events_of(profiler, path))]
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
    assert json.loads(line[5:]) == [0, True, True, 0, 1, True, "xla::fallback aten::nonzero", True]


def test_a_profile_of_the_cpu_alone_has_the_devices_work(run_python, tmp_path):
    """As ranges of the threads that do it, the last step's too, each as often as with the device's activity."""
    source = f"""
def rows(activities):
    with profile(activities=activities) as profiler:
        fresh = (torch.ones(7, device="xla").sin() * 3).sum().item()
        for _ in range(3):
            step()
    counts, times = {{}}, {{}}
    for row in profiler.key_averages():
        counts[row.key] = counts.get(row.key, 0) + row.count
        times[row.key] = row.cpu_time_total
    return counts, times, profiler
counts, times, profiler = rows([ProfilerActivity.CPU])
events = events_of(profiler, {str(tmp_path / "trace.json")!r})
runs = [e for e in events if e.get("name") == "xla::run"]
inner = [e for e in events if e.get("name", "").startswith(("xla::kernel ", "xla::library "))]
of_user = {{e["tid"] for e in events if e.get("name") == "aten::linear"}}
both, _, _ = rows(BOTH)
table = profiler.key_averages().table(sort_by="self_cpu_time_total")
print("told", json.dumps([counts, times, both, runs, inner, list(of_user), "xla::run" in table]))
"""
    counts, times, both, runs, inner, of_user, shown = told_by(run_python, source)
    assert counts["xla::run"] == both["xla::run"] == len(runs) == 4 and shown
    assert counts["xla::compile"] >= 1
    kernels = {name for name in counts if name.startswith("xla::kernel ")}
    assert any("reduce_sum" in name for name in kernels) and all(times[name] >= 0 for name in kernels)
    assert counts["xla::library aten::mm"] * 2 == both["aten::mm"]  # there the host's and the device's
    assert times["xla::run"] > 0 and counts["aten::mm"] == counts["xla::library aten::mm"]
    wide = [{**run, "ts": run["ts"] - 1, "dur": run["dur"] + 2} for run in runs]  # times are whole microseconds
    assert all(any(inside(e, run) and e["tid"] == run["tid"] for run in wide) for e in inner)
    assert any(run["tid"] not in of_user for run in runs)
    assert not any(name.startswith(("xla::kernel ", "xla::library ")) for name in both)


@pytest.mark.parametrize("interpreted", ["0", "100000"])
def test_a_run_on_the_users_thread_is_counted_once(run_python, interpreted):
    """Who reads each result runs short programs itself: what they call of ATen is no operation of the user's."""
    source = """
import json, torch, torch_xla
from torch.profiler import ProfilerActivity, profile
a, b = torch.ones(4, 4, device="xla"), torch.ones(4, 4, device="xla")
def turn():
    return (a @ b).cumsum(0).sum().item()
for _ in range(20):
    turn()
counts = []
for activities in ([ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]):
    with profile(activities=activities) as profiler:
        for _ in range(20):
            turn()
    rows = [row for row in profiler.key_averages() if row.device_type == torch.autograd.DeviceType.CPU]
    counts += [{row.key: row.count for row in rows}[name] for name in ("aten::mm", "aten::cumsum")]
print(counts)
"""
    out = run_python(source, XLA_INTERPRETED_OPERATIONS=interpreted, **ENGINE)
    assert "[20, 20, 20, 20]" in out, out


def told_by(run_python, source: str):
    """What a program prints as JSON behind "told"."""
    (line,) = [line for line in run_python(PROFILE + source, **ENGINE).splitlines() if line.startswith("told ")]
    return json.loads(line[5:])


def test_a_schedule_repeats(run_python, tmp_path):
    """Each of its traces has the steps of its own cycle, with shapes and stacks where they are asked for."""
    source = f"""
path, told = {str(tmp_path / "trace.json")!r}, []
def ready(profiler):
    found = events_of(profiler, path)
    kernels = sum(e.get("cat") == "kernel" and e["name"] == "aten::mm" for e in found)
    shapes = [e["args"]["Input Dims"] for e in found if e.get("cat") == "cpu_op" and e["name"] == "aten::linear"]
    steps = [e["name"] for e in found if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]
    calls = any(e.get("cat") == "python_function" and e["name"].endswith(": step") for e in found)
    told.append([kernels, shapes[0], steps, calls])
plan = schedule(wait=1, warmup=1, active=2, repeat=2)
with profile(activities=BOTH, schedule=plan, on_trace_ready=ready, record_shapes=True, with_stack=True) as profiler:
    for _ in range(9):
        step()
        torch_xla.sync(wait=True)  # else a step that is queued before the cycle may run within it
        profiler.step()
print("told", json.dumps(told))
"""
    first, second = told_by(run_python, source)
    assert first[0] == second[0] > 0 and first[3] and second[3]
    assert first[1] == second[1] == [[32, 64], [128, 64], [128]]
    assert first[2] == ["ProfilerStep#2", "ProfilerStep#3"] and second[2] == ["ProfilerStep#6", "ProfilerStep#7"]


def test_orders_of_calls(run_python, tmp_path):
    """Nested profiles, one that is stopped twice or without a start, an empty one, one that an error ends: as
    PyTorch has them on the CPU alone, and they cost no later profile anything."""
    source = f"""
path, told = {str(tmp_path / "trace.json")!r}, []
def kernels(profiler):
    return sum(e.get("cat") == "kernel" for e in events_of(profiler, path))
def error(call):
    try:
        call()
    except Exception as error:
        return f"{{type(error).__name__}}: {{str(error).splitlines()[0]}}"
def nested(activities):
    with profile(activities=activities), profile(activities=activities):
        step()
def profiled(activities=BOTH):
    with profile(activities=activities) as profiler:
        step()
        torch_xla.sync(wait=True)
    return kernels(profiler)
torch_xla.sync(wait=True)
count = profiled()
told.append(error(lambda: nested(BOTH)) == error(lambda: nested([ProfilerActivity.CPU])))
torch_xla.sync(wait=True)
told.append(profiled() == count > 0)
with profile(activities=BOTH) as empty:
    pass
told.append([kernels(empty), empty.key_averages().table() is not None])
twice = profile(activities=BOTH)
for _ in range(2):
    twice.start()
    step()
    twice.stop()
told.append(kernels(twice) == count)
told.append([error(twice.stop), error(profile(activities=BOTH).stop)])
told.append([error(twice.stop), error(profile(activities=[ProfilerActivity.CPU]).stop)])
told.append(profiled([ProfilerActivity.PrivateUse1]) == count)
try:
    with profile(activities=BOTH) as failed:
        step()
        raise KeyError
except KeyError:
    told.append(kernels(failed) == count)
with torch.autograd.profiler.profile(use_device="xla") as older:
    step()
told.append(sum(e.name == "aten::addmm" for e in older.function_events))
print("told", json.dumps(told))
"""
    nested, after, empty, twice, stopped, likewise, alone, failed, older = told_by(run_python, source)
    assert nested and after and twice and alone and failed
    assert empty == [0, True] and stopped == likewise
    assert older == 2  # with times of marks that it sets itself, in the older form


# ---- Accounting ----
NETS = {
    "mlp": """
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10)).to("xla")
x, y = torch.randn(3072, 256).to("xla"), torch.randint(10, (3072,)).to("xla")
""",
    "convolutions": """
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to("xla")
x, y = torch.randn(160, 3, 32, 32).to("xla"), torch.randint(10, (160,)).to("xla")
""",
}


def covered_share(events: list[dict], within: dict) -> float:
    """Of an event's time, the part in which at least one of the events goes on."""
    end, covered = within["ts"], 0.0
    for event in sorted(events, key=lambda event: event["ts"]):
        last = min(event["ts"] + event["dur"], within["ts"] + within["dur"])
        covered += max(0.0, last - max(end, event["ts"]))
        end = max(end, last)
    return covered / within["dur"]


@pytest.mark.parametrize("net", NETS)
def test_all_of_a_steps_time_is_told(net, run_python, tmp_path):
    """By operations and the traces that they record, what the host does for it, and steps of runs; no ranges of the
    user nor whole runs count. 98 % and more, and of runs 97 %, where nothing else takes the processor."""
    path = tmp_path / "trace.json"
    source = f"""
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(5):
    step()
torch_xla.sync(wait=True)
with profile(activities=BOTH) as profiler:
    with record_function("all"):
        for _ in range(20):
            step()
        torch_xla.sync(wait=True)
profiler.export_chrome_trace({str(path)!r})
"""
    run_python(PROFILE + NETS[net] + source, **ENGINE)
    events = json.loads(path.read_text())["traceEvents"]
    (whole,) = [event for event in of(events, "user_annotation") if event["name"] == "all"]
    steps = of(events, "kernel")
    told = of(events, "cpu_op") + of(events, "privateuse1_runtime") + steps
    told += [event for event in of(events, "gpu_user_annotation") if event["name"] == "xla::trace"]
    assert covered_share(told, whole) >= 0.9
    runs = [event for event in of(events, "gpu_user_annotation") if event["name"] == "xla::run"]
    assert len(runs) == 20
    in_steps = sum(covered_share(steps, run) * run["dur"] for run in runs)
    assert in_steps / sum(run["dur"] for run in runs) >= 0.9


def test_calls_beside_each_other_are_on_tracks_of_their_own(run_python, tmp_path):
    path = tmp_path / "trace.json"
    source = f"""
torch.set_num_threads(2)
layers, x = [nn.LSTM(256, 256).to("xla") for _ in range(8)], torch.rand(20, 10, 256).to("xla")
def run():
    with torch.no_grad():
        torch.stack([layer(x)[0] for layer in layers]).sum(0).cpu()
run(), run()
with profile(activities=BOTH) as profiler:
    run()
profiler.export_chrome_trace({str(path)!r})
"""
    run_python(PROFILE + source, **ENGINE)
    events = json.loads(path.read_text())["traceEvents"]
    steps = [event for event in of(events, "kernel") if event["name"] == "aten::mkldnn_rnn_layer"]
    tracks = {event["tid"]: [] for event in steps}
    for step in sorted(steps, key=lambda event: event["ts"]):
        tracks[step["tid"]].append(step)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    names = {names[track] for track in tracks}
    assert len(steps) == 8 and names <= {"programs", "programs, beside 1"}, names  # a thread that comes late gets none
    for one in tracks.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.002 for a, b in itertools.pairwise(one))
