"""The operators of PyTorch's foreach databases give the CPU's lists of tensors."""

import itertools

import pytest
import torch
from test_ops import assert_agree, on_both, ROUNDED_OFTEN, to_device, type_cases
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


FORMS = {"functional": lambda op: op.get_op(), "in place": lambda op: op.get_inplace()}


def pytest_generate_tests(metafunc):
    cases = [
        pytest.param(form, *case.values, id=f"{case.id}-{form}")
        for case in type_cases(metafunc.config.option.whole, DTYPES, operators=FOREACH)
        for form, get in FORMS.items()
        if get(case.values[0]) is not None
    ]
    metafunc.parametrize("form,op,dtype", cases)


def test_foreach_agrees_with_eager(device, form, op, dtype, whole):
    function = FORMS[form](op)
    samples = op.sample_inputs("cpu", dtype, noncontiguous=form == "in place", allow_higher_dtype_scalars=True)
    for sample in itertools.islice(samples, None if whole else SAMPLES):

        def run(place, sample=sample):
            tensors, args, kwargs = to_device((sample.input, sample.args, sample.kwargs), place)
            if form == "in place":
                tensors = [t.clone(memory_format=torch.preserve_format) for t in tensors]
            results = function(tensors, *args, **kwargs)
            return tensors if form == "in place" else results

        assert_agree(*on_both(run), dtype, rough=dtype in ROUNDED_OFTEN)
