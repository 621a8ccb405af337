"""Nested tensors of layout torch.strided: made, computed with, differentiated, saved, as on the CPU."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

OPERATIONS = {
    "relu": lambda x, w: x.relu(),
    "gelu": lambda x, w: F.gelu(x),
    "softmax": lambda x, w: F.softmax(x, -1),
    "layer_norm": lambda x, w: F.layer_norm(x, (4,), w[0], w[1]),
    "linear": lambda x, w: F.linear(x, w, w[0]),
    "matmul": lambda x, w: x @ x.transpose(1, 2),
    "bmm": lambda x, w: torch.bmm(x, x.transpose(1, 2)),
    "arithmetic": lambda x, w: (x * 2 + x) / 3 - x * x,
    "select": lambda x, w: x.select(0, 1),
    "sum": lambda x, w: x.sum(-1, keepdim=True),
    "padded": lambda x, w: x.to_padded_tensor(0.0),
    "in place": lambda x, w: x.clone().mul_(2),
    "dtype": lambda x, w: x.double(),
    "attention": lambda x, w: F.scaled_dot_product_attention(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1)),
}


def parts(x: torch.Tensor) -> list[torch.Tensor]:
    return list(x.unbind()) if x.is_nested else [x]


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.detach().cpu(), e.detach())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations(device, operation):
    """The values and the gradients of the parts and the weight."""
    torch.manual_seed(0)
    first, second, weight = torch.randn(3, 4), torch.randn(2, 4), torch.randn(4, 4)

    def run(where):
        leaves = [t.to(where).requires_grad_() for t in (first, second, weight)]
        results = parts(OPERATIONS[operation](torch.nested.as_nested_tensor(leaves[:2]), leaves[2]))
        assert all(r.device.type == torch.device(where).type for r in results)
        gradients = torch.autograd.grad(sum(r.sin().sum() for r in results), leaves, allow_unused=True)
        return results + [g for g in gradients if g is not None]

    assert_same(run(device), run("cpu"))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_gradients_of_the_values(device, layout):
    def gradients(d):
        rows = [(torch.arange(4.0 * n).view(n, 4) / 7).to(d) for n in (2, 3, 1)]
        x = torch.nested.nested_tensor(rows, layout=layout, requires_grad=True)
        y = x * x
        if layout is torch.jagged:
            heads = x.unflatten(-1, (2, 2)).transpose(1, 2)
            y = F.scaled_dot_product_attention(heads, heads, heads)
        y.values().square().sum().backward()
        return [x.grad.values()]

    assert_same(gradients(device), gradients("cpu"))


def test_parts_share_memory(device):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=device)
    nested.unbind()[1].add_(1)
    nested.mul_(3)
    assert [t.tolist() for t in nested.unbind()] == [[3, 3], [6, 6, 6]]


def test_moves_text_and_files(device):
    eager = torch.nested.nested_tensor([torch.arange(2.0), torch.arange(3.0)])
    ours = eager.to(device)
    assert ours.device.type == "xla" and repr(ours).replace(", device='xla:0'", "") == repr(eager)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for moved in (ours.cpu(), torch.load(file, weights_only=False), ours.clone()):
        assert_same(parts(moved), parts(eager))


def test_encoder(device):
    """Without the check of its mask it makes nested tensors on every device, and leaves out the padded tokens."""
    torch.manual_seed(0)
    eager = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, mask_check=False).eval()
    ours = copy.deepcopy(eager).to(device)
    x, padding = torch.randn(2, 5, 8), torch.arange(5) >= torch.tensor([[5], [3]])
    with torch.no_grad():
        expected = eager(x, src_key_padding_mask=padding)
        assert_same([ours(x.to(device), src_key_padding_mask=padding.to(device))], [expected])
