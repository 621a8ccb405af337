"""Real models train and infer on the device with CPU eager's values, without fallback or compile after step 3."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr


class Residual(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width),
        )  # the keys' bias has no gradient
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Dropout(0.0), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class SmallGPT(nn.Module):
    def __init__(self, vocabulary=50, length=16, width=32, heads=2, layers=2):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight
        return F.linear(self.norm(self.blocks(x)), self.token.weight)


class Tagger(nn.Module):
    def __init__(self, bidirectional=True):
        super().__init__()
        self.rnn = nn.LSTM(6, 8, num_layers=2, bidirectional=bidirectional)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def mlp():
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
    return model, (torch.randn(8, 20),), torch.randint(0, 10, (8,)), F.cross_entropy


def resnet():
    return SmallResNet(), (torch.randn(4, 3, 32, 32),), torch.randint(0, 5, (4,)), F.cross_entropy


def gpt():
    target = torch.randint(0, 50, (3, 16))
    return (
        SmallGPT(),
        (torch.randint(0, 50, (3, 16)),),
        target,
        lambda y, t: F.cross_entropy(y.view(-1, 50), t.view(-1)),
    )


def lstm():
    return Tagger(), (torch.randn(5, 3, 6),), torch.randn(5, 3, 4), F.mse_loss


MODELS = [mlp, resnet, gpt, lstm]
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "sgd_loop": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adam_loop": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "adamw_loop": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, foreach=False),
}


def fallbacks():
    return {name for name in met.counter_names() if name.startswith("aten::")} - {"aten::_local_scalar_dense"}


def train(model, inputs, target, loss_of, make_optimizer, device, steps=4):
    model = copy.deepcopy(model).to(device)
    inputs, target = [t.to(device) for t in inputs], target.to(device)
    optimizer = make_optimizer(model.parameters())
    losses, compiles = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        compiles.append(xr.get_num_cached_compilation_graph())
    return losses, {k: v.cpu() for k, v in model.state_dict().items()}, compiles


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", MODELS)
def test_training(make, optimizer):
    torch.manual_seed(0)
    case = make()
    expected_losses, expected_state, _ = train(*case, OPTIMIZERS[optimizer], "cpu")
    met.clear_all()
    losses, state, compiles = train(*case, OPTIMIZERS[optimizer], "xla")
    assert losses == pytest.approx(expected_losses, rel=1e-3)
    for name, value in expected_state.items():
        torch.testing.assert_close(state[name], value, rtol=5e-3, atol=5e-3, msg=lambda m, name=name: f"{name}: {m}")
    assert fallbacks() == set()
    assert compiles[-1] == compiles[2], f"compiled after the third step: {compiles}"


@pytest.mark.parametrize("make", MODELS)
def test_inference(make):
    torch.manual_seed(0)
    model, inputs, _, _ = make()
    model.eval()
    met.clear_all()
    with torch.no_grad():
        expected = model(*inputs)
        actual = copy.deepcopy(model).to("xla")(*[t.to("xla") for t in inputs])
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert fallbacks() == set()


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_attention(mask):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 8, 16, requires_grad=True) for _ in range(3))
    kwargs = {
        "none": {},
        "causal": {"is_causal": True},
        "bool": {"attn_mask": torch.rand(8, 8) > 0.3},
        "float": {"attn_mask": torch.randn(2, 1, 8, 8)},
    }[mask]
    on_device = {n: t.to("xla") if isinstance(t, torch.Tensor) else t for n, t in kwargs.items()}
    dq, dk, dv = (t.detach().to("xla").requires_grad_() for t in (q, k, v))
    expected = F.scaled_dot_product_attention(q, k, v, **kwargs)
    actual = F.scaled_dot_product_attention(dq, dk, dv, **on_device)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
    expected.square().sum().backward()
    actual.square().sum().backward()
    for a, b in zip((dq, dk, dv), (q, k, v), strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-5)


def test_mixed_precision_training():
    torch.manual_seed(0)
    model, inputs, target, loss_of = mlp()
    model = model.to("xla")
    with torch.autocast("xla", torch.bfloat16):
        loss = loss_of(model(inputs[0].to("xla")), target.to("xla"))
    loss.backward()
    reference = copy.deepcopy(model).cpu()
    reference.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        expected = loss_of(reference(inputs[0]), target)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=2e-2)
    torch_xla.sync()
    torch.testing.assert_close(model[0].weight.grad.cpu(), reference[0].weight.grad, rtol=5e-2, atol=5e-3)
