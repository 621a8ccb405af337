"""torch_xla.compile(replay=True): a step that is recorded once and then run again without its Python."""

import copy
import functools
import itertools
import threading
import types
import weakref
from collections.abc import Callable

import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from . import _XLAC

_HOW = "give what changes as an argument or keep it in a tensor of the device, or leave replay=True away"


class ReplayedStep:
    """A function whose program is replayed: after the third call none of its Python runs.

    The first call runs as usual, so that optimizers make their state. The second and the third record the step, compare
    the recordings, and replay it; later calls copy their arguments and replay. If the two recordings have different
    operations, the fourth call records once more: a replay writes row-major tensors, while a call may leave views
    (accumulated gradients).

    Args:
        function: the step. Tensors of the device that it reads and writes beside its arguments (parameters, gradients,
            an optimizer's state) are read and written by each replay. Random numbers are new ones each time.
        name: for errors.

    Arguments that the step writes are written. Raises RuntimeError if the recorded calls differ in a number, an
    operation, a tensor that they read or a result; if a later call has arguments of another structure, shape or dtype,
    or another value that is not a tensor; if the step needs a tensor's value while it is recorded; and if it gives an
    argument a gradient or writes an argument that is passed twice.
    """

    def __init__(self, function: Callable, name: str):
        self._function, self._name = function, name
        self._lock = threading.RLock()  # calls use the same tensors for their arguments
        self._calls = 0
        self._step: _Recorded | None = None
        self._is_settled = False  # two recordings were the same

    def __deepcopy__(self, memo: dict) -> "ReplayedStep":
        """Records for itself."""
        return ReplayedStep(copy.deepcopy(self._function, memo), self._name)

    def __call__(self, *args, **kwargs):
        with self._lock:
            return self._call(args, kwargs)

    def _call(self, args: tuple, kwargs: dict):
        self._calls += 1
        if self._calls == 1:
            return self._function(*args, **kwargs)
        if self._is_settled:
            return self._step.replay(self._step.take(args, kwargs))
        leaves, spec = pytree.tree_flatten((args, kwargs))
        before, self._step = self._step, None
        step = _Recorded(self._function, self._name, leaves, spec)
        if before is not None:
            difference = before.find_difference(step)
            if difference and self._calls > 3:
                raise RuntimeError(difference)
            self._is_settled = not difference
        result = step.replay(leaves)
        self._step = step
        return result


class ReplayedFunction:
    """A ReplayedStep for a function. As a method it has a step for each live object of the class.

    Args: as of ReplayedStep.
    """

    def __init__(self, function: Callable, name: str):
        functools.update_wrapper(self, function)
        self._function, self._name = function, name
        self._step = ReplayedStep(function, name)
        self._of_objects = WeakIdKeyDictionary()

    def __call__(self, *args, **kwargs):
        return self._step(*args, **kwargs)

    def __get__(self, owner, owner_type=None):
        return self if owner is None else types.MethodType(self._call_method, owner)

    def _call_method(self, owner, /, *args, **kwargs):
        if owner not in self._of_objects:
            known = weakref.ref(owner)  # the dictionary keeps the step as long as it keeps the object
            self._of_objects[owner] = ReplayedStep(lambda *a, **k: self._function(known(), *a, **k), self._name)
        return self._of_objects[owner](*args, **kwargs)


