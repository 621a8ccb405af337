"""FSDP by sharding over a mesh (FSDPv2): parameters and outputs are marked, as torch_xla.distributed.spmd does."""

from collections.abc import Callable

import torch

from .. import _XLAC
from ..distributed import spmd
from ..distributed.fsdp.wrap import recursive_wrap


def _shard_batch(output, mesh: spmd.Mesh, extra_data_axis: str | None) -> None:
    """Marks the first dim of a tensor, of the first part of a tuple or of the logits of a model's output."""
    first = getattr(output, "logits", output)
    first = first[0] if isinstance(first, tuple) and first else first
    if not isinstance(first, torch.Tensor) or first.device.type != "xla" or first.dim() == 0:
        raise RuntimeError(
            f"the module's output is a {type(output).__name__} without a tensor to shard: shard_output= says what to do"
        )
    axes = (extra_data_axis, "fsdp") if extra_data_axis else "fsdp"
    spmd.annotate_custom_sharding(first, mesh, (axes, *[None] * (first.dim() - 1)))


class SpmdFullyShardedDataParallel(torch.nn.Module):
    """A module on the device xla with parameters sharded over the axis "fsdp" of a mesh, along their largest dims.

    Names of parameters are those of the original, and attributes and items that the wrapper lacks are the module's.

    Args:
        module: the module to wrap; it moves to the device.
        mesh: a torch_xla.distributed.spmd.Mesh; None: the mesh of set_global_mesh().
        shard_output: called with the output and the mesh after each forward; None shards the batch of the output, of
            the first part of a tuple, or of the attribute `logits`.
        auto_wrap_policy: chooses the submodules that are wrapped too (torch_xla.distributed.fsdp.wrap).
        auto_wrapper_callable: wraps them, instead of this class.
        extra_data_axis: another axis over which outputs are sharded.

    Raises ValueError without a mesh or if it lacks an axis, RuntimeError for a module that is wrapped already and for
    outputs without a tensor, and errors of torch_xla.distributed.spmd.mark_sharding().
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        mesh: spmd.Mesh | None = None,
        shard_output: Callable[[object, spmd.Mesh], None] | None = None,
        auto_wrap_policy: Callable | None = None,
        auto_wrapper_callable: Callable | None = None,
        extra_data_axis: str | None = None,
    ):
        super().__init__()
        if isinstance(module, SpmdFullyShardedDataParallel):
            raise RuntimeError("the module is wrapped with SpmdFullyShardedDataParallel already")
        self._mesh = mesh or spmd.get_global_mesh()
        if self._mesh is None:
            raise ValueError("there is no mesh: give mesh=, or call torch_xla.distributed.spmd.set_global_mesh()")
        for axis in ("fsdp", *([extra_data_axis] if extra_data_axis else [])):
            if self._mesh.get_axis_name_idx(axis) is None:
                raise ValueError(
                    f"The provided {axis} axis is not in the mesh: its axes are {list(self._mesh.shape())}"
                )
        self._shard_output = shard_output
        self._extra_data_axis = extra_data_axis
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or SpmdFullyShardedDataParallel
            options = {"mesh": self._mesh, "shard_output": shard_output, "extra_data_axis": extra_data_axis}
            recursive_wrap(module, auto_wrap_policy, wrapper, set(), set(), only_wrap_children=True, **options)
        self._orig_module = module.to("xla")
        for parameter in module.parameters():
            self._shard_parameter(parameter)
        if _XLAC._num_partitions() > 1:
            spmd.apply_backward_optimization_barrier(module)

    def _shard_parameter(self, parameter: torch.nn.Parameter) -> None:
        """Shards it along its largest dim, unless an inner wrapped module has done it."""
        if parameter.dim() > 0 and not spmd.sharding_spec(parameter):
            largest = max(range(parameter.dim()), key=lambda dim: parameter.shape[dim])
            spec = tuple("fsdp" if dim == largest else None for dim in range(parameter.dim()))
            spmd.mark_sharding(parameter, self._mesh, spec)

    @property
    def module(self) -> torch.nn.Module:
        """The wrapped module."""
        return self._orig_module

    def forward(self, *args, **kwargs):
        """The module's."""
        output = self.module(*args, **kwargs)
        if self._shard_output is not None:
            self._shard_output(output, self._mesh)
        elif self._mesh.size() > 1:
            _shard_batch(output, self._mesh, self._extra_data_axis)
        return output

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_module":  # before it is set
                raise
            return getattr(self.module, name)

    def __getitem__(self, key):
        return self.module[key]
