"""Values of tensors that eager refuses on the CPU: an error of eager's class at the call or at the read, never a value.

ATen's composites look at some of them on the CPU only, to spare other devices a wait.
"""

import math

import pytest
import torch
import torch.nn.functional as F

import torch_xla

NAN = math.nan
OUT_OF_RANGE = (-5, 5)


def ramp(*shape):
    return torch.arange(float(math.prod(shape))).view(shape)


def whole(*values):
    return torch.tensor(values)


# ---- quantile: the class of its errors, and its values and gradients beside the check ----
@pytest.mark.checks_values
@pytest.mark.parametrize("form", ["linear", "nearest", "lower", "higher", "midpoint"])
@pytest.mark.parametrize("q", [[1.2], [0.5, -0.1], [2.0], [NAN]], ids=str)
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles_refuse_shares_out_of_range(device, name, q, form):
    function, x = getattr(torch, name), ramp(3, 4).to(device)
    calls = [
        lambda q: function(x, q, dim=1, interpolation=form),
        lambda q: function(x, q[-1], interpolation=form),
        lambda q: function(x, q, 0, True, interpolation=form, out=torch.empty(0, device=device)),
        lambda q: function(x.clone().requires_grad_(), q, interpolation=form).detach(),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"quantile\(\) q values must be in the range \[0, 1\]"):
            call(torch.tensor(q, device=device)).cpu()
        torch_xla.sync(wait=True)  # it was told


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles_in_range_are_eagers(device, name):
    results = []
    for place in ("cpu", device):
        x = (ramp(3, 4) * 1.5).to(place).requires_grad_()
        q = torch.tensor([0.0, 0.3, 1.0], device=place, requires_grad=True)
        y = getattr(torch, name)(x, q, dim=1)
        y.square().sum().backward()
        out = getattr(torch, name)(x.detach(), q.detach(), dim=0, out=torch.empty(0, device=place))
        results.append([t.detach().cpu() for t in (y, x.grad, q.grad, out)])
    torch.testing.assert_close(*results)


@pytest.mark.checks_values
def test_compiled_quantiles_check_too(device):
    compiled = torch.compile(lambda x, q: torch.quantile(x, q) + 1, backend="aot_eager")
    x = ramp(5).to(device)
    assert compiled(x, torch.tensor(0.5, device=device)).item() == 3
    with pytest.raises(RuntimeError, match="must be in the range"):
        compiled(x, torch.tensor(1.5, device=device)).item()


# ---- The others: by name, a call on tensors that `d` moves ----
def bags(offsets, **options):
    return lambda d: F.embedding_bag(d(whole(0, 1, 2)), d(ramp(3, 4)), d(whole(*offsets)), **options)


def at(call):
    """The call for each index out of range."""
    return [lambda d, i=i: call(d, i) for i in OUT_OF_RANGE]


def log_probabilities():
    return torch.linspace(0, 1, 12).view(4, 1, 3).log_softmax(-1)


def ctc(targets, lengths, target_lengths):
    return lambda d: F.ctc_loss(d(log_probabilities()), d(whole(targets)), d(whole(lengths)), d(whole(target_lengths)))


