"""The other ways to call the operators of PyTorch's OpInfo database give what CPU eager gives.

In place, into out= tensors of other sizes, strides and types, differentiated twice and forward.
"""

import itertools

import pytest
import torch
from test_ops import (
    assert_agree,
    call_exactly,
    CPU_ARGUMENTS,
    EMBEDDED,
    has_eager_values,
    label_of,
    on_both,
    or_as_exact,
    ROUGH,
    samples_of,
    selected,
    tensors_of,
    to_device,
    type_cases,
)
from torch.autograd import forward_ad
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

# Of the types that the CPU supports; all of them with --whole.
DTYPES = [torch.float32, torch.int64]

EAGER_IGNORES_STRIDES = "the CPU's kernel leaves the strides of the out tensor out of account: its values are wrong"
EAGER_IGNORES_INPUT_STRIDES = "the CPU's out form is wrong for inputs with strides, and reads the out tensors"
NO_OUT = {
    "equal": "its result is no tensor",
    "linalg.lstsq": "its residuals have a shape that depends on data",
    "_native_batch_norm_legit": EAGER_IGNORES_INPUT_STRIDES,
    "narrow_copy": EAGER_IGNORES_STRIDES,
    "native_batch_norm": EAGER_IGNORES_INPUT_STRIDES,
    "nn.functional.avg_pool3d": EAGER_IGNORES_STRIDES,
    "nn.functional.gelu": EAGER_IGNORES_STRIDES,
    "normal": "the CPU's kernel refuses to resize the out tensor",
}


WANTED = {
    "test_out": lambda op: op.supports_out and op.name not in NO_OUT,
    "test_in_place": lambda op: op.get_inplace() is not None,
}


def pytest_generate_tests(metafunc):
    if metafunc.function.__name__ in WANTED:
        whole = metafunc.config.option.whole
        metafunc.parametrize("op,dtype", type_cases(whole, DTYPES, WANTED[metafunc.function.__name__]))


def few(samples, whole):
    """Without --whole the first few; a plugin compiles each anew."""
    return itertools.islice(samples, None if whole else 2 if EMBEDDED else 1)


def with_device(kwargs, device):
    return {k: device if k == "device" else v for k, v in kwargs.items()}


def moved_to(op, tree, device):
    """The arguments of a sample on the device, but for those that are CPU tensors everywhere."""
    moved = to_device(tree, device)
    return (moved[0], *tree[1:]) if op.name in CPU_ARGUMENTS else moved


OUTS = {
    "fitting": torch.empty_like,
    "empty": lambda t: t.new_empty(0),
    "strided": lambda t: torch.empty((*t.shape, 2), dtype=t.dtype)[..., 0],
    "transposed": lambda t: torch.empty_like(t.mT.contiguous()).mT if t.dim() > 1 else torch.empty_like(t),
    "whole numbers": lambda t: torch.empty_like(t, dtype=torch.int32),
    "wide": lambda t: torch.empty_like(t, dtype=torch.float64),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out(op, dtype, whole):
    for sample in few(samples_of(op, dtype, whole), whole):
        results = op(sample.input, *sample.args, **sample.kwargs)
        results = results if isinstance(results, torch.Tensor) else tuple(results)
        computed = tensors_of(results)[0].dtype  # a wider out tensor makes no result more exact

        def run(device, sample=sample, results=results, make=None):
            outs = pytree.tree_map_only(torch.Tensor, lambda t: make(t).fill_(1), results)
            moved, args, kwargs, outs = to_device((sample.input, sample.args, sample.kwargs, outs), device)
            op(moved, *args, **with_device(kwargs, device), out=outs)
            return outs

        for name, make in OUTS.items():
            outs = on_both(lambda device: run(device, make=make))  # noqa: B023
            compared = [selected(op, sample, out) for out in outs]
            with or_as_exact(op, *outs, dtype, lambda: call_exactly(op, sample)[0]):  # noqa: B023
                assert_agree(*compared, computed, what=f"out={name}", values=has_eager_values(op, sample))


def test_in_place(op, dtype, whole):
    for sample in few(samples_of(op, dtype, whole), whole):
        if sample.broadcasts_input:
            continue

        def run(device, sample=sample):
            moved, args, kwargs = moved_to(op, (sample.input, sample.args, sample.kwargs), device)
            moved = moved.clone(memory_format=torch.preserve_format)
            op.get_inplace()(moved, *args, **with_device(kwargs, device))
            return moved

        results = on_both(run)
        with or_as_exact(op, *results, dtype, lambda: call_exactly(op, sample)[0]):  # noqa: B023
            assert_agree(*results, dtype, values=has_eager_values(op, sample))


def differentiable(op, supports):
    return supports and torch.float64 in op.supported_backward_dtypes("cpu")


def leaves_of(tree):
    return [t for t in tensors_of(tree) if t.requires_grad]


def sum_of(results):
    outputs = [t for t in tensors_of(results) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    return sum((torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).square().sum() for t in outputs)


@pytest.mark.parametrize(
    "op", [pytest.param(op, id=label_of(op)) for op in op_db if differentiable(op, op.supports_gradgrad)]
)
def test_second_gradient(op, whole):
    for sample in few(samples_of(op, torch.float64, whole, requires_grad=True), whole):

        def run(device, sample=sample):
            moved, args, kwargs = moved_to(op, (sample.input, sample.args, sample.kwargs), device)
            leaves = leaves_of((moved, args, kwargs))
            first = torch.autograd.grad(
                sum_of(op(moved, *args, **with_device(kwargs, device))), leaves, create_graph=True, allow_unused=True
            )
            second = torch.autograd.grad(sum_of(first), leaves, allow_unused=True) if leaves_of(first) else ()
            return [g for g in (*first, *second) if g is not None]

        assert_agree(*on_both(run), torch.float64, op.name in ROUGH, values=has_eager_values(op, sample))


@pytest.mark.parametrize(
    "op", [pytest.param(op, id=label_of(op)) for op in op_db if differentiable(op, op.supports_forward_ad)]
)
def test_forward_gradient(op, whole):
    for sample in few(samples_of(op, torch.float64, whole, requires_grad=True), whole):

        def run(device, sample=sample):
            with forward_ad.dual_level():
                tree = moved_to(op, (sample.input, sample.args, sample.kwargs), device)
                moved, args, kwargs = pytree.tree_map_only(
                    torch.Tensor,
                    lambda t: forward_ad.make_dual(t.detach(), torch.ones_like(t)) if t.requires_grad else t,
                    tree,
                )
                results = op(moved, *args, **with_device(kwargs, device))
                parts = [forward_ad.unpack_dual(t) for t in tensors_of(results) if t.is_floating_point()]
                return [t for part in parts for t in part if t is not None]

        assert_agree(*on_both(run), torch.float64, op.name in ROUGH, values=has_eager_values(op, sample))
