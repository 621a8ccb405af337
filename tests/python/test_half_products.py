"""Products of 16-bit floats: sums in float32, rounded once, whether the processor has instructions for them or not."""

import pytest
import torch
import torch.nn.functional as F

import torch_xla

DTYPES = [torch.bfloat16, torch.float16]


def numbers(*shape):
    """Of which products cancel little, so that each sum is far from the smallest numbers of its type."""
    return torch.rand(shape) + 0.25


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


FUNCTIONS = {
    "mm": (torch.mm, [(40, 70), (70, 90)]),
    "mm of few rows": (torch.mm, [(3, 70), (70, 90)]),
    "mm of few rows, transposed": (lambda a, b: a @ b.t(), [(8, 300), (90, 300)]),
    "mm of few narrow rows": (torch.mm, [(2, 300), (300, 10)]),
    "mm, both transposed": (lambda a, b: a.t() @ b.t(), [(70, 40), (90, 70)]),
    "addmm": (torch.addmm, [(90,), (40, 70), (70, 90)]),
    "addmm with factors": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [(4, 90), (4, 70), (70, 90)]),
    "linear": (F.linear, [(2, 5, 70), (90, 70), (90,)]),
    "linear of one row": (F.linear, [(1, 70), (90, 70), (90,)]),
    "bmm": (torch.bmm, [(3, 20, 30), (3, 30, 40)]),
    "baddbmm": (torch.baddbmm, [(3, 20, 40), (3, 20, 30), (3, 30, 40)]),
    "addbmm": (torch.addbmm, [(20, 40), (3, 20, 30), (3, 30, 40)]),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), [(3, 20, 30), (3, 40, 30)]),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [(2, 8, 14, 14), (16, 8, 3, 3), (16,)]),
    "convolution of groups": (lambda x, w: F.conv2d(x, w, groups=8), [(2, 8, 14, 14), (8, 1, 3, 3)]),
    "transposed convolution": (lambda x, w: F.conv_transpose2d(x, w, stride=2), [(2, 8, 7, 7), (8, 4, 3, 3)]),
    "convolution of a row": (F.conv1d, [(2, 8, 40), (16, 8, 3)]),
    "attention": (attend, [(2, 4, 50, 32)] * 3),
}


def run(function, inputs, device, dtype):
    """The result and the gradients of the inputs."""
    leaves = [t.to(device, dtype, copy=True).requires_grad_() for t in inputs]
    result = function(*leaves)
    result.backward(torch.ones_like(result))
    return [t.detach().float().cpu() for t in (result, *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_are_those_of_float32_rounded(device, name, dtype):
    function, shapes = FUNCTIONS[name]
    torch.manual_seed(0)
    inputs = [numbers(*shape).to(dtype).float() for shape in shapes]
    # Attention in 16 bits rounds scores, too, and what it sums.
    tolerance = (8 if name == "attention" else 2) * torch.finfo(dtype).eps
    expected = run(function, inputs, "cpu", torch.float32)
    for got, want in zip(run(function, inputs, device, dtype), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_are_rounded_between_products(device, dtype):
    """What a product gives is of its type, though the next product takes it in float32."""
    torch.manual_seed(0)
    a, b = (torch.randint(-20, 20, (16, 16)).float() for _ in range(2))  # their sums are whole in float32
    expected = (a @ b).to(dtype).float() @ b
    got = (a.to(device, dtype) @ b.to(device, dtype)) @ b.to(device, dtype)
    assert torch.equal(got.cpu(), expected.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_beyond_the_largest_number_are_infinite(device, dtype):
    largest = torch.finfo(dtype).max
    a = torch.full((16, 64), largest, dtype=dtype)
    for rows in (1, 16):
        got = a[:rows].to(device) @ torch.ones(64, 64, dtype=dtype, device=device)
        assert torch.equal(got.cpu(), torch.full((rows, 64), torch.inf, dtype=dtype))


def test_training_under_autocast_is_near_eager(device):
    def train(device):
        torch.manual_seed(0)
        layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)]
        model = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        x, y = torch.randn(16, 3, 8, 8).to(device), (torch.arange(16) % 10).to(device)
        losses = []
        for _ in range(10):
            with torch.autocast(device, torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch_xla.sync()
            losses.append(loss.item())
        return losses

    assert train("xla") == pytest.approx(train("cpu"), rel=0.03)
