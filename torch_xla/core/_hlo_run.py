"""Runs a program decoded from an HloModuleProto (_hlo_fields.py): each instruction by ATen's operations."""

from collections.abc import Callable, Sequence

import torch

from . import _bindings, _scatters, _windows
from ._convolution import convolve, Numbers
from ._hlo_fields import take_literal, torch_type, TUPLE
from ._op_elementwise import divide, leading_zeros

_UNARY = {
    "abs": torch.abs,
    "cbrt": lambda x: torch.sgn(x) * torch.abs(x) ** (1 / 3),
    "ceil": torch.ceil,
    "copy": lambda x: x,
    "cosine": torch.cos,
    "count-leading-zeros": leading_zeros,
    "erf": torch.erf,
    "exponential": torch.exp,
    "exponential-minus-one": torch.expm1,
    "floor": torch.floor,
    "imag": torch.imag,
    "is-finite": torch.isfinite,
    "log": torch.log,
    "log-plus-one": torch.log1p,
    "logistic": torch.sigmoid,
    "negate": torch.neg,
    "not": torch.bitwise_not,
    "opt-barrier": lambda x: x,
    "real": torch.real,
    "round-nearest-afz": lambda x: torch.sgn(x) * torch.floor(torch.abs(x) + 0.5),
    "round-nearest-even": torch.round,
    "rsqrt": torch.rsqrt,
    "sign": torch.sgn,
    "sine": torch.sin,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
}
_BINARY = {
    "add": torch.add,
    "and": torch.bitwise_and,
    "atan2": torch.atan2,
    "complex": torch.complex,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "multiply": torch.mul,
    "or": torch.bitwise_or,
    "power": torch.pow,
    "remainder": torch.fmod,
    "shift-left": torch.bitwise_left_shift,
    "shift-right-arithmetic": torch.bitwise_right_shift,
    "subtract": torch.sub,
    "xor": torch.bitwise_xor,
}
_COMPARE = {"EQ": torch.eq, "NE": torch.ne, "GE": torch.ge, "GT": torch.gt, "LE": torch.le, "LT": torch.lt}


def _constant(literal: dict, device: torch.device) -> torch.Tensor:
    """Numbers are recorded as such; longer ones are tensors from outside."""
    tensor = take_literal(literal)
    if tensor.dim():
        return tensor.to(device)
    return torch.full((), tensor.item(), dtype=tensor.dtype, device=device)


def _broadcast(i: dict, x: torch.Tensor) -> torch.Tensor:
    sizes = i["shape"]["dimensions"]
    between = [1] * len(sizes)
    for dim, size in zip(i["dimensions"], x.shape):
        between[dim] = size
    return x.permute(sorted(range(x.dim()), key=lambda d: i["dimensions"][d])).reshape(between).expand(sizes)


