"""Composites and custom calls: the operations that plugins' compilers know by name."""

import re

import pytest
import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla import _XLAC
from torch_xla._dynamo.dynamo_bridge import extract_compiled_graph
from torch_xla.experimental import xla_marker
from torch_xla.experimental.mark_pattern_utils import StableHLOCompositeBuilder
from torch_xla.experimental.stablehlo_custom_call import (
    extract_custom_call_outputs_shape_dtype,
    stablehlo_custom_call,
)

EMBEDDED = pytest.mark.skipif("not _XLAC._env_text('PJRT_DEVICE') == 'CPU'")


def tensors(device, *shapes):
    """Tensors that no program has yet to compute."""
    made = [torch.randn(shape).to(device) for shape in shapes]
    torch_xla.sync()
    return made


def norm(x, weight, name="vendor.rms_norm", **attr):
    builder = StableHLOCompositeBuilder(name, attr or {"epsilon": 0.25})
    x, weight = builder.mark_inputs(x, weight)
    return builder.mark_outputs(F.rms_norm(x, x.shape[-1:], weight, 0.25))


def top(x, k):
    builder = StableHLOCompositeBuilder("vendor.topk", {"k": k, "largest": True})
    return builder.mark_outputs(*torch.topk(builder.mark_inputs(x), k))


def composites_in(text):
    """Names, operands, attributes, decomposition of each composite in the main function."""
    found = re.findall(r'"stablehlo\.composite"\(([^)]*)\) \{(.*)\} : ', text)
    return [
        (
            re.search(r'name = "([^"]*)"', attributes)[1],
            len(operands.split(",")),
            (re.search(r"composite_attributes = (\{.*\})", attributes) or ["", ""])[1],
            re.search(r'decomposition = @"([^"]*)"', attributes)[1],
        )
        for operands, attributes in found
    ]


# ---- Values ----
def test_values_and_gradients_are_those_of_the_decomposition(device):
    x, weight = torch.randn(3, 8), torch.randn(8)
    on_cpu = [t.clone().requires_grad_() for t in (x, weight)]
    on_device = [t.to(device).requires_grad_() for t in (x, weight)]
    expected, actual = norm(*on_cpu), norm(*on_device)
    torch.testing.assert_close(actual.cpu(), F.rms_norm(x, (8,), weight, 0.25))
    expected.square().sum().backward()
    actual.square().sum().backward()
    for a, b in zip(on_device, on_cpu):
        torch.testing.assert_close(a.grad.cpu(), b.grad)


def test_several_outputs(device):
    x = torch.randn(4, 9)
    values, places = top(x.to(device), 3)
    torch.testing.assert_close(values.cpu(), torch.topk(x, 3).values)
    assert torch.equal(places.cpu(), torch.topk(x, 3).indices)


def test_a_mark_is_a_new_tensor(device):
    x = torch.randn(3, 4, device=device).T
    marked = StableHLOCompositeBuilder("vendor.f").mark_inputs(x)
    assert marked.stride() == x.stride() and marked.dtype == x.dtype
    before = x.cpu()
    marked.zero_()
    assert torch.equal(x.cpu(), before) and not marked.cpu().any()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool, torch.bfloat16])
def test_marks_of_other_types(device, dtype):
    x = torch.tensor([[1, 0], [0, 3]]).to(dtype)
    builder = StableHLOCompositeBuilder("vendor.f")
    assert torch.equal(builder.mark_outputs(builder.mark_inputs(x.to(device)).clone()).cpu(), x)


# ---- The text ----
def test_the_text_has_the_composite_with_its_decomposition(device):
    x, weight = tensors(device, (3, 8), 8)
    text = xm.get_stablehlo([norm(x, weight) + 1])
    ((name, _, attributes, decomposition),) = composites_in(text)
    assert (name, attributes) == ("vendor.rms_norm", "{epsilon = 2.500000000e-01 : f32}")
    main, function = text.split(f'func.func private @"{decomposition}"')
    assert decomposition == "vendor.rms_norm.impl" and "stablehlo.reduce" in function and "stablehlo.reduce" not in main


def test_each_composite_has_a_function(device):
    x, weight = tensors(device, (3, 8), 8)
    y = norm(norm(x, weight), weight)
    y = y * norm(x, weight, name="vendor.other", flags=[True, False], sizes=torch.Size([3, 8]), text='a "b"\n')
    names, _, attributes, functions = zip(*composites_in(xm.get_stablehlo([y])))
    assert names == ("vendor.rms_norm", "vendor.rms_norm", "vendor.other")
    assert functions == ("vendor.rms_norm.impl", "vendor.rms_norm.impl_0", "vendor.other.impl")
    assert attributes[2] == (
        '{flags = dense<[true, false]> : tensor<2xi1>, sizes = dense<[3, 8]> : tensor<2xi64>, text = "a \\22b\\22\\0A"}'
    )


