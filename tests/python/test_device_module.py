"""`torch.xla` has what programs written for other devices look for: functions, submodules, mixed precision."""

import importlib
import sys

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed._tools.memory_tracker import MemoryTracker
from torch.utils import benchmark

import torch_xla
import torch_xla.amp
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

# What PyTorch and libraries call on torch.get_device_module(): devices, streams, random state, memory.
NAMES = """
    is_available is_initialized init _lazy_init device_count current_device set_device device device_of synchronize
    get_device_properties get_device_name get_device_capability is_bf16_supported
    _is_in_bad_fork Stream Event StreamContext stream current_stream default_stream set_stream
    manual_seed manual_seed_all seed seed_all initial_seed get_rng_state set_rng_state get_rng_state_all
    set_rng_state_all default_generators
    memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats
    memory_stats_as_nested_dict memory_summary mem_get_info empty_cache reset_peak_memory_stats
    reset_accumulated_memory_stats reset_max_memory_allocated OutOfMemoryError
    memory random amp streams _utils FloatTensor FloatStorage
""".split()
SUBMODULES = ["memory", "random", "amp", "streams", "_utils"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_other_devices(name):
    assert hasattr(torch.xla, name) and (hasattr(torch.cuda, name) or hasattr(torch.mtia, name))


def test_the_module_is_found_by_device():
    for device in (None, "xla", "xla:0", torch.device("xla"), torch.device("xla", 0)):
        assert torch.get_device_module(device) is torch.xla is sys.modules["torch.xla"]


@pytest.mark.parametrize("name", SUBMODULES)
def test_submodules_are_imported_as_those_of_other_devices(name):
    module = importlib.import_module(f"torch.xla.{name}")
    assert module is getattr(torch.xla, name) is sys.modules[f"torch.xla.{name}"]
    theirs = importlib.import_module(f"torch.cuda.{name}")
    shared = {each for each in dir(theirs) if not each.startswith("__") and hasattr(torch.cuda, each)}
    for each in shared & set(dir(module)) & set(dir(torch.xla)):
        assert getattr(torch.xla, each) is getattr(module, each)


def test_import_statements_of_programs(run_python):
    out = run_python(
        """
        import torch
        import torch.xla.streams as streams
        from torch.xla import memory, Stream
        from torch.xla.amp import autocast, custom_bwd, custom_fwd, GradScaler
        from torch.xla.random import get_rng_state
        print(streams.Stream is Stream, memory.memory_allocated(), len(get_rng_state()), autocast().device)
        """
    )
    assert out == "True 0 16 xla\n"


@pytest.mark.parametrize("given", [None, 0, "xla", "xla:0", torch.device("xla", 0)])
def test_a_device_is_named_in_any_form(device, given):
    xla = torch.xla
    assert xla.get_device_name(given) == xla.get_device_properties(given).name
    assert xla.get_device_properties(given).total_memory == xla.mem_get_info(given)[1]
    assert torch.float32 in xla.get_device_capability(given)["supported_dtypes"]
    assert xla._utils._get_device_index(given, True) == 0
    assert xla.current_stream(given) == xla.default_stream(given)
    assert torch.equal(xla.get_rng_state(given or "xla"), xla.default_generators[0].get_state())
    xla.synchronize(given)


@pytest.mark.parametrize(
    "call", [torch.xla.get_device_name, torch.xla.set_device, torch.xla.current_stream, torch.xla.get_rng_state]
)
def test_devices_that_do_not_exist_are_refused(device, call):
    with pytest.raises(ValueError, match="expected an xla device, but got cpu"):
        call("cpu")
    with pytest.raises(RuntimeError, match="device index 99 does not exist: there is one xla device"):
        call(99)
    assert torch.xla.current_device() == 0


XM, XR, ACC, XLA = xm, xr, torch.accelerator, torch.xla
# What takes a device as a name or a torch.device.
NAMED = {
    "empty": lambda d: torch.empty(2, device=d),
    "empty_strided": lambda d: torch.empty_strided((2,), (1,), device=d),
    "rand": lambda d: torch.rand(2, device=d),
    "arange": lambda d: torch.arange(3, device=d),
    "full": lambda d: torch.full((2,), 3, device=d),
    "tensor": lambda d: torch.tensor([1.0], device=d),
    "like": lambda d: torch.zeros_like(torch.ones(2), device=d),
    "new": lambda d: torch.ones(2).new_empty(2, device=d),
    "to": lambda d: torch.ones(2).to(d),
    "xla": lambda d: torch.ones(2).xla(d),
    "module": lambda d: nn.Linear(2, 2).to(d),
    "storage": lambda d: torch.UntypedStorage(4, device=d),
    "generator": lambda d: torch.Generator(device=d),
    "stream": lambda d: torch.Stream(device=d),
    "xm.get_memory_info": XM.get_memory_info,
    "xm.set_rng_state": lambda d: XM.set_rng_state(1, d),
    "xm.get_rng_state": XM.get_rng_state,
    "xm.xla_device_hw": XM.xla_device_hw,
    "xm.xla_device_kind": XM.xla_device_kind,
    "xm.xla_real_devices": lambda d: XM.xla_real_devices([d]),
    "xm.wait_device_ops": lambda d: XM.wait_device_ops([str(d)]),
    "xm.send_cpu_data_to_device": lambda d: XM.send_cpu_data_to_device([torch.ones(2)], d),
    "xr.runtime_device_attributes": XR.runtime_device_attributes,
    "manual_seed": lambda d: torch_xla.manual_seed(1, d),
    "synchronize": XLA.synchronize,
    "current_stream": ACC.current_stream,
    "acc.get_device_capability": ACC.get_device_capability,
    "acc.memory_stats": ACC.memory_stats,
}
# What takes a number as well.
NUMBERED = {
    "Stream": XLA.Stream,
    "Stream again": lambda i: XLA.Stream(stream_id=0, device_index=i, device_type=20),
    "current_stream": XLA.current_stream,
    "default_stream": XLA.default_stream,
    "synchronize": XLA.synchronize,
    "get_device_properties": XLA.get_device_properties,
    "get_device_name": XLA.get_device_name,
    "get_device_capability": XLA.get_device_capability,
    "get_rng_state": XLA.get_rng_state,
    "set_rng_state": lambda i: XLA.set_rng_state(torch.zeros(16, dtype=torch.uint8), i),
    "xla": lambda i: torch.ones(2).xla(i),
    "fork_rng": lambda i: torch.random.fork_rng([i], device_type="xla").__enter__(),
    "real_devices": lambda i: XM.xla_real_devices([i]),
    "attributes": XR.runtime_device_attributes,
} | {
    name: getattr(XLA, name)
    for name in NAMES
    if ("memory" in name and name not in ("memory", "reset_max_memory_allocated")) or name == "mem_get_info"
}
# PyTorch's own, which hold an index in eight bits and refuse a larger one as TypeError.
ACCELERATORS = {
    "current_stream": ACC.current_stream,
    "synchronize": ACC.synchronize,
    "get_device_capability": ACC.get_device_capability,
    "device_index": lambda i: ACC.device_index(i).__enter__(),
    "get_memory_info": ACC.get_memory_info,
    "memory_stats": ACC.memory_stats,
    "reset_peak_memory_stats": ACC.reset_peak_memory_stats,
    "reset_accumulated_memory_stats": ACC.reset_accumulated_memory_stats,
    "use of a stream": lambda i: ACC.set_stream(torch.Stream(stream_id=0, device_index=i, device_type=20)),
    "wait for a stream": lambda i: torch.Stream(stream_id=0, device_index=i, device_type=20).synchronize(),
    "query of a stream": lambda i: torch.Stream(stream_id=0, device_index=i, device_type=20).query(),
    "event": lambda i: torch.Event("xla").record(torch.Stream(stream_id=0, device_index=i, device_type=20)),
}


def refuses(call, given, index: int) -> None:
    """Checks that the call names the index and how many devices there are, and changes nothing."""
    count = torch.xla.device_count()
    there = "there is one xla device, xla:0" if count == 1 else f"there are {count} xla devices"
    with pytest.raises((RuntimeError, IndexError), match=f"device index {index} does not exist: {there}"):
        call(given)
    assert torch.xla.current_device() == 0 and torch.xla.current_stream().device.index == 0


@pytest.mark.parametrize("name", NAMED)
def test_names_of_devices_that_do_not_exist_are_refused(device, name):
    for index in (63, 64, 100, 127):
        refuses(NAMED[name], f"xla:{index}", index)
        refuses(NAMED[name], torch.device("xla", index), index)
    refuses(NAMED[name], "xla:128", -128)  # as PyTorch understands it, of "cuda:128" too


@pytest.mark.parametrize("name", NUMBERED)
def test_numbers_of_devices_that_do_not_exist_are_refused(device, name):
    for index in (63, 100, 127, 128, 256, 2**31, 2**40, -1, -2, -128, -(2**31) - 1):
        refuses(NUMBERED[name], index, index)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_indexes_that_pytorch_hands_on_are_refused(device, name):
    for index in (63, 64, 100, 127, -2, -128):
        refuses(ACCELERATORS[name], index, index)


@pytest.mark.parametrize("given", [63, 100, 127, 128, 2**31, "xla:100", "xla:128", torch.device("xla", 100)])
def test_a_device_that_does_not_exist_is_never_current(device, given):
    choices = [torch.xla.set_device, lambda d: torch.xla.device(d).__enter__()]
    if str(given) not in (
        "128",
        "2147483648",
        "xla:128",
    ):  # which PyTorch takes for others
        choices.append(torch.accelerator.set_device_index)
    for choose in choices:
        with pytest.raises(RuntimeError, match="does not exist: there is one xla device"):
            choose(given)
    assert torch.xla.current_device() == 0
    with pytest.raises((IndexError, TypeError)):
        torch_xla.device(given)


def test_negative_indexes_change_nothing(device):
    torch.xla.set_device(-1)
    with torch.xla.device(-1), torch.xla.device(None), torch.xla.device_of(torch.ones(1)):
        assert torch.xla.current_device() == 0


# ---- Tools of PyTorch that ask the module ----
def test_tools_that_follow_memory(device, capsys):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(device)
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    model(torch.ones(2, 4, device=device)).sum().backward()
    tracker.stop()
    tracker.summary()
    assert "alloc retries are: 0" in capsys.readouterr().out
    sizes = MemTracker()
    sizes.track_external(model)
    with sizes:
        model(torch.ones(2, 4, device=device)).sum().backward()
    assert sizes.get_tracker_snapshot("peak")[device]["Total"] >= 80  # the parameters


def test_timers_and_profiles(device):
    assert benchmark.Timer("x + 1", globals={"x": torch.ones(3, device=device)}).timeit(3).mean > 0
    with torch.profiler.profile(profile_memory=True) as profile:
        torch.xla.synchronize()
    assert profile.key_averages() is not None


# ---- Mixed precision ----
class Product(torch.autograd.Function):
    """A product that notes the dtypes and the autocast state which it sees."""

    seen: list

    @staticmethod
    @torch.xla.amp.custom_fwd
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        Product.seen.append((a.dtype, torch.is_autocast_enabled("xla")))
        return a @ b

    @staticmethod
    @torch.xla.amp.custom_bwd
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        Product.seen.append(((grad @ b.t()).dtype, torch.is_autocast_enabled("xla")))
        return grad @ b.t(), a.t() @ grad


class Float32Product(Product):
    """The same in float32, whatever autocast says."""

    @staticmethod
    @torch.xla.amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        Product.seen.append((a.dtype, torch.is_autocast_enabled("xla")))
        return a @ b


@pytest.mark.parametrize("function", [Product, Float32Product])
def test_functions_of_ones_own_in_autocast(device, function):
    Product.seen = []
    a, b = (torch.ones(2, 2, device=device, requires_grad=True) for _ in range(2))
    with torch.xla.amp.autocast():
        low = a.to(torch.bfloat16)
        out = function.apply(low if function is Float32Product else a, b)
    out.sum().backward()  # outside of the context
    if function is Product:
        assert out.dtype == torch.bfloat16
        assert Product.seen == [(torch.float32, True), (torch.bfloat16, True)]
    else:
        assert out.dtype == torch.float32
        assert Product.seen == [(torch.float32, False), (torch.float32, False)]
    assert a.grad.tolist() == b.grad.tolist() == [[2, 2], [2, 2]]


def test_autocast_has_the_form_of_other_devices(device):
    a = torch.ones(2, 2, device=device)
    assert isinstance(torch.xla.amp.autocast(), torch.autocast)

    @torch.xla.amp.autocast(dtype=torch.float16)
    def product(x):
        return x @ x

    with torch.xla.amp.autocast():
        assert (a @ a).dtype == torch.bfloat16
        with torch.xla.amp.autocast(enabled=False):
            assert (a @ a).dtype == torch.float32
    assert product(a).dtype == torch.float16 and (a @ a).dtype == torch.float32
    assert torch.ones(2, 2).matmul(torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize("make", [torch.xla.amp.GradScaler, torch_xla.amp.GradScaler])
def test_the_scaler_skips_a_step_that_overflows(device, make):
    scaler = make(init_scale=8.0)
    assert isinstance(scaler, torch.amp.GradScaler)
    weight = torch.ones(2, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    for factor, expected, scale in [(1.0, [0.5, 0.5], 8.0), (float("inf"), [0.5, 0.5], 4.0)]:
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == expected and scaler.get_scale() == scale
    torch_xla.sync()


def test_the_scaler_hears_of_two_optimizers(device):
    """As of a GAN's: their counts of infinite gradients are added up."""

    def scales(d):
        scaler = torch.amp.GradScaler(d, init_scale=16.0, growth_interval=2)
        weights = [torch.ones(2, device=d, requires_grad=True) for _ in range(2)]
        optimizers = [torch.optim.SGD([weight], lr=0.5) for weight in weights]
        seen = []
        for factor in (1.0, 1.0, float("inf"), float("inf")):
            for weight, optimizer in zip(weights, optimizers):
                optimizer.zero_grad()
                scaler.scale((weight * factor).sum()).backward()
                scaler.step(optimizer)
            scaler.update()
            seen.append(scaler.get_scale())
        return seen

    assert scales("xla") == scales("cpu") == [16, 32, 16, 8]


# ---- torch.compile ----
def stream_of_its_own(x, stream):
    with torch.xla.stream(stream):
        y = x + 1
    torch.xla.current_stream().wait_stream(stream)
    return y * 2


def event_within(x, stream):
    event = torch.xla.Event()
    event.record()
    y = x + torch.xla.current_device()
    event.wait()
    return y


def graph_breaks(x, stream):
    torch.xla.synchronize()
    with torch.xla.device(0):
        return x + torch.xla.device_count()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [stream_of_its_own, event_within, graph_breaks])
def test_functions_of_the_module_in_compiled_functions(device, function, backend):
    torch.compiler.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=function is not graph_breaks)
    x, stream = torch.arange(3.0, device=device), torch.xla.Stream()
    assert compiled(x, stream).tolist() == function(x, stream).tolist()


def test_the_interface_of_torch_compile_is_the_module(device):
    from torch._dynamo.device_interface import DeviceGuard, get_interface_for_device

    interface = get_interface_for_device("xla")
    assert interface is get_interface_for_device(torch.device("xla", 0))
    assert interface.is_available() and interface.device_count() == torch.xla.device_count()
    assert issubclass(interface.Event, torch.Event) and issubclass(interface.Stream, torch.Stream)
    assert interface.Worker.current_device() == interface.current_device() == 0
    assert interface.get_device_properties("xla:0") == torch.xla.get_device_properties()
    assert interface.is_bf16_supported() and interface.is_dtype_supported(torch.bfloat16)
    assert interface.memory_allocated() == torch.xla.memory_allocated()
    with DeviceGuard(interface, 0):
        assert interface.exchange_device(0) == interface.maybe_exchange_device(-1) == 0
    stream = interface.Stream()
    interface._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
    assert interface.current_stream() == stream
    interface.set_stream(torch.xla.default_stream())
    interface.synchronize()
    with pytest.raises(RuntimeError, match="not capable of supporting Triton"):
        interface.raise_if_triton_unavailable()


def test_what_is_late_is_not_loaded_by_importing_torch(run_python):
    out = run_python(
        """
        import sys, torch, torch_xla
        c = torch.ones(2, dtype=torch.complex64, device="xla")
        print(((c * 2j - c / c) * c.real == c).tolist())
        print([name for name in ("torch._dynamo", "torch.nn.attention.flex_attention") if name in sys.modules])
        import torch._dynamo
        print(torch._dynamo.device_interface.get_interface_for_device("xla").__name__)
        """
    )
    assert out == "[False, False]\n[]\nXlaInterface\n"
