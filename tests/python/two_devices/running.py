"""Programs that run on two devices: syncs and waits, events, threads, failures.

test_several_devices.py runs this file, in a process that has two devices.
"""

import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from shared import DEVICES, pending, same
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch_xla import _XLAC

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import lstm_ensemble


# ---- Syncs and waits ----
def test_a_sync_runs_one_device():
    for sync, device in [
        (torch_xla.sync, 0),
        (xm.mark_step, 1),
        (lambda: torch.xla.synchronize(1), 0),
        (lambda: torch.xla.synchronize("xla:0"), 1),
        (lambda: torch.xla.synchronize(torch.device("xla", 1)), 0),
        (torch.accelerator.synchronize, 1),
    ]:
        kept = [torch.ones(2, device=name) + 1 for name in DEVICES]
        assert pending("xla:0") and pending("xla:1")
        with torch.xla.device(device):
            sync()
        assert pending("xla:0") != pending("xla:1")
        assert all(each.tolist() == [2, 2] for each in kept)


def test_which_device_a_sync_runs():
    def run_one(sync, runs: int):
        kept = [torch.ones(2, device=name) + 1 for name in DEVICES]
        sync(kept)
        assert not pending(DEVICES[runs]) and pending(DEVICES[1 - runs])
        assert kept[1 - runs].sum().item() == 4

    run_one(lambda kept: torch_xla.sync(), 0)
    run_one(lambda kept: torch.xla.synchronize(1), 1)
    run_one(lambda kept: xm.unlazy([kept[1]]), 1)
    run_one(lambda kept: kept[1].cpu(), 1)
    run_one(lambda kept: _XLAC._xla_step_marker("xla:1", [], True), 1)
    torch.xla.set_device(1)
    run_one(lambda kept: xm.mark_step(), 1)
    run_one(lambda kept: torch_xla.sync(wait=True), 1)


def test_waits_keep_what_is_pending():
    kept = torch.ones(2, device="xla:1") + 1
    xm.wait_device_ops(["xla:1"])
    xm.wait_device_ops()
    assert pending("xla:1")
    assert kept.tolist() == [2, 2]


def test_an_optimizer_step_syncs_the_devices_of_its_parameters():
    params = [nn.Parameter(torch.ones(2, device=name)) for name in ("xla:0", "xla:0", "xla:1")]
    other = torch.ones(2, device="xla:0") + 1
    for p in params:
        p.grad = torch.ones_like(p)
    torch.optim.SGD([params[2]], lr=0.5).step()
    assert pending("xla:0") and not pending("xla:1")
    params[2].grad.add_(1)
    torch.optim.SGD(params, lr=0.5).step()
    assert not pending("xla:0") and not pending("xla:1")
    assert [p.tolist() for p in params] == [[0.5] * 2, [0.5] * 2, [-0.5] * 2] and other.tolist() == [2, 2]


def test_a_barrier_syncs_the_devices_of_the_parameters(monkeypatch):
    monkeypatch.setattr(torch_xla._auto_sync, "_enabled", False)
    params = [nn.Parameter(torch.ones(2, device=name)) for name in DEVICES]
    for p in params:
        p.grad = torch.ones_like(p)
    calls = []
    xm.add_step_closure(lambda: calls.append([pending(name) for name in DEVICES]))
    xm.optimizer_step(torch.optim.SGD(params[1:], lr=0.5), barrier=True)
    assert pending("xla:0") and calls == [[True, False]]
    xm.optimizer_step(torch.optim.SGD(params, lr=0.5), barrier=True)
    assert not pending("xla:0") and not pending("xla:1")
    assert [p.tolist() for p in params] == [[0.5] * 2, [0] * 2]
    kept = torch.ones(2, device="xla:0") + 1
    xm.optimizer_step(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.5), barrier=True)  # nothing of ours
    assert not pending("xla:0") and kept.tolist() == [2, 2]


