"""Marks as operations, which torch.compile and AOTAutograd record: in torch.ops.xla."""

import ast
from collections.abc import Sequence

import torch

from .mesh import Mesh
from .xla_sharding import mark_sharding


@torch.library.custom_op("xla::aot_mark_sharding", mutates_args=())
def _marked_copy(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
    return mark_sharding(t.clone(), Mesh.from_str(mesh), ast.literal_eval(partition_spec)).global_tensor


@_marked_copy.register_fake
def _(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
    return torch.empty_like(t)


_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    "dynamo_mark_sharding(Tensor input, int[] device_ids, int[] mesh_shape, str axis_names, str partition_spec)"
    " -> Tensor"
)


def _mark(
    input: torch.Tensor, device_ids: Sequence[int], mesh_shape: Sequence[int], axis_names: str, partition_spec: str
) -> torch.Tensor:
    mesh = Mesh(device_ids, mesh_shape, ast.literal_eval(axis_names))
    mark_sharding(input, mesh, ast.literal_eval(partition_spec))
    return input


def _leave(
    input: torch.Tensor, device_ids: Sequence[int], mesh_shape: Sequence[int], axis_names: str, partition_spec: str
) -> torch.Tensor:
    return input


_library.impl("dynamo_mark_sharding", _mark, "PrivateUse1")
_library.impl("dynamo_mark_sharding", _leave, "CompositeExplicitAutograd")
