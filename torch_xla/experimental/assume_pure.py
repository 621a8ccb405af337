"""assume_pure: runs a pure function's Python once for each form of its arguments."""

import functools
from collections.abc import Callable

import torch
from torch.utils import _pytree as pytree

from .. import _dynamo, _gone, _XLAC
from .._device_module import random

# Forms of arguments kept for a function.
_MOST_FORMS = 64


def assume_pure(fn: Callable, *, add_rng_seed_argument: bool = False) -> Callable:
    """A function with the results of `fn` that calls `fn` only at the first call with each form of its arguments.

    Later calls append the recorded operations, as torch.compile does (forward and, if the results are differentiated,
    backward), without guards and without Dynamo's limits: `fn` may be any pure Python. Arguments that it writes in
    place are written.

    Args:
        fn: its results depend only on its arguments: tensors and hashable values in any pytree; other tensors get no
            gradient. Random numbers are new in each call.
        add_rng_seed_argument: the function takes one more argument `rng_seed`, an int, as the seed of its draws; the
            device's generator stays unchanged.

    The form is the structure of the arguments, dtype, shape, strides and requires_grad of the tensors, the other
    values, grad mode and autocast's dtype. The last 64 forms are kept. Calls without a tensor of the device, and those
    within another recording or a transform of torch.func, call `fn`. Raises TypeError for an argument that is neither a
    tensor nor hashable, and AssertionError for a call without its `rng_seed`.
    """
    pure = _PureFunction(fn)

    @functools.wraps(fn)
    def call(*args, **kwargs):
        if not add_rng_seed_argument:
            return pure(args, kwargs)
        assert isinstance(kwargs.get("rng_seed"), int), (
            "assume_pure(add_rng_seed_argument=True): rng_seed must be an int"
        )
        seed = kwargs.pop("rng_seed")
        index = torch.xla.current_device()
        generator = torch.Generator(f"xla:{index}").manual_seed(seed & random.SEED_MASK)
        before = _XLAC._set_own_generator(index, generator)
        try:
            return pure(args, kwargs)
        finally:
            _XLAC._set_own_generator(index, before)

    return call


class PureModule(torch.nn.Module):
    """A module with a forward by assume_pure(), as a function of its parameters and buffers; it may write these.

    Args:
        module: its forward depends only on these and its arguments.
    """

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self._module = module
        self._pure_forward = assume_pure(functools.partial(_call_module, module))

    def forward(self, *args, **kwargs):
        parameters, buffers = dict(self._module.named_parameters()), dict(self._module.named_buffers())
        modes = tuple(module.training for module in self._module.modules())
        return self._pure_forward(parameters, buffers, modes, args, kwargs)


def _call_module(module: torch.nn.Module, parameters: dict, buffers: dict, _modes: tuple, args: tuple, kwargs: dict):
    return torch.func.functional_call(module, (parameters, buffers), args, kwargs)


class _PureFunction:
    """The recorded forms of a function."""

    def __init__(self, fn: Callable):
        self._fn = fn
        self._forms = {}  # by form, without the structure: pairs of the structure and the recording

    def __call__(self, args: tuple, kwargs: dict):
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not (any(t.device.type == "xla" for t in tensors) and all(map(_dynamo.is_plain, tensors))):
            return self._fn(*args, **kwargs)
        form = (torch.is_grad_enabled(), _dynamo.autocast_type(), *map(_describe, leaves))
        try:
            known = self._forms.setdefault(form, [])
        except TypeError as error:
            raise TypeError(f"assume_pure takes tensors and hashable values: {error}") from None
        for structure, recorded in known:
            if structure == spec:
                return recorded(*tensors)
        recorded = self._record(leaves, spec)
        known.append((spec, recorded))
        if len(self._forms) > _MOST_FORMS:
            self._forms.pop(next(iter(self._forms)), None)  # another thread may have done it
        return recorded(*tensors)

    def _record(self, leaves: list, spec: pytree.TreeSpec) -> Callable:
        """A function of the tensors."""
        others = _dynamo.without_tensors(leaves)

        def call(*tensors):
            args, kwargs = pytree.tree_unflatten(_dynamo.with_tensors(others, tensors), spec)
            return self._fn(*args, **kwargs)

        return _dynamo.record_function(call)


def _describe(leaf) -> tuple:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.shape, leaf.stride(), leaf.requires_grad, leaf.device
    return type(leaf), leaf


def __getattr__(name: str):
    _gone.refuse(__name__, name)