def test_results_of_one_composite(device):
    values, places = top(torch.randn(4, 9, device=device), 3)
    text = xm.get_stablehlo([values.sum() + places.sum()])
    assert [name for name, *_ in composites_in(text)] == ["vendor.topk"]
    assert re.search(r'"stablehlo\.composite".*-> \(tensor<4x3xf32>, tensor<4x3xi64>\)', text)


def test_a_composite_within_a_composite(device):
    x, weight = tensors(device, (3, 8), 8)
    builder = StableHLOCompositeBuilder("vendor.block")
    y = builder.mark_outputs(norm(builder.mark_inputs(x), weight).tanh())
    expected = F.rms_norm(x.cpu(), (8,), weight.cpu(), 0.25).tanh()
    text = xm.get_stablehlo([y])
    assert sorted(name for name, *_ in composites_in(text)) == ["vendor.block", "vendor.rms_norm"]
    assert 'name = "vendor.block"' in text.split("func.func private")[0]
    torch.testing.assert_close(y.cpu(), expected)


def test_values_within_a_composite_may_be_used_outside(device):
    x = torch.randn(5)
    builder = StableHLOCompositeBuilder("vendor.f")
    inner = builder.mark_inputs(x.to(device)).sin()
    outer = builder.mark_outputs(inner + 1)
    text = xm.get_stablehlo([outer, inner])
    main, function = text.split("func.func private")
    assert "stablehlo.sine" in main and "stablehlo.sine" in function
    torch.testing.assert_close((outer.cpu(), inner.cpu()), (x.sin() + 1, x.sin()))


def test_tensors_that_are_not_marked_are_operands_too(device):
    x, other = tensors(device, 5, 5)
    builder = StableHLOCompositeBuilder("vendor.f")
    text = xm.get_stablehlo([builder.mark_outputs(builder.mark_inputs(x) * other)])
    assert [operands for _, operands, *_ in composites_in(text)] == [2]


def test_marks_on_both_sides_of_a_sync_leave_the_operations(device):
    x = torch.randn(5)
    builder = StableHLOCompositeBuilder("vendor.f")
    inner = builder.mark_inputs(x.to(device)).sin()
    torch_xla.sync()
    y = builder.mark_outputs(inner + 1)
    assert not composites_in(xm.get_stablehlo([y]))
    torch.testing.assert_close(y.cpu(), x.sin() + 1)


def test_hlo_has_the_operations(device):
    x, weight = tensors(device, (3, 8), 8)
    text = _XLAC._get_xla_tensors_hlo([norm(x, weight)])
    assert " reduce(" in text and "vendor.rms_norm" not in text


# ---- Programs ----
def test_numbers_of_a_composite_are_constants_of_it(device):
    (x,) = tensors(device, 5)

    def scaled(factor):
        builder = StableHLOCompositeBuilder("vendor.f")
        return builder.mark_outputs(builder.mark_inputs(x) * factor + 0.5)

    text = xm.get_stablehlo([scaled(3.0)])
    assert [operands for _, operands, *_ in composites_in(text)] == [1]
    for factor in (3.0, 4.0):
        torch.testing.assert_close(scaled(factor).cpu(), x.cpu() * factor + 0.5)


def test_draws_of_a_composite_are_new(device):
    (x,) = tensors(device, 100)
    builder = StableHLOCompositeBuilder("vendor.dropout")
    y = [builder.mark_outputs(F.dropout(builder.mark_inputs(x))).cpu() for _ in range(2)]
    assert not torch.equal(*y)


def test_another_id_compiles_nothing(device):
    x, weight = tensors(device, (3, 8), 8)
    norm(x, weight).sum().item()
    compiled = _XLAC._xla_counter_value("UncachedCompile")
    for _ in range(3):
        norm(x, weight).sum().item()
    assert _XLAC._xla_counter_value("UncachedCompile") == compiled


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.weight = torch.nn.Parameter(torch.rand(8))

    def forward(self, x):
        return norm(self.second(norm(self.first(x), self.weight)), self.weight)


