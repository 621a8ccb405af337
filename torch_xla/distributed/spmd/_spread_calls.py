"""ATen calls on tensors that are spread over processes.

A call goes to the DTensors of its operands; plain operands count as replicated. Where torch.distributed.tensor has no
rule for the call, it runs on the whole values, on each process, and its results are replicated; explain() says so.
"""

import functools
import operator
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from ... import _XLAC
from ._local_calls import attend, attend_backward, embed
from ._placements import distribute, for_view, replicate, whole_of, without_empty_parts, without_sums
from ._spread_tensor import gather, move, SpreadTensor, View

aten = torch.ops.aten
_SUMS = ("sum", "avg")
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
_NO_VIEW = "view size is not compatible with input tensor's size and stride"


class _Facts(NamedTuple):
    """What matters of an operation."""

    writes: bool
    is_view: bool
    draws: bool
    resizes: bool  # changes the sizes of an operand
    takes_empty: bool  # computes parts without elements


@functools.cache
def _facts_of(func) -> _Facts:
    aliases = [argument.alias_info for argument in func._schema.arguments if argument.alias_info is not None]
    writes = any(alias.is_write for alias in aliases)
    returns = any(each.alias_info is not None for each in func._schema.returns)
    draws = torch.Tag.nondeterministic_seeded in func.tags
    takes_empty = torch.Tag.pointwise in func.tags or writes or returns
    return _Facts(writes, returns and not writes, draws, torch.Tag.inplace_view in func.tags, takes_empty)


def run(func, args: tuple, kwargs: dict):
    """Computes an ATen call with at least one SpreadTensor. Called below autograd."""
    if handler := _HANDLERS.get(func):
        return handler(func, *args, **kwargs)
    facts = _facts_of(func)
    if facts.resizes:
        return _change_sizes(func, *args)
    if facts.draws:
        return _draw(func, args, kwargs)
    return _Call(func, facts, args, kwargs).run()


# ---- Operands ----
class _Call:
    """One call: its operands as DTensors, its results as SpreadTensors."""

    def __init__(self, func, facts: _Facts, args: tuple, kwargs: dict):
        self._func, self._facts, self._args, self._kwargs = func, facts, args, kwargs
        self._mesh = _mesh_of(args, kwargs)
        self._takes_lists = any(isinstance(value, list) for value in args)
        self._operands: dict[int, tuple] = {}  # by the DTensors' ids, if the call writes: the DTensors, their tensors

    def run(self):
        """The results."""
        written = list(_written(self._func, self._args, self._kwargs)) if self._facts.writes else []
        if any(tensor._placed.device_mesh != self._mesh for tensor in written):
            return self._run_whole("it writes tensors over several meshes")
        args = [self._enter(value) for value in self._args]
        kwargs = {name: self._enter(value) for name, value in self._kwargs.items()}
        if self._func in _VIEWS:
            args[0] = for_view(args[0], args[1])
        try:
            results = self._compute(args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if not _is_unknown(error):
                raise
            return self._run_whole(str(error))
        for tensor in written:
            tensor.note_write()
        return self._leave(results, args, kwargs)

    def _compute(self, args: list, kwargs: dict):
        try:
            return self._func(*args, **kwargs)
        except RuntimeError as error:
            if _NO_VIEW not in str(error) or not self._facts.is_view:
                raise
        args[0] = args[0].clone(memory_format=torch.contiguous_format)  # the order of a part differs from the whole's
        return self._func(*args, **kwargs)

    def _run_whole(self, why: str):
        return _run_whole(self._func, self._facts, self._mesh, self._args, self._kwargs, why)

    def _enter(self, value):
        if isinstance(value, SpreadTensor):
            watch(value)
            placed = value.placed()
            if placed.device_mesh != self._mesh:
                placed = replicate(whole_of(placed), self._mesh)
            elif not self._facts.takes_empty:
                placed = without_empty_parts(placed)
        elif isinstance(value, torch.Tensor):
            placed = self._enter_plain(value)
        elif isinstance(value, (list, tuple)):
            return type(value)(self._enter(part) for part in value)
        else:
            return value
        if self._facts.writes:
            self._operands[id(placed)] = placed, value
        return placed

    def _enter_plain(self, value: torch.Tensor) -> torch.Tensor:
        if value.device.type == "cpu":
            if value.dim() == 0:
                return value  # counts as a number
            if not self._func._schema.name.startswith(("aten::index", "aten::_index", "aten::copy_")):
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"xla:{_XLAC._xla_current_device()} and cpu! (in {self._func._schema.name})"
                )
            value = value.to("xla")
        watch(value)
        return replicate(value, self._mesh)

    # ---- Results ----
    def _leave(self, results, args: list, kwargs: dict):
        if isinstance(results, (list, tuple)):
            return type(results)(self._leave_one(part, args, kwargs, i) for i, part in enumerate(results))
        return self._leave_one(results, args, kwargs)

    def _leave_one(self, result, args: list, kwargs: dict, index: int | None = None):
        if not isinstance(result, DTensor):
            return result
        if id(result) in self._operands:
            return self._operands[id(result)][1]
        result = result if self._facts.writes or self._takes_lists else _settle(result)
        return SpreadTensor(result, view=self._view_of(result, args, kwargs, index))

    def _view_of(self, result: DTensor, args: list, kwargs: dict, index: int | None = None) -> View | None:
        """The link to its base that a view needs if it is a copy, or a view of one."""
        base = self._args[0] if self._facts.is_view else None
        if not isinstance(base, SpreadTensor):
            return None
        if base._view is None and _memory_of(result) == _memory_of(args[0]):
            return None
        return View(base, functools.partial(_compute_view, self._func, args[1:], kwargs, index))


