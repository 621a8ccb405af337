"""Names of the original that libraries call: attention, optimizers, profiler, ids of tensors, checkpointing."""

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.amp
import torch_xla.core.xla_env_vars as xenv
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla._dynamo import dynamo_bridge
from torch_xla.amp import syncfree
from torch_xla.amp.syncfree import adam, adamw, sgd
from torch_xla.experimental.custom_kernel import flash_attention, repeat_with_fixed_output_size


# ---- Attention ----
def plain_attention(q, k, v, mask=None, scale=1.0):
    scores = q @ k.transpose(-1, -2) * scale
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_flash_attention(device, causal, segments, bias):
    on_cpu = [torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3)]
    on_device = [t.detach().to(device).requires_grad_() for t in on_cpu]
    ids = torch.tensor([[0, 0, 1, 1, 1], [2, 2, 2, 3, 3]])
    ab = torch.randn(2, 3, 5, 5)
    mask = ab.clone() if bias else torch.zeros(2, 3, 5, 5)
    if segments:
        mask.masked_fill_((ids[:, :, None] != ids[:, None])[:, None], -torch.inf)
    if causal:
        mask.masked_fill_(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
    ids = ids.to(device) if segments else None
    result = flash_attention(*on_device, causal, ids, ids, 0.5, ab=ab.to(device) if bias else None)
    expected = plain_attention(*on_cpu, mask, 0.5)
    torch.testing.assert_close(result.cpu(), expected)
    result.square().sum().backward()
    expected.square().sum().backward()
    for a, b in zip(on_device, on_cpu):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-5)


def test_flash_attention_of_one_kind_of_segments(device):
    x = torch.ones(1, 1, 2, 2, device=device)
    with pytest.raises(ValueError, match="given together or not at all"):
        flash_attention(x, x, x, q_segment_ids=torch.zeros(1, 2, device=device))


# ---- Optimizers ----
def test_modules_of_single_optimizers():
    assert adam.Adam is syncfree.Adam and adamw.AdamW is syncfree.AdamW and sgd.SGD is syncfree.SGD


@pytest.mark.parametrize(
    "ours, plain, options",
    [
        (syncfree.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (syncfree.Adam, torch.optim.Adam, {"lr": 0.1}),
        (syncfree.AdamW, torch.optim.AdamW, {"lr": 0.1}),
    ],
)
def test_a_step_is_skipped_where_a_gradient_overflowed(device, ours, plain, options):
    p, q = nn.Parameter(torch.ones(3, device=device)), nn.Parameter(torch.ones(3))
    optimizer, expected = ours([p], **options), plain([q], **options)
    for overflowed in (True, False, True, False):
        p.grad = torch.full((3,), torch.inf if overflowed else 2.0, device=device)
        found_inf = torch.tensor([float(overflowed)], device=device)
        reads = met.metric_data("TransferFromDeviceTime")
        optimizer.step(found_inf=found_inf)
        assert met.metric_data("TransferFromDeviceTime") == reads  # nothing is read from the device
        if not overflowed:
            q.grad = torch.full((3,), 2.0)
            expected.step()
        torch.testing.assert_close(p.detach().cpu(), q.detach())
    p.grad, q.grad = p.detach() * 0 + 1, torch.ones(3)
    optimizer.step()
    expected.step()
    torch.testing.assert_close(p.detach().cpu(), q.detach())


# ---- Profiler ----
def test_scopes_are_in_the_profile(device):
    with torch.profiler.profile() as profile:
        with xp.StepTrace("train", step_num=3), xp.Trace("forward"):
            torch.ones(2, device=device) + 1
    assert {"train#step_num=3", "forward"} <= {event.name for event in profile.events()}


def test_a_step_trace_syncs_at_its_end(device):
    before = met.counter_value("MarkStep") or 0
    with xp.StepTrace("step"):
        torch.ones(2, device=device) + 1
    assert met.counter_value("MarkStep") == before + 1
    with pytest.raises(KeyError), xp.StepTrace("step"):
        raise KeyError
    assert met.counter_value("MarkStep") == before + 1


def test_a_trace_goes_into_its_folder(device, tmp_path):
    xp.start_trace(str(tmp_path))
    with pytest.raises(RuntimeError, match="runs already"):
        xp.start_trace(str(tmp_path))
    (torch.ones(2, device=device) + 1).cpu()
    xp.stop_trace()
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(RuntimeError, match="no trace runs"):
        xp.stop_trace()


# ---- Small ones ----
@pytest.mark.parametrize("size", [3, 8, 11])
def test_repeats_of_a_fixed_size(device, size):
    values, repeats = torch.arange(5.0), torch.tensor([0, 5, 2, 0, 1])
    expected = torch.cat([values.repeat_interleave(repeats), values[-1].repeat(size)])[:size]
    met.clear_all()
    result = repeat_with_fixed_output_size(values.to(device), repeats.to(device), size)
    assert not met.executed_fallback_ops() and result.tolist() == expected.tolist()
    with pytest.raises(ValueError, match=r"one dim of one size, but not \[5\] and \[4\]"):
        repeat_with_fixed_output_size(values, repeats[:4], size)


def test_tensors_that_share_memory_have_one_id(device):
    get_id = torch_xla._XLAC._xla_get_tensor_id
    x = torch.ones(4, device=device)
    assert get_id(x) == get_id(x[1:]) == get_id(nn.Parameter(x)) != get_id(x.clone())
    with pytest.raises(RuntimeError, match="expected a tensor on the device xla, but got one on cpu"):
        get_id(torch.ones(1))
    with pytest.raises(TypeError, match="expected a tensor"):
        get_id(3)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(device, use_reentrant):
    from torch_xla.utils.checkpoint import checkpoint

    x = torch.ones(3, device=device, requires_grad=True)
    checkpoint(lambda t: (t * 3).exp(), x, use_reentrant=use_reentrant).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), (torch.ones(3) * 3).exp() * 3)