def test_step_closures_belong_to_the_device_of_their_thread():
    calls = []

    def loop(number):
        with torch.xla.device(number):
            for step in range(3):
                for run_async in (False, True):
                    args = (number, step, threading.get_ident())
                    xm.add_step_closure(lambda *a: calls.append((*a, threading.get_ident())), args, run_async)
                barrier.wait()
                if number == step % 2:
                    torch_xla.sync()
                barrier.wait()
            torch_xla.sync()

    barrier = threading.Barrier(2, timeout=60)
    threads = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    xm.add_step_closure(lambda: None)
    torch_xla.sync()  # of xla:0: nothing of theirs is left
    for number in range(2):
        here = [step for n, step, added, ran in calls if n == number and added == ran]
        assert here == [0, 1, 2]
    deadline = time.monotonic() + 60
    while len(calls) < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    for number in range(2):
        assert [step for n, step, added, ran in calls if n == number and added != ran] == [0, 1, 2]


def test_a_loader_syncs_its_device():
    data = [torch.full((2,), float(i)) for i in range(3)]
    other = torch.ones(2, device="xla:0") + 1
    total = torch.zeros(2, device="xla:1")
    for batch in pl.MpDeviceLoader(data, "xla:1"):
        assert str(batch.device) == "xla:1"
        total += batch
    assert not pending("xla:1") and pending("xla:0")
    assert total.tolist() == [3, 3] and other.tolist() == [2, 2]


def test_events_and_streams():
    first, second = torch.xla.Stream(0), torch.xla.Stream(1)
    assert first.device == torch.device("xla:0") and second.device == torch.device("xla:1")
    torch.accelerator.set_stream(second)
    assert torch.xla.current_stream(1) == second and torch.xla.current_stream(0) == torch.xla.default_stream(0)
    torch.accelerator.set_stream(torch.xla.default_stream(1))
    start, end = torch.xla.Event(enable_timing=True), torch.xla.Event(enable_timing=True)
    stream = torch.xla.default_stream(1)
    x = torch.ones(64, 64, device="xla:1")
    other = torch.ones(2, device="xla:0") + 1
    start.record(stream)
    x = x @ x
    end.record(stream)
    assert not pending("xla:1") and pending("xla:0")
    end.synchronize()
    assert start.query() and start.elapsed_time(end) >= 0
    assert x[0, 0].item() == 64 and other.tolist() == [2, 2]


# ---- Events ----
def record_events(body) -> list[dict]:
    _XLAC._start_events()
    try:
        body()
        torch.xla.synchronize(1)
    finally:
        seen = _XLAC._stop_events()
    return seen


def test_events_of_all_phases_tell_their_device():
    def work():
        x = torch.arange(15.0).to("xla:1").reshape(3, 5)
        x[1:].mul_(3)
        (x @ x.t()).cos().cpu()
        torch.nonzero(x).sum().item()

    torch.xla.synchronize(0)
    seen = record_events(work)
    phases = {event["phase"] for event in seen}
    expected = {"record", "sync", "compile", "pass", "queue", "run", "upload", "download", "fallback"}
    steps = {"kernel", "library", "update"} if _XLAC._xla_chosen_device() == "CPU" else set()
    assert expected | steps <= phases
    shared = [event for event in seen if (event["phase"], event["name"]) == ("pass", "kernel")]
    assert all(event["device"] == -1 for event in shared)  # a kernel's code is that of all devices
    assert {event["device"] for event in seen if event not in shared} == {1}


def test_a_copy_between_devices_is_a_download_and_an_upload():
    x = torch.ones(3, 4, device="xla:0")
    whole, part = torch.zeros(3, 4, device="xla:1"), torch.zeros(5, 4, device="xla:1")

    def work():
        whole.copy_(x)
        part[1:4].copy_(x)

    for _ in range(2):
        seen = record_events(work)
        transfers = [event for event in seen if event["phase"] in ("upload", "download")]
        told = [(event["phase"], event["device"], event["bytes"]) for event in transfers]
        assert told == [("download", 0, 48), ("upload", 1, 48)] * 2