class _Recorded:
    """One recording of the step, with tensors of its own for the arguments."""

    def __init__(self, function: Callable, name: str, leaves: list, spec: pytree.TreeSpec):
        self._name, self._spec = name, spec
        self._is_flat = spec == pytree.tree_structure((tuple(range(len(leaves))), {}))  # no nested arguments
        self._leaves = [_stand_in(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        versions = {i: leaf._version for i, leaf in _tensors_of(self._leaves)}
        self._graph = _XLAC._StepGraph()
        self._graph.begin(torch.xla.current_device())
        try:
            args, kwargs = pytree.tree_unflatten(self._leaves, spec)
            result = function(*args, **kwargs)
        except BaseException:
            self._graph.reset()
            raise
        self._graph.end()
        self._written = [i for i, leaf in _tensors_of(self._leaves) if leaf._version != versions[i]]
        for i, leaf in _tensors_of(self._leaves):
            if leaf.grad is not None:
                raise RuntimeError(
                    f"{name} cannot be replayed: it gives argument {i} a gradient, and a replay has a copy of the "
                    "argument; return torch.autograd.grad() of it, or keep it in a tensor of the device"
                )
        results, self._result_spec = pytree.tree_flatten(result)
        self._results = [r.detach() if isinstance(r, torch.Tensor) else r for r in results]

    def replay(self, leaves: list):
        for i in self._written:
            if sum(leaf is leaves[i] for leaf in leaves) > 1:
                raise RuntimeError(f"{self._name} is replayed: argument {i}, which it writes, is given to it twice")
        with torch.no_grad():
            for own, given in zip(self._leaves, leaves):
                if isinstance(own, torch.Tensor):
                    own.copy_(given)
            self._graph.replay()
            for i in self._written:
                leaves[i].copy_(self._leaves[i])
            # The next replay writes the same tensors again; these share their values until then.
            results = [torch.empty_like(r).copy_(r) if isinstance(r, torch.Tensor) else r for r in self._results]
        return pytree.tree_unflatten(results, self._result_spec)

    def take(self, args: tuple, kwargs: dict):
        """The leaves of a call's arguments. RuntimeError if they differ from the recording."""
        if self._is_flat and not kwargs and len(args) == len(self._leaves):
            self._check_leaves(args)
            return args
        leaves, spec = pytree.tree_flatten((args, kwargs))
        self._check_arguments(leaves, spec)
        return leaves

    def _check_arguments(self, leaves: list, spec: pytree.TreeSpec) -> None:
        if spec != self._spec:
            raise RuntimeError(f"{self._name} was recorded with arguments of the form {self._spec}, but got {spec}")
        self._check_leaves(leaves)

    def _check_leaves(self, leaves) -> None:
        for i, (own, given) in enumerate(zip(self._leaves, leaves)):
            if not _is_same_kind(own, given):
                raise RuntimeError(
                    f"{self._name} is replayed: argument {i} was {_describe(own)} when it was recorded, but now is "
                    f"{_describe(given)}; {_HOW}"
                )

    def find_difference(self, other: "_Recorded") -> str:
        """The operations that differ. Raises RuntimeError for other differences between a replay and a call."""
        self._check_arguments(other._leaves, other._spec)
        numbers, now = self._graph.numbers(), other._graph.numbers()
        for (was, line), (is_, _) in zip(numbers, now):
            if was != is_ and not (was != was and is_ != is_):
                raise RuntimeError(
                    f"{self._name} cannot be replayed: a number was {was} in one call and {is_} in the next, at "
                    f"{line}; {_HOW} (optimizers: capturable=True, a learning rate that is a tensor)"
                )
        results = [r for r in self._results if not isinstance(r, torch.Tensor)]
        others = [r for r in other._results if not isinstance(r, torch.Tensor)]
        if self._result_spec != other._result_spec or results != others:
            raise RuntimeError(f"{self._name} cannot be replayed: it returned {results} and then {others}; {_HOW}")
        for was, is_ in itertools.zip_longest(
            *(step._graph.text().splitlines() for step in (self, other)), fillvalue=""
        ):
            if was != is_:
                return (
                    f"{self._name} cannot be replayed: two calls have recorded different operations, first "
                    f"{was.strip() or 'nothing'}, then {is_.strip() or 'nothing'}; {_HOW}"
                )
        for (was, line), (is_, _) in zip(self._name_storages(), other._name_storages()):
            if was != is_:
                return (
                    f"{self._name} cannot be replayed: two calls have read different tensors at {line}, as where "
                    f"`state = f(state)` binds a new one: write it in place, `state.copy_(f(state))`; or {_HOW}"
                )
        return ""

    def _name_storages(self) -> list:
        """The step's inputs: positions of arguments, else storages; each with the user's line."""
        places = {leaf.untyped_storage()._cdata: f"argument {i}" for i, leaf in _tensors_of(self._leaves)}
        return [(places.get(storage, storage), line) for storage, line in self._graph.storages()]


def _tensors_of(leaves) -> list[tuple[int, torch.Tensor]]:
    """The tensors with their positions."""
    return [(i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]


def _stand_in(argument: torch.Tensor) -> torch.Tensor:
    """A tensor of the device with the argument's value, dtype, strides and requires_grad."""
    if argument.device.type != "xla":
        raise RuntimeError(f"a replayed step takes tensors of the device xla, but got one of {argument.device}")
    with torch.no_grad():
        own = torch.empty_like(argument).copy_(argument)
    return own.requires_grad_(argument.requires_grad)


def _is_same_kind(own, given) -> bool:
    if not isinstance(own, torch.Tensor) or not isinstance(given, torch.Tensor):
        return type(own) is type(given) and own == given
    return own.shape == given.shape and own.dtype is given.dtype and own.device == given.device


def _describe(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of dtype {value.dtype}, shape {tuple(value.shape)} on {value.device}"
    return repr(value)
