"""Pointwise kernels give eager's values on NaN, infinities, zeros, denormals and limits, alone and fused in pairs."""

import itertools
import random

import pytest
import torch
from eager import check
from torch.nn import functional

import torch_xla

NAN, INF = float("nan"), float("inf")
FLOATS = [NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 1e-39, -1e-39, 1.1754944e-38, 1e-30, 0.3, 0.5, -0.5, 1.0, -1.0, 1.5]
FLOATS += [2.0, -2.0, -2.5, 3.0, -3.0, 7.25, -7.25, 60.0, -60.0, 65504.0, 16777217.0, 1e30, 3.4e38, -3.4e38]
LIMITS = {torch.float32: 88.8, torch.float64: 710.3}  # sinh and cosh of these are finite, e^x is not


def special(dtype: torch.dtype) -> torch.Tensor:
    """Numbers at which kernels branch."""
    if dtype.is_floating_point:
        limit = LIMITS.get(dtype, 1.0)
        return torch.tensor([*FLOATS, limit, -limit], dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    return torch.tensor(
        [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1, -1 if info.min else 5], dtype=dtype
    )


def like(x: torch.Tensor, value: float) -> torch.Tensor:
    """The number as a 0-d tensor of x's type."""
    return torch.full((), value, dtype=x.dtype, device=x.device)


# What compares and selects: LLVM rewrites these most.
CHOOSING = {
    "abs": torch.abs,
    "neg": torch.neg,
    "sign": torch.sign,
    "relu": torch.relu,
    "logical_not": torch.logical_not,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "isposinf": torch.isposinf,
    "nan_to_num": torch.nan_to_num,
    "round": torch.round,
    "hardshrink": functional.hardshrink,
    "softshrink": functional.softshrink,
    "hardtanh": functional.hardtanh,
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "threshold": lambda x: functional.threshold(x, 0, 0),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp(min=0),
    "clamp_max": lambda x: x.clamp(max=0),
    "bool": lambda x: x.bool(),
    "uint8": lambda x: x.to(torch.uint8),
    "int32": lambda x: x.to(torch.int32),
    "bfloat16": lambda x: x.bfloat16(),
    "gt": lambda x: x > 0,
    "le": lambda x: x <= 0,
    "ne": lambda x: x != x,
    "below_infinity": lambda x: x < INF,
    "where_positive": lambda x: torch.where(x > 0, x, 0),
    "where_number": lambda x: torch.where(torch.isnan(x), 0, x),
    "maximum": lambda x: torch.maximum(x, like(x, 0)),
    "fmin": lambda x: torch.fmin(x, like(x, 0)),
    "copysign": lambda x: torch.copysign(like(x, 2), x),
    "add": lambda x: x + 1,
    "mul": lambda x: x * 2,
    "reciprocal": torch.reciprocal,
}
COMPUTING = {
    name: getattr(torch, name)
    for name in """sgn ceil floor trunc frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan
    sinh cosh tanh asinh acosh atanh erf erfc sigmoid sinc deg2rad rad2deg isneginf logit signbit square
    bitwise_not""".split()
}
COMPUTING |= {
    name: getattr(functional, name)
    for name in "silu mish gelu hardswish hardsigmoid relu6 softplus logsigmoid selu celu softsign".split()
}
COMPUTING |= {
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "round_decimals": lambda x: torch.round(x, decimals=1),
    "float64": lambda x: x.double(),
    "rsub": lambda x: 1 - x,
    "floor_divide": lambda x: x // 0.25,
    "remainder": lambda x: x % -3,
    "fmod": lambda x: torch.fmod(x, 2),
    "power": lambda x: x**1.5,
    "cube": lambda x: x**3,
    "power_of_two": lambda x: 2**x,
    "xlogy": lambda x: torch.xlogy(x, x),
    "hypot": lambda x: torch.hypot(x, like(x, 1)),
    "atan2": lambda x: torch.atan2(x, like(x, 1)),
    "logaddexp": lambda x: torch.logaddexp(x, like(x, 1)),
    "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "addcdiv": lambda x: torch.addcdiv(x, x, x),
}
UNARY = CHOOSING | COMPUTING
BINARY = {
    name: getattr(torch, name)
    for name in """add sub mul div floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot copysign xlogy
    logaddexp pow eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    bitwise_left_shift bitwise_right_shift ldexp""".split()
}
BINARY |= {
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "where": lambda x, y: torch.where(x > y, x, y),
    "clamp": lambda x, y: torch.clamp(x, min=y, max=x),
}

# Where the values of eager are the worse ones, or its vector and scalar kernels disagree.
ALONE_DIFFERS = {
    "sigmoid": "eager's underflows at -88",
    "silu": "eager's underflows at -88",
    "mish": "eager rounds once more near underflow",
    "gelu": "eager's gives NaN at infinity for some sizes",
    "erf": "eager's bfloat16 kernel flushes small numbers",
    "sinh": "eager's vector kernel overflows too early",
    "cosh": "eager's vector kernel overflows too early",
    "asinh": "eager rounds denormals upwards",
    "atanh": "eager rounds denormals upwards",
    "power": "eager's half has the real root of -inf only",
    "cube": "eager rounds bfloat16 after each product",
    "copysign": "the sign of a NaN is not looked at",
    "fmod": "eager's vector kernel gives NaN where the quotient overflows",
    "remainder": "eager's vector kernel gives NaN where the quotient overflows",
}
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13, torch.bfloat16: 1e-2, torch.float16: 2e-3}
REFUSALS = (RuntimeError, NotImplementedError, TypeError)


