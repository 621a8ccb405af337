"""What a process does with two devices. test_several_devices.py runs this file, in a process that has two."""

import copy
import io
import pickle
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import lstm_ensemble

DEVICES = ("xla:0", "xla:1")
MISSING = "device index 2 does not exist: there are 2 xla devices, xla:0 to xla:1"


@pytest.fixture(autouse=True)
def clean(device):
    """Both devices empty, with one seed; the current one is the first."""
    xm.wait_device_ops()
    torch.xla.synchronize(1)
    yield
    torch.xla.set_device(0)


def pending(device: str) -> bool:
    return "= " in _XLAC._pending_graph_text(device)


def counted(name: str) -> int:
    return met.counter_value(name) or 0


def same(x: torch.Tensor, expected: torch.Tensor, device: str) -> None:
    assert str(x.device) == device
    torch.testing.assert_close(x.cpu(), expected)


# ---- Which devices there are, and which is the current one ----
def test_devices_are_listed():
    assert torch_xla.device_count() == torch.xla.device_count() == torch.accelerator.device_count() == 2
    assert xr.addressable_device_count() == xr.local_device_count() == xr.global_runtime_device_count() == 2
    assert torch_xla.devices() == [torch.device(name) for name in DEVICES]
    assert xm.get_xla_supported_devices() == list(DEVICES)
    assert xm.get_xla_supported_devices(max_devices=1) == ["xla:0"]
    kind = xr.device_type()
    assert torch_xla.real_devices() == [f"{kind}:0", f"{kind}:1"]
    assert xm.xla_real_devices(["xla:1"]) == [f"{kind}:1"]
    assert [each["name"] for each in xr.global_runtime_device_attributes()] == torch_xla.real_devices()
    assert torch.xla.get_device_name(1) == f"{kind}:1"
    for device, index in [("xla", 0), ("xla:1", 1), (1, 1)]:
        assert xr.runtime_device_attributes(device)["name"] == f"{kind}:{index}"
    with torch.xla.device(1):
        assert xr.runtime_device_attributes("xla")["name"] == f"{kind}:1"
    with pytest.raises(ValueError, match="expected an xla device, but got cpu:0"):
        xr.runtime_device_attributes("cpu:0")


def test_one_process_is_one_replica():
    with torch.xla.device(1):
        assert xr.world_size() == xm.xrt_world_size() == xr.process_count() == xr.local_process_count() == 1
        assert xr.global_ordinal() == xr.local_ordinal() == xm.get_ordinal() == 0 and xm.is_master_ordinal()
    assert xr.global_device_count() == 2


def test_what_needs_several_replicas_is_refused():
    mesh = xs.get_1d_mesh("data")
    x = torch.ones(2, 2, device="xla:1")
    for shard in (xs.mark_sharding, xs.mark_sharding_with_gradients, lambda t, *spec: xs.ShardingSpec(*spec).apply(t)):
        with pytest.raises(NotImplementedError, match="a mesh of 2 devices needs collectives"):
            shard(x, mesh, ("data", None))
    with pytest.raises(NotImplementedError, match="FSDP needs several replicas, and a run has one"):
        SpmdFullyShardedDataParallel(nn.Linear(2, 2))
    for distribute in (xs.xla_distribute_tensor, xs.xla_distribute_module):
        with pytest.raises(NotImplementedError, match="DTensor needs a DeviceMesh with process groups"):
            distribute(x, mesh)


def test_the_current_device():
    assert torch_xla.device() == xm.xla_device() == torch.device("xla:0")
    assert torch_xla.device(1) == xm.xla_device(1) == torch.device("xla:1")
    with torch.xla.device(1):
        assert torch.xla.current_device() == torch.accelerator.current_device_index() == 1
        assert torch_xla.device() == xm.xla_device() == torch.device("xla:1")
        assert torch.ones(2, device="xla").device == torch.device("xla:1")
        assert torch.tensor([1, 2], device="xla").device == torch.device("xla:1")
        assert torch.ones(2).to("xla").device == torch.ones(2).xla().device == torch.device("xla:1")
        assert torch.ones(2, device="xla:0").device == torch.device("xla:0")
    assert torch.xla.current_device() == 0
    torch.xla.set_device("xla:1")
    assert torch.ones(2, device="xla").device == torch.device("xla:1")
    with torch.accelerator.device_index(0):
        assert torch.ones(2, device="xla").device == torch.device("xla:0")
    with torch.xla.device_of(torch.ones(1, device="xla:0")):
        assert torch.xla.current_device() == 0
    assert torch.xla.current_device() == 1


