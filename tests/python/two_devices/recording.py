"""What programs record on two devices: where results lie, copies, which program is compiled.

test_several_devices.py runs this file, in a process that has two devices.
"""

import threading

import pytest
import torch
import torch.nn.functional as F
from shared import counted, DEVICES, pending, same
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

MISSING = "device index 2 does not exist: there are 2 xla devices, xla:0 to xla:1"


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


def test_meshes_of_devices_that_are_two_to_the_program_are_refused():
    mesh = xs.get_1d_mesh("data")
    x = torch.ones(2, 2, device="xla:1")
    for shard in (xs.mark_sharding, xs.mark_sharding_with_gradients, lambda t, *spec: xs.ShardingSpec(*spec).apply(t)):
        with pytest.raises(RuntimeError, match="a mesh of 2 devices"):
            shard(x, mesh, ("data", None))
    with pytest.raises(RuntimeError, match="a mesh of 2 devices"):
        SpmdFullyShardedDataParallel(nn.Linear(2, 2), mesh=xs.get_1d_mesh("fsdp"))
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
    assert "recording.py" in reason["line"] and reason["line_before"] == reason["line"]
