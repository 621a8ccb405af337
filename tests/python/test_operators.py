"""Which ATen operators the device computes itself: the published page, calls by ATen's shape rules, optimizers."""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from eager import check
from test_ops import count_fallbacks, fallen_rows

import torch_xla

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("list_operators", ROOT / "tools" / "list_operators.py")
list_operators = importlib.util.module_from_spec(spec)
spec.loader.exec_module(list_operators)

EMBEDDED = pytest.mark.checks_values


def test_the_page_of_operators_is_up_to_date():
    assert (ROOT / "docs" / "operators.md").read_text() == list_operators.page(), "run tools/list_operators.py"


def test_few_names_fall_back():
    assert len(list_operators.base_names(list_operators.classify(), "fallback")) <= 60


def both(function, *inputs):
    """The result on the CPU and on the device, where no operation with a row falls back."""
    expected = function(*inputs)
    before = count_fallbacks()
    actual = function(*(t.to("xla") if isinstance(t, torch.Tensor) else t for t in inputs))
    torch_xla.sync()
    assert not fallen_rows(before)
    return expected, actual


X = torch.linspace(-2, 2, 24).reshape(4, 6)
Z = torch.complex(X, X.flip(0))
SQUARE = X @ X.T + torch.eye(4) * 3


def write_in_place(z):
    z = z.clone()
    z[1] = 3
    z[:, 2] = 1j
    z.mul_(2 - 1j)
    z.conj_physical_()
    return z


CASES = {
    "fft": lambda: (torch.fft.fft, Z),
    "rfft": lambda: (torch.fft.rfft, X),
    "irfft": lambda: (torch.fft.irfft, Z),
    "add": lambda: (lambda z: z + 2 * z - 1j, Z),
    "real and imaginary parts": lambda: (lambda z: z.real * z.imag + z.abs() + z.angle(), Z),
    "conjugate": lambda: (lambda z: z.conj() * z + z.conj().T.T.sum(), Z),
    "product": lambda: (lambda z: z @ z.mH, Z),
    "view": lambda: (lambda z: torch.view_as_real(z)[..., 1].contiguous(), Z),
    "complex128": lambda: (lambda z: z.to(torch.complex128)[1:, ::2].clone() / 3, Z),
    "in place": lambda: (write_in_place, Z),
    "where": lambda: (lambda z: torch.where(z.real > 0, z, 0), Z),
    "qr": lambda: (torch.linalg.qr, X),
    "svd": lambda: (torch.linalg.svdvals, X),
    "determinant": lambda: (torch.linalg.det, SQUARE),
    "eigenvalues": lambda: (torch.linalg.eigvalsh, SQUARE),
    "bessel": lambda: (torch.special.bessel_j0, X),
    "cdist": lambda: (torch.cdist, X, X + 1),
    "polygamma": lambda: (lambda x: torch.polygamma(1, x.abs() + 1), X),
    "weight norm": lambda: (lambda x: torch._weight_norm(x, x.abs()[:, :1] + 1, 0), X),
    "antialias": lambda: (
        lambda x: F.interpolate(x.reshape(1, 1, 4, 6), size=(3, 3), mode="bilinear", antialias=True),
        X,
    ),
    "embedding bag": lambda: (
        lambda w: F.embedding_bag(torch.tensor([1, 2, 0, 3], device=w.device).reshape(2, 2), w),
        X,
    ),
    "linspace": lambda: (lambda x: x + torch.linspace(0, 1, 6, device=x.device), X),
    "eye": lambda: (lambda x: x + torch.eye(4, 6, device=x.device), X),
    "ctc": lambda: (
        lambda x: F.ctc_loss(x.reshape(6, 1, 4).log_softmax(2), torch.tensor([[1, 2]], device=x.device), (6,), (2,)),
        X,
    ),
}


@EMBEDDED
@pytest.mark.parametrize("name", CASES)
def test_calls_are_steps_of_the_program(device, name):
    expected, actual = both(*CASES[name]())
    torch.testing.assert_close(
        [t.cpu() for t in actual] if isinstance(actual, tuple) else actual.cpu(),
        list(expected) if isinstance(expected, tuple) else expected,
        rtol=1e-4,
        atol=1e-5,
    )


