"""The API of torch_xla and of torch.xla, as far as it needs no several devices."""

import functools
import re
import threading

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.amp
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr
import torch_xla.utils.utils as xu
from torch_xla import _XLAC, backends


# ---- Package ----
def test_names_of_the_package():
    assert re.fullmatch(r"\d+\.\d+\.\d+", torch_xla.__version__)
    assert torch.device("xla").type == "xla"
    assert torch.xla.is_available() and torch.xla.is_initialized()
    assert torch_xla.xm is xm


@pytest.mark.parametrize("order", ["torch, torch_xla", "torch_xla, torch", "torch_xla.core.xla_model, torch"])
def test_import_order(run_python, order):
    out = run_python(f"import {order}\nprint(torch.xla.device_count(), torch.device('xla:0'))")
    assert out == "1 xla:0\n"


# ---- Devices ----
def test_devices():
    assert torch_xla.device() == torch_xla.device(0) == xm.xla_device() == torch.device("xla:0")
    assert torch_xla.devices() == [torch.device("xla:0")]
    assert torch_xla.real_devices() == xm.xla_real_devices() == ["CPU:0"]
    assert torch_xla._XLAC._xla_get_all_devices() == torch_xla._XLAC._xla_real_devices(["xla:0"]) == ["CPU:0"]
    assert torch_xla.device_count() == torch.xla.device_count() == 1
    assert xm.get_xla_supported_devices() == xm.get_xla_supported_devices("CPU", 1) == ["xla:0"]
    assert xm.get_xla_supported_devices("TPU") == xm.get_xla_supported_devices(0) == []
    assert xm.get_xla_supported_devices(1) == ["xla:0"]
    assert xm.xla_device_hw(xm.xla_device()) == xr.device_type() == "CPU"


@pytest.mark.parametrize(
    "call, error", [(torch_xla.device, IndexError), (xm.xla_device, IndexError), (torch.xla.set_device, RuntimeError)]
)
def test_device_that_does_not_exist(call, error):
    with pytest.raises(error, match="device index 7 does not exist: there is one xla device, xla:0"):
        call(7)


def test_one_process_is_the_world():
    assert xr.world_size() == xm.xrt_world_size() == xr.global_runtime_device_count() == 1
    assert xr.global_ordinal() == xm.get_ordinal() == xr.local_ordinal() == xm.get_local_ordinal() == 0
    assert xm.is_master_ordinal() and xm.is_master_ordinal(local=False)


def test_master_print(capsys):
    xm.master_print("a", 1)
    assert capsys.readouterr().out == "a 1\n"


def test_is_xla(device):
    x = torch.ones(2, device=device)
    assert x.is_xla and xm.is_xla_tensor(x) and nn.Parameter(x).is_xla
    assert not torch.ones(2).is_xla and not xm.is_xla_tensor(torch.ones(2))


def test_device_contexts(device):
    with torch.xla.device(0), torch.xla.device_of(torch.ones(1)):
        assert torch.xla.current_device() == 0
    with torch.device("xla"):
        assert torch.ones(1).device == device


# ---- Steps ----
def test_sync_and_step(device):
    x = torch.ones(3, device=device)
    with torch_xla.step():
        x.add_(1)
    x.mul_(2)
    xm.mark_step(wait=True)
    torch_xla.sync()
    xm.wait_device_ops()
    assert x.tolist() == [4, 4, 4]


