"""Tensors that are spread over the processes of a run.

A SpreadTensor is one tensor to the program, with the sizes of the whole value. It holds a DTensor
(torch.distributed.tensor) with this process's part, and each ATen call of the program goes to the DTensors
(_spread_calls.py).
"""

import copy
from collections.abc import Callable

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from ... import _XLAC
from ._placements import distribute, own_part, Placements, sharding_of, whole_of, without_sums
from .op_sharding import OpSharding, ShardingType
from .xla_sharded_tensor import XLAShard, XLAShardedTensor


class SpreadTensor(XLAShardedTensor):
    """A tensor whose parts are on the processes of a run. torch_xla.distributed.spmd.mark_sharding() makes them.

    Reading it (item(), tolist(), print, cpu()) gives the whole value and is for all processes. A result with one
    number is whole on each process, so one process may read it alone.
    """

    dispatch: Callable  # computes an ATen call: (func, args, kwargs). _spread_calls.py sets it
    _placed: DTensor
    _view: "View | None"

    @staticmethod
    def __new__(cls, placed: DTensor, requires_grad: bool = False, view: "View | None" = None):
        # pylint: disable=protected-access
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            placed.shape,
            strides=placed.stride(),
            dtype=placed.dtype,
            device=placed.device,
            requires_grad=requires_grad,
        )
        self._placed, self._view = placed, view
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch.no_grad():
            return SpreadTensor.dispatch(func, args, kwargs or {})

    def __tensor_flatten__(self):
        return ["_placed"], None

    @staticmethod
    def __tensor_unflatten__(inner_tensors, context, outer_size, outer_stride):
        return SpreadTensor(inner_tensors["_placed"])

    # ---- Values. Without gradients ----
    def placed(self) -> DTensor:
        """The DTensor with the present value."""
        if self._view is not None:
            self._view.refresh(self)
        return self._placed

    @property
    def _own_part(self) -> torch.Tensor:
        """The memory of this process's part."""
        return self.placed()._local_tensor

    @torch.no_grad()
    def whole(self) -> torch.Tensor:
        """The value as a plain tensor. All processes call it."""
        return whole_of(self.placed())

    @torch.no_grad()
    def overwrite(self, value: DTensor) -> None:
        """Writes the value, in place."""
        self.placed().copy_(value)
        self.note_write()

    def note_write(self) -> None:
        """After a write: the tensor that this one is a view of gets it too."""
        if self._view is not None:
            self._view.write(self)

    # ---- As of plain tensors ----
    clone = torch.Tensor.clone
    detach = torch.Tensor.detach

    @property
    def global_tensor(self) -> "SpreadTensor":
        """The tensor itself."""
        return self

    @property
    def data(self) -> torch.Tensor:
        """As of torch.Tensor. A tensor of the same sizes may be set; it is placed as this one."""
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if value.shape != self.shape or value.dtype != self.dtype:
            wanted, got = (f"{list(t.shape)} of {t.dtype}" for t in (self, value))
            raise RuntimeError(f".data of a tensor over processes is set to {got} when it should be {wanted}")
        with torch.no_grad():
            self._placed, self._view = place(value, self._placed.device_mesh, self._placed.placements), None

    def tolist(self):
        """The whole value, as of torch.Tensor."""
        return self.whole().tolist()

    def __format__(self, format_spec: str) -> str:
        return format(self.whole(), format_spec)

    def __repr__(self) -> str:  # pylint: disable=signature-differs
        return f"XLAShardedTensor({self.whole()!r}, sharding={self.sharding_spec!r})"

    def _whole_parameter(self) -> torch.Tensor:
        whole = self.whole().requires_grad_(self.requires_grad)
        return torch.nn.Parameter(whole, self.requires_grad) if isinstance(self, torch.nn.Parameter) else whole

    def __reduce_ex__(self, proto):
        return self._whole_parameter().__reduce_ex__(proto)

    def __deepcopy__(self, memo: dict) -> "SpreadTensor":
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError("only leaf tensors can be deep-copied, and this one is the result of an operation")
            with torch.no_grad():
                copied = SpreadTensor(self.placed().clone(), self.requires_grad)
            keep_attributes(copied, self)
            copied.grad = None if self.grad is None else self.grad.detach().clone()
            memo[id(self)] = copied
        return memo[id(self)]

    # ---- Checkpoints of torch.distributed.checkpoint: each process writes and reads its part ----
    def __create_write_items__(self, fqn: str, object) -> list:
        return self.placed().__create_write_items__(fqn, self.placed())

    def __create_chunk_list__(self) -> list:
        return self.placed().__create_chunk_list__()

    def __get_tensor_shard__(self, index) -> torch.Tensor:
        return self.placed().__get_tensor_shard__(index)

    # ---- Other places ----
    def _join(self) -> torch.Tensor:
        return become(self, self.whole().requires_grad_(self.requires_grad) if self.is_leaf else gather(self))

    def _spread_alike(self, t: torch.Tensor) -> None:
        spread_by(t, self._placed.device_mesh, self._placed.placements)

    # ---- Shards ----
    def _own_sharding(self) -> OpSharding:
        return sharding_of(self._placed)

    @property
    def local_shards(self) -> list[XLAShard]:
        """The part of this process. Runs pending operations."""
        with torch.no_grad():
            placed = self.placed()
            placed = placed.redistribute(placed.device_mesh, without_sums(placed.placements))
            part, (indices, replica) = placed.to_local().cpu(), own_part(placed)
        sharding = sharding_of(placed)
        device = f"{_XLAC._xla_hardware()}:{torch.distributed.get_rank()}"
        if sharding.type is ShardingType.REPLICATED:
            return [XLAShard(part, ..., device, replica)]
        data = part.new_zeros(sharding.tile_shape(placed.shape))
        data[tuple(slice(0, size) for size in part.shape)] = part
        return [XLAShard(data, indices, device, replica)]

    def load_local_shards_(self, shards) -> None:
        """Writes this process's shard, in place.

        Raises RuntimeError for a tensor that is not cut, for another number of shards and for a shard of other sizes.
        """
        own = self.local_shards
        if own[0].indices is ...:
            raise RuntimeError("load_local_shards_() wants a tensor that is cut into shards; this one is replicated")
        if len(shards) != 1:
            raise RuntimeError(f"there are {len(shards)} shards, and this process has one")
        if shards[0].data.shape != own[0].data.shape:
            wanted, got = list(own[0].data.shape), list(shards[0].data.shape)
            raise RuntimeError(f"a shard of shape {got} does not fit: {wanted} is wanted")
        with torch.no_grad():
            own[0].data.copy_(shards[0].data)
            self.placed().to_local().copy_(own[0].unpadded_data)
            self.note_write()


