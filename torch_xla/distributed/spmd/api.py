"""Functions that torch.distributed.tensor calls for a mesh of a device named xla.

After xr.use_spmd() they mark tensors as sharded; otherwise they call PyTorch's code, over the mesh's process groups.
"""

import inspect
import sys
from collections.abc import Callable, Sequence

import torch

from ... import runtime
from ..._device_mesh import mesh_of_groups
from ._dtensor_face import spec_of_placements
from .mesh import Mesh
from .op_sharding import PartitionSpec
from .xla_sharding import mark_sharding, XLAShardedTensor


def auto_policy(mod_name: str, mod: torch.nn.Module, mesh) -> None:
    """A partition_fn for distribute_module() that leaves the choice to the compiler: each parameter is replicated."""


def convert_to_xla_mesh(dt_mesh) -> Mesh:
    """The torch.distributed.DeviceMesh as a Mesh. ValueError if its devices are not all of the run's."""
    return Mesh(dt_mesh.mesh.flatten().tolist(), tuple(dt_mesh.mesh.shape), dt_mesh.mesh_dim_names)


def convert_to_xla_partition_spec(tensor: torch.Tensor, placements: Sequence) -> PartitionSpec:
    """spec_of_placements() for the tensor."""
    return spec_of_placements(placements, tensor.dim())


def _mark(tensor, device_mesh, placements) -> XLAShardedTensor:
    placements = placements or ()
    if placements and len(placements) != device_mesh.ndim:
        raise ValueError(f"{len(placements)} placements are not one for each dim of {device_mesh}")
    spec = convert_to_xla_partition_spec(tensor, placements)
    marked = mark_sharding(tensor.to("xla"), convert_to_xla_mesh(device_mesh), spec)
    if marked.is_leaf or not tensor.is_leaf:
        return marked
    return XLAShardedTensor(marked.global_tensor, marked.mesh_shape, marked.partition_spec, requires_grad=True)


def _check_has_groups(mesh) -> None:
    if not getattr(mesh, "_dim_group_names", None):
        raise NotImplementedError(f"DTensor needs a DeviceMesh with process groups, and got {mesh}, made for SPMD")


def xla_distribute_tensor(tensor, device_mesh, placements=None):
    """torch.distributed.tensor.distribute_tensor(), which leaves a mesh of the device xla to this function.

    Returns a DTensor, or after xr.use_spmd() the XLAShardedTensor of mark_sharding(), with its errors. Raises
    NotImplementedError for a mesh without process groups.
    """
    from torch.distributed.tensor import distribute_tensor, DTensor

    if runtime.is_spmd():
        return _mark(tensor, device_mesh, placements)
    _check_has_groups(device_mesh)
    caller = sys._getframe(1)  # PyTorch passes all of its arguments but this one
    source = caller.f_locals["src_data_rank"] if caller.f_code is distribute_tensor.__code__ else 0
    if isinstance(tensor, DTensor) and tensor.device_mesh == device_mesh:
        device_mesh = tensor.device_mesh  # an equal mesh compares as different while its name does
    with mesh_of_groups(device_mesh):
        return distribute_tensor(tensor, device_mesh, placements, src_data_rank=source)


def _call_with_module(function: Callable, name: str) -> Callable:
    """The function called with (module, argument, mesh), with or without the module."""
    wanted = len(inspect.signature(function).parameters)
    if wanted not in (2, 3):
        raise ValueError(f"{name} takes {wanted} arguments; expected (module, {name[:-3]}s, device_mesh)")
    return function if wanted == 3 else lambda module, given, mesh: function(given, mesh)


def _mark_module(module, device_mesh, partition_fn, input_fn, output_fn):
    if partition_fn is auto_policy:
        module = module.to("xla")
    elif partition_fn is not None:
        for name, part in module.named_modules():
            partition_fn(name, part, device_mesh)
    if input_fn is not None:
        prepare = _call_with_module(input_fn, "input_fn")
        module.register_forward_pre_hook(lambda part, inputs: prepare(part, inputs, device_mesh))
    if output_fn is not None:
        finish = _call_with_module(output_fn, "output_fn")
        module.register_forward_hook(lambda part, inputs, outputs: finish(part, outputs, device_mesh))
    return module


def xla_distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """torch.distributed.tensor.distribute_module(), which leaves a mesh of the device xla to this function.

    Returns the module; its parameters and buffers are DTensors, or after xr.use_spmd() the results of partition_fn.
    Raises NotImplementedError for a mesh without process groups.
    """
    from torch.distributed.tensor import distribute_module

    if runtime.is_spmd():
        return _mark_module(module, device_mesh, partition_fn, input_fn, output_fn)
    _check_has_groups(device_mesh)
    with mesh_of_groups(device_mesh):
        return distribute_module(module, device_mesh, partition_fn, input_fn, output_fn)
