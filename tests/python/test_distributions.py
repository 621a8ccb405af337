"""What random operations draw, beside eager: ends of intervals, how many different numbers, moments, for all dtypes."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import torch_xla.debug.metrics as met

N = 100_000
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
RANGES = [
    *((0, 1), (1, 1.01), (0, 0.1), (100, 200), (1000, 1000.5), (-1, 0), (-3, -2.99), (1, 1), (0, 1e-7), (-1.003, 5)),
    *((0, 65504), (1.5, 1.75), (-1.75, -1.5), (0, 1e-38), (-0.5, 0.5)),
]


def draw(call, dtype, device, n=N):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "to - 1 is out of bounds", of both
        return call(torch.empty(n, dtype=dtype, device=device)).cpu()


def check_like(drawn, eager):
    """As many different numbers, zeros and infinities as eager has, of the same mean and deviation."""
    assert drawn.dtype == eager.dtype
    assert len(drawn.unique()) >= 0.97 * len(eager.unique()) - 4 * math.sqrt(len(eager.unique()))
    drawn, eager = drawn.double(), eager.double()
    for kind in (lambda t: t == 0, torch.isinf, torch.isnan):
        mine, its = int(kind(drawn).sum()), int(kind(eager).sum())
        assert abs(mine - its) <= 6 * math.sqrt(mine + its + 9)
    drawn, eager = drawn[drawn.isfinite()], eager[eager.isfinite()]
    if min(len(drawn), len(eager)) > N // 10:
        spread = eager.std().item()
        assert abs(drawn.mean() - eager.mean()).item() <= 9 * spread / math.sqrt(N)
        assert spread * 0.5 <= drawn.std().item() <= spread * 2


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("limits", RANGES, ids=str)
def test_uniform_numbers_are_below_the_upper_bound(device, limits, dtype):
    drawn = draw(lambda x: x.uniform_(*limits), dtype, device)
    eager = draw(lambda x: x.uniform_(*limits), dtype, "cpu")
    low, high = torch.tensor(limits, dtype=dtype)
    assert (drawn >= low).all()
    assert (drawn < high).all() or (low == high and (drawn == low).all())
    assert len(drawn.unique()) >= 0.97 * len(eager.unique()) - 4 * math.sqrt(len(eager.unique()))
    # Eager's upper bound becomes the lower one, so its mean is off by as much as the bound is likely.
    share = max(torch.finfo(dtype).eps * max(abs(low), abs(high)).item(), torch.finfo(dtype).smallest_normal / 2**10)
    assert abs(drawn.double().mean() - (low.double() + high.double()) / 2) <= share + 0.02 * (high - low)


@pytest.mark.parametrize("limits", [(0, 1e5), (0, 65510), (2, 1), (0, math.nan), (-math.inf, 0)], ids=str)
def test_uniform_refuses_what_eager_refuses(device, limits):
    for dtype in FLOATS:
        outcomes = []
        for place in ("cpu", device):
            try:
                draw(lambda x: x.uniform_(*limits), dtype, place, 8)
                outcomes.append("")
            except RuntimeError as error:
                outcomes.append(str(error).split("(")[0])
        assert outcomes[0] == outcomes[1]


CONTINUOUS = {
    "randn_like": torch.randn_like,
    "exponential": lambda x: x.exponential_(),
    "exponential, few": lambda x: x.exponential_(1e4),
    "exponential, large": lambda x: x.exponential_(1e-4),
    "cauchy": lambda x: x.cauchy_().clamp(-50, 50),
    "cauchy, narrow": lambda x: x.cauchy_(0, 1e-3).clamp(-0.05, 0.05),
    "normal": lambda x: x.normal_(),
    "normal, far": lambda x: x.normal_(1000, 0.5),
    "normal of tensors": lambda x: torch.normal(x.fill_(3), torch.full_like(x, 2)),
    "log_normal": lambda x: x.log_normal_().clamp(0, 30),
    "log_normal, small": lambda x: x.log_normal_(-5, 1).clamp(0, 0.2),
    "gumbel_softmax": lambda x: F.gumbel_softmax(torch.zeros_like(x).view(-1, 4)).flatten(),
}
WHOLE = {
    "geometric": lambda x: x.geometric_(0.5),
    "geometric, rare": lambda x: x.geometric_(0.01),
    "geometric, sure": lambda x: x.geometric_(1 - 1e-12),
    "random": lambda x: x.random_(),
    "random to": lambda x: x.random_(100),
    "random from": lambda x: x.random_(20, 120),
    "bernoulli": lambda x: x.bernoulli_(0.3),
    "bernoulli of a tensor": lambda x: x.bernoulli_(torch.full(x.shape, 0.3, device=x.device)),
    "bernoulli.p": lambda x: torch.bernoulli(x.zero_(), 0.3),
    "never": lambda x: x.bernoulli_(0),
    "always": lambda x: x.bernoulli_(1),
}
MASKS = {
    "dropout": lambda x: F.dropout(x.fill_(1), 0.3),
    "dropout of little": lambda x: F.dropout(x.fill_(1), 1e-3),
    "dropout of all": lambda x: F.dropout(x.fill_(1), 1.0),
    "dropout of none": lambda x: F.dropout(x.fill_(1), 0.0),
    "alpha_dropout": lambda x: F.alpha_dropout(x.fill_(2), 0.3),
    "dropout1d": lambda x: F.dropout1d(x.fill_(1).view(-1, 4, 1), 0.3).flatten(),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x.fill_(2).view(-1, 4), 0.3).flatten(),
    "poisson": lambda x: torch.poisson(x.fill_(4)),
    "multinomial": lambda x: torch.multinomial(x[:5].copy_(torch.tensor([0.1, 0, 0.7, 0.2, 0])), N, True),
}
WIDE = {  # of types that ATen draws in
    "rrelu": lambda x: F.rrelu(x.fill_(-1), 0.1, 0.3, training=True),
    "binomial": lambda x: torch.binomial(x.fill_(10), torch.full_like(x, 0.3)),
    "gamma": lambda x: torch._standard_gamma(x.fill_(0.5)),
    "dirichlet": lambda x: torch._sample_dirichlet(x.fill_(0.5).view(-1, 2)).flatten(),
}
CASES = [
    *((name, call, dtype) for name, call in (CONTINUOUS | WHOLE | MASKS).items() for dtype in FLOATS),
    *((name, call, dtype) for name, call in WIDE.items() for dtype in (torch.float32, torch.float64)),
    *((name, call, dtype) for name, call in WHOLE.items() for dtype in INTEGERS),
]


@pytest.mark.parametrize(("name", "call", "dtype"), CASES, ids=lambda v: None if callable(v) else str(v))
def test_draws_are_spread_as_eagers(device, name, call, dtype):
    check_like(draw(call, dtype, device), draw(call, dtype, "cpu"))


# Beyond the whole numbers that the type holds: rounded, some would reach the bounds.
WHOLE_RANGES = [(0, 2050), (-5000, -4000), (257, 259), (2047, 2051), (2**24 + 1, 2**24 + 3), (0, 2**20), (4097, 4099)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("limits", WHOLE_RANGES, ids=str)
def test_whole_numbers_of_floats_are_in_their_range(device, limits, dtype):
    try:
        eager = draw(lambda x: x.random_(*limits), dtype, "cpu")
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:25]):
            draw(lambda x: x.random_(*limits), dtype, device)
        return
    drawn = draw(lambda x: x.random_(*limits), dtype, device)
    # Eager's first number may be one that the type rounds down to.
    assert min(limits[0], eager.double().min()) <= drawn.double().min() and (drawn.double() < limits[1]).all()
    assert len(drawn.unique()) >= 0.97 * len(eager.unique()) - 4 * math.sqrt(len(eager.unique()))


def test_rare_events_are_as_rare_as_they_are_said_to_be(device):
    """The resolution of float would make 16 of a quarter of one."""
    assert torch.empty(1 << 28, dtype=torch.bool, device=device).bernoulli_(2.0**-30).sum() <= 3


def test_exponential_numbers_are_positive_and_finite(device):
    for dtype in FLOATS:
        drawn = torch.empty(1 << 22, dtype=dtype, device=device).exponential_()
        assert (drawn > 0).all() and drawn.isfinite().all()


DISTRIBUTIONS = {
    "Beta": lambda t: torch.distributions.Beta(t(0.5), t(2.0)),
    "Binomial": lambda t: torch.distributions.Binomial(9, t(0.3)),
    "Cauchy": lambda t: torch.distributions.Cauchy(t(1.0), t(0.01)),
    "Categorical": lambda t: torch.distributions.Categorical(t([0.2, 0.0, 0.8])),
    "Chi2": lambda t: torch.distributions.Chi2(t(3.0)),
    "Exponential": lambda t: torch.distributions.Exponential(t(2.0)),
    "Gamma": lambda t: torch.distributions.Gamma(t(0.5), t(2.0)),
    "Geometric": lambda t: torch.distributions.Geometric(t(0.2)),
    "Gumbel": lambda t: torch.distributions.Gumbel(t(0.0), t(1.0)),
    "HalfCauchy": lambda t: torch.distributions.HalfCauchy(t(1.0)),
    "Kumaraswamy": lambda t: torch.distributions.Kumaraswamy(t(2.0), t(3.0)),
    "Laplace": lambda t: torch.distributions.Laplace(t(0.0), t(1.0)),
    "LogNormal": lambda t: torch.distributions.LogNormal(t(0.0), t(0.5)),
    "Pareto": lambda t: torch.distributions.Pareto(t(1.0), t(5.0)),
    "Poisson": lambda t: torch.distributions.Poisson(t(4.0)),
    "StudentT": lambda t: torch.distributions.StudentT(t(5.0)),
    "Uniform": lambda t: torch.distributions.Uniform(t(1.0), t(1.01)),
    "VonMises": lambda t: torch.distributions.VonMises(t(0.0), t(2.0)),
    "Weibull": lambda t: torch.distributions.Weibull(t(1.0), t(2.0)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_of_pytorch(device, name):
    n = 20_000
    samples = []
    for place in (device, "cpu"):
        distribution = DISTRIBUTIONS[name](lambda v, place=place: torch.tensor(v, device=place))
        drawn = distribution.sample((n,))
        assert drawn.isfinite().all() and distribution.support.check(drawn).all()
        samples.append(drawn.double().cpu().clamp(-100, 100))
    drawn, eager = samples
    assert len(drawn.unique()) >= 0.97 * len(eager.unique()) - 4 * math.sqrt(len(eager.unique()))
    if "Cauchy" in name:
        drawn, eager = drawn.clamp(-2, 2), eager.clamp(-2, 2)
    assert abs(drawn.mean() - eager.mean()) <= 9 * eager.std() / math.sqrt(n)


def test_interpreted_draws_are_those_of_compiled_programs(device, run_python):
    source = """
