"""Divisions of whole numbers: the most negative number by -1 wraps around, and none of them ends the process."""

import pytest
import torch

DTYPES = [torch.int8, torch.int16, torch.int32, torch.int64]


def floor(a, b):
    return torch.div(a, b, rounding_mode="floor")


def trunc(a, b):
    return torch.div(a, b, rounding_mode="trunc")


def whole(values, dtype, device):
    return torch.tensor(values, dtype=dtype, device=device)


def numbers(dtype, device):
    """The most negative number and others, more of them than a vector holds."""
    least = torch.iinfo(dtype).min
    return whole([least, least + 1, -7, 7, 0, least] * 7, dtype, device)


def wrapped(quotients, dtype):
    bits = torch.iinfo(dtype).bits
    return [(q + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for q in quotients]


QUOTIENTS = {
    "trunc": trunc,
    "floor": floor,
    "//": lambda a, b: a // b,
    "floor_divide": torch.floor_divide,
    "trunc, in place": lambda a, b: a.clone().div_(b, rounding_mode="trunc"),
    "floor, in place": lambda a, b: a.clone().div_(b, rounding_mode="floor"),
    "floor_divide, in place": lambda a, b: a.clone().floor_divide_(b),
}
REMAINDERS = {
    "%": lambda a, b: a % b,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "remainder, in place": lambda a, b: a.clone().remainder_(b),
    "fmod, in place": lambda a, b: a.clone().fmod_(b),
}
OUTS = {
    "trunc": lambda a, b, out: torch.div(a, b, rounding_mode="trunc", out=out),
    "floor": lambda a, b, out: torch.div(a, b, rounding_mode="floor", out=out),
    "floor_divide": lambda a, b, out: torch.floor_divide(a, b, out=out),
    "remainder": lambda a, b, out: torch.remainder(a, b, out=out),
    "fmod": lambda a, b, out: torch.fmod(a, b, out=out),
}


def divisors(a):
    """-1 as a tensor of the shape, of one element, of a lower rank, of another type, on the host, as a number."""
    minus_one = torch.full_like(a, -1)
    return [minus_one, minus_one[:1], minus_one[0], minus_one[:1].to(torch.int8), torch.tensor(-1), -1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_most_negative_number_by_minus_one_wraps_around(device, dtype):
    a = numbers(dtype, device)
    quotients = wrapped([-n for n in a.tolist()], dtype)
    for b in divisors(a):
        for name, call in QUOTIENTS.items():
            assert call(a, b).tolist() == quotients, name
        for name, call in REMAINDERS.items():
            assert call(a, b).tolist() == [0] * len(quotients), name
        for name, call in OUTS.items():
            for out in (torch.empty_like(a), torch.empty(len(a), dtype=torch.int64, device=device)):
                expected = quotients if name in QUOTIENTS else [0] * len(quotients)
                assert call(a, b, out).tolist() == expected, name


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_divided_by_tensors(device, dtype):
    least = torch.iinfo(dtype).min
    b = torch.full((9,), -1, dtype=dtype, device=device)
    assert (least // b).tolist() == [least] * 9
    assert (least % b).tolist() == [0] * 9
    assert (torch.tensor(least, dtype=dtype) // b).tolist() == [least] * 9
    assert torch.remainder(least, b).tolist() == [0] * 9


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_quotients_are_eagers(device, dtype):
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    values = torch.tensor([least, least + 1, -7, -2, -1, 1, 2, 7, most], dtype=dtype)
    a, b = values.repeat_interleave(9), values.repeat(9)
    fits = (a != least) | (b != -1)
    a, b = a[fits], b[fits]
    for call in (trunc, floor, torch.remainder, torch.fmod, torch.gcd):
        assert torch.equal(call(a.to(device), b.to(device)).cpu(), call(a, b))
    if dtype != torch.int64:
        wide = torch.tensor([-1])  # with which nothing overflows
        assert torch.equal(trunc(values.to(device), wide.to(device)).cpu(), trunc(values, wide))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_least_common_multiples_of_the_most_negative_number(device, dtype):
    """Its greatest common divisor with 5 is -1 in ATen's arithmetic. Its multiples by odd numbers wrap around to it."""
    least = torch.iinfo(dtype).min
    others = list(range(-40, 41))
    a, b = whole([least] * len(others), dtype, device), whole(others, dtype, device)
    expected = [least if other else 0 for other in others]
    assert torch.lcm(a, b).tolist() == torch.lcm(b, a).tolist() == expected
    assert torch.lcm(a, b.to(torch.int8)).tolist() == expected  # on the CPU


def test_a_division_by_zero_stays_an_error(device):
    a = whole([1, 2], torch.int64, device)
    for call in (trunc, floor, torch.remainder, torch.fmod):
        for b in (torch.zeros_like(a), 0):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                call(a, b).cpu()


def test_interpreted_divisions_wrap_around(device, run_python):
    source = """
import torch, torch_xla
for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
    least = torch.iinfo(dtype).min
    a = torch.tensor([least, 7] * 9, dtype=dtype).xla()
    for b in (torch.full_like(a, -1), -1):
        for q in (torch.div(a, b, rounding_mode="trunc"), torch.div(a, b, rounding_mode="floor"), a // b):
            assert q.tolist() == [least, -7] * 9
        for r in (a % b, torch.fmod(a, b)):
            assert r.tolist() == [0] * 18
    assert (least // torch.full_like(a, -1)).tolist() == [least] * 18
print("good")
"""
    assert run_python(source, XLA_INTERPRETED_OPERATIONS="1000000000").split() == ["good"]