def test_each_thread_has_a_current_device_of_its_own():
    torch.xla.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.ones(1, device="xla").device))
    thread.start()
    thread.join()
    assert seen == [torch.device("xla:0")]


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(2, device="xla:2"),
        lambda: torch.empty_strided((2,), (1,), device="xla:2"),
        lambda: torch.arange(3, device="xla:2"),
        lambda: torch.tensor(1.5, device="xla:2"),
        lambda: torch.scalar_tensor(1.5, device="xla:2"),
        lambda: torch.randperm(3, device="xla:2"),
        lambda: torch.ones(2).to("xla:2"),
        lambda: torch.ones(2, device="xla").to("xla:2"),
        lambda: nn.Linear(2, 2).to("xla:2"),
        lambda: torch.xla.set_device(2),
        lambda: torch.accelerator.set_device_index(2),
        lambda: torch_xla.device(2),
        lambda: xm.xla_device(2),
        lambda: torch.xla.synchronize(2),
        lambda: xm.wait_device_ops(["xla:2"]),
        lambda: torch.Generator(device="xla:2"),
        lambda: torch.xla.get_rng_state(2),
        lambda: torch_xla.manual_seed(1, "xla:2"),
        lambda: torch.xla.memory_allocated(2),
        lambda: torch.xla.memory_reserved(2),
        lambda: torch.xla.reset_peak_memory_stats(2),
        lambda: xm.get_memory_info("xla:2"),
        lambda: torch.xla.get_device_name(2),
        lambda: torch.xla.Stream(2),
    ],
)
def test_a_device_that_does_not_exist(use):
    with pytest.raises((RuntimeError, IndexError), match=MISSING):
        use()
    assert torch.xla.current_device() == 0


# ---- Recording ----
def compute(device: str) -> list[torch.Tensor]:
    """Operations of all kinds of kernels: typed, boxed, views, random, composed, fallen back."""
    x = torch.arange(12.0).reshape(3, 4).to(device)
    w = torch.linspace(-1, 1, 16, device=device).reshape(4, 4)
    y = x.clone()
    y[1:] += 1
    y.t()[0].mul_(2)
    image = torch.linspace(0, 1, 2 * 3 * 8 * 8, device=device).reshape(2, 3, 8, 8)
    kernel = torch.linspace(-1, 1, 27, device=device).reshape(1, 3, 3, 3)
    running = torch.zeros(3, device=device), torch.ones(3, device=device)
    lstm = nn.LSTM(4, 2)
    for i, p in enumerate(lstm.parameters()):
        p.data = torch.linspace(-1, 1, p.numel()).reshape(p.shape) * (i + 1)
    return [
        x + 1,
        x @ w,
        F.softmax(x, dim=1).sum(0),
        y,
        torch.cat([x, y]),
        torch.where(x > 4, x, y),
        x[torch.tensor([0, 2])],
        F.conv2d(image, kernel),
        F.batch_norm(image, *running, training=True),
        *running,
        lstm.to(device)(x)[0].detach(),
        torch.zeros_like(x),
        x.new_full((2,), 3.0),
        torch.linalg.det(w + torch.eye(4, device=device)),
        torch.unique(x.long() % 3),
        torch.fft.fft(x).abs(),
        x.to(torch.complex64).conj() * 2,
        torch.randperm(5, device=device).sort().values,
    ]


@pytest.mark.parametrize("name", DEVICES)
def test_results_lie_where_the_operands_lie(name):
    for got, expected in zip(compute(name), compute("cpu"), strict=True):
        same(got, expected, name)


def test_both_devices_hold_what_is_pending_there():
    for got, other, expected in zip(compute("xla:1"), compute("xla:0"), compute("cpu"), strict=True):
        same(got, expected, "xla:1")
        same(other, expected, "xla:0")