CASES = {
    "one_hot": at(lambda d, i: F.one_hot(d(whole(0, i)), 3)),
    "bincount": [lambda d: torch.bincount(d(whole(0, -1)))],
    "nll_loss": at(lambda d, i: F.nll_loss(d(ramp(3, 4)), d(whole(0, i, 1)))),
    "nll_loss2d": at(lambda d, i: F.nll_loss(d(ramp(1, 3, 2, 2)), d(torch.full((1, 2, 2), i)))),
    "cross_entropy": at(lambda d, i: F.cross_entropy(d(ramp(3, 4)), d(whole(0, i, 1)), label_smoothing=0.1)),
    "multi_margin_loss": at(lambda d, i: F.multi_margin_loss(d(ramp(3, 4)), d(whole(0, i, 1)))),
    "multilabel_margin_loss": at(lambda d, i: F.multilabel_margin_loss(d(ramp(3, 4)), d(torch.full((3, 4), i)))),
    "ctc_loss": [ctc([1, 2], [9], [2]), ctc([1, 2], [-1], [2]), ctc([1, 2], [4], [5]), ctc([1, 2], [4], [-1])],
    "embedding": at(lambda d, i: F.embedding(d(whole(0, i)), d(ramp(3, 4)))),
    "embedding_bag": [
        bags((1, 2)),
        bags((0, 9)),
        bags((0, 2, 1)),
        bags((0, 2, 1), mode="mean"),
        bags((0, 9), mode="max"),
        bags((0, 2, 9), include_last_offset=True),
        *at(lambda d, i: F.embedding_bag(d(whole(0, i)), d(ramp(3, 4)), d(whole(0, 1)))),
    ],
    "gather": at(lambda d, i: torch.gather(d(ramp(3, 4)), 1, d(torch.full((3, 1), i)))),
    "take": at(lambda d, i: torch.take(d(ramp(3, 4)), d(whole(0, 10 * i)))),
    "put": at(lambda d, i: torch.put(d(ramp(3, 4)), d(whole(10 * i)), d(ramp(1)))),
    "scatter": at(lambda d, i: d(ramp(3, 4)).scatter(1, d(torch.full((3, 1), i)), 1.0)),
    "scatter_reduce": at(lambda d, i: d(ramp(3, 4)).scatter_reduce(1, d(torch.full((3, 1), i)), d(ramp(3, 1)), "amax")),
    "index_add": at(lambda d, i: d(ramp(3, 4)).index_add(1, d(whole(i)), d(ramp(3, 1)))),
    "index_copy": at(lambda d, i: d(ramp(3, 4)).index_copy(1, d(whole(i)), d(ramp(3, 1)))),
    "index_fill": at(lambda d, i: d(ramp(3, 4)).index_fill(1, d(whole(i)), 1.0)),
    "index_reduce": at(lambda d, i: d(ramp(3, 4)).index_reduce(1, d(whole(i)), d(ramp(3, 1)), "prod")),
    "index_select": at(lambda d, i: torch.index_select(d(ramp(3, 4)), 1, d(whole(i)))),
    "index": at(lambda d, i: d(ramp(3, 4))[d(whole(i))]),
    "index_put": at(lambda d, i: d(ramp(3, 4)).index_put((d(whole(i)),), d(torch.tensor(1.0)), accumulate=True)),
    "max_unpool1d": at(lambda d, i: F.max_unpool1d(d(ramp(1, 1, 2)), d(torch.tensor([[[0, 2 * i]]])), 2)),
    "max_unpool2d": at(lambda d, i: F.max_unpool2d(d(ramp(1, 1, 1, 2)), d(torch.tensor([[[[0, 9 * i]]]])), 2)),
    "masked_scatter": [lambda d: d(ramp(3, 4)).masked_scatter(d(ramp(3, 4) > 2), d(ramp(1)))],
    "searchsorted": at(lambda d, i: torch.searchsorted(d(ramp(3)), d(ramp(1)), sorter=d(whole(0, 1, i)))),
    "lu_unpack": at(lambda d, i: torch.lu_unpack(d(torch.eye(3)), d(whole(1, 2, i).int()))[0]),
    "repeat_interleave": [
        lambda d: torch.repeat_interleave(d(whole(1, -1))),
        lambda d: torch.repeat_interleave(d(ramp(3)), d(whole(1, 1, 2)), output_size=9),
        lambda d: torch.repeat_interleave(d(ramp(3)), d(whole(1, 1, 2)), output_size=2),
    ],
    "segment_reduce": [lambda d: torch.segment_reduce(d(ramp(3)), "sum", lengths=d(whole(-1, 4)))],
    "histogram": [
        lambda d: torch.histc(d(torch.tensor([NAN, 1.0])), 4),
        lambda d: torch.histogramdd(d(torch.tensor([[math.inf, 1.0]])), [2, 2])[0],
    ],
    "bernoulli": [lambda d, p=p: torch.bernoulli(d(torch.tensor([p, 0.5]))) for p in (-0.1, 1.2)],
    "binary_cross_entropy": [
        lambda d, p=p: F.binary_cross_entropy(d(torch.tensor([p, 0.5])), d(torch.tensor([0.0, 1]))) for p in (-0.1, 1.2)
    ],
    "multinomial": [
        lambda d, v=v: torch.multinomial(d(torch.tensor(v)), 2, True)
        for v in ([-0.1, 0.5], [NAN, 1.0], [math.inf, 1.0], [0.0, 0.0])
    ],
    "multinomial without replacement": [lambda d: torch.multinomial(d(torch.tensor([-0.1, 0.5])), 1)],
    "poisson": [lambda d: torch.poisson(d(torch.tensor([-1.0])))],
    "normal": [lambda d: torch.normal(d(ramp(1)), d(torch.tensor([-1.0])))],
    "cholesky": [lambda d: torch.linalg.cholesky(d(-torch.eye(2)))],
    "inv": [lambda d: torch.linalg.inv(d(torch.zeros(2, 2)))],
    "solve": [lambda d: torch.linalg.solve(d(torch.zeros(2, 2)), d(torch.ones(2)))],
    "istft": [lambda d: torch.istft(d(torch.ones(5, 4) + 0j), 8, window=d(torch.zeros(8)))],
    "pack_padded_sequence": [
        lambda d, n=n: torch.nn.utils.rnn.pack_padded_sequence(d(ramp(3, 2, 1)), whole(*n)).data
        for n in ((2, 0), (1, 2))
    ],
}


def test_bags_that_do_not_follow_each_other_are_refused_on_one_thread_too(device, run_python):
    """Where ATen's kernel leaves memory as it was."""
    source = """
import torch, torch_xla
from torch.nn import functional
x, indices, offsets = torch.ones(3, 4).xla(), torch.tensor([0, 1, 2]).xla(), torch.tensor([0, 2, 1]).xla()
for mode in ("sum", "mean"):
    try:
        print(functional.embedding_bag(indices, x, offsets, mode=mode).tolist())
    except RuntimeError as error:
        print("at least the one before" in str(error))
"""
    assert run_python(source, XLA_INTERPRETED_OPERATIONS="1000000").split() == ["True", "True"]


def test_eigenvalues_of_nan_are_an_error(device):
    """They end eager's process."""
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        torch.linalg.eigvals(torch.full((2, 2), NAN, device=device)).cpu()


@pytest.mark.checks_values
@pytest.mark.parametrize("name", CASES)
def test_values_that_eager_refuses(device, name):
    for call in CASES[name]:
        with pytest.raises(Exception) as eager:
            call(lambda t: t)
        with pytest.raises(eager.type):
            call(lambda t: t.to(device)).cpu()
