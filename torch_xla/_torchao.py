"""Lets torchao's quantized layers run on the device.

torchao prints the operands of a product to find out what they are, which would run the pending trace, and accepts
tensors of the CPU only for weights of 4 bits in ATen's form for the CPU.
"""

import functools

import torch

from ._late_modules import when_imported


def _multiply_integers(module) -> None:
    """Of torchao.kernel.intmm: products of 8-bit integers, which for other devices than the CPU have CUDA's limits."""
    elsewhere = module.safe_int_mm

    @functools.wraps(elsewhere)
    def safe_int_mm(input: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(input, mat2) if input.device.type == "xla" else elsewhere(input, mat2)

    module.safe_int_mm = safe_int_mm


def _take_opaque_tensors(module) -> None:
    """Of the module of Int4OpaqueTensor: weights of the device are packed on the CPU, and multiplied as there."""
    kind = module.Int4OpaqueTensor
    pack = kind.from_hp.__func__
    linear = torch.nn.functional.linear
    elsewhere = kind._TORCH_FN_TABLE[kind][linear]

    @functools.wraps(pack)
    def from_hp(cls, w: torch.Tensor, *args, **kwargs):
        packed = pack(cls, w.cpu() if w.device.type == "xla" else w, *args, **kwargs)
        return packed.to(w.device)

    def multiply(func, types, args, kwargs):
        x, weight, *bias = args
        if x.device.type != "xla" or weight.act_mapping_type is not None:
            return elsewhere(func, types, args, kwargs)
        x = x if weight.act_pre_scale is None else x * weight.act_pre_scale
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.reshape(-1, x.shape[-1]).contiguous(), weight.qdata, weight.block_size[1], weight.scale_and_zero
        )
        y = y[:, : weight.shape[0]].reshape(*x.shape[:-1], weight.shape[0])
        return y if not bias or bias[0] is None else y + bias[0]

    kind.from_hp = classmethod(from_hp)
    kind.implements_torch_function([linear])(multiply)
    kind.implements([torch.ops.aten.linear.default])(multiply)


def install() -> None:
    """Changes these modules when a program imports them."""
    when_imported("torchao.kernel.intmm", _multiply_integers)
    when_imported("torchao.prototype.quantization.int4.int4_opaque_tensor", _take_opaque_tensors)
