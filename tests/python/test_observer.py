"""The step observer: what a training step tells, and that it costs nothing to others."""

import pytest
import torch

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla import _XLAC


@pytest.fixture
def events(device):
    """Function that runs a body and returns the events that it caused, those of its queued runs included."""

    def record(body) -> list[dict]:
        _XLAC._start_events()
        try:
            body()
            torch_xla.sync(wait=True)
        finally:
            seen = _XLAC._stop_events()
        return seen

    return record


def train(device, width=16):
    """Returns a function that does one step. A width of its own makes programs that no other test has compiled."""
    layers = [torch.nn.Linear(8, width), torch.nn.LayerNorm(width), torch.nn.Linear(width, 4)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        x = torch.randn(5, 8).to(device)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def of_phase(seen: list[dict], phase: str) -> list[dict]:
    return [event for event in seen if event["phase"] == phase]


def test_a_step_tells_of_every_phase(device, events):
    seen = events(train(device, 17))
    assert {"record", "sync", "compile", "pass", "queue", "run", "upload"} <= {event["phase"] for event in seen}
    assert all(event["start_ns"] <= event["end_ns"] for event in seen)


def test_recorded_operations_name_the_users_line(device, events):
    seen = events(lambda: torch.ones(3, device=device).mul_(2))
    names = [event["name"] for event in of_phase(seen, "record")]
    assert "aten::mul.Tensor" in names
    assert all("test_observer.py" in event["line"] for event in of_phase(seen, "record"))


def test_sync_queue_and_run_have_one_number(device, events):
    step = train(device)
    step()
    torch_xla.sync(wait=True)
    seen = events(step)
    (sync,) = [event for event in of_phase(seen, "sync") if event["run"]]
    (queue,) = of_phase(seen, "queue")
    (run,) = of_phase(seen, "run")
    assert sync["run"] == queue["run"] == run["run"] > 0
    assert queue["end_ns"] == run["start_ns"]


def test_the_steps_of_a_run_lie_within_it(device, events):
    step = train(device, 20)
    step()
    torch_xla.sync(wait=True)
    seen = events(step)
    (run,) = of_phase(seen, "run")
    steps = [event for event in seen if event["phase"] in ("kernel", "library", "update")]
    assert {event["run"] for event in steps} == {run["run"]}
    assert all(run["start_ns"] <= event["start_ns"] and event["end_ns"] <= run["end_ns"] for event in steps)
    assert {event["name"] for event in steps if event["phase"] == "library"} & {"aten::addmm", "aten::mm"}
    assert all(event["device"] == device.index for event in steps)


def test_steps_name_the_line_of_the_run_at_hand(device, events):
    kept = []

    def program():
        kept.append(torch.ones(3, 37, device=device).cos().sum(1))

    program()
    torch_xla.sync(wait=True)
    seen = events(program)
    assert any("in test_steps" in event["line"] for event in of_phase(seen, "kernel"))


def test_a_hit_compiles_nothing(device, events):
    step = train(device)
    step()
    step()
    seen = events(step)
    assert not of_phase(seen, "compile")
    assert not of_phase(seen, "pass")


def test_passes_lie_within_the_compile(device, events):
    seen = events(train(device, 18))
    (compiled,) = of_phase(seen, "compile")
    passes = of_phase(seen, "pass")
    assert {"lower", "simplify", "cse", "eliminate_dead_code"} <= {event["name"] for event in passes}
    assert all(compiled["start_ns"] <= p["start_ns"] and p["end_ns"] <= compiled["end_ns"] for p in passes)


def test_the_stages_of_the_schedule_are_passes_too(device, events):
    passes = of_phase(events(train(device, 21)), "pass")
    assert {"layout", "grouping", "fusing", "kernel building", "accesses", "memory plan"} <= {
        event["name"] for event in passes
    }


def test_transfers_tell_bytes(device, events):
    x = torch.zeros(10, 10)
    seen = events(lambda: x.to(device).cpu())
    assert [event["bytes"] for event in of_phase(seen, "upload")] == [400]
    assert [event["bytes"] for event in of_phase(seen, "download")] == [400]


def test_a_fallback_is_an_event(device, events):
    x = torch.tensor([0.0, 1.0, 2.0], device=device)
    seen = events(x.nonzero)
    (fallback,) = of_phase(seen, "fallback")
    assert fallback["name"] == "aten::nonzero"


def test_the_transfers_of_a_fallback_are_told(device, events):
    x = torch.tensor([0.0, 1.0, 2.0], device=device)
    torch_xla.sync(wait=True)
    seen = events(x.nonzero)
    (fallback,) = of_phase(seen, "fallback")
    (download,) = of_phase(seen, "download")
    (upload,) = of_phase(seen, "upload")
    assert (download["bytes"], upload["bytes"]) == (x.nbytes, 2 * 8)
    assert fallback["start_ns"] <= download["start_ns"] and upload["end_ns"] <= fallback["end_ns"]
    assert all("test_observer.py" in event["line"] for event in (download, upload))


def test_metrics_count_what_events_tell(device, events):
    step = train(device, 19)
    met.clear_all()
    seen = events(step)
    compiling = "CompileTime" if met.metric_data("CompileTime") else "ReplanTime"
    for phase, metric in {"compile": compiling, "run": "ExecuteTime", "upload": "TransferToDeviceTime"}.items():
        told = of_phase(seen, phase)
        samples, total, _ = met.metric_data(metric)
        assert samples == len(told)
        assert total == sum(event["end_ns"] - event["start_ns"] for event in told)


@pytest.mark.checks_values
def test_a_failed_run_is_told_too(device, events):
    def fail():
        table = torch.nn.Embedding(4, 2).to(device)
        with pytest.raises(IndexError):
            table(torch.tensor([9], device=device)).cpu()

    assert of_phase(events(fail), "run")


@pytest.mark.checks_values
def test_a_failed_read_has_no_bytes(device, events):
    def fail():
        row = torch.nn.functional.embedding(torch.tensor([9], device=device), torch.ones(4, 2, device=device))
        with pytest.raises(IndexError):
            row.sum().item()

    met.clear_all()
    (download,) = of_phase(events(fail), "download")
    assert download["bytes"] == -1
    assert met.metric_data("InboundData") is None


def test_events_are_taken_once(device):
    with pytest.raises(ValueError, match="no events are being recorded"):
        _XLAC._stop_events()
    _XLAC._start_events()
    with pytest.raises(ValueError, match="already"):
        _XLAC._start_events()
    _XLAC._stop_events()