A = torch.arange(4.0).reshape(2, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a + b,
        lambda a, b: a.add_(b),
        lambda a, b: torch.add(a, a, out=b),
        lambda a, b: a @ b,
        lambda a, b: a + b[0, 0],
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 1, a, b),
        lambda a, b: a[b.long()],
        lambda a, b: F.linear(a, a, b[0]),
        lambda a, b: F.batch_norm(a, b[0], b[0] + 1),
        lambda a, b: torch.cdist(a, b),
        lambda a, b: F.max_unpool2d(a[None, None], b[None, None].long(), 1),
        lambda a, b: a.masked_fill_(b > 1, 0),
        lambda a, b: torch.lerp(a, a, b),
        lambda a, b: torch.equal(a, b),
    ],
)
def test_operands_on_two_devices_are_eagers_error(call):
    a, b = A.to("xla:0"), A.to("xla:1")
    for first, second in ((a, b), (b, a)):
        with pytest.raises(RuntimeError, match=r"on the same device, but found at least two devices, xla:. and xla:.!"):
            call(first, second)
    same(a, A, "xla:0")
    same(b, A, "xla:1")


def test_operands_of_the_cpu():
    b = A.to("xla:1")
    with pytest.raises(RuntimeError, match=r"found at least two devices, xla:1 and cpu! \(move .* with .to\('xla'\)\)"):
        b + A
    same(b + torch.tensor(2.0), A + 2, "xla:1")
    same(b[torch.tensor([1])], A[[1]], "xla:1")
    b[torch.tensor([0])] = torch.tensor(7.0)
    assert b.tolist() == [[7, 7], [2, 3]]


def test_a_program_is_compiled_for_each_device(compiles):
    for turn in range(3):
        for name in DEVICES:
            same((A.to(name) * 3 - 1).relu(), (A * 3 - 1).relu(), name)
        if turn == 0:
            assert compiles.value == 2
    assert compiles.value == 2


def test_a_long_trace_is_cut_on_its_device():
    kept = torch.ones(2, device="xla:0") + 1
    x = torch.zeros(2, device="xla:1")
    executed = counted("ExecuteComputation")
    for _ in range(6000):
        x = x * 0.5 + 1
    assert counted("ExecuteComputation") > executed
    assert pending("xla:0")
    assert kept.tolist() == [2, 2]
    torch.testing.assert_close(x.cpu(), torch.full((2,), 2.0))


def test_in_place_writes_reuse_memory_of_their_device():
    weights = [torch.ones(1 << 16, device=name) for name in DEVICES]
    for _ in range(4):
        for weight in weights:
            weight.mul_(0.5)
        for index in range(2):
            torch.xla.synchronize(index)
    for name, weight in zip(DEVICES, weights):
        same(weight[:2], torch.full((2,), 1 / 16), name)


# ---- Copies ----
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0).reshape(2, 3),
        lambda: torch.arange(6.0).reshape(2, 3).t(),
        lambda: torch.arange(12).reshape(3, 4)[:, ::2],
        lambda: torch.ones(3).expand(2, 3),
        lambda: torch.tensor(2.5),
        lambda: torch.zeros(0, 3),
        lambda: torch.tensor([True, False]),
        lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
        lambda: torch.arange(3, dtype=torch.bfloat16),
        lambda: torch.tensor([1, 2, 3], dtype=torch.uint16),
    ],
)
def test_copies_between_devices(make):
    x = make()
    first = x.to("xla:0")
    second = first.to("xla:1")
    same(second, x, "xla:1")
    assert second.stride() == first.stride()
    same(second.to("xla:0"), x, "xla:0")
    pending_there = first.clone()
    target = torch.zeros(x.shape, dtype=x.dtype, device="xla:1")
    target.copy_(pending_there)
    same(target, x.resolve_conj(), "xla:1")


def test_copies_into_parts_and_other_dtypes():
    source = torch.arange(4.0, device="xla:0") + 1
    target = torch.zeros(4, 4, dtype=torch.int64, device="xla:1")
    target[1].copy_(source)
    target[:, 2] = source.to("xla:1").long()
    expected = torch.zeros(4, 4, dtype=torch.int64)
    expected[1] = expected[:, 2] = torch.arange(1, 5)
    expected[1, [0, 1, 3]] = torch.tensor([1, 2, 4])
    same(target, expected, "xla:1")
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.zeros(1, device="xla:1").expand(4).copy_(source)