class View:
    """How a view follows its base where the two share no memory: the view needed values of other processes.

    Args:
        base: the tensor.
        compute: the view of a tensor like the base.
    """

    def __init__(self, base: SpreadTensor, compute: Callable):
        self._counter, self._compute = base, compute
        self._base = SpreadTensor(base.placed(), view=copy.copy(base._view))  # whose sizes nobody changes
        self._version = self._present()

    def _present(self) -> int:
        return 0 if self._counter.is_inference() else self._counter._version

    def refresh(self, view: SpreadTensor) -> None:
        """Computes the view's value again, if the base was written."""
        if self._version != self._present():
            self._version = self._present()
            view._placed = self._compute(self._base.placed())

    def then(self, change: Callable) -> "View":
        """This link, of a view that was changed further."""
        compute = self._compute
        changed = copy.copy(self)
        changed._compute = lambda base: change(compute(base))
        return changed

    def write(self, view: SpreadTensor) -> None:
        """Writes the view's value to the base."""
        whole = self._base.whole()
        self._compute(whole).copy_(whole_of(view._placed))
        placed = self._base.placed()
        self._base.overwrite(distribute(whole, placed.device_mesh, placed.placements))


def keep_attributes(new: torch.Tensor, old: torch.Tensor) -> None:
    """Gives the attributes that programs have set, and that it is a Parameter, to the new tensor."""
    new.__dict__.update({name: value for name, value in old.__dict__.items() if name not in ("_placed", "_view")})
    if isinstance(old, torch.nn.Parameter):
        new._is_param = True


def place(t: torch.Tensor, mesh: DeviceMesh, placements: Placements) -> DTensor:
    """The value of `t`, placed so. Without gradients."""
    if not isinstance(t, SpreadTensor):
        return distribute(t, mesh, placements)
    placed = t.placed()
    if placed.device_mesh != mesh:
        return distribute(whole_of(placed), mesh, placements)
    return placed if placed.placements == tuple(placements) else placed.redistribute(mesh, without_sums(placements))


class _Move(torch.autograd.Function):
    """The tensor with other placements, or a plain one spread. The gradient stays where it comes from."""

    @staticmethod
    def forward(ctx, t: torch.Tensor, mesh: DeviceMesh, placements: Placements) -> SpreadTensor:
        ctx.is_plain = not isinstance(t, SpreadTensor)
        placed = place(t, mesh, placements)
        return SpreadTensor(placed.view_as(placed))

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor) -> tuple:
        return gather(grad_output) if ctx.is_plain else grad_output, None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t: SpreadTensor) -> torch.Tensor:
        return t.whole()

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor) -> torch.Tensor:
        return grad_output


def move(t: torch.Tensor, mesh: DeviceMesh, placements: Placements) -> SpreadTensor:
    """The tensor, spread by these placements. The gradient passes."""
    return _Move.apply(t, mesh, placements)


def gather(t: torch.Tensor) -> torch.Tensor:
    """The whole tensor as a plain one. The gradient passes."""
    return _Gather.apply(t) if isinstance(t, SpreadTensor) else t


# ---- In place ----
def spread_by(t: torch.Tensor, mesh: DeviceMesh, placements: Placements) -> torch.Tensor:
    """Spreads the tensor's value, in place. Returns the tensor, or what become() returns."""
    if isinstance(t, SpreadTensor) and (t._placed.device_mesh, t._placed.placements) == (mesh, placements):
        return t
    if t.is_leaf:
        with torch.no_grad():
            return become(t, SpreadTensor(place(t, mesh, placements), t.requires_grad))
    return become(t, move(t, mesh, placements))


def placed_as(like: SpreadTensor, t: torch.Tensor) -> SpreadTensor:
    """The value of `t`, placed as another tensor. Without gradients."""
    return SpreadTensor(place(t, like._placed.device_mesh, like._placed.placements))


def become(t: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Gives the object `t` the value, the class and the gradient function of `new`. Returns it.

    A result that autograd has saved for backward cannot change: returns `new` then.
    """
    is_leaf = t.is_leaf
    if is_leaf:
        keep_attributes(new, t)
        if t.grad is not None:
            with torch.no_grad():
                new.grad = placed_as(new, t.grad) if isinstance(new, SpreadTensor) else gather(t.grad)
    try:
        torch.utils.swap_tensors(t, new)
    except RuntimeError as error:
        if is_leaf:
            raise RuntimeError(
                f"this tensor of shape {list(t.shape)} cannot change its place while others refer to it: mark it "
                f"before it takes part in a computation ({error})"
            ) from error
        return new
    return t