def _shift_right(_: dict, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """A logical shift: zeros come in at the top."""
    ones = torch.bitwise_left_shift(torch.full_like(x, -1), torch.iinfo(x.dtype).bits - by)
    return torch.where(by == 0, x, torch.bitwise_right_shift(x, by) & ~ones)


def _topk(i: dict, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, places = torch.sort(x, dim=-1, descending=i["largest"], stable=True)
    return values[..., : i["k"]], places[..., : i["k"]].to(torch.int32)


def _slice(i: dict, x: torch.Tensor) -> torch.Tensor:
    return x[tuple(slice(each["start"], each["limit"], each["stride"] or 1) for each in i["slice_dimensions"])]


def _pad(i: dict, x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    dims = i["padding_config"]["dimensions"]
    return _windows.padded(
        x, value, [(d["edge_padding_low"], d["edge_padding_high"], d["interior_padding"]) for d in dims]
    )


def _iota(i: dict, device: torch.device) -> torch.Tensor:
    sizes, dim = i["shape"]["dimensions"], i["dimensions"][0]
    along = torch.arange(sizes[dim], device=device).to(torch_type(i["shape"]))
    return along.reshape([-1 if d == dim else 1 for d in range(len(sizes))]).expand(sizes)


def _convolution(i: dict, x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    window = i["window"]["dimensions"] if i["window"] else []
    if any(d["window_reversal"] for d in window):
        spatial = i["convolution_dimension_numbers"]["kernel_spatial_dimensions"]
        kernel = kernel.flip([dim for dim, d in zip(spatial, window) if d["window_reversal"]])
    pads = [(d["padding_low"], d["padding_high"]) for d in window]
    dilations = [d["base_dilation"] or 1 for d in window], [d["window_dilation"] or 1 for d in window]
    strides, groups = [d["stride"] or 1 for d in window], (i["feature_group_count"] or 1, i["batch_group_count"] or 1)
    names = (name.removesuffix("s").replace("_dimension", "") for name in i["convolution_dimension_numbers"])
    numbers = Numbers(**dict(zip(names, i["convolution_dimension_numbers"].values())))
    return convolve(x, kernel, strides, pads, numbers, dilations, *groups)


def _dot(i: dict, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    numbers = i["dot_dimension_numbers"]
    summed = numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"]
    batch = numbers["lhs_batch_dimensions"], numbers["rhs_batch_dimensions"]
    return _bindings.dot_general(a, b, (summed, batch), None, torch_type(i["shape"]))


def _gather(i: dict, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    n = i["gather_dimension_numbers"]
    batching = n["operand_batching_dims"], n["start_indices_batching_dims"]
    where = n["offset_dims"], n["collapsed_slice_dims"], n["start_index_map"], n["index_vector_dim"]
    return _scatters.gather(x, indices, *where, i["gather_slice_sizes"], batching)


# By opcode: a function of the instruction and its operands.
_OTHERS: dict[str, Callable] = {
    "bitcast-convert": lambda i, x: x.view(torch_type(i["shape"])),
    "broadcast": _broadcast,
    "clamp": lambda _, low, x, high: torch.clamp(x, low, high),
    "compare": lambda i, a, b: _COMPARE[i["comparison_direction"]](a, b),
    "concatenate": lambda i, *xs: torch.cat(xs, i["dimensions"][0]),
    "convert": lambda i, x: x.to(torch_type(i["shape"])),
    "convolution": _convolution,
    "divide": lambda _, a, b: divide(a, b),
    "dot": _dot,
    "dynamic-slice": lambda i, x, *starts: x[_scatters.block(x, i["dynamic_slice_sizes"], starts)],
    "dynamic-update-slice": lambda _, x, update, *starts: x.index_put(_scatters.block(x, update.shape, starts), update),
    "gather": _gather,
    "get-tuple-element": lambda i, x: x[i["tuple_index"]],
    "pad": _pad,
    "reshape": lambda i, x: x.reshape(i["shape"]["dimensions"]),
    "reverse": lambda i, x: x.flip(i["dimensions"]),
    "select": lambda _, choice, on_true, on_false: torch.where(choice, on_true, on_false),
    "shift-right-logical": _shift_right,
    "slice": _slice,
    "topk": _topk,
    "transpose": lambda i, x: x.permute(i["dimensions"]),
    "tuple": lambda _, *xs: xs,
}


def _reduce(tensors: Sequence[torch.Tensor], inits: Sequence[torch.Tensor], dims: Sequence[int], combine: Callable):
    """Each with its init, combined along the dims by halves."""
    kept = [d for d in range(tensors[0].dim()) if d not in dims]
    sizes = [tensors[0].size(d) for d in kept]
    values = [tensor.permute([*kept, *dims]).reshape([*sizes, -1]) for tensor in tensors]
    while (size := values[0].size(-1)) > 1:
        half = size // 2
        combined = combine(*(v[..., :half] for v in values), *(v[..., half : 2 * half] for v in values))
        values = [torch.cat([c, v[..., 2 * half :]], -1) for c, v in zip(combined, values)]
    starts = [init.expand(sizes) for init in inits]
    return combine(*starts, *(v[..., 0] for v in values)) if size else starts


class ModuleRun:
    """A module's computations, as functions of tensors.

    Args:
        module: a decoded Module.
    """

    def __init__(self, module: dict):
        self._computations = {each["id"]: each for each in module["computations"]}
        self._entry = module["entry_computation_id"]

    def __call__(self, *arguments: torch.Tensor, device: torch.device):
        """The results: a tensor, or a tuple. Raises NotImplementedError for an instruction that is not known."""
        return self._run(self._entry, arguments, device)

    def _run(self, number: int, arguments: Sequence, device: torch.device):
        computation, values = self._computations[number], {}
        for instruction in computation["instructions"]:
            if instruction["opcode"] == "parameter":
                result = arguments[instruction["parameter_number"]]
            else:
                operands = [values[operand] for operand in instruction["operand_ids"]]
                result = self._result(instruction, operands, device)
            values[instruction["id"]] = result
        return values[computation["root_id"]]

    def _result(self, i: dict, operands: list, device: torch.device):
        opcode = i["opcode"]
        if opcode == "constant":
            return _constant(i["literal"], device)
        if opcode == "iota":
            return _iota(i, device)
        if i["called_computation_ids"]:
            calls = [self._function(number, device) for number in i["called_computation_ids"]]
            return self._with_calls(i, operands, calls)
        if opcode in _OTHERS:
            return _OTHERS[opcode](i, *operands)
        if opcode not in _UNARY and opcode not in _BINARY:
            raise NotImplementedError(f"the instruction {opcode!r} of HLO ({i['name']}) has no form here")
        return (_UNARY.get(opcode) or _BINARY[opcode])(*operands)

    def _function(self, number: int, device: torch.device) -> Callable:
        return lambda *arguments: self._run(number, arguments, device)

    def _with_calls(self, i: dict, operands: list, calls: list[Callable]):
        """Runs an instruction that calls other computations."""
        opcode, call = i["opcode"], calls[0]
        if opcode in ("call", "map", "fusion"):
            return call(*operands)
        if opcode == "while":
            return _while(*calls, operands[0])
        if opcode == "conditional":
            return _choose(operands[0], [branch(x) for branch, x in zip(calls, operands[1:], strict=True)])
        if opcode == "select-and-scatter":
            pads, windows, strides, _ = _window_of(i)
            return _windows.select_and_scatter(*operands, windows, strides, *calls, pads)
        if opcode == "scatter" and len(operands) == 3:
            n = i["scatter_dimension_numbers"]
            batching = n["input_batching_dims"], n["scatter_indices_batching_dims"]
            where = n["update_window_dims"], n["inserted_window_dims"], n["scatter_dims_to_operand_dims"]
            return _scatters.scatter(*operands, call, *where, n["index_vector_dim"], batching)
        is_tuple = i["shape"]["element_type"] == TUPLE
        if opcode == "sort":
            results = _scatters.sort(operands, call, i["dimensions"][0])
        elif opcode in ("reduce", "reduce-window"):
            half = len(operands) // 2
            combine = call if is_tuple else lambda *parts: [call(*parts)]
            if opcode == "reduce":
                results = _reduce(operands[:half], operands[half:], i["dimensions"], combine)
            else:
                pads, windows, strides, dilations = _window_of(i)
                args = operands[:half], operands[half:], combine, windows, strides, pads, dilations
                results = _windows.reduce_windows(*args)
        else:
            raise NotImplementedError(f"the instruction {opcode!r} of HLO ({i['name']}) has no form here")
        return tuple(results) if is_tuple else results[0]


def _window_of(i: dict) -> tuple:
    """Paddings, sizes, strides and dilations."""
    window = i["window"]["dimensions"]
    if any(d["base_dilation"] > 1 for d in window):
        raise NotImplementedError(f"windows with elements between ({i['name']}) have no form here")
    pads = [(d["padding_low"], d["padding_high"]) for d in window]
    return (
        pads,
        [d["size"] for d in window],
        [d["stride"] or 1 for d in window],
        [d["window_dilation"] or 1 for d in window],
    )


def _while(body: Callable, condition: Callable, state):
    """A loop over a tuple, or over one tensor."""
    from ..experimental import fori_loop

    if isinstance(state, tuple):
        return tuple(fori_loop.while_loop(lambda *s: condition(s), lambda *s: body(s), state))
    return fori_loop.while_loop(condition, lambda s: (body(s),), (state,))[0]


def _choose(choice: torch.Tensor, results: list):
    """Chooses a branch's result: by a Bool (true: the first), or by a number (out of range: the last)."""
    if isinstance(results[0], tuple):
        return tuple(_choose(choice, list(parts)) for parts in zip(*results))
    if choice.dtype == torch.bool:
        return torch.where(choice, *results)
    chosen = results[-1]
    for number, result in enumerate(results[:-1]):
        chosen = torch.where(choice == number, result, chosen)
    return chosen