def _memory_of(placed: DTensor) -> int:
    return placed.to_local().untyped_storage()._cdata


def _compute_view(func, args: list, kwargs: dict, index: int | None, base: torch.Tensor) -> torch.Tensor:
    viewed = func(base, *args, **kwargs)
    return viewed if index is None else viewed[index]


def _spread_among(args: tuple, kwargs: dict) -> Iterator[SpreadTensor]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, SpreadTensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (part for part in value if isinstance(part, SpreadTensor))


def _written(func, args: tuple, kwargs: dict) -> Iterator[SpreadTensor]:
    """The tensors over processes that the call writes."""
    for argument, value in zip(func._schema.arguments, args):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _spread_among((value,), {})
    for argument in func._schema.arguments[len(args) :]:
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _spread_among((kwargs.get(argument.name),), {})


def _mesh_of(args: tuple, kwargs: dict) -> DeviceMesh:
    """The mesh of the call: that of its first tensor over processes."""
    return next(_spread_among(args, kwargs))._placed.device_mesh


def _settle(result: DTensor) -> DTensor:
    """The result without a sum over processes that must not wait.

    A sum with one number, such as a loss, is made whole: one process may read it alone then.
    """
    if result.dim() or not any(p.is_partial() and p.reduce_op in _SUMS for p in result.placements):
        return result
    return result.redistribute(result.device_mesh, without_sums(result.placements))


# ---- Gradients ----
class _LikeLeaf:
    """A hook: the gradient is placed as its leaf."""

    def __init__(self, leaf: SpreadTensor):
        self._mesh, self._placements = leaf._placed.device_mesh, leaf._placed.placements

    def __call__(self, grad: torch.Tensor) -> torch.Tensor | None:
        if isinstance(grad, SpreadTensor) and grad._placed.placements == self._placements:
            return None
        return move(grad, self._mesh, self._placements)


def watch(t: torch.Tensor) -> None:
    """Sees to it that the gradient is placed as the leaf `t`, or is plain if `t` is."""
    if not t.requires_grad:
        return
    hooks = (t._backward_hooks or {}).values()
    if isinstance(t, SpreadTensor):
        if t.is_leaf and not any(isinstance(hook, _LikeLeaf) for hook in hooks):
            t.register_hook(_LikeLeaf(t))
    elif gather not in hooks:
        t.register_hook(gather)


# ---- What torch.distributed.tensor has no rule for ----
_UNKNOWN = ("Sharding propagation failed", "does not have a sharding strategy", "not supported with DTensor")


def _is_unknown(error: Exception) -> bool:
    """Whether propagation has failed, which it does on all processes, and not the computation of a part."""
    return any(text in str(error) for text in _UNKNOWN)