def test_a_copy_is_of_the_value_at_its_time():
    x = torch.zeros(3, device="xla:0")
    copies = []
    for _ in range(3):
        x.add_(1)
        copies.append(x.to("xla:1"))
    assert [c.tolist() for c in copies] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]
    assert x.to("xla:0") is x
    copies[0].add_(10)
    assert x.tolist() == [3.0] * 3


class TwoParts(nn.Module):
    """A model whose halves lie on two devices."""

    def __init__(self, first: str, second: str):
        super().__init__()
        self.first = nn.Linear(4, 8).to(first)
        self.second = nn.Linear(8, 2).to(second)

    def forward(self, x):
        hidden = torch.tanh(self.first(x.to(self.first.weight.device)))
        return self.second(hidden.to(self.second.weight.device))


def train(first: str, second: str, make_optimizer) -> tuple[list[torch.Tensor], list[float]]:
    torch.manual_seed(1)
    model = TwoParts("cpu", "cpu")
    model.first.to(first)
    model.second.to(second)
    optimizer = make_optimizer(model.parameters())
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y.to(second))
        loss.backward()
        for p in model.parameters():
            assert p.grad.device == p.device
        optimizer.step()
        if first != "cpu":
            assert not pending(first) and not pending(second)
        losses.append(loss.item())
    return [p.detach().cpu() for p in model.parameters()], losses


@pytest.mark.parametrize("foreach", [False, True])
def test_a_model_on_two_devices_trains(foreach, compiles):
    def make_optimizer(params):
        return torch.optim.Adam(params, lr=0.05, foreach=foreach)

    weights, losses = train("xla:0", "xla:1", make_optimizer)
    expected, expected_losses = train("cpu", "cpu", make_optimizer)
    for got, want in zip(weights, expected):
        torch.testing.assert_close(got, want)
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    compiles.reset()
    train("xla:0", "xla:1", make_optimizer)
    assert compiles.value == 0


def test_gradients_meet_on_the_device_of_their_leaf():
    x = torch.arange(3.0, device="xla:0", requires_grad=True)
    y = (x * 2).sum() + (x.to("xla:1") ** 2).sum().to("xla:0")
    y.backward()
    same(x.grad, 2 + 2 * torch.arange(3.0), "xla:0")


def test_autograd_with_threads_for_each_device():
    torch._C._set_multithreading_enabled(True)
    try:
        test_gradients_meet_on_the_device_of_their_leaf()
    finally:
        torch._C._set_multithreading_enabled(False)


def test_a_module_moves_between_devices():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.append(model[0])  # tied
    x = torch.randn(5, 3)
    model.train()
    expected = copy.deepcopy(model)(x)
    weight = model[0].weight
    for name in (*DEVICES, "xla:0"):
        model.to(name)
        assert model[0].weight is weight is model[2].weight and str(weight.device) == name
        same(copy.deepcopy(model)(x.to(name)).detach(), expected.detach(), name)


def test_storages_of_two_devices_stay_apart():
    a, b = A.to("xla:0"), A.to("xla:1")
    assert a.untyped_storage().device == torch.device("xla:0") and b.untyped_storage().device == torch.device("xla:1")
    with pytest.raises(RuntimeError, match="devices"):
        a.set_(b.untyped_storage())
    b.untyped_storage().resize_(64)
    same(b, A, "xla:1")
    same(copy.deepcopy(b), A, "xla:1")
    same(b.clone(), A, "xla:1")


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


# ---- Why programs are compiled ----
def test_a_program_of_another_device_is_compiled_anew(compiles):
    def reason_on(name: str) -> dict:
        compiles.reset()
        kept = x.to(name).mul(3).erf().sinh()
        torch.xla.synchronize(name)
        del kept
        assert compiles.value == 1
        return _XLAC._compile_reasons()[-1]

    x = torch.ones(3, 17)
    reason_on("xla:0")
    reason = reason_on("xla:1")
    assert (reason["kind"], reason["device"]) == ("new device", 1)
    assert reason["what"] == "the trace is known, but of xla:0; each device has programs of its own"
    assert "two_devices.py" in reason["line"] and reason["line_before"] == reason["line"]


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


# ---- Random numbers ----
def draw(device: str) -> list[float]:
    return torch.rand(4, device=device).tolist()