@EMBEDDED
def test_gradients_of_complex_numbers(device):
    def loss(x):
        return (torch.fft.rfft(x) * (1 + 2j)).abs().square().sum()

    def gradient(d):
        x = X.to(d, copy=True).requires_grad_()
        return torch.autograd.grad(loss(x), x)

    check(gradient, tolerance=1e-4)


@EMBEDDED
def test_random_calls_follow_the_seed(device):
    p = torch.tensor([0.1, 0.0, 0.6, 0.3], device=device)

    def draw():
        torch.manual_seed(7)
        return torch.multinomial(p, 2000, replacement=True), torch.randperm(50, device=device), torch.poisson(p * 100)

    before = count_fallbacks()
    first, second = draw(), draw()
    assert not fallen_rows(before)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(first, second, strict=True))
    share = torch.bincount(first[0].cpu(), minlength=4) / 2000
    torch.testing.assert_close(share, p.cpu(), atol=0.05, rtol=0)
    assert sorted(first[1].tolist()) == list(range(50))
    assert not torch.equal(torch.randperm(50, device=device).cpu(), first[1].cpu())


@EMBEDDED
def test_an_error_of_a_call_comes_with_the_value(device):
    with pytest.raises(RuntimeError, match="probability tensor"):
        torch.multinomial(torch.tensor([-1.0, 1.0], device=device), 1).cpu()


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "maximize": lambda p: torch.optim.AdamW(p, lr=0.01, maximize=True, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
    "plain sgd": lambda p: torch.optim.SGD(p, lr=0.01, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1, fused=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fused_optimizers(device, optimizer):
    weights = {}
    before = count_fallbacks()
    for place in ("cpu", "xla"):
        weight, other = X.clone().to(place).requires_grad_(), X[0].clone().to(place).requires_grad_()
        made = OPTIMIZERS[optimizer]([weight, other])
        for _ in range(5):
            made.zero_grad()
            ((weight * other).square().sum() + weight.sum()).backward()
            made.step()
        weights[place] = [weight.detach().cpu(), other.detach().cpu()]
    assert not fallen_rows(before)
    torch.testing.assert_close(weights["xla"], weights["cpu"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_gradient_scaler(device, fused):
    """A step with an infinite gradient is left out, and the scale halves."""
    results = {}
    for place in ("cpu", "xla"):
        weight = X.clone().to(place).requires_grad_()
        optimizer = torch.optim.AdamW([weight], lr=0.01, fused=fused)
        scaler = torch.amp.GradScaler(place, init_scale=8.0, growth_interval=2)
        scales = []
        for step in range(6):
            optimizer.zero_grad()
            scaler.scale((weight * (float("inf") if step == 3 else 1.0)).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        results[place] = (weight.detach().cpu(), scales)
    assert results["xla"][1] == results["cpu"][1]
    torch.testing.assert_close(results["xla"][0], results["cpu"][0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("offsets", [torch.int32, torch.int64])
def test_bags_by_32_bit_indices(device, offsets):
    def gradient(place):
        weight = torch.ones(4, 2, device=place, requires_grad=True)
        indices = torch.tensor([0, 1, 2], dtype=torch.int32, device=place)
        starts = torch.tensor([0, 2], dtype=offsets, device=place)
        return torch.autograd.grad(F.embedding_bag(indices, weight, starts, mode="sum").sum(), weight)

    check(gradient, tolerance=0.0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_pads_and_pools_of_integers(device, dtype):
    image = torch.arange(60).reshape(1, 3, 2, 10).to(dtype)
    for function in (
        lambda x: F.max_pool2d(x, 2, 1),
        lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    ):
        expected, actual = both(function, image)
        assert torch.equal(actual.cpu(), expected)


def test_a_formula_that_adds_an_undefined_tensor_raises_as_in_eager(device):
    """PyTorch's second gradient of layer_norm with a bias and without a weight does so."""
    for place in ("cpu", device):
        x, bias = (torch.randn(1, 2, 3, dtype=torch.float64, device=place).requires_grad_() for _ in range(2))
        results = torch.native_layer_norm(x, (1, 2, 3), None, bias, 0.5)
        first = torch.autograd.grad(sum(r.square().sum() for r in results), [x, bias], create_graph=True)
        with pytest.raises(RuntimeError, match="Expected a proper Tensor but got None"):
            torch.autograd.grad(sum(g.square().sum() for g in first), [x, bias])
