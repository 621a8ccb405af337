"""Reads the HLO text that the package writes: as a Module (_hlo_fields.py), whose bytes are an HloModuleProto."""

import re
from collections.abc import Callable, Iterator

from ._hlo_fields import NUMBER_OF, put_literal, TABLE, TUPLE
from ._protos import encode

_PRECISIONS = {"default": 0, "high": 1, "highest": 2}


def _depths(text: str, at: int = 0) -> Iterator[tuple[int, str, int]]:
    """Each position outside of quotes from `at` on, with its character and the number of brackets open after it."""
    depth = 0
    for part in re.finditer(r'"(?:[^"\\]|\\.)*"|.', text[at:]):
        letter = part[0]
        if len(letter) == 1:
            depth += (letter in "({[") - (letter in ")}]")
            yield at + part.start(), letter, depth


def _parts(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, first = [], 0
    for at, letter, depth in _depths(text):
        if letter == "," and not depth:
            parts.append(text[first:at].strip())
            first = at + 1
    return [*parts, text[first:].strip()] if text.strip() else []


def _numbers(text: str) -> list[int]:
    """The numbers of "{1,2}" or "1_2"."""
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _closing(text: str, at: int) -> int:
    """The position of the bracket that closes the one at `at`."""
    return next(end for end, _, depth in _depths(text, at) if not depth)


def _shape(text: str) -> dict:
    """The shape of "f32[2,3]{1,0}" or "(f32[], s64[])"."""
    if text.startswith("("):
        return {"element_type": TUPLE, "tuple_shapes": [_shape(part) for part in _parts(text[1:-1])]}
    name, sizes = re.match(r"(\w+)\[([\d,]*)\]", text).groups()
    sizes = _numbers(sizes)
    return {
        "element_type": NUMBER_OF[name],
        "dimensions": sizes,
        "is_dynamic_dimension": [0] * len(sizes),
        "layout": {"minor_to_major": list(range(len(sizes)))[::-1]},
    }


def _literal(shape: dict, text: str) -> dict:
    words = re.findall(r"\([^)]*\)|[^{},\s]+", text)
    return put_literal(shape, [_number(word) for word in words])


def _number(word: str) -> float | int | bool | complex:
    if word in ("true", "false"):
        return word == "true"
    if word.startswith("("):
        return complex(*map(float, word[1:-1].split(",")))
    return int(word) if re.fullmatch(r"-?\d+", word) else float(word)


# ---- Attributes ----


def _window(text: str) -> dict:
    given = {name: value.split("x") for name, value in (each.split("=") for each in text[1:-1].split())}
    dims = []
    for at, size in enumerate(given["size"]):
        low, high = given["pad"][at].split("_")
        dims.append(
            {
                "size": int(size),
                "stride": int(given["stride"][at]),
                "padding_low": int(low),
                "padding_high": int(high),
                "window_dilation": int(given["rhs_dilate"][at]),
                "base_dilation": int(given["lhs_dilate"][at]),
            }
        )
    return {"window": {"dimensions": dims}}


def _labels(text: str) -> dict:
    """The labels of "bf01_oi01->bf01"."""
    kinds = {"input": ("b", "f"), "kernel": ("i", "o"), "output": ("b", "f")}
    words = {"b": "batch", "f": "feature", "i": "input_feature", "o": "output_feature"}
    numbers: dict = {}
    for (kind, letters), word in zip(kinds.items(), re.split("_|->", text), strict=True):
        for letter in letters:
            numbers[f"{kind}_{words[letter]}_dimension"] = word.index(letter)
        space = sorted(each for each in word if each.isdigit())
        numbers[f"{kind}_spatial_dimensions"] = [word.index(each) for each in space]
    return {"convolution_dimension_numbers": numbers}


def _slices(text: str) -> dict:
    dims = [_numbers(part) for part in _parts(text[1:-1])]
    return {"slice_dimensions": [dict(zip(("start", "limit", "stride"), each)) for each in dims]}


def _padding(text: str) -> dict:
    names = "edge_padding_low", "edge_padding_high", "interior_padding"
    return {"padding_config": {"dimensions": [dict(zip(names, _numbers(each))) for each in text.split("x")]}}


def _metadata(text: str) -> dict:
    found = re.findall(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\d+))', text)
    unescaped = {name: re.sub(r"\\(.)", r"\1", words) if words else int(number) for name, words, number in found}
    return {"metadata": unescaped}


def _field(name: str, read: Callable) -> Callable[[str], dict]:
    return lambda text: {name: read(text)}