def test_a_seed_of_all_devices_and_of_one():
    for seed_all in (torch.manual_seed, torch.xla.manual_seed_all):
        seed_all(5)
        assert draw("xla:0") == draw("xla:1")
    torch.manual_seed(5)
    first = draw("xla:0")
    torch.manual_seed(5)
    with torch.xla.device(1):
        torch.xla.manual_seed(6)
    assert draw("xla:0") == first != draw("xla:1")
    torch_xla.manual_seed(5, "xla:1")
    xm.set_rng_state(5, "xla:0")
    assert draw("xla:0") == draw("xla:1") == first


def test_random_states_by_device():
    draw("xla:1")
    states = torch.xla.get_rng_state_all()
    number = xm.get_rng_state("xla:1")
    assert len(states) == len(torch.xla.default_generators) == 2 and not torch.equal(*states)
    drawn = draw("xla:0"), draw("xla:1")
    torch.xla.set_rng_state_all(states)
    assert (draw("xla:0"), draw("xla:1")) == drawn
    xm.set_rng_state(number, "xla:1")
    assert draw("xla:1") == drawn[1]
    with xm.fork_rng("xla:1"):
        inside = draw("xla:1")
    assert draw("xla:1") == inside
    with torch.random.fork_rng([1], device_type="xla"):
        inside = draw("xla:1")
    assert draw("xla:1") == inside


def test_generators_by_device():
    made = torch.Generator(device="xla:1").manual_seed(3)
    assert made.device == torch.device("xla:1")
    x = torch.rand(3, generator=made, device="xla:1")
    assert str(x.device) == "xla:1"
    assert torch.xla.default_generators[1].device == torch.device("xla:1")
    with torch.xla.device(1):
        assert torch.Generator(device="xla").device == torch.device("xla:1")
    torch.xla.default_generators[1].manual_seed(3)
    assert torch.rand(3, device="xla:1").tolist() == x.tolist()


# ---- Memory ----
def test_memory_figures_by_device():
    torch.xla.empty_cache()
    before = [torch.xla.memory_allocated(index) for index in range(2)]
    x = torch.ones(1 << 18).to("xla:1")
    assert torch.xla.memory_allocated(1) - before[1] >= x.nbytes
    assert torch.xla.memory_allocated("xla:0") == before[0]
    info = [xm.get_memory_info(name) for name in DEVICES]
    assert info[1]["bytes_used"] == torch.xla.memory_allocated(1) and info[0]["bytes_used"] == before[0]
    assert info[0]["bytes_limit"] == info[1]["bytes_limit"] > 0
    assert torch.xla.max_memory_allocated(1) >= torch.xla.memory_allocated(1)
    assert torch.xla.memory_reserved(1) >= torch.xla.memory_allocated(1)
    with torch.xla.device(1):
        assert torch.xla.memory_allocated() == torch.accelerator.memory_allocated() == info[1]["bytes_used"]
    del x
    assert torch.xla.memory_allocated(1) == before[1]


def test_peaks_start_again_on_one_device():
    for name in DEVICES:
        torch.ones(1 << 18).to(name)
    peaks = [torch.xla.max_memory_allocated(index) for index in range(2)]
    torch.xla.reset_peak_memory_stats(1)
    assert torch.xla.max_memory_allocated(0) == peaks[0]
    assert torch.xla.max_memory_allocated(1) == torch.xla.memory_allocated(1) < peaks[1]


def test_memory_that_a_program_takes_is_its_devices():
    x = torch.randn(64, 64, device="xla:1")
    torch.xla.synchronize(1)
    before = torch.xla.memory_allocated(0)
    peak = torch.xla.max_memory_allocated(0)
    y = torch.linalg.inv(F.conv2d(x[None, None], x[None, None, :3, :3], padding=1)[0, 0] @ x).cpu()
    assert torch.isfinite(y).all()
    assert torch.xla.memory_allocated(0) == before and torch.xla.max_memory_allocated(0) == peak


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


# ---- Files ----
def save(data) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(data, file)
    file.seek(0)
    return file


def test_files_keep_the_device():
    x = torch.arange(6.0).reshape(2, 3)
    for name in DEVICES:
        same(torch.load(save(x.to(name))), x, name)
        same(pickle.loads(pickle.dumps(x.to(name).t())), x.t(), name)
        same(torch.load(save(nn.Parameter(x.to(name)))).detach(), x, name)
    same(torch.load(save(x), map_location="xla:1"), x, "xla:1")
    same(torch.load(save(x.to("xla:1")), map_location="xla:0"), x, "xla:0")
    same(torch.load(save(x.to("xla:0")), map_location={"xla:0": "xla:1"}), x, "xla:1")
    same(torch.load(save(x.to("xla:1")), map_location="cpu"), x, "cpu")
    with torch.xla.device(1):
        same(torch.load(save(x), map_location="xla"), x, "xla:1")


