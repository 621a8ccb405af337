"""cumsum and cumprod: the embedded engine computes dims before the last by rows, with eager's values to the bit."""

import os

import pytest
import torch

SHAPES = [(5, 9), (300, 200), (3, 700, 40), (2, 3, 5, 64), (1000, 8), (4, 1, 300), (0, 9), (70, 130, 3)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool]


@pytest.mark.skipif(
    os.environ.get("PJRT_DEVICE", "CPU") != "CPU", reason="a plugin adds in an order and a precision of its own"
)
@pytest.mark.parametrize("function", [torch.cumsum, torch.cumprod])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_running_sums(device, shape, dtype, function):
    x = (torch.arange(torch.Size(shape).numel()).reshape(shape).sin() * 2).to(dtype)
    for dim in range(-len(shape), len(shape)):
        for form in (lambda x: x, lambda x: x.mT):
            expected, actual = function(form(x), dim), function(form(x.to(device)), dim)
            assert (actual.dtype, actual.stride()) == (expected.dtype, expected.stride())
            torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)
