"""The programs that compare.py runs: steps of training and inference in plain PyTorch.

Each is a function of a device and of `wrap`, which may compile a model, and gives a function that runs one step and
returns a tensor. All start from the same numbers: they are made on the CPU after torch.manual_seed(0).
"""

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], torch.Tensor]
Wrap = Callable[[nn.Module], nn.Module]


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[nn.Module], torch.Tensor]) -> Step:
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _infer(call: Callable[[], torch.Tensor]) -> Step:
    def step():
        with torch.no_grad():
            return call()

    return step


def _perceptron(*sizes: int) -> nn.Sequential:
    layers = [layer for i, o in itertools.pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def mlp(device: str, wrap: Wrap) -> Step:
    """MLP 784-512-512-10, training, batch 64, SGD with momentum."""
    model = wrap(_perceptron(784, 512, 512, 10).to(device))
    x, y = torch.randn(64, 784).to(device), torch.randint(0, 10, (64,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return _train(model, optimizer, lambda m: F.cross_entropy(m(x), y))


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        same = inputs == outputs and stride == 1
        self.short_cut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x):
        inner = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(inner + self.short_cut(x))


def _resnet18(classes: int) -> nn.Sequential:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for outputs in (64, 128, 256, 512):
        layers += [_Residual(channels, outputs, 1 if outputs == 64 else 2), _Residual(outputs, outputs, 1)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def resnet18(device: str, wrap: Wrap) -> Step:
    """ResNet-18, training, 16 images of 64 x 64, SGD with momentum (the CPU's in channels-last order)."""
    order = torch.channels_last if device == "cpu" else torch.contiguous_format
    model = wrap(_resnet18(10).to(device, memory_format=order))
    x = torch.randn(16, 3, 64, 64).to(device, memory_format=order)
    y = torch.randint(0, 10, (16,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    return _train(model, optimizer, lambda m: F.cross_entropy(m(x), y))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class _Transformer(nn.Module):
    def __init__(self, words: int, length: int, width: int, layers: int, causal: bool):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[_Block(width, width // 64, causal) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def gpt(device: str, wrap: Wrap) -> Step:
    """GPT, 6 layers of 384, training, 4 x 128 tokens, AdamW."""
    model = wrap(_Transformer(1000, 128, 384, 6, causal=True).to(device))
    tokens = torch.randint(0, 1000, (4, 129)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return _train(model, optimizer, lambda m: F.cross_entropy(m(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()))


def bert_bf16(device: str, wrap: Wrap) -> Step:
    """Encoder of 4 layers of 256, training under bfloat16 autocast, 8 x 64 tokens, AdamW."""
    model = wrap(_Transformer(1000, 64, 256, 4, causal=False).to(device))
    tokens, labels = torch.randint(0, 1000, (8, 64)).to(device), torch.randint(0, 1000, (8, 64)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss_of(m):
        with torch.autocast(device, torch.bfloat16):
            return F.cross_entropy(m(tokens).flatten(0, 1), labels.flatten())

    return _train(model, optimizer, loss_of)


def decoder_one(device: str, wrap: Wrap) -> Step:
    """GPT of 24 layers of 128, inference, one sequence of 64 tokens."""
    model = wrap(_Transformer(1000, 64, 128, 24, causal=True).to(device).eval())
    tokens = torch.randint(0, 1000, (1, 64)).to(device)
    return _infer(lambda: model(tokens))


def lstm(device: str, wrap: Wrap) -> Step:
    """4 bidirectional LSTMs, inference, 50 steps x batch 50 x 256."""
    models = [wrap(nn.LSTM(256, 256, bidirectional=True).to(device)) for _ in range(4)]
    x = torch.randn(50, 50, 256).to(device)
    return _infer(lambda: torch.stack([model(x)[0] for model in models]).sum(0))


def lstm_training(device: str, wrap: Wrap) -> Step:
    """2 layers of LSTM, training, 32 steps x batch 8 x 64, Adam."""
    model = wrap(nn.LSTM(64, 64, num_layers=2).to(device))
    x = torch.randn(32, 8, 64).to(device)
    return _train(model, torch.optim.Adam(model.parameters(), lr=1e-3), lambda m: m(x)[0].square().mean())


class _Function(nn.Module):
    def __init__(self, call: Callable):
        super().__init__()
        self.call = call

    def forward(self, *operands):
        return self.call(*operands)


def chain(device: str, wrap: Wrap) -> Step:
    """Elementwise chain over 4M numbers."""
    call = wrap(
        _Function(lambda a, b: torch.tanh(a * b + 1.0) * torch.sigmoid(a - b) + (a * 0.5).exp() / (1.0 + b * b))
    )
    a, b = torch.randn(4_000_000).to(device), torch.randn(4_000_000).to(device)
    return _infer(lambda: call(a, b))


def norm_softmax(device: str, wrap: Wrap) -> Step:
    """LayerNorm, GELU, softmax over 64 x 1024 x 128."""
    norm = nn.LayerNorm(128).to(device)
    call = wrap(_Function(lambda x: torch.softmax(F.gelu(norm(x)), -1)))
    x = torch.randn(64, 1024, 128).to(device)
    return _infer(lambda: call(x))


def tiny(device: str, wrap: Wrap) -> Step:
    """1,000 dependent operations on 16 numbers."""

    def run(x):
        for _ in range(250):
            x = torch.sin(x * 1.01 + 0.01) - x
        return x

    call, x = wrap(_Function(run)), torch.linspace(-1, 1, 16).to(device)
    return _infer(lambda: call(x))


def adam(device: str, wrap: Wrap) -> Step:
    """Adam over 200 tensors of 64 x 64, as it is by default."""
    parameters = [nn.Parameter(torch.randn(64, 64).to(device)) for _ in range(200)]
    gradients = [torch.randn(64, 64).to(device) for _ in range(200)]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def step():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        return parameters[0].detach()

    return step


def gradient_penalty(device: str, wrap: Wrap) -> Step:
    """MLP of 4 layers of 128, batch 64: gradients of the norm of its gradient, SGD."""
    model = wrap(nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.Tanh())]).to(device))
    x = torch.randn(64, 128).to(device).requires_grad_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss_of(m):
        (grad,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return (grad.square().sum(1) - 1).square().mean()

    return _train(model, optimizer, loss_of)


PROGRAMS = (
    mlp,
    resnet18,
    gpt,
    bert_bf16,
    decoder_one,
    lstm,
    lstm_training,
    chain,
    norm_softmax,
    tiny,
    adam,
    gradient_penalty,
)
WORKLOADS = {program.__name__: program for program in PROGRAMS}
# Those that jax_workloads.py has, too.
IN_JAX = ("mlp", "chain", "norm_softmax", "tiny", "adam", "gradient_penalty")