def find_differences(got: torch.Tensor, want: torch.Tensor) -> list:
    """Places where the values differ by more than rounding; the types must agree."""
    assert got.dtype == want.dtype
    if not want.dtype.is_floating_point:
        return (got != want).nonzero().tolist()
    close = torch.isclose(got.double(), want.double(), rtol=TOLERANCE[want.dtype], atol=1e-44, equal_nan=True)
    return (~close).nonzero().tolist()


def call_both(function, *operands: torch.Tensor) -> tuple | None:
    """Results on the device (not computed yet) and on the CPU; None where eager has no such operation."""
    try:
        want = function(*operands)
    except REFUSALS:
        return None
    return function(*(x.to("xla") for x in operands)), want


def check_all(calls: dict) -> None:
    """Runs what call_both() recorded and compares it."""
    torch_xla.sync()
    wrong = {}
    for name, call in calls.items():
        if call and (places := find_differences(call[0].cpu(), call[1])):
            at = tuple(places[0])
            wrong[name] = f"{len(places)} values, at {at}: {call[0].cpu()[at].item()} instead of {call[1][at].item()}"
    assert not wrong


FLOAT_TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGER_TYPES = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def type_name(dtype: torch.dtype) -> str:
    """For the names of tests."""
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", FLOAT_TYPES + INTEGER_TYPES, ids=type_name)
def test_operations_of_one_operand(device, dtype):
    """Each alone, in a kernel that computes one thing."""
    x = special(dtype)
    check_all({name: call_both(function, x) for name, function in UNARY.items() if name not in ALONE_DIFFERS})


@pytest.mark.parametrize("dtype", FLOAT_TYPES + INTEGER_TYPES, ids=type_name)
def test_operations_of_two_operands(device, dtype):
    """All pairs of special values."""
    values = special(dtype)
    x, y = (v.contiguous() for v in torch.meshgrid(values, values, indexing="ij"))
    if not dtype.is_floating_point:
        valid = (y != 0) & ~((x == torch.iinfo(dtype).min) & (y == -1))  # eager raises, or traps
        x, y = x[valid], y[valid]
    names = BINARY.keys() - ALONE_DIFFERS.keys() if dtype.is_floating_point else BINARY.keys()
    check_all({name: call_both(BINARY[name], x, y) for name in sorted(names)})


@pytest.mark.parametrize("dtype", FLOAT_TYPES[:2], ids=type_name)
def test_remainders_are_exact(device, dtype):
    """As C's fmod, also where the quotient overflows: eager's vector kernels give NaN there, its scalar ones do not."""
    values = special(dtype)
    pairs = list(itertools.product(values, values))
    want = {f: torch.stack([f(x, y) for x, y in pairs]) for f in (torch.fmod, torch.remainder)}
    x, y = (torch.stack(v).to(device) for v in zip(*pairs, strict=True))
    for function, expected in want.items():
        torch.testing.assert_close(function(x, y).cpu(), expected, rtol=0, atol=0, equal_nan=True)