_ATTRIBUTES: dict[str, Callable[[str], dict]] = {
    "batch_group_count": _field("batch_group_count", int),
    "custom_call_target": _field("custom_call_target", lambda text: text.strip('"')),
    "dim_labels": _labels,
    "dimensions": _field("dimensions", _numbers),
    "direction": _field("comparison_direction", str),
    "dynamic_slice_sizes": _field("dynamic_slice_sizes", _numbers),
    "feature_group_count": _field("feature_group_count", int),
    "index": _field("tuple_index", int),
    "iota_dimension": _field("dimensions", _numbers),
    "is_stable": _field("is_stable", lambda text: text == "true"),
    "metadata": _metadata,
    "operand_precision": lambda text: {
        "precision_config": {"operand_precision": [_PRECISIONS[each] for each in _parts(text[1:-1])]}
    },
    "padding": _padding,
    "slice": _slices,
    "slice_sizes": _field("gather_slice_sizes", _numbers),
    "window": _window,
}
_GROUPS = {"dot": "Dot", "gather": "Gather", "scatter": "Scatter"}  # opcodes with a message of numbers of dims


def _in_group(opcode: str, name: str, text: str) -> dict | None:
    """A field of the opcode's message; None for another one."""
    long = name.replace("_dims", "_dimensions") if opcode == "dot" else name
    kind = TABLE[_GROUPS[opcode]].get(long) if opcode in _GROUPS else None
    return kind and {long: _numbers(text) if kind[1] == "ints" else int(text)}


class _Reader:
    """One module."""

    def __init__(self):
        self._ids: dict[str, int] = {}  # of computations and instructions, by their names
        self._shapes: dict[str, dict] = {}

    def _id(self, name: str) -> int:
        return self._ids.setdefault(name, len(self._ids) + 1)

    def instruction(self, line: str) -> dict:
        name, text = line.split(" = ", 1)
        end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
        opens = text.index("(", end)
        closes = _closing(text, opens)
        opcode, arguments = text[end:opens].strip(), text[opens + 1 : closes]
        fields = {"name": name.lstrip("%"), "opcode": opcode, "shape": _shape(text[:end]), "id": self._id(name)}
        if opcode == "parameter":
            fields["parameter_number"] = int(arguments)
        elif opcode == "constant":
            fields["literal"] = _literal(fields["shape"], arguments)
        else:
            fields["operand_ids"] = [self._id(each.rsplit(" ", 1)[1]) for each in _parts(arguments)]
        group = {}
        for attribute in _parts(text[closes + 1 :].lstrip(",")):
            key, value = attribute.split("=", 1)
            if key in ("to_apply", "body", "condition"):
                fields.setdefault("called_computation_ids", []).append(self._id(value))
            elif (number := _in_group(opcode, key, value)) is not None:
                group |= number
            else:
                fields |= _ATTRIBUTES[key](value)
        if opcode == "while":  # the body is first
            fields["called_computation_ids"].reverse()
        return fields | ({f"{opcode}_dimension_numbers": group} if group else {})

    def computation(self, text: str) -> dict:
        head, *lines = text.strip().removesuffix("}").strip().split("\n")
        name = head.removeprefix("ENTRY ").split(" ")[0]
        instructions, root = [], 0
        for line in lines:
            line = line.strip()
            instructions.append(self.instruction(line.removeprefix("ROOT ")))
            root = instructions[-1]["id"] if line.startswith("ROOT ") else root
        parameters = sorted(
            (i for i in instructions if i["opcode"] == "parameter"), key=lambda i: i["parameter_number"]
        )
        result = next(i["shape"] for i in instructions if i["id"] == root)
        program = {
            "parameters": [i["shape"] for i in parameters],
            "result": result,
            "parameter_names": [i["name"] for i in parameters],
        }
        number = self._id(name)
        shape = {"program_shape": program, "id": number, "root_id": root}
        return {"name": name.lstrip("%"), "instructions": instructions, **shape}


def proto_of_text(text: str) -> bytes:
    """The HloModuleProto of a text written by this package."""
    head, *bodies = [each for each in text.split("\n\n") if each.strip()]
    reader = _Reader()
    computations = [reader.computation(body) for body in bodies]
    entry = computations[-1]
    module = {
        "name": head.split()[1],
        "entry_computation_name": entry["name"],
        "computations": computations,
        "host_program_shape": entry["program_shape"],
        "id": 1,
        "entry_computation_id": entry["id"],
    }
    return encode(TABLE, "Module", module)
