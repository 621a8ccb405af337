"""The models that inference.py runs beside the decoder of examples/: networks for images, in plain PyTorch.

All take float32[N, 3, 224, 224] and give logits, except the U-Net, which takes and gives latents. Weights are random.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 1000


def _conv(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1, act=None) -> nn.Sequential:
    """A convolution that keeps the image's size over the stride, its norm, an activation."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([act()] if act else []))


def _head(width: int, *layers: nn.Module) -> nn.Sequential:
    """Logits of an image's features."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *layers, nn.Linear(width, CLASSES))


# ---- ResNet-50 ----


class Bottleneck(nn.Module):
    """A wide input, narrowed, convolved, widened, and added."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        narrow = _conv(inputs, width, act=nn.ReLU)
        self.body = nn.Sequential(narrow, _conv(width, width, 3, stride, act=nn.ReLU), _conv(width, 4 * width))
        self.shortcut = _conv(inputs, 4 * width, 1, stride) if inputs != 4 * width else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 4 * width, H / stride, W / stride] of [N, inputs, H, W]."""
        return F.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """ResNet-50, 25.6 million weights."""
    blocks, inputs = [_conv(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(count):
            width = 64 << stage
            blocks.append(Bottleneck(inputs, width, 2 if stage and not number else 1))
            inputs = 4 * width
    return nn.Sequential(*blocks, _head(inputs))


# ---- MobileNetV3 ----


class Squeeze(nn.Module):
    """Channels scaled by numbers that depend on their means."""

    def __init__(self, width: int, narrow: int, act: Callable, gate: Callable):
        super().__init__()
        self.down, self.up, self.act, self.gate = nn.Conv2d(width, narrow, 1), nn.Conv2d(narrow, width, 1), act, gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, width, H, W]."""
        return x * self.gate(self.up(self.act(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    """A narrow input, widened, convolved channel by channel, narrowed, and added where it fits."""

    def __init__(self, inputs: int, inner: int, outputs: int, size: int, stride: int, act, squeeze: Squeeze | None):
        super().__init__()
        parts = [_conv(inputs, inner, act=act)] if inner != inputs else []
        parts += [_conv(inner, inner, size, stride, inner, act), *([squeeze] if squeeze else [])]
        self.body = nn.Sequential(*parts, _conv(inner, outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, outputs, H / stride, W / stride] of [N, inputs, H, W]."""
        return x + self.body(x) if self.adds else self.body(x)


# Of each block: the inner width, the outputs, the kernel's size, the stride, whether it squeezes, whether hard swish.
MOBILE = """16,16,3,1,0,0 64,24,3,2,0,0 72,24,3,1,0,0 72,40,5,2,1,0 120,40,5,1,1,0 120,40,5,1,1,0 240,80,3,2,0,1
200,80,3,1,0,1 184,80,3,1,0,1 184,80,3,1,0,1 480,112,3,1,1,1 672,112,3,1,1,1 672,160,5,2,1,1 960,160,5,1,1,1
960,160,5,1,1,1"""


def mobilenetv3() -> nn.Module:
    """MobileNetV3 (large), 5.5 million weights."""
    blocks, inputs = [_conv(3, 16, 3, 2, act=nn.Hardswish)], 16
    for text in MOBILE.split():
        inner, outputs, size, stride, squeezes, swish = map(int, text.split(","))
        act = nn.Hardswish if swish else nn.ReLU
        squeeze = Squeeze(inner, max(8, inner // 4 // 8 * 8), F.relu, F.hardsigmoid) if squeezes else None
        blocks.append(Inverted(inputs, inner, outputs, size, stride, act, squeeze))
        inputs = outputs
    last = _conv(inputs, 960, act=nn.Hardswish)
    return nn.Sequential(*blocks, last, _head(1280, nn.Linear(960, 1280), nn.Hardswish()))


# ---- EfficientNet ----

# Of each stage: the blocks, the widening, the outputs, the kernel's size, the first block's stride.
EFFICIENT = "1,1,16,3,1 2,6,24,3,2 2,6,40,5,2 3,6,80,3,2 3,6,112,5,1 4,6,192,5,2 1,6,320,3,1"


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0, 5.3 million weights."""
    blocks, inputs = [_conv(3, 32, 3, 2, act=nn.SiLU)], 32
    for text in EFFICIENT.split():
        count, wider, outputs, size, stride = map(int, text.split(","))
        for number in range(count):
            inner = inputs * wider
            squeeze = Squeeze(inner, inputs // 4, F.silu, torch.sigmoid)
            blocks.append(Inverted(inputs, inner, outputs, size, 1 if number else stride, nn.SiLU, squeeze))
            inputs = outputs
    return nn.Sequential(*blocks, _conv(inputs, 1280, act=nn.SiLU), _head(1280))


# ---- ViT ----


class Attention(nn.Module):
    """Attention over all positions; keys and values are of another sequence where there is one."""

    def __init__(self, width: int, heads: int, context: int | None = None, bias: bool = True):
        super().__init__()
        self.heads = heads
        self.q, self.o = nn.Linear(width, width, bias), nn.Linear(width, width)
        self.k, self.v = nn.Linear(context or width, width, bias), nn.Linear(context or width, width, bias)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """[N, T, width]."""
        seen = x if context is None else context
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.q(x), self.k(seen), self.v(seen)))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2, self.mix = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, T, width]."""
        x = x + self.mix(self.norm1(x))
        return x + self.feed(self.norm2(x))


class VisionTransformer(nn.Module):
    """ViT-B/16, 86 million weights."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, patch: int = 16, size: int = 224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, classes] of [N, 3, size, size]."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.size(0), -1, -1), x), 1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


