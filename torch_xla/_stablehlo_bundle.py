"""The parts of an export to StableHLO: functions with their signatures, the state, constants."""

import copy
import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree


class VariableType(enum.Enum):
    """The kind of an input's or output's value."""

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
    """The place of a value: a position among the user's inputs or the constants, or a name of the state."""

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
    unused_inputs: list[tuple[InputLocation, VariableSignature]]  # given by the user, not used
    input_pytree_spec: str
    output_pytree_spec: str
    constant_outputs: list[tuple[int, Any]]  # the user's outputs that are not tensors, by position
    mutations: list[InputLocation]  # the targets of the last outputs


@dataclasses.dataclass
class StableHLOFunc:
    """A function: its signature, its text, and the program that it was written from, without weights."""

    meta: StableHLOFunctionMeta
    text: str
    program: ExportedProgram


@dataclasses.dataclass
class StableHLOModelBundle:
    """The functions of a model, with their shared state by name, on a device, and further constants."""

    state_dict: dict[str, torch.Tensor]
    additional_constants: list[torch.Tensor]
    stablehlo_funcs: list[StableHLOFunc]


def signature_of(value: Any) -> VariableSignature:
    """The signature of a tensor or another input of a program."""
    if not isinstance(value, torch.Tensor):
        return VariableSignature([], type(value).__name__)
    return VariableSignature(list(value.shape), str(value.dtype).removeprefix("torch."))


# ---- The state of programs ----
def with_state(program: ExportedProgram, state: Mapping[str, torch.Tensor]) -> ExportedProgram:
    """The program with other tensors as its state; it may write them. `state` has all of its names."""

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


# ---- The signature of programs ----
_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)

Input = tuple[InputLocation, VariableSignature]


def value_of(node: torch.fx.Node) -> Any:
    """The stand-in of an input while the program is traced: its type as a tensor, or its constant value."""
    return node.meta["val"]


@dataclasses.dataclass
class ProgramSignature:
    """A program's part of its function's signature: everything except the constants and the types of its results."""

    inputs: list[Input]  # that the function takes
    unused_inputs: list[Input]
    constant_outputs: list[tuple[int, Any]]
    mutations: list[InputLocation]
    input_pytree_spec: str
    output_pytree_spec: str


def _input_locations(program: ExportedProgram) -> list[InputLocation]:
    """The locations of the graph's placeholders."""
    locations, count = [], 0
    for spec in program.graph_signature.input_specs:
        is_user = spec.kind is InputKind.USER_INPUT
        locations.append(InputLocation.input_arg(count) if is_user else InputLocation.parameter(spec.target))
        count += is_user
    return locations


def _mutations(program: ExportedProgram, locations: dict[str, InputLocation]) -> list[InputLocation]:
    """The targets of the graph's first results; `locations` by the name of the placeholder."""
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind in _MUTATIONS]
    return [
        locations[spec.target] if spec.kind is OutputKind.USER_INPUT_MUTATION else InputLocation.parameter(spec.target)
        for spec in specs
    ]


def is_taken(node: torch.fx.Node) -> bool:
    """Whether the function has an argument for the placeholder."""
    return isinstance(value_of(node), torch.Tensor) and len(node.users) > 0


def signature_of_program(program: ExportedProgram) -> ProgramSignature:
    """The program's part of the function's signature, in its order."""
    nodes = program.graph.find_nodes(op="placeholder")
    locations = _input_locations(program)
    mutations = _mutations(program, {node.name: at for node, at in zip(nodes, locations)})
    inputs = [(node, (at, signature_of(value_of(node)))) for node, at in zip(nodes, locations)]
    results = program.graph.output_node().args[0][len(mutations) :]
    values = [value_of(r) if isinstance(r, torch.fx.Node) else r for r in results]
    return ProgramSignature(
        inputs=[each for node, each in inputs if is_taken(node)],
        unused_inputs=[each for node, each in inputs if not is_taken(node) and each[0].type_ is VariableType.INPUT_ARG],
        constant_outputs=[(i, value) for i, value in enumerate(values) if not isinstance(value, torch.Tensor)],
        mutations=mutations,
        input_pytree_spec=pytree.treespec_dumps(program.call_spec.in_spec),
        output_pytree_spec=pytree.treespec_dumps(program.call_spec.out_spec),
    )