def test_old_names():
    from torch_xla.experimental import pjrt, tpu

    assert pjrt.world_size() == 1 and pjrt.using_pjrt() and pjrt.device_type() == torch_xla.runtime.device_type()
    assert xenv.PJRT_DEVICE == "PJRT_DEVICE" and xenv.HOST_WORLD_SIZE == "XRT_HOST_WORLD_SIZE"
    assert pjrt.rendezvous("once", b"mine", None) == [b"mine"]
    with pytest.raises(RuntimeError, match="no TPU"):
        tpu.get_tpu_env()


# ---- The run ----
def test_the_runtime_has_itself():
    assert xr.runtime is xr


def test_programs_in_memory_are_forgotten(device, compiles):
    x = torch.ones(31, device=device)
    torch_xla.sync()

    def step():
        result = (x * 3).cos().sum()
        torch_xla.sync()
        return result.item()

    step()
    compiles.reset()
    found = met.counter_value("CachedCompile") or 0
    step()
    assert met.counter_value("CachedCompile") == found + 1
    programs = xr.get_num_cached_compilation_graph()
    xr.clear_computation_cache()
    step()
    assert met.counter_value("CachedCompile") == found + 1 and xr.get_num_cached_compilation_graph() == programs + 1
    step()
    assert met.counter_value("CachedCompile") == found + 2 and _XLAC._xla_computation_cache_is_initialized()


def test_the_device_starts_when_it_is_asked_to(run_python):
    out = run_python(
        """
        from torch_xla import _XLAC
        print(_XLAC._xla_runtime_is_initialized(), _XLAC._xla_computation_cache_is_initialized())
        _XLAC._init_computation_client()
        print(_XLAC._xla_runtime_is_initialized(), _XLAC._xla_computation_cache_is_initialized())
        print(_XLAC._xla_get_runtime_devices(), _XLAC._xla_device_kind(), _XLAC._xla_device_kind("xla:1"))
        """,
        CPU_NUM_DEVICES="2",
        PJRT_DEVICE="CPU",
    )
    assert out == "False False\nTrue False\n['CPU:0', 'CPU:1'] cpu cpu\n"


# ---- Switches and marks of the bindings ----
def test_switches_that_change_nothing(device):
    for get, put in [
        (_XLAC._get_ir_debug, _XLAC._set_ir_debug),
        (_XLAC._get_xla_all_numbers_special_scalars, _XLAC._set_xla_all_numbers_special_scalars),
    ]:
        assert get() is False
        put(True)
        assert get() is True
        assert (torch.ones(2, device=device) * 3).tolist() == [3, 3]
        put(False)
    assert "location=" in _XLAC._get_xla_tensors_text([torch.ones(2, device=device).sin()])