def check_chains(x: torch.Tensor, inner: dict, chains: list) -> None:
    """outer(inner(x)) in one kernel gives what two kernels give."""
    calls = {}
    for name, group in itertools.groupby(sorted(chains), key=lambda chain: chain[0]):
        first = call_both(inner[name], x)
        middle = first[0].cpu() if first else None
        for _, outer in group:
            try:
                UNARY[outer](middle)
            except (*REFUSALS, AttributeError):
                continue
            fused = UNARY[outer](inner[name](x.to("xla")))
            calls[f"{outer}({name}(x))"] = fused, UNARY[outer](middle.to("xla"))
        torch_xla.sync()
    assert len(calls) > len(chains) / 3
    check_all({name: (fused, apart.cpu()) for name, (fused, apart) in calls.items()})


def test_all_pairs_that_choose(device):
    """Comparisons and selections, each in a kernel of its own with each other one."""
    check_chains(special(torch.float32), CHOOSING, list(itertools.product(CHOOSING, CHOOSING)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=type_name)
def test_pairs(device, dtype):
    """Some of all pairs, drawn once and for all."""
    pairs = random.Random(0).sample(list(itertools.product(UNARY, UNARY)), 250)
    check_chains(special(dtype), UNARY, pairs)


def test_pairs_over_two_operands(device):
    """Operations of one operand over those of two."""
    values = special(torch.float32)
    y = values.flip(0).roll(7)
    inner = {name: lambda x, f=f: f(x, y.to(x.device)) for name, f in BINARY.items()}
    check_chains(values, inner, random.Random(0).sample(list(itertools.product(inner, UNARY)), 250))


def test_relu_of_abs(device):
    """LLVM's instcombine took |x| > 0 for x > 0 beside a test for NaN."""
    x = torch.tensor([-2.0, -1.0, 0.0, 3.0, NAN])
    torch.testing.assert_close(torch.relu(x.to(device).abs()).cpu(), x.abs(), equal_nan=True)
    x = -torch.rand(2, 3, 8)
    want = functional.lp_pool1d(x, 3, 2)  # NaN: the root of a negative number
    torch.testing.assert_close(functional.lp_pool1d(x.to(device), 3, 2).cpu(), want, equal_nan=True)


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=type_name)
def test_integer_powers(device, dtype):
    """Exact modulo the width for every exponent; negative ones as eager's."""
    info = torch.iinfo(dtype)
    exponents = [
        0,
        1,
        2,
        3,
        64,
        127,
        info.max,
        info.max - 1,
        info.max // 2 + 1,
        *([-1, -2, -3, info.min] if info.min else []),
    ]
    exponents += [v for v in (255, 256, 65535, 65536, 65537, 2**32, 2**62 + 3) if v <= info.max]
    bases = special(dtype)
    x, y = torch.meshgrid(bases, torch.tensor(exponents, dtype=dtype), indexing="ij")
    torch.testing.assert_close(x.to(device).pow(y.to(device)).cpu(), x.pow(y))
    natural = torch.tensor([e for e in exponents if e >= 0], dtype=dtype)
    for base in (0, 1, 2, 3):
        torch.testing.assert_close((base ** natural.to(device)).cpu(), base**natural)
    torch.testing.assert_close(torch.tensor(0).to(device).pow(torch.tensor(65536).to(device)).cpu(), torch.tensor(0))


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=type_name)
def test_ldexp(device, dtype):
    """The factor may overflow or underflow where the product does not; the product is rounded once."""
    x = special(dtype)[:, None]
    for n in (
        torch.arange(-700, 700),
        torch.arange(-2200, 2200, 7, dtype=torch.int32),
        torch.arange(-128, 128).to(torch.int8),
    ):
        want = (
            torch.stack([torch.ldexp(x, e) for e in n])
            if dtype == torch.float64
            else torch.ldexp(x.expand(-1, len(n)).contiguous(), n).T[:, :, None]
        )
        got = torch.ldexp(x.to(device), n.to(device)[:, None, None]).cpu()
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_quotients_that_overflow(device):
    """floor_divide gives infinity, not NaN."""
    x = torch.tensor([3e38, -3e38, 1.0, -1.0, 1.0])
    y = torch.tensor([0.25, 0.25, 1e-45, 1e-40, -1e-39])
    torch.testing.assert_close((x.to(device) // y.to(device)).cpu(), x // y)
    torch.testing.assert_close((1 // y.to(device)).cpu(), 1 // y)
    torch.testing.assert_close((1 % y.to(device)).cpu(), 1 % y)


@pytest.mark.parametrize("dtype", LIMITS, ids=type_name)
@pytest.mark.parametrize("size", [1, 40])
def test_hyperbolic_functions_reach_their_limit(device, dtype, size):
    """sinh and cosh are finite a little beyond the point where e^x overflows."""
    limit = LIMITS[dtype]
    x = torch.tensor([limit, -limit, 0.5, 89.5 if dtype == torch.float32 else 711.0], dtype=dtype)
    for function in (torch.sinh, torch.cosh):
        want = torch.stack([function(v) for v in x])  # eager's scalar kernel
        got = function(x.repeat(size).to(device)).cpu()
        torch.testing.assert_close(got, want.repeat(size), rtol=TOLERANCE[dtype], atol=0)


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=type_name)
@pytest.mark.parametrize("value", [0.1, -7.3, 1234.567])
def test_variance_of_equal_numbers(device, dtype, value):
    """It is exactly 0, over rows, columns and all."""
    x = torch.full((999, 37), value, dtype=dtype)
    y = x.to(device)
    for dim in (0, 1, None):
        assert torch.count_nonzero(y.var(dim)).item() == 0
        assert torch.count_nonzero(y.std(dim)).item() == 0
    variance, mean = torch.var_mean(y, 0)
    assert torch.count_nonzero(variance).item() == 0
    torch.testing.assert_close(mean.cpu(), x[0], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=type_name)
@pytest.mark.parametrize("value", [0.1, -7.3, 1234.567])
def test_norms_of_equal_numbers(device, dtype, value):
    """They are exactly 0, where the rounding of a mean would become 1e-4 or more; also with a small eps."""
    y = torch.full((30, 6, 111), value, dtype=dtype).to(device)
    for norm in (
        lambda eps: functional.layer_norm(y, (111,), eps=eps),
        lambda eps: functional.layer_norm(y, (6, 111), eps=eps),
        lambda eps: functional.batch_norm(y, None, None, training=True, eps=eps),
        lambda eps: functional.group_norm(y, 3, eps=eps),
        lambda eps: functional.instance_norm(y, eps=eps),
    ):
        assert torch.count_nonzero(norm(1e-5)).item() == 0
        assert torch.count_nonzero(norm(1e-12)).item() == 0


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=type_name
)
def test_conversions_of_fused_values(device, dtype):
    """Numbers out of range become what eager makes of them, also where the compiler knows that there are such."""
    for source in (torch.tensor([True, False, True] * 7), torch.tensor([1, 0, 3, 200])):
        torch.testing.assert_close(torch.log(source.to(device)).to(dtype).cpu(), torch.log(source).to(dtype))
    x = special(torch.float32)
    for function in (lambda x: torch.where(x > 0, x, -INF), lambda x: torch.where(x > 0, 1e20, x), lambda x: x / 0):
        torch.testing.assert_close(function(x.to(device)).to(dtype).cpu(), function(x).to(dtype))


SCALAR_CALLS = {
    "add": lambda x, s: x + s,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / x,
    "rdiv_tensor": lambda x, s: torch.tensor(s, device=x.device) / x,
    "add_tensor": lambda x, s: x + torch.tensor(s, device=x.device),
    "mul_tensor": lambda x, s: x * torch.tensor(s, device=x.device),
    "lt_tensor": lambda x, s: x < torch.tensor(s, device=x.device),
    "floor_divide": lambda x, s: x // s,
    "div_trunc": lambda x, s: torch.div(x, s, rounding_mode="trunc"),
    "remainder": lambda x, s: x % s,
    "rremainder": lambda x, s: s % x,
    "fmod": torch.fmod,
    "pow": torch.pow,
    "rpow": lambda x, s: s**x,
    "xlogy": torch.xlogy,
    "rxlogy": lambda x, s: torch.xlogy(s, x),
    "atan2": lambda x, s: torch.atan2(x, torch.tensor(s, device=x.device)),
    "add_alpha": lambda x, s: torch.add(x, x.flip(0), alpha=s),
    "sub_alpha": lambda x, s: torch.sub(x, x.flip(0), alpha=s),
    "rsub_alpha": lambda x, s: torch.rsub(x, s, alpha=3.3),
    "in_place": lambda x, s: x.clone().add_(s).mul_(s),
    "eq": torch.eq,
    "gt": torch.gt,
    "clamp": lambda x, s: x.clamp(-s, s),
    "where": lambda x, s: torch.where(x > 1, x, s),
    "hardshrink": functional.hardshrink,
    "leaky_relu": functional.leaky_relu,
    "threshold": lambda x, s: functional.threshold(x, s, s),
    "addcdiv": lambda x, s: torch.addcdiv(x, x, x.flip(0), value=s),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=type_name)
def test_numbers_beside_16_bit_floats(device, dtype):
    """Numbers are rounded to the tensor's type where eager's kernels do that, and only there."""
    x = (torch.randn(512, generator=torch.Generator().manual_seed(0)).abs() * 3).to(
        dtype
    )  # whole vectors of eager's kernels
    for name, call in SCALAR_CALLS.items():
        for s in (0.1, 0.3, 1 / 3, 3.14159, 1.0009765, 1.003, 7.0):
            got = call(x.to(device), s).cpu()
            torch.testing.assert_close(
                got, call(x, s), rtol=0, atol=0, msg=lambda text, what=f"{name} {s}: ": what + text
            )


@pytest.mark.parametrize("dtype", [*FLOAT_TYPES, torch.int64, torch.uint8, torch.bool], ids=type_name)
def test_bernoulli_into_another_type(device, dtype):
    """out= of any dtype; of the probabilities' own it draws what the functional form does."""
    p = torch.tensor([0.0, 1.0, 1.0, 0.0] * 8, device=device)
    out = torch.empty(32, dtype=dtype, device=device)
    assert torch.bernoulli(p, out=out) is out
    torch.testing.assert_close(out.cpu(), p.cpu().to(dtype))
    half = torch.full((64,), 0.5, device=device)
    torch.manual_seed(1)
    want = torch.bernoulli(half).cpu()
    torch.manual_seed(1)
    out = torch.empty(64, device=device)
    torch.testing.assert_close(torch.bernoulli(half, out=out).cpu(), want)


ONE_TANGENT = {
    "quotient": lambda a, c: a / c,
    "product": lambda a, c: a * c,
    "power": lambda a, c: a**c,
    "sum of products": lambda a, c: torch.addcmul(a, c, a.detach()),
    "angle": torch.atan2,
    "masked scores": lambda a, c: ((a[:, None] + a).masked_fill(a < 0, -torch.inf) / c).softmax(-1),
}


@pytest.mark.parametrize("function", ONE_TANGENT.values(), ids=ONE_TANGENT)
def test_a_tangent_that_is_not_there_adds_nothing_to_infinity(device, function):
    def tangent(d):
        a, c = torch.tensor([-torch.inf, 1.0, 2.0], device=d), torch.tensor(2.0, device=d)
        return torch.func.jvp(lambda a: function(a, c), (a,), (torch.ones_like(a),))[1]

    assert torch._efficientzerotensor(2, device=device)._is_zerotensor()
    torch.testing.assert_close(tangent(device).cpu(), tangent("cpu"), equal_nan=True)


ACTIVATIONS = (
    "hardtanh relu6 hardshrink softshrink elu selu celu hardswish hardsigmoid leaky_relu silu mish gelu softplus relu"
)


@pytest.mark.parametrize("name", ACTIVATIONS.split())
def test_gradients_at_nan_are_those_of_atens_vectors(device, name):
    def gradient(place):
        x = torch.full((64,), NAN, device=place).requires_grad_()
        return torch.autograd.grad(getattr(functional, name)(x).sum(), x)

    check(gradient)


WHOLE_BESIDE_HALF = {
    "product": lambda whole, half: whole[0] * half,
    "sum of products": lambda whole, half: torch.addcmul(half, whole, half),
    "sum of whole products": lambda whole, half: torch.addcmul(whole, whole, half, value=2),
    "sum of quotients": lambda whole, half: torch.addcdiv(half, half, whole),
    "hypotenuse": lambda whole, half: torch.hypot(whole, half * NAN),
}


@pytest.mark.parametrize("function", WHOLE_BESIDE_HALF.values(), ids=WHOLE_BESIDE_HALF)
def test_whole_numbers_beside_halves_are_rounded_first(device, function):
    whole, half = torch.tensor([70000, -70000, 3], dtype=torch.int32), torch.tensor([0.0, 1e-4, 2.0]).half()
    actual = function(whole.to(device), half.to(device))
    torch.testing.assert_close(actual.cpu(), function(whole, half), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("exponent", [torch.float64, torch.float32, torch.float16])
def test_powers_of_two_by_a_number(device, dtype, exponent):
    x, y = torch.tensor([1.0, 3.0], dtype=dtype), torch.tensor(-2.5, dtype=exponent)
    torch.testing.assert_close(torch.ldexp(x.to(device), y.to(device)).cpu(), torch.ldexp(x, y), rtol=3e-7, atol=0)
