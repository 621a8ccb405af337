"""Under torch.set_default_dtype integers promote to that type, as in eager."""

import pytest
import torch
from eager import check

WHOLE = torch.tensor([3, 7, 16777217, -5, 2**40 + 1])
FLOATS = torch.tensor([0.1, 2.5, -3.25, 1e-3, 7.0])

CALLS = {
    "where": lambda x: torch.where(x > 3, x, 0.1),
    "where_first": lambda x: torch.where(x > 3, 0.1, x),
    "pow": lambda x: x.abs() ** 2.5,
    "pow_0d": lambda x: x[1] ** 0.5,
    "add": lambda x: x + 0.1,
    "mul": lambda x: x * 0.1,
    "rsub": lambda x: 0.1 - x,
    "div": lambda x: x / 3,
    "div_number": lambda x: x / 0.3,
    "div_mode": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "remainder": lambda x: x % 0.75,
    "sqrt": lambda x: x.abs().sqrt(),
    "exp": lambda x: (x.clamp(max=7)).exp(),
    "sigmoid": lambda x: (x % 5).sigmoid(),
    "mean": lambda x: x.mean(dtype=torch.get_default_dtype()),
    "logsumexp": lambda x: (x % 7).logsumexp(0),
    "atan2": lambda x: torch.atan2(x, x + 1),
    "clamp": lambda x: x.clamp(min=0.3),
    "add_0d": lambda x: x[0] + 0.1,
    "bool": lambda x: (x > 3) * 0.1,
    "eq": lambda x: x == 16777216.5,
    "lt": lambda x: x < 16777217.5,
    "ge_fraction": lambda x: x >= 6.9999999999,
    "eq_bool": lambda x: (x > 3) == 0.1,
    "xlogy": lambda x: torch.xlogy(x.abs(), 0.3),
    "full": lambda x: torch.full((3,), 0.1, device=x.device),
    "scalar": lambda x: torch.tensor(0.1, device=x.device),
    "arange": lambda x: torch.arange(0.0, 1.0, 0.1, device=x.device),
    "linspace": lambda x: torch.linspace(0, 1, 7, device=x.device),
    "setitem": lambda x: torch.zeros(3, device=x.device).index_fill(0, x[:2] % 3, 0.1),
    "loss": lambda x: torch.nn.functional.mse_loss(x * 0.1, x * 0.3),
}


@pytest.fixture(params=[torch.float64, torch.float16, torch.bfloat16, torch.float32], ids=str)
def default_dtype(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_promotion_follows_the_default_dtype(device, default_dtype, call):
    # Half cannot hold the large ones.
    whole = WHOLE if default_dtype not in (torch.float16, torch.bfloat16) else WHOLE[:2]
    expected, actual = call(whole), call(whole.to(device)).cpu()
    assert actual.dtype == expected.dtype
    rough = {torch.float64: 1e-14, torch.float32: 2e-6}.get(actual.dtype, 1e-2)
    torch.testing.assert_close(actual, expected, rtol=rough, atol=0 if actual.dtype == torch.bool else rough)


def test_floats_keep_their_type(device, default_dtype):
    for call in (lambda x: x * 0.1, lambda x: x == 0.1, lambda x: torch.where(x > 0, x, 0.1), lambda x: x**2.5):
        check(lambda d: call(FLOATS.to(d)), "float32")
        check(lambda d: call(FLOATS.double().to(d)), "float64")
        check(lambda d: call(FLOATS[0].float().to(d)), "0-d")
