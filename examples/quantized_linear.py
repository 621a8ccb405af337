"""Models with weights of 16, 8 and 4 bits, by the operations of PyTorch that torchao uses too."""

import copy

import torch
from torch import nn
from tqdm import tqdm

FORMATS = ("float32", "bfloat16", "int8", "int4")
GROUP = 32  # inputs that share a scale in 4 bits


class QuantizedLinear(nn.Module):
    """A linear layer with weights of 8 or 4 bits: a scale for each output, or a scale and a middle for each group."""

    def __init__(self, linear: nn.Linear, bits: int):
        super().__init__()
        self.bits, weight = bits, linear.weight.detach().float()
        if bits == 8:
            scale = weight.abs().amax(1) / 127
            packed = (weight / scale[:, None]).round().to(torch.int8)
        else:
            groups = weight.unflatten(1, (-1, GROUP))
            low, step = groups.amin(-1), (groups.amax(-1) - groups.amin(-1)) / 15
            numbers = ((groups - low[..., None]) / step[..., None]).round().int().flatten(1)
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
            scale = torch.stack((step, low + 8 * step), -1).transpose(0, 1).contiguous()
        self.register_buffer("packed", packed)
        self.register_buffer("scale", scale.to(linear.weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., out features] of [..., in features]."""
        rows = x.flatten(0, -2)
        if self.bits == 8:
            return torch.ops.aten._weight_int8pack_mm(rows, self.packed, self.scale).unflatten(0, x.shape[:-1])
        result = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self.packed, GROUP, self.scale)
        return result.unflatten(0, x.shape[:-1])


def convert(model: nn.Module, form: str) -> nn.Module:
    """A copy of the model with its weights in a format. Beside weights of 8 and 4 bits all else is bfloat16."""
    model = copy.deepcopy(model).to(torch.float32 if form == "float32" else torch.bfloat16)
    parts = list(model.modules()) if form.startswith("int") else []
    for part in tqdm(parts, desc=form, unit="part", leave=False):
        for name, linear in list(part.named_children()):
            if isinstance(linear, nn.Linear):
                setattr(part, name, QuantizedLinear(linear, int(form[3:])))
    return model.eval()