def test_a_state_of_a_model_on_two_devices():
    model, other = TwoParts(*DEVICES), TwoParts("cpu", "cpu")
    state = torch.load(save(model.state_dict()))
    assert {str(t.device) for t in state.values()} == set(DEVICES)
    other.load_state_dict(state)
    for got, want in zip(other.parameters(), model.parameters()):
        torch.testing.assert_close(got.detach(), want.detach().cpu())
    file = io.BytesIO()
    xm.save(model.state_dict(), file)
    file.seek(0)
    assert {str(t.device) for t in torch.load(file).values()} == {"cpu"}


def test_sparse_tensors_by_device():
    x = torch.eye(3).to_sparse().to("xla:1")
    assert str(x.device) == str(x._values().device) == "xla:1"
    same(x.to_dense(), torch.eye(3), "xla:1")
    same((x @ torch.ones(3, 2, device="xla:1")), torch.ones(3, 2), "xla:1")
    same(x.to("xla:0").to_dense(), torch.eye(3), "xla:0")


def test_compiled_functions_by_device():
    for backend in ("inductor", "aot_eager"):
        double = torch.compile(lambda x: torch.sin(x) * 2, backend=backend)
        add = torch.compile(lambda x, y: x.to("xla:1") + y, backend=backend)
        for _ in range(2):
            for name in DEVICES:
                same(double(A.to(name)), torch.sin(A) * 2, name)
            same(add(A.to("xla:0"), A.to("xla:1")), A * 2, "xla:1")


def test_nothing_is_left_behind():
    def work():
        for name in DEVICES:
            (A.to(name) + 1).to(DEVICES[name == "xla:0"]).sum().item()

    work()
    before = _XLAC._live_cells(), _XLAC._live_nodes()
    for _ in range(5):
        work()
    assert (_XLAC._live_cells(), _XLAC._live_nodes()) == before


# ---- What PyTorch asks of the module, on the device that is not current ----
def test_a_compiled_checkpoint_repeats_its_dropout_on_the_second_device():
    def drop(x):
        return checkpoint(lambda x: F.dropout(x, 0.5), x, use_reentrant=False)

    compiled = torch.compile(drop, backend="aot_eager", fullgraph=True)
    state = torch.xla.get_rng_state(0)
    for _ in range(2):
        x = torch.ones(64, device="xla:1", requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(y.detach().cpu(), x.grad.cpu()) and 0 < (y == 0).sum() < 64
    assert torch.equal(torch.xla.get_rng_state(0), state)


def test_generators_and_memory_by_device():
    first, second = torch.xla.default_generators
    assert (first.device, second.device) == tuple(torch.device(name) for name in DEVICES)
    torch.xla.manual_seed_all(5)
    kept = second.graphsafe_get_state()
    second.graphsafe_set_state(torch.Generator("xla:1").manual_seed(6))
    drawn = torch.rand(3, device="xla:1").tolist()
    second.graphsafe_set_state(kept)
    torch.xla.set_rng_state(torch.Generator("xla:0").manual_seed(6).get_state(), "xla:0")
    assert torch.rand(3, device="xla:0").tolist() == drawn != torch.rand(3, device="xla:1").tolist()
    held = torch.ones(1 << 20, device="xla:1") + 1
    torch.xla.synchronize(1)
    stats = torch.xla.memory_stats(1)
    assert stats["allocated_bytes.all.current"] == torch.xla.memory_allocated("xla:1") >= 4 << 20
    assert torch.xla.memory_summary(1).startswith("memory of xla:1")
    assert torch.xla.memory_allocated(0) < 4 << 20 and held[0].item() == 2


def test_files_of_safetensors_by_device(tmp_path):
    x = torch.arange(4.0)
    save_file({"x": x.to("xla:1")}, tmp_path / "x.safetensors")
    for name in DEVICES:
        same(load_file(tmp_path / "x.safetensors", device=name)["x"], x, name)