# ---- ConvNeXt ----


class ChannelNorm(nn.LayerNorm):
    """A norm over the channels of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, C, H, W]."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    """A convolution of each channel by itself, then a feed-forward part over the channels."""

    def __init__(self, width: int):
        super().__init__()
        self.each, self.norm = nn.Conv2d(width, width, 7, 1, 3, groups=width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, width, H, W]."""
        mixed = self.scale * self.feed(self.norm(self.each(x).permute(0, 2, 3, 1)))
        return x + mixed.permute(0, 3, 1, 2)


def convnext_t() -> nn.Module:
    """ConvNeXt-T, 28.6 million weights."""
    layers, inputs = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)], 96
    for width, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width != inputs:
            layers += [ChannelNorm(inputs), nn.Conv2d(inputs, width, 2, 2)]
        layers += [NextBlock(width) for _ in range(count)]
        inputs = width
    return nn.Sequential(*layers, _head(inputs, nn.LayerNorm(inputs)))


# ---- A U-Net of diffusion ----


class TimedBlock(nn.Module):
    """Two convolutions behind norms; the time is added between them."""

    def __init__(self, inputs: int, outputs: int, time: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(32, outputs), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.time = nn.Linear(time, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """[N, outputs, H, W] of [N, inputs, H, W] and [N, time]."""
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class TextBlock(nn.Module):
    """Attention over the image, over the text, and a gated feed-forward part."""

    def __init__(self, width: int, context: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.other = Attention(width, 8, bias=False), Attention(width, 8, context, bias=False)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """[N, width, H, W] of it and [N, T, context]."""
        y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        y = y + self.own(self.norms[0](y))
        y = y + self.other(self.norms[1](y), text)
        value, gate = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(value * F.gelu(gate))
        return x + self.leave(y.transpose(1, 2).reshape(x.shape))


class UNet(nn.Module):
    """A U-Net with attention to a text: float32[N, 4, 32, 32], times [N], text [N, 77, 768]; 62 million weights."""

    def __init__(self, widths: tuple[int, ...] = (128, 256, 384), context: int = 768):
        super().__init__()
        time, self.first = 4 * widths[0], widths[0]
        self.time = nn.Sequential(nn.Linear(self.first, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(4, self.first, 3, 1, 1)
        self.down, self.up, inputs = nn.ModuleList(), nn.ModuleList(), self.first
        for number, width in enumerate(widths):
            smaller = nn.Conv2d(width, width, 3, 2, 1) if number + 1 < len(widths) else nn.Identity()
            self.down.append(nn.ModuleList((TimedBlock(inputs, width, time), TextBlock(width, context), smaller)))
            inputs = width
        self.middle = nn.ModuleList((TimedBlock(inputs, inputs, time), TextBlock(inputs, context)))
        for number, width in reversed(list(enumerate(widths))):
            larger = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, 1, 1))
            larger = larger if number else nn.Identity()
            self.up.append(nn.ModuleList((TimedBlock(inputs + width, width, time), TextBlock(width, context), larger)))
            inputs = width
        self.leave = nn.Sequential(nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, 4, 3, 1, 1))

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """[N, 4, H, W]."""
        half = self.first // 2
        speeds = 1e4 ** (-torch.arange(half, device=x.device) / half)
        angles = time[:, None] * speeds
        time = self.time(torch.cat((angles.cos(), angles.sin()), -1))
        x, passed = self.enter(x), []
        for timed, attended, smaller in self.down:
            x = attended(timed(x, time), text)
            passed.append(x)
            x = smaller(x)
        x = self.middle[1](self.middle[0](x, time), text)
        for timed, attended, larger in self.up:
            x = larger(attended(timed(torch.cat((x, passed.pop()), 1), time), text))
        return self.leave(x)


IMAGES: dict[str, Callable[[], nn.Module]] = {
    "ResNet-50": resnet50,
    "MobileNetV3": mobilenetv3,
    "EfficientNet-B0": efficientnet_b0,
    "ViT-B": VisionTransformer,
    "ConvNeXt-T": convnext_t,
    "U-Net": UNet,
}


def inputs_of(name: str, batch: int) -> tuple[torch.Tensor, ...]:
    """Inputs of a model of IMAGES."""
    if name == "U-Net":
        return torch.randn(batch, 4, 32, 32), torch.full((batch,), 500.0), torch.randn(batch, 77, 768)
    return (torch.randn(batch, 3, 224, 224),)