def bridge(graph, inputs):
    """A vendor's backend of torch.compile."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=lambda g, i: make_boxed_func(extract_compiled_graph(g, i)))(graph, inputs)


@pytest.mark.parametrize("backend", ["inductor", bridge], ids=["default", "bridge"])
def test_in_compiled_graphs(device, backend):
    torch._dynamo.reset()
    model = Block()
    x = torch.randn(4, 8)
    expected = model(x)
    expected.sum().backward()
    gradient = model.weight.grad.clone()
    model = model.to(device)
    model.weight.grad = None
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for _ in range(2):
        model.zero_grad()
        y = compiled(x.to(device))
        assert [name for name, *_ in composites_in(xm.get_stablehlo([y.sum()]))] == ["vendor.rms_norm"] * 2
        y.sum().backward()
        torch.testing.assert_close(y.cpu(), expected)
        torch.testing.assert_close(model.weight.grad.cpu(), gradient)


# ---- Errors ----
@pytest.mark.parametrize(
    "attr, message",
    [
        ({"a": 1 + 2j}, "attribute 'a' of a composite is a str, bool, int or float"),
        ({"a": [1, 2.0]}, "list of bool, int or float alone"),
        ({1: 2}, "dict with str for keys"),
        ([("a", 1)], "dict with str for keys"),
    ],
)
def test_attributes_that_a_program_cannot_have(device, attr, message):
    with pytest.raises(ValueError, match=message):
        StableHLOCompositeBuilder("vendor.f", attr).mark_outputs(torch.ones(2, device=device))


def test_numbers_of_attributes():
    numbers = {"nan": float("nan"), "low": float("-inf"), "list": [], "a b": 1}
    assert xla_marker.serialize_composite_attr(numbers) == (
        '{nan = 0x7FC00000 : f32, low = 0xFF800000 : f32, list = dense<[]> : tensor<0xi64>, "a b" = 1 : i64}'
    )
    assert xla_marker.serialize_composite_attr(None) is None


def test_marks_are_for_tensors(device):
    with pytest.raises(ValueError, match="tensors, but got int"):
        StableHLOCompositeBuilder("vendor.f").mark_inputs(1)
    with pytest.raises(ValueError, match="position of a mark is from 0 to 65535, but got -1"):
        torch.ops.xla.mark_tensor(torch.ones(2, device=device), "vendor.f", -1, "0", True)


# ---- Custom calls ----
def test_a_custom_call_in_the_text(device):
    x = torch.randn(2, 3, device=device)
    y = stablehlo_custom_call(
        [x, x.sum(0)],
        "vendor.kernel",
        [[3, 2]],
        [torch.int32],
        has_side_effect=True,
        backend_config='a "b"\n',
        api_version=2,
        frontend_attributes={"vendor.kind": "input", "b": 'c"'},
    )
    assert y.shape == (3, 2) and y.dtype == torch.int32 and not y.requires_grad
    (line,) = [line for line in xm.get_stablehlo([y + 1]).splitlines() if "custom_call" in line]
    assert 'call_target_name = "vendor.kernel", has_side_effect = true' in line
    assert r'backend_config = "a \"b\"\0A", api_version = 2 : i32' in line
    assert r'mhlo.frontend_attributes = {"b" = "c\"", "vendor.kind" = "input"}' in line
    assert line.split("loc(")[0].rstrip().endswith(": (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<3x2xi32>)")
    del y  # without a kernel


def test_a_custom_call_with_several_results(device):
    results = stablehlo_custom_call(
        [torch.ones(2, device=device)], "vendor.two", [[2], []], [torch.float32, torch.bool]
    )
    assert [(r.shape, r.dtype) for r in results] == [((2,), torch.float32), ((), torch.bool)]
    text = xm.get_stablehlo(results)
    assert "-> (tensor<2xf32>, tensor<i1>)" in text
    hlo = _XLAC._get_xla_tensors_hlo(results)
    assert "(f32[2]{0}, pred[]) custom-call" in hlo and 'custom_call_target="vendor.two"' in hlo
    del results


def test_a_custom_call_without_operands(device):
    y = stablehlo_custom_call([], "vendor.constant", [[4]], [torch.float32])
    assert y.device.type == "xla" and "custom_call" in xm.get_stablehlo([y])
    del y


@EMBEDDED
def test_the_embedded_engine_names_a_custom_call_that_it_cannot_run(device):
    y = stablehlo_custom_call([torch.ones(2, device=device)], "vendor.kernel", [[2]], [torch.float32])
    with pytest.raises(NotImplementedError, match=r"custom call vendor.kernel has no kernel on the embedded engine"):
        y.cpu()
    torch_xla.sync()
    assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]


def test_errors_of_custom_calls(device):
    x = torch.ones(2, device=device)
    with pytest.raises(ValueError, match=r"vendor.f expected tensors on the device xla, but got one on cpu"):
        stablehlo_custom_call([torch.ones(2)], "vendor.f", [[2]], [torch.float32])
    with pytest.raises(ValueError, match="has 1 shapes and 2 dtypes of results"):
        stablehlo_custom_call([x], "vendor.f", [[2]], [torch.float32] * 2)
    with pytest.raises(ValueError, match=r"api_version .* from 0 to 4, but got 5"):
        stablehlo_custom_call([x], "vendor.f", [[2]], [torch.float32], api_version=5)
    with pytest.raises(TypeError, match=r"frontend attributes .* are str"):
        stablehlo_custom_call([x], "vendor.f", [[2]], [torch.float32], frontend_attributes={"a": 1})
    with pytest.raises(TypeError, match=r"result 0 of the custom call vendor.f has dtype ComplexFloat"):
        stablehlo_custom_call([x], "vendor.f", [[2]], [torch.complex64])


def test_types_of_a_node_for_a_custom_call():
    graph = torch.export.export(Block(), (torch.ones(2, 8),)).graph
    node = next(n for n in graph.nodes if n.op == "call_function" and isinstance(n.meta["val"], torch.Tensor))
    assert extract_custom_call_outputs_shape_dtype(node) == ([(2, 8)], [torch.float32])
    (output,) = [n for n in graph.nodes if n.op == "output"]
    with pytest.raises(ValueError, match="are not tensors"):
        extract_custom_call_outputs_shape_dtype(output)