def test_optimizer_step_returns_what_the_optimizer_does(device):
    p = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([p], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = p.sum()
        loss.backward()
        return loss

    loss = xm.optimizer_step(optimizer, barrier=True, optimizer_args={"closure": closure})
    assert loss.item() == 2
    assert p.tolist() == [0.5, 0.5]
    assert [g.tolist() for g in xm._fetch_gradients(optimizer)] == [[1, 1]]


def test_unlazy(device):
    x = torch.ones(2, device=device) + 1
    xm.unlazy([x])
    assert x.tolist() == [2, 2]


# ---- Mixed precision ----
def test_autocast(device):
    linear = nn.Linear(4, 4).to(device)
    x = torch.randn(2, 4, device=device)
    with torch.autocast("xla"):
        y = linear(x)
        assert y.dtype == torch.bfloat16
        assert torch.softmax(y, -1).dtype == torch.float32
    with torch_xla.amp.autocast(device, dtype=torch.float16):
        assert linear(x).dtype == torch.float16
    with torch_xla.amp.autocast(device, enabled=False):
        assert linear(x).dtype == torch.float32
    torch.testing.assert_close(y.float().cpu(), linear(x).cpu(), rtol=2e-2, atol=2e-2)


def test_deprecated_autocast_functions():
    assert not torch.is_autocast_xla_enabled() and torch.get_autocast_xla_dtype() == torch.bfloat16
    with torch.autocast("xla", dtype=torch.float16):
        assert torch.is_autocast_xla_enabled() and torch.get_autocast_xla_dtype() == torch.float16
        torch.set_autocast_xla_enabled(False)
        assert not torch.is_autocast_enabled("xla")
    torch.set_autocast_xla_dtype(torch.float16)
    assert torch.get_autocast_dtype("xla") == torch.float16
    torch.set_autocast_xla_dtype(torch.bfloat16)


FLOAT32 = {
    "binary_cross_entropy": lambda x: torch.nn.functional.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(x)),
    "ctc_loss": lambda x: torch.nn.functional.ctc_loss(
        x.view(6, 1, 6).log_softmax(2), torch.ones(1, 2, dtype=torch.long), torch.tensor([6]), torch.tensor([2])
    ),
    "cholesky": lambda x: torch.cholesky(x @ x.T + 6 * torch.eye(6, device=x.device)),
    "inverse": lambda x: torch.inverse(x @ x + 6 * torch.eye(6, device=x.device)),
    "linalg.inv_ex": lambda x: torch.linalg.inv_ex(x @ x + 6 * torch.eye(6, device=x.device))[0],
    "linalg.svd": lambda x: torch.linalg.svd(x @ x)[1],
    "cdist": lambda x: torch.cdist(x, x + 1),
    "fft": lambda x: torch.fft.fftn(x).real,
    "rfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
    "linalg.eigh": lambda x: torch.linalg.eigvalsh(x @ x.T),
    "linalg.solve": lambda x: torch.linalg.solve(x @ x + 6 * torch.eye(6, device=x.device), x),
    "linalg.qr": lambda x: torch.linalg.qr(x).R.abs(),
    "quantile": lambda x: torch.quantile(x, 0.3),
    "polar": lambda x: torch.polar(x.abs(), x).imag,
    "avg_pool3d": lambda x: torch.nn.functional.avg_pool3d(x.view(1, 1, 2, 3, 6), 2),
    "mse_loss": lambda x: torch.nn.functional.mse_loss(x, x + 1),
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("name", FLOAT32)
def test_autocast_computes_in_float32(device, name):
    """What has no kernel for 16-bit floats, or too few digits in them."""
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = FLOAT32[name](x.float())
    on_device = x.to(device).requires_grad_()
    with torch.autocast("xla"):
        result = FLOAT32[name](on_device)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.detach().cpu(), expected, rtol=5e-2, atol=5e-2)
    result.sum().backward()
    assert on_device.grad.dtype == torch.bfloat16 and on_device.grad.isfinite().all()


# ---- Helpers ----
def test_sample_generator():
    samples = xu.SampleGenerator((1, 2), 3)
    assert len(samples) == 3
    assert list(samples) == [(1, 2)] * 3
    assert list(samples) == [(1, 2)] * 3
    assert [samples.next() for _ in range(3)] == [(1, 2)] * 3
    with pytest.raises(StopIteration):
        samples.next()


def test_environment(monkeypatch):
    monkeypatch.setenv("XLA_TEST_VALUE", "0")
    assert xu.getenv_as("XLA_TEST_VALUE", bool) is False
    assert xu.getenv_as("XLA_TEST_VALUE", int) == 0
    assert xu.getenv_as("XLA_TEST_MISSING", int, 7) == 7


