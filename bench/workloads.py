"""The programs that compare.py and growth.py run: steps of training and inference in plain PyTorch.

Each is a function of a device and of `wrap`, which may compile a model, and gives a function that runs one step and
returns a tensor. All start from the same numbers: they are made on the CPU after torch.manual_seed(0). Some take sizes
too; find() reads them from a text.
"""

import contextlib
import functools
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


def _cast(device: str, bf16: bool) -> contextlib.AbstractContextManager:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast(device, torch.bfloat16) if bf16 else contextlib.nullcontext()


def _classify(
    model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, make_optimizer: Callable, *, train: int, bf16: int
) -> Step:
    """A step of training with cross-entropy over the last dim or, without training, the logits."""

    def logits_of(m):
        with _cast(inputs.device.type, bool(bf16)):
            return m(inputs)

    def loss_of(m):
        return F.cross_entropy(logits_of(m).flatten(0, -2).float(), labels.flatten())

    if not train:
        model.eval()
        return _infer(lambda: logits_of(model))
    return _train(model, make_optimizer(model.parameters()), loss_of)


_sgd = functools.partial(torch.optim.SGD, momentum=0.9)


def _perceptron(*sizes: int) -> nn.Sequential:
    layers = [layer for i, o in itertools.pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def mlp(device: str, wrap: Wrap, batch=64, layers=3, train=1, bf16=0) -> Step:
    """MLP 784-512-512-10, training, batch 64, SGD with momentum."""
    model = wrap(_perceptron(784, *[512] * (layers - 1), 10).to(device))
    x, y = torch.randn(batch, 784).to(device), torch.randint(0, 10, (batch,)).to(device)
    return _classify(model, x, y, functools.partial(_sgd, lr=0.01), train=train, bf16=bf16)


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


def _images(device: str, batch: int, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.memory_format]:
    """Images, labels and their order, which is the CPU's best one there."""
    order = torch.channels_last if device == "cpu" else torch.contiguous_format
    x = torch.randn(batch, 3, size, size).to(device, memory_format=order)
    return x, torch.randint(0, 10, (batch,)).to(device), order


def resnet18(device: str, wrap: Wrap, batch=16, size=64, train=1, bf16=0) -> Step:
    """ResNet-18, training, 16 images of 64 x 64, SGD with momentum (the CPU's in channels-last order)."""
    model = _resnet18(10)
    x, y, order = _images(device, batch, size)
    model = wrap(model.to(device, memory_format=order))
    return _classify(model, x, y, functools.partial(_sgd, lr=0.001), train=train, bf16=bf16)


def residual(device: str, wrap: Wrap, batch=16, layers=4, train=1, bf16=0) -> Step:
    """Residual blocks of 32 channels over images of 32 x 32 (the CPU's in channels-last order), SGD with momentum."""
    blocks = [_Residual(32, 32, 1) for _ in range(layers)]
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    x, y, order = _images(device, batch, 32)
    model = wrap(model.to(device, memory_format=order))
    return _classify(model, x, y, functools.partial(_sgd, lr=0.001), train=train, bf16=bf16)


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


def gpt(device: str, wrap: Wrap, batch=4, length=128, layers=6, width=384, train=1, bf16=0) -> Step:
    """GPT, 6 layers of 384, training, 4 x 128 tokens, AdamW."""
    model = wrap(_Transformer(1000, length, width, layers, causal=True).to(device))
    tokens = torch.randint(0, 1000, (batch, length + 1)).to(device)
    optimizer = functools.partial(torch.optim.AdamW, lr=1e-4)
    return _classify(model, tokens[:, :-1], tokens[:, 1:], optimizer, train=train, bf16=bf16)


def bert_bf16(device: str, wrap: Wrap) -> Step:
    """Encoder of 4 layers of 256, training under bfloat16 autocast, 8 x 64 tokens, AdamW."""
    model = wrap(_Transformer(1000, 64, 256, 4, causal=False).to(device))
    tokens, labels = torch.randint(0, 1000, (8, 64)).to(device), torch.randint(0, 1000, (8, 64)).to(device)
    return _classify(model, tokens, labels, functools.partial(torch.optim.AdamW, lr=1e-4), train=1, bf16=1)


def decoder_one(device: str, wrap: Wrap) -> Step:
    """GPT of 24 layers of 128, inference, one sequence of 64 tokens."""
    return gpt(device, wrap, batch=1, length=64, layers=24, width=128, train=0)


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


def adam(device: str, wrap: Wrap, tensors=200) -> Step:
    """Adam over 200 tensors of 64 x 64, as it is by default."""
    parameters = [nn.Parameter(torch.randn(64, 64).to(device)) for _ in range(tensors)]
    gradients = [torch.randn(64, 64).to(device) for _ in range(tensors)]
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


def find(text: str) -> Callable[[str, Wrap], Step]:
    """The program that a text names, with its sizes: "gpt layers=2 batch=64 train=0".

    Raises ValueError if there is no such program.
    """
    name, *sizes = text.split()
    program = {**WORKLOADS, "residual": residual}.get(name)
    if program is None:
        raise ValueError(f"{text}: there are {', '.join([*WORKLOADS, 'residual'])}")
    pairs = [size.split("=") for size in sizes]
    return functools.partial(program, **{key: int(value) for key, value in pairs})


# Those that jax_workloads.py has, too.
IN_JAX = ("mlp", "chain", "norm_softmax", "tiny", "adam", "gradient_penalty")
