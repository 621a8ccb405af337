"""XlaFullyShardedDataParallel, over torch.distributed.fsdp.fully_shard."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy

from ... import _api, _world
from ... import runtime as _runtime
from ...core import xla_model
from ...utils.utils import for_each_instance
from .. import xla_backend
from .state_dict_utils import without_wrappers, WRAPPED
from .wrap import recursive_wrap

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _check_can_be_wrapped(module: torch.nn.Module) -> None:
    if isinstance(module, XlaFullyShardedDataParallel):
        raise RuntimeError("the module is wrapped by FSDP already; nested FSDP wraps the inner modules first")
    if getattr(module.forward, "__func__", None) is torch.nn.Module.forward:
        raise RuntimeError(f"FSDP gathers parameters when forward() is called, and {type(module).__name__} has none")


def _check_dtypes(**dtypes: torch.dtype | None) -> None:
    for name, dtype in dtypes.items():
        if dtype is not None and dtype not in _FLOATS:
            raise ValueError(f"{name} must be one of {_FLOATS}, not {dtype}")


def _check_sharding(groups: list[list[int]], rank: int | None, size: int | None) -> None:
    """Checks that rank and size are this replica's in its group."""
    if rank is None or size is None:
        raise ValueError("sharding_groups need sharding_rank and sharding_world_size")
    if sorted(each for group in groups for each in group) != list(range(_runtime.world_size())):
        raise ValueError(f"sharding_groups {groups} do not hold each of {_runtime.world_size()} replicas once")
    if any(len(group) != size for group in groups):
        raise ValueError(f"sharding_groups {groups} are not all of sharding_world_size={size}")
    if not any(group[rank : rank + 1] == [_runtime.global_ordinal()] for group in groups):
        raise ValueError(f"sharding_rank={rank} is not the place of replica {_runtime.global_ordinal()} in {groups}")


@functools.lru_cache(maxsize=16)
def _mesh_of_groups(world, groups: tuple[tuple[int, ...], ...]) -> DeviceMesh:
    """The mesh of this replica's group. Connects it, once for each group of all replicas (`world`)."""
    return DeviceMesh("xla", groups, mesh_dim_names=("group", "part"))["part"]


def _make_mesh(groups: list[list[int]] | None) -> DeviceMesh:
    if _runtime.is_spmd():
        raise RuntimeError("FSDP shards over processes, and after xr.use_spmd() a mesh has none")
    if _world.current() is not _world.process():
        raise RuntimeError("FSDP shards over processes, and the replicas of DataParallel are threads of one")
    xla_backend.join()
    if groups is None:
        return init_device_mesh("xla", (_runtime.world_size(),))
    world = torch.distributed.distributed_c10d._get_default_group()
    return _mesh_of_groups(world, tuple(tuple(group) for group in groups))


def _materialize(module: torch.nn.Module, init: Callable[[torch.nn.Module], None] | None) -> None:
    """Gives parameters of the device meta their values."""
    if not any(parameter.is_meta for parameter in module.parameters()):
        return
    if init is not None:
        init(module)
        return
    if not hasattr(module, "reset_parameters"):
        raise ValueError(f"{type(module).__name__} is on the device meta: give it reset_parameters(), or param_init_fn")
    for each in module.modules():
        if any(parameter.is_meta for parameter in each.parameters(recurse=False)):
            each.to_empty(device="cpu", recurse=False)
    with torch.no_grad():
        module.reset_parameters()