import torch, torch_xla
import torch.nn.functional as F
torch.manual_seed(5)
x = torch.ones(40, device="xla")
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
    y = torch.empty(40, dtype=dtype, device="xla")
    for call in ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "random_"):
        print(getattr(y, call)().double().tolist())
    print(y.geometric_(0.3).tolist(), y.bernoulli_(0.3).tolist(), F.dropout(y.fill_(1), 0.4).tolist())
    print(y.uniform_(1, 1.01).tolist(), torch.bernoulli(y * 0.4).tolist(), y.random_(3000, 3010).tolist())
print(torch.randint(-5, 100, (30,), device="xla").tolist(), torch.randperm(20, device="xla").tolist())
print(torch.multinomial(x, 5).tolist(), torch.poisson(x * 4).tolist(), torch.normal(x, x).tolist())
"""
    texts = [run_python(source, XLA_INTERPRETED_OPERATIONS=count) for count in ("0", "1000000000")]
    assert texts[0] == texts[1]


NORMALS = {  # mean, deviation
    "tensors": lambda x: (x.fill_(3), torch.full_like(x, 2)),
    "a mean": lambda x: (3.0, x.fill_(2)),
    "a deviation": lambda x: (x.fill_(3), 2.0),
    "rows and a column": lambda x: (x.fill_(3).view(-1, 4)[:, :1], torch.full_like(x[:4], 2)),
    "other orders of memory": lambda x: (x.fill_(3).view(-1, 4).t(), 2.0),
    "another type": lambda x: (x.fill_(3), torch.full_like(x, 2, dtype=torch.float64)),
    "no elements": lambda x: (x[:0], x[:0]),
}


@pytest.mark.parametrize("name", NORMALS)
def test_normal_numbers_are_drawn_within_the_program(device, name):
    results = []
    before = met.counter_value("aten::normal")
    for place in ("cpu", device):
        drawn = torch.normal(*NORMALS[name](torch.empty(N, device=place)))
        results.append((drawn.dtype, drawn.shape, drawn.stride()))
        if drawn.numel():
            assert abs(drawn.mean().item() - 3) < 0.1 and abs(drawn.std().item() - 2) < 0.1
    assert results[0] == results[1] and met.counter_value("aten::normal") == before


REFUSED_NORMALS = {
    "a negative deviation": lambda d: torch.normal(torch.zeros(3, device=d), torch.tensor([1.0, -1.0, 2.0], device=d)),
    "a deviation that is NaN": lambda d: torch.normal(0.0, torch.full((3,), float("nan"), device=d)),
    "a negative number": lambda d: torch.normal(torch.zeros(3, device=d), -1.0),
    "integers": lambda d: torch.normal(torch.zeros(3, device=d, dtype=torch.int32), 1.0),
    "shapes that do not fit": lambda d: torch.normal(torch.zeros(3, device=d), torch.ones(4, device=d)),
}


@pytest.mark.parametrize("name", REFUSED_NORMALS)
def test_normal_refuses_what_eager_refuses(device, name):
    texts = []
    for place in ("cpu", device):
        with pytest.raises(RuntimeError) as raised:
            REFUSED_NORMALS[name](place).sum().item()
        texts.append(str(raised.value).split("\n")[0])
    assert texts[0] in texts[1]
