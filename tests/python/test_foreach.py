"""The operators of PyTorch's foreach databases give the CPU's lists of tensors."""

import itertools

import pytest
import torch
from test_ops import assert_same, label_of, to_device
from torch.testing._internal import common_methods_invocations as databases
from torch.utils import _pytree as pytree

FOREACH = [
    *databases.foreach_unary_op_db,
    *databases.foreach_binary_op_db,
    *databases.foreach_pointwise_op_db,
    *databases.foreach_reduce_op_db,
    *databases.foreach_other_op_db,
]
DTYPES = [torch.float32, torch.int64]
SAMPLES = 4


def pytest_generate_tests(metafunc):
    whole = metafunc.config.option.whole
    metafunc.parametrize(
        "op,dtype",
        [
            pytest.param(op, dtype, id=f"{label_of(op)}-{str(dtype)[6:]}")
            for op in FOREACH
            for dtype in (op.supported_dtypes("cpu") if whole else DTYPES)
            if dtype in op.supported_dtypes("cpu")
        ],
    )


def on_both(run):
    results = []
    for place in ("cpu", "xla"):
        try:
            results.append(pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), run(place)))
        except Exception as error:
            results.append(error)
    return results


@pytest.mark.parametrize("form", ["functional", "in place"])
def test_foreach_agrees_with_eager(device, op, dtype, form, request):
    function = op.get_op() if form == "functional" else op.get_inplace()
    if function is None:
        pytest.skip("there is no such form")
    samples = op.sample_inputs("cpu", dtype, noncontiguous=form == "in place", allow_higher_dtype_scalars=True)
    for sample in itertools.islice(samples, None if request.config.option.whole else SAMPLES):

        def run(place, sample=sample):
            tensors, args, kwargs = to_device((sample.input, sample.args, sample.kwargs), place)
            if form == "in place":
                tensors = [t.clone(memory_format=torch.preserve_format) for t in tensors]
            results = function(tensors, *args, **kwargs)
            return tensors if form == "in place" else results

        expected, actual = on_both(run)
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            assert type(expected) is type(actual), f"{expected!r} on the CPU, {actual!r} on the device"
        else:
            assert_same(expected, actual, dtype)
