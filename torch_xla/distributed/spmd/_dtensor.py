"""What torch.distributed.tensor calls instead of its own code for a mesh of a device named xla: that code."""

import sys

from ..._device_mesh import mesh_of_groups


def _check_has_groups(mesh) -> None:
    if not getattr(mesh, "_dim_group_names", None):
        raise NotImplementedError(
            f"DTensor needs a DeviceMesh with process groups, and got {mesh}: make it by init_device_mesh(), not after "
            "xr.use_spmd()"
        )


def xla_distribute_tensor(tensor, device_mesh, placements=None):
    """torch.distributed.tensor.distribute_tensor(), which leaves a mesh of the device xla to this function.

    Returns a DTensor. Raises NotImplementedError for a mesh without process groups.
    """
    from torch.distributed.tensor import distribute_tensor, DTensor

    _check_has_groups(device_mesh)
    caller = sys._getframe(1)  # PyTorch passes all of its arguments but this one
    source = caller.f_locals["src_data_rank"] if caller.f_code is distribute_tensor.__code__ else 0
    if isinstance(tensor, DTensor) and tensor.device_mesh == device_mesh:
        device_mesh = tensor.device_mesh  # an equal one would differ while its name does
    with mesh_of_groups(device_mesh):
        return distribute_tensor(tensor, device_mesh, placements, src_data_rank=source)


def xla_distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """torch.distributed.tensor.distribute_module(), which leaves a mesh of the device xla to this function.

    Returns the module, whose parameters and buffers are DTensors then. Raises NotImplementedError for a mesh without
    process groups.
    """
    from torch.distributed.tensor import distribute_module

    _check_has_groups(device_mesh)
    with mesh_of_groups(device_mesh):
        return distribute_module(module, device_mesh, partition_fn, input_fn, output_fn)