class XlaFullyShardedDataParallel(torch.nn.Module):
    """Spreads a module's parameters, gradients and optimizer state over the replicas (ZeRO, stage 3).

    It calls torch.distributed.fsdp.fully_shard: parameters() are DTensors in parts along dim 0, gathered for forward
    and backward with one transfer for each wrapped module; gradients are averaged. Wrap inner modules first, or by a
    policy; make the optimizer of the wrapped model's parameters, and call its step(), not xm.optimizer_step(), which
    averages gradients and takes no DTensors. All replicas call everything here, in the same order.

    Args:
        module: with the same parameters on all replicas, on any device; it is changed.
        reshard_after_forward: gather the parameters again for backward instead of keeping them.
        disable_reshard_on_root: but keep those of the outermost module.
        execute_sharding_on_init: run the sharding at once, which frees the whole parameters.
        sync_on_finalization: torch_xla.sync() at the end of each backward of the outermost module.
        compute_dtype: float32, float16 or bfloat16: of gathered parameters, inputs and gradients on the way. Parts and
            their gradients keep the parameters' dtype, which is also the default.
        buffer_dtype: of floating-point buffers; by default compute_dtype.
        fp32_reduce_scatter: average gradients in float32.
        sharding_groups: numbers of the replicas that share parameters, in groups of one size; by default all replicas.
        sharding_rank, sharding_world_size: this replica's place in its group and the group's size.
        auto_wrap_policy: (module, recurse, unwrapped_params) -> bool, see `wrap`: which submodules to wrap.
        auto_wrapper_callable: wraps them, called with a module and these options; by default this class.
        param_init_fn: initializes a module of the device meta; by default its reset_parameters() does, on the CPU.
        flatten_parameters, shard_param_on_dim_0, coalesce_all_gather_ops, reduce_scatter_bucket_size_mb: accepted for
            the original's sake; parts are always along dim 0, and go in one transfer.
        optimization_barrier_in_forward, optimization_barrier_in_backward, pin_layout_in_collective_ops: accepted too;
            transfers are never merged with computation or each other.
        _shard_size_multiple, _use_xla_patched_linear, _debug_*: accepted too: parts need no padding, a linear layer no
            other form, and the debugging options have no counterpart here.

    Raises RuntimeError for modules that are wrapped or have no forward(), after xr.use_spmd() and in threads of
    DataParallel; ValueError for other dtypes and groups.
    """

    _sends_gradients = True  # at the end of backward; no_sync() says so

    def __init__(
        self,
        module: torch.nn.Module,
        reshard_after_forward: bool = True,
        flatten_parameters: bool = False,
        execute_sharding_on_init: bool = True,
        optimization_barrier_in_forward: bool = True,
        optimization_barrier_in_backward: bool = True,
        sync_on_finalization: bool = False,
        disable_reshard_on_root: bool = True,
        compute_dtype: torch.dtype | None = None,
        buffer_dtype: torch.dtype | None = None,
        fp32_reduce_scatter: bool = False,
        sharding_groups: list[list[int]] | None = None,
        sharding_rank: int | None = None,
        sharding_world_size: int | None = None,
        shard_param_on_dim_0: bool = False,
        pin_layout_in_collective_ops: bool = True,
        reduce_scatter_bucket_size_mb: int | None = 0,
        coalesce_all_gather_ops: bool = False,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., torch.nn.Module] | None = None,
        param_init_fn: Callable[[torch.nn.Module], None] | None = None,
        _shard_size_multiple: int = 128,
        _use_xla_patched_linear: bool = True,
        _debug_dummy_forward_pass: bool = False,
        _debug_msg: str = "xla_fsdp",
        _debug_print: bool = False,
        _debug_dummy_all_gather_op: bool = False,
        _debug_dummy_all_reduce_op: bool = False,
        _debug_dummy_reduce_scatter_op: bool = False,
        _debug_dummy_optimization_barrier_op: bool = False,
    ):
        options = {name: value for name, value in locals().items() if name not in ("self", "module", "__class__")}
        super().__init__()
        _check_can_be_wrapped(module)
        _check_dtypes(compute_dtype=compute_dtype, buffer_dtype=buffer_dtype)
        self._take_place(sharding_groups, sharding_rank, sharding_world_size)
        self.compute_dtype, self.buffer_dtype = compute_dtype, buffer_dtype or compute_dtype
        self.reshard_after_forward, self._syncs_at_the_end = reshard_after_forward, sync_on_finalization
        mesh = _make_mesh(sharding_groups)
        if auto_wrap_policy is not None:
            _wrap_children(module, **options)
        _materialize(module, param_init_fn)
        self._take(module)
        reshard = None if reshard_after_forward and disable_reshard_on_root else reshard_after_forward
        policy = MixedPrecisionPolicy(compute_dtype, torch.float32 if fp32_reduce_scatter else compute_dtype)
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
        if execute_sharding_on_init:
            _api.sync()

    def _take_place(self, groups: list[list[int]] | None, rank: int | None, size: int | None) -> None:
        """This replica's place in its group, or among all."""
        if groups is not None:
            _check_sharding(groups, rank, size)
        self.sharding_groups = groups
        self.rank = _runtime.global_ordinal() if groups is None else rank
        self.world_size = _runtime.world_size() if groups is None else size

    def _take(self, module: torch.nn.Module) -> None:
        """Makes it the wrapped module, with all parameters that no inner module has wrapped."""
        inner = [each for each in module.modules() if isinstance(each, XlaFullyShardedDataParallel)]
        taken = {tensor for each in inner for tensor in [*each.parameters(), *each.buffers()]}
        self.add_module(WRAPPED, module)
        own = {name: p for name, p in self.named_parameters(remove_duplicate=False) if p not in taken}
        self._sizes = {name: parameter.shape for name, parameter in own.items()}
        self._cast_from: dict[str, torch.dtype] = {}
        for name, buffer in list(self.named_buffers()):
            if self.buffer_dtype not in (None, buffer.dtype) and buffer.is_floating_point() and buffer not in taken:
                self._cast_from[name] = buffer.dtype
                path, _, last = name.rpartition(".")
                setattr(self.get_submodule(path), last, buffer.to(self.buffer_dtype))

    @property
    def module(self) -> torch.nn.Module:
        """The wrapped module."""
        return self._modules[WRAPPED]

    def __getattr__(self, name: str):
        """Attributes that this module lacks are the wrapped module's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(WRAPPED), name)

    def __getitem__(self, key):
        """Of a container."""
        return self.module[key]

    def extra_repr(self) -> str:
        """The options that change the computation or its place."""
        return (
            f"world_size={self.world_size}, rank={self.rank}, compute_dtype={self.compute_dtype}, "
            f"buffer_dtype={self.buffer_dtype}, reshard_after_forward={self.reshard_after_forward}, "
            f"sharding_groups={self.sharding_groups}"
        )

    def forward(self, *args, **kwargs):
        """The wrapped module's."""
        out = self.module(*args, **kwargs)
        if not torch.is_grad_enabled():
            self.module.reshard()  # no backward will
        elif self._syncs_at_the_end and self._is_root:
            self._sync_after_backward(out)
        return out

    @property
    def _is_root(self) -> bool:
        """Whether no other module of this class contains this one. Known from the first forward on; True before."""
        return self.module._get_fsdp_state()._is_root is not False

    def _sync_after_backward(self, out) -> None:
        is_queued = False

        def queue(gradient: torch.Tensor) -> None:
            nonlocal is_queued
            if not is_queued:
                is_queued = True  # after fully_shard's own, queued at the gradient of the same tensor
                torch.autograd.Variable._execution_engine.queue_callback(_api.sync)

        def needs_gradient(value) -> bool:
            return isinstance(value, torch.Tensor) and value.requires_grad

        for_each_instance(out, needs_gradient, lambda tensor: tensor.register_hook(queue))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward keeps whole gradients; the first backward after it sends their sum."""
        self._check_is_root("no_sync()")
        before, self._sends_gradients = self._sends_gradients, False
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._sends_gradients = before
            self.module.set_requires_gradient_sync(before)

    def set_gradient_divide_factors(self, pre: float, post: float, recursive: bool) -> None:
        """Divides the sum of the gradients by pre * post; by the number of replicas if both are 1.

        Args:
            recursive: also for inner modules.
        """
        factor = self.world_size if (pre, post) == (1, 1) else pre * post
        for each in self.modules() if recursive else [self]:
            if isinstance(each, XlaFullyShardedDataParallel):
                each.module.set_gradient_divide_factor(float(factor))

    def _check_is_root(self, call: str) -> None:
        if not self._is_root:
            raise RuntimeError(f"{call} is for the outermost module of FSDP, and this one is within another")

    @torch.no_grad()
    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, groups: list[list[int]] | None = None
    ) -> torch.Tensor:
        """Scales the gradients so that their norm, as of one vector, is at most `max_norm`.

        Args:
            norm_type: p of the p-norm; may be infinite.
            groups: numbers of the replicas in the norm, as for xm.all_reduce; by default all.

        Returns the norm before, on the device. Raises RuntimeError for a module within another.
        """
        self._check_is_root("clip_grad_norm_()")
        norm_type = float(norm_type)
        gradients = [p.grad.to_local() for p in self.parameters() if p.grad is not None]
        norms = [torch.linalg.vector_norm(g.float(), norm_type) for g in gradients if g.numel()]
        norm = torch.stack([torch.zeros((), device=_api.device()), *norms])
        if math.isinf(norm_type):
            total = xla_model.all_reduce(xla_model.REDUCE_MAX, norm.max(), groups=groups)
        else:
            powers = xla_model.all_reduce(xla_model.REDUCE_SUM, norm.pow(norm_type).sum(), groups=groups)
            total = powers.pow(1 / norm_type)
        factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))
        return total

    def get_original_names_and_sharded_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """The parameters with their names in the unwrapped module."""
        return [(without_wrappers(name), parameter) for name, parameter in self.named_parameters()]

    def get_shard_metadata(self) -> dict:
        """Metadata for consolidate_sharded_state_dicts(): save it beside state_dict()."""
        modules = {
            name: module
            for name, module in self.named_modules(remove_duplicate=False)
            if isinstance(module, XlaFullyShardedDataParallel)
        }
        return {
            "shard_info": {
                path: {
                    name: {"_orig_size": size, "_orig_name": without_wrappers(name)} for name, size in m._sizes.items()
                }
                for path, m in modules.items()
            },
            "flatten_info": {},
            "buffer_info": {
                f"{path}.{name}" if path else name: {"_orig_dtype": dtype}
                for path, m in modules.items()
                for name, dtype in m._cast_from.items()
            },
            "world_size": self.world_size,
            "rank": self.rank,
        }


def _wrap_children(module: torch.nn.Module, auto_wrap_policy, auto_wrapper_callable, **options) -> None:
    """Wraps the submodules that the policy names."""
    if any(isinstance(each, XlaFullyShardedDataParallel) for each in module.modules()):
        raise ValueError("auto_wrap_policy is for modules of which none is wrapped by FSDP already")
    wrapper = auto_wrapper_callable or XlaFullyShardedDataParallel
    recursive_wrap(module, auto_wrap_policy, wrapper, (), (), only_wrap_children=True, **options)