def test_moving_nested_data(device):
    data = {"a": [torch.ones(1), (torch.zeros(2), 3)], "b": "text"}
    moved = xm.send_cpu_data_to_device(data, device)
    assert moved["a"][0].device == moved["a"][1][0].device == device and moved["b"] == "text"
    assert xm.send_cpu_data_to_device(torch.ones(2), device)[0].device == device
    back = xm._maybe_convert_to_cpu(moved)
    assert torch.equal(back["a"][1][0], data["a"][1][0]) and back["a"][1][1] == 3


class Batch(xu.DataWrapper):
    def __init__(self, x):
        self.x = x

    def get_tensors(self):
        return [self.x, None]

    def from_tensors(self, tensors):
        assert tensors[1] is None
        return Batch(tensors[0])


def test_moving_objects(device):
    class Plain:
        def __init__(self):
            self.x, self.itself = torch.ones(2), self

    plain = Plain()
    moved = xm.send_cpu_data_to_device([plain, Batch(torch.ones(1))], device)
    assert moved[0].x.device == moved[1].x.device == device and moved[0].itself is moved[0]
    assert plain.x.device.type == "cpu" and plain.itself is plain
    cycle = [1]
    cycle.append(cycle)
    changed = xu.for_each_instance_rewrite(cycle, lambda v: isinstance(v, int), lambda v: v + 1)
    assert changed[0] == 2 and changed[1] is changed


def test_rate_tracker():
    tracker = xm.RateTracker()
    tracker.add(10)
    assert tracker.rate() > 0
    assert tracker.global_rate() > 0


def test_memory(device):
    x = torch.ones(1 << 20, device=device)
    torch_xla.sync(wait=True)
    info = xm.get_memory_info(device)
    assert info.keys() == xm.MemoryInfo.__annotations__.keys()
    assert info["bytes_used"] >= x.nbytes and info["peak_bytes_used"] >= info["bytes_used"]
    assert torch.accelerator.memory_allocated() >= x.nbytes
    assert torch.xla.mem_get_info()[1] == info["bytes_limit"] > 0


# ---- Functions that are compiled, and their limits ----
def test_a_function_that_is_one_program(device):
    @torch_xla.compile(full_graph=True)
    def double(x):
        return x * 2

    assert double(torch.ones(2, device=device)).tolist() == [2, 2]

    def reads(x):
        return x * (2 if x.sum().item() > 0 else 3)

    text = r"^Unexpected execution happens .*full_graph=True\): reads ran 1 programs before its end"
    with pytest.raises(RuntimeError, match=text):
        torch_xla.compile(reads, full_graph=True)(torch.ones(2, device=device))
    assert torch_xla.compile(reads)(torch.ones(2, device=device)).tolist() == [2, 2]


def test_a_training_step_that_is_one_program(device, compiles):
    model = torch.nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss + 1  # after the optimizer's step, still in its program

    compiled = torch_xla.compile(step, full_graph=True)
    x = torch.ones(4, 3, device=device)
    torch_xla.sync()
    runs = met.counter_value("ExecuteComputation")
    losses = [compiled(x) for _ in range(4)]
    assert met.counter_value("ExecuteComputation") - runs == 4 and compiles.value <= 3
    assert losses[0].item() > losses[-1].item()
    runs = met.counter_value("ExecuteComputation")
    step(x), step(x)
    assert met.counter_value("ExecuteComputation") - runs == 2  # by itself, outside
    torch_xla.sync()
    runs = met.counter_value("ExecuteComputation")
    with torch_xla.step():
        step(x)
    assert met.counter_value("ExecuteComputation") - runs == 1


def test_a_function_of_few_programs(device):
    limited = torch_xla.compile(lambda x: x * 2.5 - 1, max_different_graphs=2, name="limited")
    for size in (101, 102, 101, 102):
        limited(torch.ones(size, device=device))
    with pytest.raises(RuntimeError, match=r"max_different_graphs=2\): limited has had 3 different programs"):
        limited(torch.ones(103, device=device))


