"""What the programs with torchao share: models, configs, and the error that a config allows."""

import copy

import torch
import torchao.quantization as ao
from torch import nn
from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

# By config: the largest error of a layer beside the unquantized one, as a part of its largest result.
CONFIGS = {
    "int8 weights": (ao.Int8WeightOnlyConfig(), 0.02),
    "int8 weights in groups": (ao.Int8WeightOnlyConfig(granularity=ao.PerGroup(32)), 0.02),
    "int4 weights": (PrototypeInt4WeightOnlyConfig(group_size=32), 0.2),
    "int8, dynamic": (ao.Int8DynamicActivationInt8WeightConfig(), 0.04),
    "int8, dynamic, asymmetric": (
        ao.Int8DynamicActivationInt8WeightConfig(act_mapping_type=ao.MappingType.ASYMMETRIC),
        0.04,
    ),
    "float8 weights": (ao.Float8WeightOnlyConfig(), 0.08),
}


def make_layers() -> nn.Module:
    """Layers of bfloat16 with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 192), nn.GELU(), nn.Linear(192, 64, bias=False)).bfloat16().eval()


def quantize(model: nn.Module, config) -> nn.Module:
    """A copy of the model, quantized."""
    model = copy.deepcopy(model)
    ao.quantize_(model, config)
    return model


def check_error(found: torch.Tensor, expected: torch.Tensor, most: float) -> None:
    """Fails if a number differs by more than that part of the largest."""
    error = (found.cpu().double() - expected.double()).abs().max() / expected.double().abs().max()
    assert error <= most, f"{error} > {most}"


class Images(nn.Module):
    """Convolutions as ResNet has them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.block = nn.Sequential(
            nn.Conv2d(16, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 1),
            nn.BatchNorm2d(16),
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        return self.head(torch.relu(x + self.block(x)).mean((2, 3)))


def quantize_images(x: torch.Tensor) -> tuple[nn.Module, nn.Module]:
    """The network and its graph with static 8-bit integers, by PT2E."""
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    model = Images().eval()
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    return model, convert_pt2e(prepared)
