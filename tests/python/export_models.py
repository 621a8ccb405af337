"""The models that the tests of torch_xla.stablehlo export: each with its inputs, of one seed."""

import torch
import torch.nn.functional as F
from torch import nn


class ConvNet(nn.Module):
    """Convolution, BatchNorm with statistics of its own, both kinds of pools."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.head = nn.Linear(8, 5)
        nn.init.normal_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(F.adaptive_avg_pool2d(self.depthwise(x), 1).flatten(1)).log_softmax(1)


class Block(nn.Module):
    """A transformer's block with causal attention."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x):
        heads = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Words(nn.Module):
    """Embeddings of int64 ids, masked means, an index table."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 12, padding_idx=0)
        self.register_buffer("order", torch.tensor([3, 1, 0]), persistent=False)

    def forward(self, ids, lengths):
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        mean = (self.embedding(ids) * mask[..., None]).sum(1) / lengths[:, None]
        return mean[:, self.order], mean.argmax(1)


class Counter(nn.Module):
    """Writes a buffer and an argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.count += 1
        self.mean.lerp_(x.mean(0), 0.25)
        return x * self.count - self.mean


class Nested(nn.Module):
    """Takes and gives dicts, tuples, and what is no tensor."""

    def forward(self, pair, options, *, shift, unused=None):
        a, b = pair
        total = a * options["scale"] + b + shift + torch.tensor([1.0, -1.0, 2.0])
        return {"sum": total, "parts": (a.clone(), [b > 0, None, 7]), "input": a}


def mixed() -> nn.Module:
    """In bfloat16, with a norm in float32."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(8, 8, dtype=torch.bfloat16), nn.LayerNorm(8)

        def forward(self, x):
            y = torch.tanh(self.linear(x))
            return y, self.norm(y.float())

    return Mixed()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3), nn.Softmax(-1))


# By name: what makes the model, and what makes its positional inputs and those by name.
MODELS = {
    "mlp": (mlp, lambda: ((torch.randn(5, 6),), {})),
    "convolutions": (ConvNet, lambda: ((torch.randn(2, 3, 16, 16),), {})),
    "attention": (Block, lambda: ((torch.randn(2, 7, 16),), {})),
    "embedding": (Words, lambda: ((torch.randint(50, (4, 6)), torch.tensor([6, 1, 3, 5])), {})),
    "mutation": (Counter, lambda: ((torch.randn(3, 4),), {})),
    "nested": (
        Nested,
        lambda: (((torch.randn(2, 3), torch.randn(3)), {"scale": torch.tensor(2.5)}), {"shift": torch.ones(1)}),
    ),
    "bfloat16": (mixed, lambda: ((torch.randn(4, 8, dtype=torch.bfloat16),), {})),
}


def make(name: str) -> tuple[nn.Module, tuple, dict]:
    """The model in eval mode, its positional inputs and those by name; the same at each call."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]
    return model().eval(), *inputs()