def test_a_block_that_is_one_program(device):
    x = torch.ones(2, device=device)
    with pytest.raises(RuntimeError, match="the block ran 1 programs"), torch_xla.compile(full_graph=True):
        (x + 1).tolist()
    with torch_xla.compile(full_graph=True):
        y = x + 1
    assert y.tolist() == [2, 2]


def test_runs_of_another_thread_are_none_of_the_functions(device):
    began, go_on = threading.Event(), threading.Event()

    def others():
        began.wait(30)
        (torch.ones(4, device=device) + 1).sum().item()
        go_on.set()

    @torch_xla.compile(full_graph=True, max_different_graphs=1)
    def function(x):
        x = x * 1.01
        began.set()
        assert go_on.wait(30)
        return x.sum()

    thread = threading.Thread(target=others)
    thread.start()
    result = function(torch.ones(4, device=device))
    thread.join()
    assert result.item() == pytest.approx(4.04)


ARGUMENTS = [
    {},
    {"full_graph": True},
    {"name": "named"},
    {"max_different_graphs": 3},
    {"full_graph": True, "max_different_graphs": 3, "name": "named"},
]


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: "-".join(arguments))
def test_compile_decorates_with_all_arguments(device, arguments, replay):
    decorate = torch_xla.compile(**arguments, replay=replay)

    @decorate
    def add(x, y=2):
        """Adds."""
        return x + y

    class Adder:
        three = 3

        @decorate
        def add(self, x):
            return x + self.three

    forms = [
        (add, 2),
        (Adder().add, 3),
        (decorate(lambda x: x + 4), 4),
        (decorate(functools.partial(torch.add, other=5)), 5),
    ]
    forms += [(torch_xla.compile(lambda x: x + 6, **arguments, replay=replay), 6)]
    for turn in range(4):
        for form, more in forms:
            assert form(torch.full((2,), float(turn), device=device)).tolist() == [turn + more] * 2
    assert (add.__name__, add.__doc__) == ("add", "Adds.")


def test_compile_decorates_without_parentheses(device):
    @torch_xla.compile
    def double(x):
        return x * 2

    class Model(torch.nn.Module):
        @torch_xla.compile
        def forward(self, x):
            return double(x) + 1

    assert Model()(torch.ones(2, device=device)).tolist() == [3, 3]
    with pytest.raises(TypeError, match="wants a function, but got True"):
        torch_xla.compile(True)


def test_each_decorated_function_has_its_name_and_limits(device):
    decorate = torch_xla.compile(max_different_graphs=1)
    double, half = decorate(lambda x: x * 2), decorate(lambda x: x / 2)
    assert double(torch.ones(3, device=device)).tolist() == half(torch.full((3,), 4.0, device=device)).tolist()

    @torch_xla.compile(full_graph=True)
    def reads(x):
        return x.sum().item()

    with pytest.raises(RuntimeError, match="reads ran 1 programs"):
        reads(torch.ones(2, device=device))


def test_a_region_is_entered_again(device):
    x = torch.ones(2, device=device)
    for region in (torch_xla.compile(), torch_xla.compile(full_graph=True)):
        for _ in range(2):
            with region:
                x = x * 2
    assert x.tolist() == [16, 16]


def test_launch_of_one_process_for_debugging():
    seen = []
    torch_xla.launch(seen.append, debug_single_process=True)
    assert seen == [0]


def test_bindings_that_programs_of_the_original_call(device):
    x = torch.ones(2, device=device) + 1
    runs = met.counter_value("ExecuteComputation") or 0
    _XLAC._xla_sync_multi([x], devices=[], wait=True)
    assert met.counter_value("ExecuteComputation") == runs + 1
    assert x.tolist() == [2, 2] and met.counter_value("ExecuteComputation") == runs + 1
    before = _XLAC._xla_get_mat_mul_precision()
    try:
        _XLAC._xla_set_mat_mul_precision("high")
        assert _XLAC._xla_get_mat_mul_precision() == backends.get_mat_mul_precision() == "high"
        with pytest.raises(ValueError, match="precision 'bf16' is not known"):
            _XLAC._xla_set_mat_mul_precision("bf16")
    finally:
        _XLAC._xla_set_mat_mul_precision(before)
