"""The operators of PyTorch's foreach databases give the CPU's lists of tensors."""

import itertools

import pytest
import torch
from test_ops import assert_agree, on_both, to_device, type_cases
from torch.testing._internal import common_methods_invocations as databases

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
    metafunc.parametrize("op,dtype", type_cases(metafunc.config.option.whole, DTYPES, operators=FOREACH))


@pytest.mark.parametrize("form", ["functional", "in place"])
def test_foreach_agrees_with_eager(device, op, dtype, form, whole):
    function = op.get_op() if form == "functional" else op.get_inplace()
    if function is None:
        pytest.skip("there is no such form")
    samples = op.sample_inputs("cpu", dtype, noncontiguous=form == "in place", allow_higher_dtype_scalars=True)
    for sample in itertools.islice(samples, None if whole else SAMPLES):

        def run(place, sample=sample):
            tensors, args, kwargs = to_device((sample.input, sample.args, sample.kwargs), place)
            if form == "in place":
                tensors = [t.clone(memory_format=torch.preserve_format) for t in tensors]
            results = function(tensors, *args, **kwargs)
            return tensors if form == "in place" else results

        assert_agree(*on_both(run), dtype)