def test_an_operation_is_named(device):
    x = torch.ones(3, device=device)
    torch_xla.sync()
    y = x.sin()
    assert _XLAC._set_xla_custom_op_name_prefix(y, 'Net[net]/forward(net.py:3)/"', 0)
    z = y.cos()
    assert 'location=Net[net]/forward(net.py:3)/"aten__sin, ROOT=0' in _XLAC._get_xla_tensors_text([y])
    assert 'loc("Net[net]/forward(net.py:3)/\\"aten__sin")' in _XLAC._get_stablehlo([z])
    hlo = _XLAC._get_xla_tensors_hlo([z])
    assert 'metadata={op_name="Net[net]/forward(net.py:3)/\\"aten__sin"}' in hlo and f'source_file="{__file__}"' in hlo
    assert b'Net[net]/forward(net.py:3)/"aten__sin' in _XLAC._get_xla_tensors_hlo_proto([z])
    torch_xla.sync()
    assert not _XLAC._set_xla_custom_op_name_prefix(y, "late/", 0)
    with pytest.raises(ValueError, match="expected a tensor on xla:-1"):
        _XLAC._set_xla_custom_op_name_prefix(torch.ones(1), "cpu/", 0)


def test_hashes_of_graphs(device):
    def graph(size, number):
        x = torch.ones(size, device=device)
        torch_xla.sync()
        return _XLAC._get_graph_hash([x * number + 1])

    assert graph(3, 2.0) == graph(3, 4.0) and len(graph(3, 2.0)) == 16 and isinstance(graph(3, 2.0), bytes)
    x = torch.ones(3, device=device)
    assert len({graph(3, 2.0), graph(4, 2.0), _XLAC._get_graph_hash([x.sin()]), _XLAC._get_graph_hash([x.sinh()])}) == 4


def test_a_token_that_orders_nothing(device):
    token = _XLAC._get_all_reduce_token(str(device))
    assert token is _XLAC._get_all_reduce_token("") and "orders nothing" in repr(token)
    _XLAC._set_all_reduce_token(str(device), None)
    assert _XLAC._get_all_reduce_token(str(device)) is not token
    _XLAC._set_all_reduce_token(str(device), token)
    assert _XLAC._get_all_reduce_token(str(device)) is token


def test_marks_of_dims_whose_size_changes(device):
    x = torch.ones(5, 2, device=device)
    _XLAC._xla_mark_dynamic(x, 0)
    _XLAC._xla_mark_bounded_dynamic(x, [0], [10])
    assert x.shape == (5, 2) and (x + 1).sum().item() == 20
    with pytest.raises(IndexError):
        _XLAC._xla_mark_dynamic(x, 2)
    with pytest.raises(ValueError, match="the bound of dim 0 is 4, but its size is 5 already"):
        _XLAC._xla_mark_bounded_dynamic(x, [1, 0], [2, 4])


# ---- torch.compile ----
def test_inputs_of_a_graph_are_matched():
    weight, stand_in = torch.ones(1), torch.ones(2)
    match = dynamo_bridge.GraphInputMatcher({11: 1, 12: 0}, [11, 7, 12], [stand_in, weight, stand_in], {11, 12})
    a, b = torch.ones(3), torch.ones(4)
    assert all(x is y for x, y in zip(match([a, b]), [b, weight, a], strict=True))
    assert match.graph_input_xla_values == [None, weight, None] and match.arg_idxs == [1, None, 0]
    import torch_xla.core.dynamo_bridge as first_name

    assert first_name.GraphInputMatcher is dynamo_bridge.GraphInputMatcher
    with pytest.raises(ValueError, match="no argument, and its tensor was not kept"):
        dynamo_bridge.GraphInputMatcher({}, [11], [stand_in], {11})([])


def test_a_graph_is_extracted_by_its_module(device):
    run = dynamo_bridge.extract_compiled_graph(torch.fx.symbolic_trace(lambda x: x * 2), [])
    assert run(torch.ones(2, device=device)).tolist() == [2, 2]


# ---- The launcher of pods ----
def test_a_launcher_that_starts_nothing(run_python):
    from torch_xla.distributed import xla_dist

    options = {action.dest for action in xla_dist.get_args_parser()._actions}
    assert {"tpu", "vm", "docker_image", "conda_env", "env", "restart_tpuvm_pod_server", "positional"} <= options
    flags = xla_dist.parse_args(["--tpu=pod", "--env=A=1", "--", "python3", "train.py"])
    assert (flags.tpu, flags.env, flags.positional) == ("pod", ["A=1"], ["python3", "train.py"])
    with pytest.raises(RuntimeError, match=r"starts nothing here.*by torchrun instead of 'python3 train\.py'"):
        xla_dist.resolve_and_execute(flags)
    with pytest.raises(RuntimeError, match="starts nothing here"):
        xla_dist.main(["--tpu=pod", "--", "python3", "train.py"])
