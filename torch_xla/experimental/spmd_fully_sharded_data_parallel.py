"""FSDP by sharding over a mesh (FSDPv2). A run's mesh has one device: what is wrapped is whole and lies there."""

from collections.abc import Callable

import torch

from ..distributed import spmd
from ..distributed.fsdp.wrap import recursive_wrap


class SpmdFullyShardedDataParallel(torch.nn.Module):
    """A module on the device xla whose parameters are sharded over the axis "fsdp" of a mesh of one device.

    Names of parameters are those of the original, and attributes and items that the wrapper lacks are the module's.

    Args:
        module: what is wrapped; it moves to the device.
        mesh: a torch_xla.distributed.spmd.Mesh; None is that of set_global_mesh().
        shard_output: called with the output and the mesh after each forward; None does nothing.
        auto_wrap_policy: chooses the submodules that are wrapped too (torch_xla.distributed.fsdp.wrap).
        auto_wrapper_callable: what they are wrapped with, instead of this class.
        extra_data_axis: another axis over which outputs are sharded.

    Raises ValueError without a mesh or where it lacks an axis, RuntimeError for a module that is wrapped already,
    NotImplementedError for a mesh of several devices.
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
                raise ValueError(f"the mesh has no axis {axis!r}, but {list(self._mesh.shape())}")
        if self._mesh.size() > 1:
            raise NotImplementedError(
                f"sharding over a mesh of {self._mesh.size()} devices needs collectives between them: "
                "XlaFullyShardedDataParallel shards over the replicas of several processes"
            )
        self._shard_output = shard_output
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or SpmdFullyShardedDataParallel
            options = {"mesh": self._mesh, "shard_output": shard_output}
            recursive_wrap(module, auto_wrap_policy, wrapper, set(), set(), only_wrap_children=True, **options)
        self._orig_module = module.to("xla")

    @property
    def module(self) -> torch.nn.Module:
        """What is wrapped."""
        return self._orig_module

    def forward(self, *args, **kwargs):
        """The module's."""
        output = self.module(*args, **kwargs)
        if self._shard_output is not None:
            self._shard_output(output, self._mesh)
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
