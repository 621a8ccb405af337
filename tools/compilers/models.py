"""Small models of the kinds that people train, with dropout: what `make test-compilers` compiles for each target.

Their layers are those of the real ones; widths, depths and batches are small, as a compiler's time grows with them.
"""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

DROPOUT = 0.1


@dataclasses.dataclass
class Case:
    """A model with a batch and what trains it."""

    model: nn.Module
    inputs: torch.Tensor
    loss_of: Callable[[torch.Tensor], torch.Tensor]  # of the model's result
    make_optimizer: Callable[..., torch.optim.Optimizer]

    def to(self, device: torch.device) -> "Case":
        """The same on a device; the loss finds its targets there by itself."""
        return dataclasses.replace(self, model=self.model.to(device), inputs=self.inputs.to(device))


def _classes(count: int, *shape: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Cross entropy over the last dim."""
    targets = torch.randint(0, count, shape)
    targets.view(-1)[0] = -100  # one that counts not
    return lambda logits: F.cross_entropy(logits.flatten(0, -2).float(), targets.to(logits.device).flatten())


def _sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)


def _adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1)


def mlp(batch: int = 64, width: int = 512) -> Case:
    """Three linear layers, SGD with momentum."""
    layers = [nn.Linear(784, width), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Dropout(DROPOUT), nn.Linear(width, 10))
    return Case(model, torch.randn(batch, 784), _classes(10, batch), _sgd)


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.short_cut = nn.Sequential()
        if inputs != outputs or stride != 1:
            self.short_cut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        inner = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(inner + self.short_cut(x))


def resnet18() -> Case:
    """ResNet-18 over images of 64 x 64, SGD with momentum."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for outputs in (64, 128, 256, 512):
        layers += [_Residual(channels, outputs, 1 if outputs == 64 else 2), _Residual(outputs, outputs, 1)]
        channels = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(DROPOUT), nn.Linear(512, 10))
    return Case(model, torch.randn(8, 3, 64, 64), _classes(10, 8), _sgd)


class Attention(nn.Module):
    """Self-attention of several heads, causal or over the places that `mask` has."""

    def __init__(self, width: int, heads: int, causal: bool = False, dropout: float = DROPOUT):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=self.causal)
        return self.out(x.transpose(1, 2).flatten(2))


class _PreNorm(nn.Module):
    """A block of GPT-2 or ViT."""

    def __init__(self, width: int, heads: int, causal: bool, approximate: str, dropout: float):
        super().__init__()
        self.attention, self.drop = Attention(width, heads, causal, dropout), nn.Dropout(dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.drop(self.attention(self.norms[0](x)))
        return x + self.drop(self.mlp(self.norms[1](x)))


class _Gpt(nn.Module):
    def __init__(self, words: int, length: int, width: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_PreNorm(width, heads, True, "tanh", dropout) for _ in range(layers)))
        self.drop, self.norm = nn.Dropout(dropout), nn.LayerNorm(width)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.words(tokens) + self.places(places))
        return F.linear(self.norm(self.blocks(x)), self.words.weight)


def gpt2(batch=2, length=128, width=128, heads=2, layers=2, words=1000, dropout=DROPOUT) -> Case:
    """GPT-2 with tied embeddings, AdamW."""
    model = _Gpt(words, length, width, heads, layers, dropout)
    return Case(model, torch.randint(0, words, (batch, length)), _classes(words, batch, length), _adamw)


class _PostNorm(nn.Module):
    """A block of BERT."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.attention, self.drop = Attention(width, heads, dropout=dropout), nn.Dropout(dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        x = self.norms[0](x + self.drop(self.attention(x, mask)))
        return self.norms[1](x + self.drop(self.mlp(x)))


class _Bert(nn.Module):
    def __init__(self, words: int, length: int, width: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width, padding_idx=0), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(_PostNorm(width, heads, dropout) for _ in range(layers))
        self.drop, self.norm, self.head = nn.Dropout(dropout), nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens):
        mask = (tokens != 0)[:, None, None, :]
        x = self.drop(self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]]))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def bert(batch=2, length=128, width=128, heads=2, layers=2, words=1000, dropout=DROPOUT) -> Case:
    """BERT with padded sentences, AdamW."""
    tokens = torch.randint(1, words, (batch, length))
    tokens[0, length // 2 :] = 0
    model = _Bert(words, length, width, heads, layers, dropout)
    return Case(model, tokens, _classes(words, batch, length), _adamw)


class _Vit(nn.Module):
    def __init__(self, size: int, patch: int, width: int, heads: int, layers: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(_PreNorm(width, heads, False, "none", DROPOUT) for _ in range(layers)))
        self.drop, self.norm, self.head = nn.Dropout(DROPOUT), nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return self.head(self.norm(self.blocks(self.drop(x + self.places)))[:, 0])


def vit() -> Case:
    """ViT over images of 64 x 64 in patches of 8 x 8, AdamW."""
    return Case(_Vit(64, 8, 128, 2, 2), torch.randn(4, 3, 64, 64), _classes(10, 4), _adamw)


class _Lstm(nn.Module):
    def __init__(self, words: int, width: int):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=DROPOUT)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.lstm(self.words(tokens))[0])


def lstm() -> Case:
    """A language model of two layers of LSTM, Adam."""
    loss = _classes(500, 4, 16)
    return Case(_Lstm(500, 64), torch.randint(0, 500, (4, 16)), loss, lambda p: torch.optim.Adam(p, lr=1e-3))


def _convolutions(inputs: int, outputs: int) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())


class _UNet(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.outer, self.inner = _convolutions(3, width), _convolutions(width, 2 * width)
        self.bottom, self.drop = _convolutions(2 * width, 4 * width), nn.Dropout2d(DROPOUT)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.inner_up, self.outer_up = _convolutions(4 * width, 2 * width), _convolutions(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        outer = self.outer(x)
        inner = self.inner(F.max_pool2d(outer, 2))
        x = self.up(self.drop(self.bottom(F.max_pool2d(inner, 2))))
        x = self.inner_up(torch.cat([x, inner], 1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.outer_up(torch.cat([x, outer], 1)))


def unet() -> Case:
    """U-Net with max pooling, a transposed convolution and bilinear sizes, RMSprop."""
    masks = (torch.rand(2, 1, 32, 32) > 0.5).float()

    def loss_of(logits):
        return F.binary_cross_entropy_with_logits(logits.float(), masks.to(logits.device))

    return Case(_UNet(16), torch.randn(2, 3, 32, 32), loss_of, lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9))


MODELS = {make.__name__: make for make in (mlp, resnet18, bert, gpt2, vit, lstm, unet)}
