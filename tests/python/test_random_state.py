"""Random state: what draws move it, what restores it, and generators of their own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import torch_xla
import torch_xla.core.xla_model as xm

# Operations that draw, by their kinds of kernel: fused, by ATen on the CPU, with a tensor of probabilities.
DRAWS = {
    "rand": lambda d: torch.rand(8, device=d),
    "randn": lambda d: torch.randn(8, device=d),
    "randint": lambda d: torch.randint(1000, (8,), device=d),
    "randperm": lambda d: torch.randperm(50, device=d),
    "dropout": lambda d: torch.nn.functional.dropout(torch.ones(64, device=d), 0.5),
    "bernoulli": lambda d: torch.bernoulli(torch.full((64,), 0.5, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.ones(50, device=d), 20),
    "exponential_": lambda d: torch.empty(8, device=d).exponential_(),
    "poisson": lambda d: torch.poisson(torch.full((64,), 9.0, device=d)),
    "normal": lambda d: torch.normal(torch.zeros(8, device=d), torch.ones(8, device=d)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_moves_the_state_and_the_state_gives_the_draw(device, name):
    draw = DRAWS[name]
    cpu = torch.get_rng_state()
    before = xm.get_rng_state()
    first = draw(device).cpu()
    after = xm.get_rng_state()
    assert after != before
    assert not torch.equal(draw(device).cpu(), first)
    xm.set_rng_state(before)
    assert torch.equal(draw(device).cpu(), first)
    assert xm.get_rng_state() == after
    assert torch.equal(torch.get_rng_state(), cpu)  # the CPU's is its own


def test_dropout_draws_anew_and_repeats_by_seed(device):
    drop = nn.Dropout(0.5)
    x = torch.ones(1000, device=device)
    torch.manual_seed(1)
    a, b = drop(x).cpu(), drop(x).cpu()
    torch.manual_seed(1)
    assert torch.equal(drop(x).cpu(), a)
    assert not torch.equal(a, b)
    assert 400 < (a == 0).sum() < 600


def test_the_state_moves_when_the_draw_is_recorded(device):
    state = torch.xla.get_rng_state()
    pending = torch.rand(4, device=device)
    torch.xla.set_rng_state(state)
    again = torch.rand(4, device=device)
    torch_xla.sync()
    assert pending.tolist() == again.tolist()


def test_the_number_of_a_state_is_the_seed(device):
    xm.set_rng_state(42)
    assert xm.get_rng_state() == 42 == torch.xla.initial_seed()
    first = torch.rand(4, device=device).tolist()
    assert xm.get_rng_state() != 42
    torch.xla.manual_seed(42)
    assert torch.rand(4, device=device).tolist() == first
    torch_xla.manual_seed(42)
    assert torch.rand(4, device=device).tolist() == first


def forks():
    return [
        lambda enabled: xm.fork_rng(enabled=enabled),
        lambda enabled: xm.fork_rng("xla:0", enabled=enabled),
        lambda enabled: torch.random.fork_rng(device_type="xla", enabled=enabled),
        lambda enabled: torch.random.fork_rng([0], device_type="xla", enabled=enabled),
    ]


@pytest.mark.parametrize("fork", forks())
def test_a_fork_gives_the_state_back(device, fork):
    torch.manual_seed(7)
    expected = torch.rand(4, device=device).tolist()
    torch.manual_seed(7)
    with fork(True):
        assert torch.rand(4, device=device).tolist() == expected
        torch.xla.manual_seed(1)
    with pytest.raises(ValueError, match="inside"), fork(True):
        torch.rand(4, device=device)
        raise ValueError("inside")
    assert torch.rand(4, device=device).tolist() == expected
    torch.manual_seed(7)
    with fork(False):
        torch.rand(4, device=device)
    assert torch.rand(4, device=device).tolist() != expected


def test_a_fork_keeps_the_states_of_the_cpu_too(device):
    torch.manual_seed(7)
    expected = torch.rand(4).tolist()
    torch.manual_seed(7)
    with torch.random.fork_rng(device_type="xla"):
        torch.rand(4)
        torch.manual_seed(1)
    assert torch.rand(4).tolist() == expected


def sine_with_its_own_draws(x):
    with torch.random.fork_rng():  # of the CPU and of the accelerator there is
        torch.rand(2, device=x.device)
        return x.sin().sum()


def recomputed_sine(x):
    return checkpoint(torch.sin, x, use_reentrant=False).sum()


def call_on_fake_tensors(function, x):
    with FakeTensorMode():
        return function(torch.ones(3, device=x.device))


TRANSFORMS = {
    "grad": lambda function, x: torch.func.grad(function)(x),
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,)),
    "functionalize": lambda function, x: torch.func.functionalize(function)(x),
    "fake": call_on_fake_tensors,
    "make_fx": lambda function, x: make_fx(function, tracing_mode="fake")(x),
}


CASES = [(function, name) for function in (sine_with_its_own_draws, recomputed_sine) for name in TRANSFORMS]
CASES.remove((recomputed_sine, "grad"))  # PyTorch refuses hooks of saved tensors in it


@pytest.mark.parametrize(("function", "name"), CASES)
@pytest.mark.parametrize("kind", ["cpu", "xla"])
def test_transforms_and_modes_leave_states_real(kind, function, name):
    before = xm.get_rng_state()
    TRANSFORMS[name](function, torch.ones(3, device=kind))
    assert xm.get_rng_state() == before


def test_a_generator_is_apart_from_the_default_one(device):
    torch.manual_seed(3)
    default = torch.rand(4, device=device).tolist()
    torch.manual_seed(3)
    own = torch.Generator(device="xla").manual_seed(9)
    first = torch.randn(4, device=device, generator=own).tolist()
    assert torch.rand(4, device=device).tolist() == default
    torch.manual_seed(1)
    assert own.initial_seed() == 9
    own.manual_seed(9)
    assert torch.randn(4, device=device, generator=own).tolist() == first
    for draw in (
        lambda g: torch.empty(4, device=device).uniform_(generator=g),
        lambda g: torch.randperm(20, device=device, generator=g),
        lambda g: torch.multinomial(torch.ones(20, device=device), 5, generator=g),
    ):
        state = own.get_state()
        drawn = draw(own).tolist()
        copy = own.clone_state()
        following = draw(own).tolist()
        assert draw(copy).tolist() == following != drawn
        own.set_state(state)
        assert draw(own).tolist() == drawn


def test_states_that_do_not_fit_are_refused(device):
    own = torch.Generator(device="xla")
    with pytest.raises(RuntimeError, match="has 3 bytes when it should have 16"):
        own.set_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(TypeError, match="ByteTensor"):
        own.set_state(torch.zeros(16))
    with pytest.raises(RuntimeError, match="expected a generator on device xla"):
        torch.rand(2, device=device, generator=torch.Generator())
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        xm.get_rng_state("xla:99")


# ---- Calls that are refused ----
def numbers(device, *shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=device)


def overlapping(device):
    return torch.ones(1, 4, device=device).expand(3, 4)


# By random operation and kind of bad argument.
REFUSED = {
    "multinomial, more than there are": lambda d: torch.multinomial(numbers(d, 3), 5),
    "multinomial, none": lambda d: torch.multinomial(numbers(d, 3), 0),
    "multinomial, dims": lambda d: torch.multinomial(numbers(d, 3, 3, 3), 1),
    "multinomial, dtype": lambda d: torch.multinomial(numbers(d, 3, dtype=torch.int64), 1),
    "multinomial, out": lambda d: torch.multinomial(numbers(d, 3), 1, out=numbers(d, 1)),
    "uniform_, order": lambda d: numbers(d, 3).uniform_(2, 1),
    "uniform_, range": lambda d: numbers(d, 3, dtype=torch.float16).uniform_(0, 1e6),
    "uniform_, nan": lambda d: numbers(d, 3).uniform_(0, float("nan")),
    "uniform_, dtype": lambda d: numbers(d, 3, dtype=torch.int64).uniform_(),
    "uniform_, memory": lambda d: overlapping(d).uniform_(),
    "normal_, deviation": lambda d: numbers(d, 3).normal_(0, -1),
    "normal_, dtype": lambda d: numbers(d, 3, dtype=torch.int64).normal_(),
    "normal, deviation": lambda d: torch.normal(numbers(d, 3), -1.0),
    "normal, shapes": lambda d: torch.normal(numbers(d, 3), numbers(d, 4)),
    "log_normal_, deviation": lambda d: numbers(d, 3).log_normal_(0, 0),
    "log_normal_, dtype": lambda d: numbers(d, 3, dtype=torch.int32).log_normal_(),
    "exponential_, rate": lambda d: numbers(d, 3).exponential_(0),
    "exponential_, dtype": lambda d: numbers(d, 3, dtype=torch.int32).exponential_(),
    "cauchy_, deviation": lambda d: numbers(d, 3).cauchy_(0, -1),
    "cauchy_, dtype": lambda d: numbers(d, 3, dtype=torch.bool).cauchy_(),
    "geometric_, probability": lambda d: numbers(d, 3).geometric_(1.0),
    "geometric_, dtype": lambda d: numbers(d, 3, dtype=torch.bool).geometric_(0.5),
    "random_, order": lambda d: numbers(d, 3).random_(5, 5),
    "random_, range": lambda d: numbers(d, 3, dtype=torch.int8).random_(0, 1000),
    "random_, memory": lambda d: overlapping(d).random_(),
    "randint, order": lambda d: torch.randint(5, 5, (3,), device=d),
    "randint, range": lambda d: torch.randint(0, 1000, (3,), dtype=torch.uint8, device=d),
    "randint, size": lambda d: torch.randint(0, 9, (-3,), device=d),
    "rand, size": lambda d: torch.rand(-3, device=d),
    "rand, dtype": lambda d: torch.rand(3, dtype=torch.int64, device=d),
    "rand, out": lambda d: torch.rand(3, out=numbers(d, 3, dtype=torch.int64)),
    "randn, dtype": lambda d: torch.randn(3, dtype=torch.int64, device=d),
    "rand_like, dtype": lambda d: torch.rand_like(numbers(d, 3), dtype=torch.int64),
    "randperm, size": lambda d: torch.randperm(-1, device=d),
    "randperm, dtype": lambda d: torch.randperm(300, dtype=torch.int8, device=d),
    "bernoulli, number": lambda d: torch.bernoulli(numbers(d, 3), 1.5),
    "bernoulli, dtype": lambda d: torch.bernoulli(numbers(d, 3, dtype=torch.int64)),
    "bernoulli_, number": lambda d: numbers(d, 3).bernoulli_(-0.5),
    "bernoulli_, shapes": lambda d: numbers(d, 3).bernoulli_(numbers(d, 4)),
    "bernoulli_, dtype": lambda d: numbers(d, 3).bernoulli_(numbers(d, 3, dtype=torch.int64)),
    "bernoulli_, memory": lambda d: overlapping(d).bernoulli_(0.5),
    "poisson, dtype": lambda d: torch.poisson(numbers(d, 3, dtype=torch.int64)),
    "binomial, dtype": lambda d: torch.binomial(numbers(d, 3, dtype=torch.int64), numbers(d, 3)),
    "gamma, dtype": lambda d: torch._standard_gamma(numbers(d, 3, dtype=torch.int64)),
    "dirichlet, dtype": lambda d: torch._sample_dirichlet(numbers(d, 3, dtype=torch.int64)),
    "dropout, probability": lambda d: F.dropout(numbers(d, 3), 1.5),
    "native_dropout, probability": lambda d: torch.native_dropout(numbers(d, 3), 1.5, True),
    "native_dropout, below 0": lambda d: torch.native_dropout(numbers(d, 3), -0.5, True),
    "alpha_dropout, probability": lambda d: torch.alpha_dropout(numbers(d, 3), -1.0, True),
    "feature_dropout, dims": lambda d: torch.feature_dropout(numbers(d, 3), 0.5, True),
    "rrelu, noise": lambda d: torch.ops.aten.rrelu_with_noise(numbers(d, 3), numbers(d, 2), 0.1, 0.3, True),
    "rrelu, bounds": lambda d: F.rrelu(-numbers(d, 3), 0.3, 0.1, training=True),
    "attention, dropout": lambda d: F.scaled_dot_product_attention(*[numbers(d, 1, 1, 2, 2)] * 3, dropout_p=1.5),
    "attention, mask": lambda d: F.scaled_dot_product_attention(
        *[numbers(d, 1, 1, 2, 2)] * 3, attn_mask=numbers(d, 3, 3), dropout_p=0.5
    ),
    "generator, device": lambda d: torch.rand(3, device=d, generator=torch.Generator("xla" if d == "cpu" else "cpu")),
    "generator, of a library call": lambda d: torch.multinomial(
        numbers(d, 3), 1, generator=torch.Generator("xla" if d == "cpu" else "cpu")
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_call_draws_nothing(device, name):
    with pytest.raises((RuntimeError, ValueError, TypeError)) as eager:
        REFUSED[name]("cpu")
    before = xm.get_rng_state(), torch.get_rng_state()
    with pytest.raises(eager.type):
        REFUSED[name](device)
    assert xm.get_rng_state() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_what_runs_on_the_cpu_draws_from_the_devices_generator(device):
    """Whole ranges have no row."""
    torch.manual_seed(3)
    cpu = torch.get_rng_state()
    x = torch.empty(8, dtype=torch.int64, device=device)
    first = x.random_(-(2**63), None).tolist()
    assert x.random_(-(2**63), None).tolist() != first
    own = torch.Generator(device="xla").manual_seed(3)
    assert x.random_(-(2**63), None, generator=own).tolist() == first
    assert torch.equal(torch.get_rng_state(), cpu)
    with pytest.raises(RuntimeError, match="expected a generator on device xla"):
        x.random_(-(2**63), None, generator=torch.Generator())


# ---- States that generators share ----
def test_generators_that_share_a_state_move_together(device):
    a = torch.Generator(device="xla").manual_seed(5)
    b = a.graphsafe_get_state()
    c = torch.Generator(device="xla").manual_seed(6)
    first = torch.rand(4, device=device, generator=a).tolist()
    second = torch.rand(4, device=device, generator=b).tolist()
    assert first != second
    a.manual_seed(5)
    assert torch.rand(4, device=device, generator=b).tolist() == first
    a.graphsafe_set_state(c)  # b keeps the state that a had
    assert a.initial_seed() == 6 and b.initial_seed() == 5
    assert torch.rand(4, device=device, generator=b).tolist() == second
    expected = torch.rand(4, device=device, generator=torch.Generator(device="xla").manual_seed(6)).tolist()
    assert torch.rand(4, device=device, generator=a).tolist() == expected
    assert a.get_state().tolist() == c.get_state().tolist()
    copy = a.clone_state()
    torch.rand(4, device=device, generator=a)
    assert copy.get_state().tolist() != a.get_state().tolist()
    with pytest.raises(RuntimeError, match="expected a generator on device xla, but got one on device cpu"):
        a.graphsafe_set_state(torch.Generator())


def test_the_default_generator_takes_another_state_and_gives_it_back(device):
    (default,) = torch.xla.default_generators
    torch.manual_seed(7)
    expected = [torch.rand(4, device=device).tolist() for _ in range(2)]
    torch.manual_seed(7)
    kept = default.graphsafe_get_state()
    default.graphsafe_set_state(torch.Generator(device="xla").manual_seed(8))
    other = torch.rand(4, device=device).tolist()
    default.graphsafe_set_state(kept)
    assert [torch.rand(4, device=device).tolist() for _ in range(2)] == expected
    torch.manual_seed(8)
    assert torch.rand(4, device=device).tolist() == other


# ---- torch.compile ----
def dropouts(x, weight):
    return F.dropout(torch.tanh(F.dropout(x @ weight, 0.5)), 0.3)


def checkpointed(x, weight):
    return torch.utils.checkpoint.checkpoint(dropouts, x, weight, use_reentrant=False).sum()


def losses(function, device, steps=3):
    torch.manual_seed(3)
    weight = torch.linspace(-1, 1, 256, device=device).view(16, 16).requires_grad_()
    results = []
    for step in range(steps):
        x = torch.full((8, 16), 1.0 + step, device=device, requires_grad=True)
        loss = function(x, weight)
        loss.sum().backward()
        results += [loss.sum().item(), x.grad.cpu(), weight.grad.cpu()]
    return results


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("function", [dropouts, checkpointed])
def test_a_compiled_function_with_dropout_repeats_by_seed(device, function, backend):
    """One with checkpoints keeps generators of its own, which are seeded when it first runs."""
    runs = []
    for _ in range(2):
        torch.compiler.reset()
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        runs.append(losses(compiled, device))
        if function is dropouts:
            runs.append(losses(compiled, device))
    for run in runs[1:]:
        torch.testing.assert_close(run, runs[0], rtol=0, atol=0)
    assert len({runs[0][i] for i in (0, 3, 6)}) == 3


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "aot_eager_decomp_partition"])
def test_a_recomputed_dropout_of_a_compiled_function_has_the_mask_of_its_forward(device, backend):
    """The gradient of x is the mask times a number, so it is zero just where the output is."""
    torch.compiler.reset()

    def drop(x):
        return torch.utils.checkpoint.checkpoint(lambda x: F.dropout(x, 0.5), x, use_reentrant=False)

    compiled = torch.compile(drop, backend=backend, fullgraph=True)
    masks = []
    for _ in range(3):
        x = torch.ones(64, device=device, requires_grad=True)
        y = compiled(x)
        torch.rand(5, device=device)  # draws between forward and backward
        y.sum().backward()
        assert torch.equal(y.detach().cpu(), x.grad.cpu())
        masks.append(y.tolist())
    assert masks[0] != masks[1] != masks[2]


@pytest.mark.parametrize("backend", ["inductor", "aot_eager_decomp_partition"])
def test_forwards_before_their_backwards(device, backend):
    torch.compiler.reset()
    compiled = torch.compile(checkpointed, backend=backend, fullgraph=True)
    weight = torch.eye(16, device=device)
    xs = [torch.ones(8, 16, device=device, requires_grad=True) for _ in range(3)]
    ys = [compiled(x, weight) for x in xs]
    for y in reversed(ys):
        y.backward()
    assert len({tuple(x.grad.flatten().tolist()) for x in xs}) == 3


FALL_BACK = {
    "normal": lambda device, generator: torch.normal(torch.ones(3, device=device) * 1j, 1.0, generator=generator),
    "random": lambda device, generator: torch.randint(
        500, (9,), dtype=torch.uint16, device=device, generator=generator
    ),
}


@pytest.mark.parametrize("draw", FALL_BACK.values(), ids=FALL_BACK)
def test_what_is_drawn_on_the_cpu_is_the_generators(device, draw):
    generator, before = torch.Generator(device).manual_seed(3), torch.get_rng_state()
    first, second = (draw(device, generator).cpu() for _ in range(2))
    assert not first.equal(second)
    assert draw(device, generator.manual_seed(3)).cpu().equal(first)
    torch.xla.manual_seed(5)
    of_default = draw(device, None).cpu()
    torch.xla.manual_seed(5)
    assert draw(device, None).cpu().equal(of_default)
    assert torch.get_rng_state().equal(before)
