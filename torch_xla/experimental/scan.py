"""scan: a function over the slices of tensors, with state, as one operation of the graph, its gradient as another.

The function is recorded once. Its turns save what the gradient needs, each value joined along a new dim 0.
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten, TreeSpec

from .. import _XLAC
from . import _bodies

# The recorded bodies of pure functions: by function, then by everything else that they depend on.
_SCAN_COMPUTATION_CACHE: WeakKeyDictionary = WeakKeyDictionary()


def tree_flatten_none(pytree) -> tuple[list, Callable[[list], Any]]:
    """The leaves of a pytree that are not None, and the function that puts others in their places."""
    leaves, spec = tree_flatten(pytree)
    given = [leaf is not None for leaf in leaves]

    def unflatten(flat):
        values = iter(flat)
        return tree_unflatten([next(values) if is_given else None for is_given in given], spec)

    return [leaf for leaf in leaves if leaf is not None], unflatten


@dataclasses.dataclass
class _Backward:
    """The body of the gradient, which runs from the last turn to the first.

    It carries the gradients of `carried`, then the sums of those of `outside`; it gets slices of the gradients of `ys`,
    then of the saved values, then of `used_xs`; it returns gradients of slices of `xs`. All are positions in the lists
    of forward: carried values, results of turns, inputs that are sliced.
    """

    body: Any
    carried: list[int]
    ys: list[int]
    used_xs: list[int]
    xs: list[int]
    outside: list[torch.Tensor]  # leaves from outside that the function uses


@dataclasses.dataclass
class _Step:
    """A recorded function. After its own results the turns give `num_saved` values for the gradient."""

    forward: Any
    backward: _Backward | None
    num_saved: int
    unflatten_carry: Callable[[list], Any]
    unflatten_ys: Callable[[list], Any]

    def bodies_share(self) -> bool:
        """Whether a body takes tensors from outside."""
        return bool(self.forward.shared or (self.backward and self.backward.body.shared))

    def with_new_draws(self, device: int) -> "_Step":
        """A copy with new random numbers, as if recorded again."""
        if not self.backward:
            return dataclasses.replace(self, forward=_XLAC._with_new_draws(device, [self.forward])[0])
        forward, body = _XLAC._with_new_draws(device, [self.forward, self.backward.body])
        return dataclasses.replace(self, forward=forward, backward=dataclasses.replace(self.backward, body=body))


def _is_differentiable(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _find_outside(results: list[torch.Tensor], own: list[torch.Tensor], start: int) -> list[torch.Tensor]:
    """The leaves that get gradients from the results, except `own`.

    Raises RuntimeError for a tensor from outside that is not a leaf: each turn would compute its gradient.
    """
    found: dict[int, torch.Tensor] = {}
    known = {id(t) for t in own}
    seen: set = set()
    pending = [t.grad_fn for t in results if t.grad_fn is not None]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            if id(variable) not in known:
                found[id(variable)] = variable
            continue
        if node._sequence_nr() < start:
            raise RuntimeError(
                f"the function of scan uses a tensor from outside that has a gradient and is no leaf ({node.name()}): "
                "give it by init or xs, or detach it"
            )
        pending.extend(following for following, _ in node.next_functions)
    return list(found.values())


class _Inputs:
    """The inputs of a scan: the leaves and their places. Raises ValueError for invalid ones."""

    def __init__(self, init, xs):
        self.init, self.unflatten_init = tree_flatten_none(init)
        self.xs, self.unflatten_xs = tree_flatten_none(xs)
        self.init_spec: TreeSpec = tree_flatten(init)[1]
        self.xs_spec: TreeSpec = tree_flatten(xs)[1]
        if not self.xs:
            raise ValueError("`xs` is an empty PyTree.")
        if any(not isinstance(x, torch.Tensor) or x.dim() == 0 for x in self.xs):
            raise ValueError("the leaves of `xs` must be tensors with a leading dimension")
        for x in self.xs:
            if x.size(0) != self.xs[0].size(0):
                raise ValueError(
                    "The leaves of the `xs` input PyTree must have the same leading dimension size. "
                    f"Got {self.xs[0].size(0)} and {x.size(0)}"
                )
        self.device = _bodies.device_of([*self.init, *self.xs], "init and xs")

    def key(self) -> tuple:
        """The key of a recorded function: everything that it depends on."""
        leaves = [*((t.shape, t) for t in self.init), *((t.shape[1:], t) for t in self.xs)]
        shapes = tuple((shape, t.dtype, t.requires_grad) for shape, t in leaves)
        autocast = torch.is_autocast_enabled("xla") and torch.get_autocast_dtype("xla")
        return shapes, self.init_spec, self.xs_spec, torch.is_grad_enabled(), autocast


class _Recording:
    """Records a function and its gradient."""

    def __init__(self, recorder: _bodies.Recorder, inputs: _Inputs):
        self.recorder = recorder
        self.init, self.xs = inputs.init, inputs.xs
        self.carry = recorder.arguments(self.init)
        self.x = recorder.arguments(self.xs, sliced=True)

    def _call(self, fn: Callable, inputs: _Inputs) -> None:
        """Sets the results. Gradients of the carry go from turn to turn, whether those of `init` are wanted or not."""
        if torch.is_grad_enabled():
            for t in filter(_is_differentiable, self.carry):
                t.requires_grad_()
            for t, x in zip(self.x, self.xs, strict=True):
                t.requires_grad_(x.requires_grad)
        self.start = torch._C._autograd._get_sequence_nr()
        given = [t.clone() for t in self.carry]  # it may write into the carry, which it returns
        carry, ys = fn(inputs.unflatten_init(given), inputs.unflatten_xs(self.x))
        self.recorder.check_not_written()
        self.new_carry, self.unflatten_carry = tree_flatten_none(carry)
        self.ys, self.unflatten_ys = tree_flatten_none(ys)
        if tree_flatten(carry)[1] != inputs.init_spec or len(self.new_carry) != len(self.carry):
            raise ValueError("the function of scan must return a carry of the structure of init")
        self.outside = _find_outside([*self.new_carry, *self.ys], [*self.carry, *self.x], self.start)

    def _wants_gradient(self) -> bool:
        return bool(self.outside) or any(t.requires_grad for t in [*self.init, *self.xs])

    def record(self, fn: Callable, inputs: _Inputs, saves_all: bool) -> _Step:
        self._call(fn, inputs)
        results = [*self.new_carry, *self.ys]
        backward, saved = None, []
        if torch.is_grad_enabled() and self._wants_gradient():
            backward, saved = self._take_backward(saves_all)
        forward = self.recorder.take([*self.carry, *self.x], [*results, *saved])
        return _Step(forward, backward, len(saved), self.unflatten_carry, self.unflatten_ys)

    def _take_backward(self, saves_all: bool) -> tuple[_Backward, list[torch.Tensor]]:
        carried = [i for i, t in enumerate(self.carry) if t.requires_grad]
        ys = [i for i, t in enumerate(self.ys) if t.requires_grad]
        xs = [i for i, t in enumerate(self.x) if t.requires_grad]
        self.recorder.mark_backward()
        carry_gradients = self.recorder.arguments([self.carry[i] for i in carried])
        sums = self.recorder.arguments(self.outside)
        y_gradients = self.recorder.arguments([self.ys[i] for i in ys])
        following = [(self.new_carry[i], g) for i, g in zip(carried, carry_gradients, strict=True)]
        outputs = [
            (t, g)
            for t, g in [*following, *((self.ys[i], g) for i, g in zip(ys, y_gradients, strict=True))]
            if t.requires_grad
        ]
        inputs = [*(self.carry[i] for i in carried), *(self.x[i] for i in xs), *self.outside]
        gradients = torch.autograd.grad(
            [t for t, _ in outputs], inputs, [g for _, g in outputs], retain_graph=True, allow_unused=True
        )
        gradients = [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, gradients, strict=True)]
        first_outside = len(carried) + len(xs)
        results = [
            *gradients[: len(carried)],
            *(total + g for total, g in zip(sums, gradients[first_outside:], strict=True)),
            *gradients[len(carried) : first_outside],
        ]
        given = [*carry_gradients, *sums, *y_gradients]
        # Without the forward's values the turns recompute them from their arguments.
        needed = self.recorder.residuals(results, given) if saves_all else [*self.carry, *self.x]
        used_xs = [i for i, t in enumerate(self.x) if any(t is other for other in needed)]
        saved = [t for t in needed if not any(t is self.x[i] for i in used_xs)]
        body = self.recorder.take([*given, *saved, *(self.x[i] for i in used_xs)], results)
        return _Backward(body, carried, ys, used_xs, xs, self.outside), saved


def _record(fn: Callable, inputs: _Inputs, saves_all: bool) -> _Step:
    with _bodies.recording(inputs.device) as recorder:
        return _Recording(recorder, inputs).record(fn, inputs, saves_all)


def _find_or_record(fn: Callable, inputs: _Inputs, saves_all: bool) -> _Step:
    """As _record(), once for each kind of inputs, unless the function takes tensors from outside."""
    kept = _SCAN_COMPUTATION_CACHE.setdefault(fn, {})
    key = (saves_all, *inputs.key())
    step = kept.get(key)
    if step is None:
        step = _record(fn, inputs, saves_all)
        if not step.bodies_share():
            kept[key] = step
        return step
    return step.with_new_draws(inputs.device)


class _Scan(torch.autograd.Function):
    """The two loops as an autograd function. Inputs: init, xs, then the leaves from outside."""

    @staticmethod
    def forward(ctx, step: _Step, num_carried: int, num_xs: int, *inputs: torch.Tensor):
        init, xs = list(inputs[:num_carried]), list(inputs[num_carried : num_carried + num_xs])
        results = _XLAC._record_loop(xs[0].device.index, step.forward, init, xs, xs[0].size(0))
        own, saved = results[: len(results) - step.num_saved], results[len(results) - step.num_saved :]
        backward = step.backward
        ctx.step, ctx.num_carried, ctx.num_inputs, ctx.length = step, num_carried, len(inputs), xs[0].size(0)
        ctx.save_for_backward(*saved, *(xs[i] for i in backward.used_xs), *backward.outside)
        has_gradient = {*backward.carried, *(num_carried + i for i in backward.ys)}
        ctx.mark_non_differentiable(*(t for i, t in enumerate(own) if i not in has_gradient))
        return tuple(own)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients: torch.Tensor):
        backward = ctx.step.backward
        saved = ctx.saved_tensors
        num_sliced = ctx.step.num_saved + len(backward.used_xs)
        carried = [gradients[i] for i in backward.carried]
        sums = [torch.zeros_like(t) for t in saved[num_sliced:]]
        slices = [*(gradients[ctx.num_carried + i] for i in backward.ys), *saved[:num_sliced]]
        device = next(t for t in gradients if t is not None).device.index
        results = _XLAC._record_loop(device, backward.body, [*carried, *sums], slices, ctx.length, reverse=True)
        places = [
            *backward.carried,
            *range(ctx.num_inputs - len(sums), ctx.num_inputs),
            *(ctx.num_carried + i for i in backward.xs),
        ]
        by_input: list[torch.Tensor | None] = [None] * ctx.num_inputs
        for place, gradient in zip(places, results, strict=True):
            by_input[place] = gradient
        return None, None, None, *by_input


def _saves_all(partition_fn: Callable | None) -> bool:
    return partition_fn is None or getattr(partition_fn, "__name__", "") == "default_partition"


def value_and_grad_partitioned(
    fn: Callable, init, xs, partition_fn: Callable | None = None, is_fn_pure: bool = True
) -> tuple[Callable, Callable, Callable]:
    """The turns of scan() as functions of tensors.

    Args:
        fn, init, xs, partition_fn, is_fn_pure: as of scan(); gradients of all floating inputs are wanted.

    Returns `forward(carry, x)`, with the result `(new_carry, (y, saved))`; `alias_input(saved, x)`, with everything
    that the gradient needs; and `backward(grad_new_carry, (grad_y, needed))`, with the result `(grad_carry, grad_x)`.
    """
    inputs = _Inputs(init, xs)
    inputs.init, inputs.xs = (
        [t.detach().requires_grad_(_is_differentiable(t)) for t in leaves] for leaves in (inputs.init, inputs.xs)
    )
    with torch.enable_grad():
        step = (_find_or_record if is_fn_pure else _record)(fn, inputs, _saves_all(partition_fn))
    num_carried, last = len(inputs.init), -step.num_saved or None

    def run(body, carried: list, sliced: list, num: int) -> tuple[list, list]:
        slices = [t.detach().unsqueeze(0) for t in sliced]
        results = _XLAC._record_loop(inputs.device, body, [t.detach() for t in carried], slices, 1)
        return results[:num], [t.squeeze(0) for t in results[num:]]

    def forward(carry, x):
        carried, results = run(step.forward, tree_flatten_none(carry)[0], tree_flatten_none(x)[0], num_carried)
        saved = tuple(results[last:]) if last else ()
        return step.unflatten_carry(carried), (step.unflatten_ys(results[:last]), saved)

    def alias_input(saved, x):
        leaves = tree_flatten_none(x)[0]
        return (*saved, *(leaves[i] for i in step.backward.used_xs))

    def backward(grad_carry, grad_y_and_needed):
        carried, ys = tree_flatten_none(grad_carry)[0], tree_flatten_none(grad_y_and_needed[0])[0]
        given = [*(ys[i] for i in step.backward.ys), *grad_y_and_needed[1]]
        sums = [torch.zeros_like(t) for t in step.backward.outside]
        chosen = [carried[i] for i in step.backward.carried]
        grads, grads_x = run(step.backward.body, [*chosen, *sums], given, len(chosen) + len(sums))
        return inputs.unflatten_init(grads[: len(chosen)]), inputs.unflatten_xs(grads_x)

    return forward, alias_input, backward


def _take_turns(fn: Callable, inputs: _Inputs) -> tuple[Any, Any]:
    """The loop in Python, over processes: PyTorch computes there, and its collectives are no part of a body."""
    carry, turns = inputs.unflatten_init(inputs.init), []
    for i in range(inputs.xs[0].size(0)):
        carry, y = fn(carry, inputs.unflatten_xs([x[i] for x in inputs.xs]))
        leaves, unflatten_ys = tree_flatten_none(y)
        turns.append(leaves)
    return carry, unflatten_ys([torch.stack(parts) for parts in zip(*turns, strict=True)])


def scan(fn: Callable, init, xs, partition_fn: Callable | None = None, is_fn_pure: bool = False) -> tuple[Any, Any]:
    """Calls `fn(carry, x)` for the slices x of `xs` along dim 0, each with the carry of the call before.

    Args:
        fn: returns the next carry and a pytree of results. It is called once, for recording: it must not need a
            tensor's value nor write in-place into its arguments or tensors from outside. Each turn draws new random
            numbers. For tensors that are spread over processes it is called once a turn.
        init: the first carry, a pytree of tensors. Shapes and dtypes stay the same in all turns.
        xs: a pytree of tensors of equal first dims, the number of turns.
        partition_fn: with functorch.compile.default_partition (or None) the turns save the values that the gradient
            needs; with any other function they save only the carry, and the gradient's turns recompute the rest.
        is_fn_pure: the recorded body serves all inputs of the same shapes, without a call of `fn`, if `fn` uses no
            tensors except its arguments.

    Returns the last carry and the results, joined along a new dim 0. Both have gradients, which go to `init`, `xs` and
    leaves that `fn` uses from outside. Raises ValueError for inputs that do not fit each other and for a carry that
    changes its structure, RuntimeError for a carry that changes a shape or dtype and for the things that `fn` must not
    do.

    Semantics: https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html
    """
    if not callable(fn):
        raise ValueError(f"`fn` {fn} must be callable.")
    inputs = _Inputs(init, xs)
    if any(hasattr(t, "_own_part") for t in [*inputs.init, *inputs.xs]):
        return _take_turns(fn, inputs)
    step = (_find_or_record if is_fn_pure else _record)(fn, inputs, _saves_all(partition_fn))
    if step.backward:
        results = _Scan.apply(step, len(inputs.init), len(inputs.xs), *inputs.init, *inputs.xs, *step.backward.outside)
    else:
        results = _XLAC._record_loop(inputs.device, step.forward, inputs.init, inputs.xs, inputs.xs[0].size(0))
    carry, ys = results[: len(inputs.init)], results[len(inputs.init) :]
    return step.unflatten_carry(carry), step.unflatten_ys(ys)