# ---- Side by side ----
def run_threads(*works) -> None:
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")
@pytest.mark.parametrize("form", lstm_ensemble.FORMS)
def test_a_script_of_modules_on_both(form):
    ensemble = lstm_ensemble.place(lstm_ensemble.make(form, 16), DEVICES)
    assert {str(p.device) for p in ensemble.parameters()} == set(DEVICES)
    x = torch.rand(7, 3, 16)
    with torch.no_grad():
        same(torch.jit.script(ensemble)(x.to("xla:0")), lstm_ensemble.make("plain loop", 16)(x), "xla:0")


def test_two_threads_with_a_device_each():
    weights = {}

    def work(name: str):
        torch.manual_seed(0)
        layer = nn.Linear(8, 8)
        layer.load_state_dict(start)
        layer.to(name)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            layer(data.to(name)).square().mean().backward()
            optimizer.step()
        weights[name] = layer.weight.detach()

    start, data = nn.Linear(8, 8).state_dict(), torch.randn(4, 8)
    run_threads(*[lambda name=name: work(name) for name in DEVICES])
    work("cpu")
    for name in DEVICES:
        same(weights[name], weights["cpu"], name)


def test_threads_that_copy_back_and_forth():
    boxes = [torch.zeros(16, device=name) for name in DEVICES]

    def work(index: int):
        for _ in range(40):
            boxes[index].copy_(boxes[1 - index])
            boxes[index].add_(1)
            assert boxes[index].sum().item() % 16 == 0

    run_threads(lambda: work(0), lambda: work(1))
    assert all(box.min() == box.max() > 0 for box in boxes)


def run_for_a_while(device: str) -> None:
    x = torch.randn(1500, 1500, device=device)
    for _ in range(30):
        x = x @ x * 1e-2
    _XLAC._xla_sync(x.device.index)


def test_programs_of_two_devices_run_side_by_side():
    y = torch.ones(4, device="xla:1")
    (y + 1).sum().item()
    run_for_a_while("xla:0")
    assert (y + 1).sum().item() == 8  # beside the long program
    assert not torch.xla.default_stream(0).query()
    torch.xla.synchronize(0)
    assert torch.xla.default_stream(0).query()


# ---- Failures ----
def fail_on(name: str) -> torch.Tensor:
    return F.embedding(torch.tensor([0, 9], device=name), torch.ones(4, 2, device=name))


@pytest.mark.checks_values
def test_a_failed_run_leaves_the_other_device_alone():
    good = torch.ones(3, device="xla:1") + 1
    lost = fail_on("xla:0")
    torch.xla.synchronize(1)
    with pytest.raises(IndexError, match="index out of range"):
        torch.xla.synchronize(0)
    torch.xla.synchronize(0)  # told once
    assert good.tolist() == [2, 2, 2]
    with pytest.raises(IndexError):
        lost.cpu()
    assert (torch.ones(2, device="xla:0") + 1).tolist() == [2, 2]


@pytest.mark.checks_values
def test_an_error_waits_for_its_own_device():
    run_for_a_while("xla:1")
    lost = fail_on("xla:1")
    _XLAC._xla_sync(1)
    for _ in range(3):
        assert (torch.ones(2, device="xla:0") + 1).tolist() == [2, 2]
        torch_xla.sync(wait=True)
    with pytest.raises(IndexError):
        xm.wait_device_ops(["xla:1"])
    del lost


@pytest.mark.checks_values
def test_a_copy_tells_the_error_of_its_source():
    lost = fail_on("xla:0")
    kept = torch.zeros(2, 2, device="xla:1")
    with pytest.raises(IndexError, match="index out of range"):
        kept.copy_(lost)
    torch.xla.synchronize(0)
    torch.xla.synchronize(1)
    assert kept.tolist() == [[0, 0], [0, 0]]


@pytest.mark.checks_values
def test_weights_on_both_devices_keep_their_last_good_values():
    weights = [torch.ones(2, device=name) for name in DEVICES]
    for name, weight in zip(DEVICES, weights):
        weight.add_(1)
        torch.xla.synchronize(name)
    weights[0].add_(fail_on("xla:0").sum())
    weights[1].add_(1)
    torch.xla.synchronize(1)
    with pytest.raises(IndexError):
        torch.xla.synchronize(0)
    assert [w.tolist() for w in weights] == [[2, 2], [3, 3]]
