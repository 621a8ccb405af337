"""while_loop and fori_loop as one operation of the graph; the body is compiled once.

Importing this module is enough for torch._higher_order_ops.while_loop on tensors of the device.
"""

from collections.abc import Callable, Sequence

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.while_loop import while_loop_op

from .. import _XLAC
from . import _bodies


def _as_condition(value: torch.Tensor | bool, device: torch.device) -> torch.Tensor:
    """A Bool tensor without dims. Raises RuntimeError for several elements, as torch's while_loop does."""
    if not isinstance(value, torch.Tensor):
        return torch.full((), bool(value), dtype=torch.bool, device=device)
    if value.numel() != 1:
        raise RuntimeError(
            f"cond_fn must return a boolean scalar tensor or a python boolean, but got shape {tuple(value.shape)}"
        )
    return value.reshape(()).to(torch.bool)


def _as_list(results) -> list[torch.Tensor]:
    return list(results) if isinstance(results, list | tuple) else [results]


def _record(recorder: _bodies.Recorder, cond_fn: Callable, body_fn: Callable, carried: list, additional: tuple):
    """Records the body: its last carried value says whether another turn follows."""
    arguments = recorder.arguments(carried)
    following = _as_list(body_fn(*arguments[:-1], *additional))
    if len(following) != len(carried) - 1:
        raise RuntimeError(
            f"body_fn must return as many values as are carried, {len(carried) - 1}, but gave {len(following)}"
        )
    goes_on = _as_condition(cond_fn(*following, *additional), carried[-1].device)
    recorder.check_not_written()
    return recorder.take(arguments, [*following, goes_on])


@while_loop_op.py_impl(DispatchKey.PrivateUse1)
def while_loop(
    cond_fn: Callable, body_fn: Callable, carried_inputs: Sequence, additional_inputs: Sequence | None = None
) -> tuple[torch.Tensor, ...]:
    """Runs `body_fn` on the carried values while `cond_fn` of them is true; Python does not read them.

    Args:
        cond_fn: gets the carried and the additional inputs; gives a Bool of one element, as tensor or bool.
        body_fn: gets the same; gives the next carried values, of the same shapes and dtypes.
        carried_inputs: tensors of one xla device; numbers become tensors.
        additional_inputs: tensors that all turns share.

    Returns the last carried values. Raises RuntimeError if a value changes its shape or dtype between turns, and if a
    function needs a tensor's value or writes in-place into a tensor from outside. Both functions are called when the
    loop is recorded, and not in its turns.
    """
    additional = tuple(additional_inputs or ())
    tensors = [value for value in carried_inputs if isinstance(value, torch.Tensor)]
    number = _bodies.device_of(tensors, "the carried inputs of a loop")
    device = torch.device("xla", number)
    carried = [
        value if isinstance(value, torch.Tensor) else torch.tensor(value, device=device) for value in carried_inputs
    ]
    goes_on = _as_condition(cond_fn(*carried, *additional), device)
    with _bodies.recording(number) as recorder, torch.no_grad():
        body = _record(recorder, cond_fn, body_fn, [*carried, goes_on], additional)
    return tuple(_XLAC._record_loop(number, body, [*carried, goes_on], [], None)[:-1])


def fori_loop(lower, upper, body_fun: Callable, *input_value: torch.Tensor) -> list[torch.Tensor]:
    """Calls `body_fun` upper - lower times, each time on its previous result, as one operation of the graph.

    Args:
        lower, upper: whole numbers, or integer tensors without dims. The number of turns is not part of the program.
        body_fun: gets tensors like `input_value` and gives as many.
        input_value: tensors of one xla device.

    Returns the remaining number of turns (0 unless `upper` is below `lower`) and the last values. Raises ValueError if
    upper < lower and both are numbers.
    """
    device = torch.device("xla", _bodies.device_of(input_value, "the values of a loop"))
    if not isinstance(lower, torch.Tensor) and not isinstance(upper, torch.Tensor) and upper < lower:
        raise ValueError(f"upper is {upper} and has to be at least lower, which is {lower}")
    left = torch.as_tensor(upper - lower).to(device)

    def body(left, *values):
        return [left - 1, *_as_list(body_fun(*values))]

    return list(while_loop(lambda left, *values: left > 0, body, (left, *input_value)))
