"""What an export to StableHLO consists of, and its files: functions/, data/ with the weights, constants/."""

import copy
import dataclasses
import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram


class VariableType(enum.Enum):
    """Where the value of an input or output belongs."""

    INPUT_ARG = "input_arg"
    PARAMETER = "parameter"
    CONSTANT = "constant"


@dataclasses.dataclass
class VariableSignature:
    """The type of an input or output; `dtype` as torch writes it, without `torch.`."""

    shape: list[int]
    dtype: str
    dynamic_dims: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class InputLocation:
    """A value by its place: a position among the user's inputs or the constants, or a name of the state."""

    type_: VariableType
    position: int = -1
    name: str = ""

    @classmethod
    def parameter(cls, name: str) -> "InputLocation":
        return cls(VariableType.PARAMETER, name=name)

    @classmethod
    def input_arg(cls, position: int) -> "InputLocation":
        return cls(VariableType.INPUT_ARG, position=position)

    @classmethod
    def constant(cls, position: int) -> "InputLocation":
        return cls(VariableType.CONSTANT, position=position)


@dataclasses.dataclass
class StableHLOFunctionMeta:
    """The signature of one function of the text, in the order of its inputs and outputs."""

    name: str
    stablehlo_version: str  # as the original writes it: the text does not depend on one
    input_signature: list[VariableSignature]
    output_signature: list[VariableSignature]
    input_locations: list[InputLocation]
    unused_inputs: list[tuple[InputLocation, VariableSignature]]  # given by the user, taken by nothing
    input_pytree_spec: str
    output_pytree_spec: str
    constant_outputs: list[tuple[int, Any]]  # of the user's outputs: what is no tensor, by its position
    mutations: list[InputLocation]  # what the last outputs are the new values of


@dataclasses.dataclass
class StableHLOFunc:
    """A function: its signature, its text, and the program that it was written from, without weights."""

    meta: StableHLOFunctionMeta
    text: str
    program: ExportedProgram


@dataclasses.dataclass
class StableHLOModelBundle:
    """The functions of a model with what they share: the state by name, on a device, and further constants."""

    state_dict: dict[str, torch.Tensor]
    additional_constants: list[torch.Tensor]
    stablehlo_funcs: list[StableHLOFunc]


def signature_of(value: Any) -> VariableSignature:
    """Of a tensor, or of what else a program takes."""
    if not isinstance(value, torch.Tensor):
        return VariableSignature([], type(value).__name__)
    return VariableSignature(list(value.shape), str(value.dtype).removeprefix("torch."))


# ---- The state of programs ----
def with_state(program: ExportedProgram, state: Mapping[str, torch.Tensor]) -> ExportedProgram:
    """The program with other tensors as its state, which it may write. `state` has all of its names."""

    def other(name: str, old: Any) -> Any:
        new = state[name] if isinstance(old, torch.Tensor) else old
        return torch.nn.Parameter(new, old.requires_grad) if isinstance(old, torch.nn.Parameter) else new

    result = copy.copy(program)
    result._state_dict = {name: other(name, old) for name, old in program.state_dict.items()}
    result._constants = {name: other(name, old) for name, old in program.constants.items()}
    result._example_inputs = None
    return result


def without_state(program: ExportedProgram) -> ExportedProgram:
    """The program with the types of its state alone, as tensors of the device `meta`."""
    state = {name: old.to("meta") for name, old in tensors_of(program).items()}
    return with_state(program, state)


def tensors_of(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The state of the program by name: parameters, buffers, constants."""
    everything = {**program.state_dict, **program.constants}
    return {name: value for name, value in everything.items() if isinstance(value, torch.Tensor)}


# ---- Files ----
def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's elements; those of a type that numpy lacks as so many bytes each, as ml_dtypes has them in files."""
    tensor = tensor.detach().cpu()
    try:
        return tensor.numpy()
    except TypeError:
        size = tensor.element_size()
        return tensor.view({1: torch.int8, 2: torch.int16}[size]).numpy().view(f"V{size}")


def _to_torch(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"i{array.dtype.itemsize}")).view(dtype)


def _write_array(path: Path, tensor: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:  # np.save would append .npy to a name
        np.save(file, _to_numpy(tensor), allow_pickle=False)


def _to_json(value: Any) -> Any:
    return value.value if isinstance(value, VariableType) else dataclasses.asdict(value)


def _location(fields: dict) -> InputLocation:
    return InputLocation(**{**fields, "type_": VariableType(fields["type_"])})


def _read_meta(path: Path) -> StableHLOFunctionMeta:
    fields = json.loads(path.read_text())
    for name in ("input_signature", "output_signature"):
        fields[name] = [VariableSignature(**each) for each in fields[name]]
    for name in ("input_locations", "mutations"):
        fields[name] = [_location(each) for each in fields[name]]
    fields["unused_inputs"] = [(_location(a), VariableSignature(**b)) for a, b in fields["unused_inputs"]]
    fields["constant_outputs"] = [tuple(each) for each in fields["constant_outputs"]]
    return StableHLOFunctionMeta(**fields)


def save_bundle(bundle: StableHLOModelBundle, folder: Path, weights: bool) -> None:
    """Writes functions/NAME.meta, .mlir and .pt2, constants/NUMBER and, with `weights`, data/NAME."""
    functions = folder / "functions"
    functions.mkdir(parents=True, exist_ok=True)
    for func in bundle.stablehlo_funcs:
        (functions / f"{func.meta.name}.meta").write_text(json.dumps(func.meta, default=_to_json))
        (functions / f"{func.meta.name}.mlir").write_text(func.text)
        torch.export.save(func.program, functions / f"{func.meta.name}.pt2")
    (folder / "constants").mkdir(exist_ok=True)
    for i, constant in enumerate(bundle.additional_constants):
        _write_array(folder / "constants" / str(i), constant)
    if weights:
        for name, tensor in bundle.state_dict.items():
            _write_array(folder / "data" / name, tensor)


def _load_function(path: Path) -> StableHLOFunc:
    meta = _read_meta(path)
    return StableHLOFunc(meta, path.with_suffix(".mlir").read_text(), torch.export.load(path.with_suffix(".pt2")))


def load_bundle(folder: Path, device: torch.device) -> StableHLOModelBundle:
    """What save_bundle() wrote, the state on the device. Without data/ the state is empty."""
    funcs = [_load_function(path) for path in sorted((folder / "functions").glob("*.meta"))]
    if not funcs:
        raise FileNotFoundError(f"{folder / 'functions'} has no *.meta: it is no folder of an export")
    types = {name: like.dtype for func in funcs for name, like in tensors_of(func.program).items()}
    state = {}
    if (folder / "data").is_dir():
        state = {name: _to_torch(np.load(folder / "data" / name), dtype).to(device) for name, dtype in types.items()}
    count = len(list((folder / "constants").iterdir()))
    dtypes = {
        at.position: getattr(torch, each.dtype)
        for func in funcs
        for at, each in zip(func.meta.input_locations, func.meta.input_signature)
        if at.type_ is VariableType.CONSTANT
    }
    constants = [_to_torch(np.load(folder / "constants" / str(i)), dtypes[i]) for i in range(count)]
    return StableHLOModelBundle(state, constants, funcs)