def _run_whole(func, facts: _Facts, mesh: DeviceMesh, args: tuple, kwargs: dict, why: str):
    """Runs the call on the whole values."""
    wholes: dict[int, torch.Tensor] = {}  # by their tensors' ids

    def enter(value):
        if not isinstance(value, SpreadTensor):
            return value
        watch(value)
        if id(value) not in wholes:
            wholes[id(value)] = value.whole()
        return wholes[id(value)]

    written = list(_written(func, args, kwargs)) if facts.writes else []

    def leave(result):
        if not isinstance(result, torch.Tensor):
            return result
        for tensor in written:
            if result is wholes[id(tensor)]:
                return tensor
        return SpreadTensor(replicate(result, mesh)) if result.device.type == "xla" else result

    results = func(*pytree.tree_map(enter, args), **pytree.tree_map(enter, kwargs))
    for tensor in written:
        tensor.overwrite(_like(wholes[id(tensor)], tensor))
    _XLAC._note_replicated(func._schema.name, why.split("\n", 1)[0], _XLAC._xla_current_device())
    return pytree.tree_map(leave, results)


def _like(whole: torch.Tensor, tensor: SpreadTensor) -> DTensor:
    return distribute(whole, tensor._placed.device_mesh, tensor._placed.placements)


# ---- Views in place ----
def _change_sizes(func, t: SpreadTensor, *args) -> SpreadTensor:
    """squeeze_(), t_() and their like."""
    name = func._schema.name.removeprefix("aten::")[:-1]
    if not hasattr(aten, name) or name in ("resize", "set"):
        raise RuntimeError(f"aten::{name}_ cannot change the memory of a tensor over processes: use a new tensor")
    change = getattr(getattr(aten, name), func._overloadname)
    placed = change(t.placed(), *args)
    t._placed = placed
    t._view = None if t._view is None else t._view.then(lambda base: change(base, *args))
    with torch._C._ForceDispatchKeyGuard(_keys(_Key.Meta), _keys(*_OWN_KEYS)):
        func(t, *args)  # its sizes and strides
    return t


_Key = torch._C.DispatchKey
_OWN_KEYS = (_Key.Python, _Key.PythonTLSSnapshot, _Key.PrivateUse1, _Key.AutogradPrivateUse1, _Key.ADInplaceOrView)


def _keys(*keys) -> torch._C.DispatchKeySet:
    return functools.reduce(operator.or_, map(torch._C.DispatchKeySet, keys))


# ---- Random numbers: each process draws those of the whole tensor, and keeps its part ----
_FILLS = {
    f"aten::{name}"
    for name in ("normal_", "uniform_", "random_", "exponential_", "cauchy_", "log_normal_", "geometric_")
} | {"aten::rand_like", "aten::randn_like", "aten::randint_like"}


def _draw(func, args: tuple, kwargs: dict):
    """A call that draws. The numbers are those of one process."""
    t = args[0]
    if func is aten.native_dropout.default:
        return _drop(func, *args)
    if func._schema.name not in _FILLS and func is not aten.bernoulli_.float:
        return _run_whole(func, _facts_of(func), _mesh_of(args, kwargs), args, kwargs, "it draws numbers")
    drawn = func(torch.empty(t.shape, dtype=t.dtype, device=t.device), *args[1:], **kwargs)
    if _facts_of(func).writes:
        t.overwrite(_like(drawn, t))
        return t
    return SpreadTensor(_like(drawn, t))


def _drop(func, t: SpreadTensor, p: float, train: bool | None = None):
    mask = SpreadTensor(_like(func(torch.ones(t.shape, device=t.device), p, train)[1], t))
    if train is False:
        return t.clone(), mask
    return t * mask * (0.0 if p == 1 else 1 / (1 - p)), mask


# ---- Reads and copies ----
def _read_number(func, t: SpreadTensor):
    return t.whole().item()


def _compare(func, a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = (each.whole() if isinstance(each, SpreadTensor) else each for each in (a, b))
    return func(a, b)


def _convert(func, t: SpreadTensor, *, device=None, **kwargs):
    if device is not None and torch.device(device).type != "xla":
        return func(t.whole(), device=device, **kwargs)
    return _Call(func, _facts_of(func), (t,), {"device": device, **kwargs} if device else kwargs).run()


def _copy(func, to: torch.Tensor, source: torch.Tensor, non_blocking: bool = False):
    if not isinstance(to, SpreadTensor) and to.device.type != "xla":
        return to.copy_(source.whole(), non_blocking)
    if source.device != to.device:
        source = source.to(to.device, to.dtype)
    return _Call(func, _facts_of(func), (to, source), {}).run()


_HANDLERS: dict = {
    aten._local_scalar_dense.default: _read_number,
    aten.equal.default: _compare,
    aten._to_copy.default: _convert,
    aten.copy_.default: _copy,
    aten.embedding.default: embed,
    aten._scaled_dot_product_flash_attention_for_cpu.default: attend,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attend_backward,
}
SpreadTensor.dispatch = staticmethod(run)
