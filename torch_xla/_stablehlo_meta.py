"""The signature of an exported function as JSON, and checks of a file's signature against its program and its text."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from ._stablehlo_bundle import (
    InputLocation,
    signature_of_program,
    StableHLOFunctionMeta,
    VariableSignature,
    VariableType,
)

# The types of elements in the text; other types are not checked.
_ELEMENTS = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "bool": "i1",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}


def _to_json(value: Any) -> Any:
    return value.value if isinstance(value, VariableType) else dataclasses.asdict(value)


def write_meta(meta: StableHLOFunctionMeta) -> str:
    return json.dumps(meta, default=_to_json)


def _location(fields: dict) -> InputLocation:
    return InputLocation(**{**fields, "type_": VariableType(fields["type_"])})


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _type_of_tensor(fields: dict) -> VariableSignature:
    signature = VariableSignature(**fields)
    is_dtype = isinstance(signature.dtype, str) and isinstance(getattr(torch, signature.dtype, None), torch.dtype)
    if not is_dtype or not all(map(_is_size, signature.shape)) or signature.dynamic_dims != []:
        raise ValueError(f"{fields} is no type of a tensor")
    return signature


def read_meta(path: Path) -> StableHLOFunctionMeta:
    """Reads a signature. Raises ValueError if it is not the signature of a function with the file's name."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        for name in ("input_signature", "output_signature"):
            fields[name] = [_type_of_tensor(each) for each in fields[name]]
        for name in ("input_locations", "mutations"):
            fields[name] = [_location(each) for each in fields[name]]
        fields["unused_inputs"] = [(_location(a), VariableSignature(**b)) for a, b in fields["unused_inputs"]]
        fields["constant_outputs"] = [tuple(each) for each in fields["constant_outputs"]]
        meta = StableHLOFunctionMeta(**fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no signature of a function: {type(error).__name__}: {error}") from error
    if meta.name != path.stem:
        raise ValueError(f"{path} names its function {meta.name!r} when it should have the name of the file")
    return meta


def _check_same(path: Path, what: str, found: Any, wanted: Any) -> None:
    """Compares both as JSON, where an int is not a bool, and NaN equals itself."""
    found, wanted = (json.dumps(each, default=_to_json) for each in (found, wanted))
    if found != wanted:
        raise ValueError(f"{path} has {what} {found} when its program has {wanted}")


def _check_constants(path: Path, inputs: list[tuple[InputLocation, VariableSignature]]) -> None:
    for number, (place, _) in enumerate(inputs):
        if place != InputLocation.constant(number):
            raise ValueError(f"{path} has {place} when it should have the constant {number}")


def check_meta(path: Path, meta: StableHLOFunctionMeta, program: ExportedProgram) -> None:
    """Raises ValueError if the file's signature is not the program's."""
    wanted = signature_of_program(program)
    if len(meta.input_locations) != len(meta.input_signature):
        raise ValueError(f"{path} has {len(meta.input_locations)} places of {len(meta.input_signature)} inputs")
    inputs = list(zip(meta.input_locations, meta.input_signature))
    count = len(wanted.inputs)
    _check_same(path, "the inputs", inputs[:count], wanted.inputs)
    _check_constants(path, inputs[count:])
    for field in dataclasses.fields(wanted)[1:]:
        _check_same(path, field.name, getattr(meta, field.name), getattr(wanted, field.name))


def _check_types(path: Path, what: str, types: str, signatures: list[VariableSignature]) -> None:
    found = [
        ([int(size) for size in sizes.split("x")[:-1]], element)
        for sizes, element in re.findall(r"tensor<((?:\d+x)*)(.*?)>(?:,|$)", types)
    ]
    wanted = [(each.shape, _ELEMENTS.get(each.dtype, element[1])) for each, element in zip(signatures, found)]
    if len(found) != len(signatures) or found != wanted:
        raise ValueError(f"{path} has the {what} {types} when the signature has {signatures}")


def check_text(path: Path, text: str, meta: StableHLOFunctionMeta) -> None:
    """Raises ValueError if the text's function `main` has other types than the signature, or no end."""
    header = re.search(r"func\.func public @main\((.*)\) -> \((.*)\) \{\n", text)
    if not header or not text.endswith("}\n"):
        raise ValueError(f"{path} has no function main, or not all of it")
    for what, types in zip(("input", "output"), header.groups()):
        _check_types(path, f"{what}s", types, getattr(meta, f"{what}_signature"))
