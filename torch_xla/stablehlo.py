"""Export of models as StableHLO: turns the result of torch.export into one function of MLIR text, with its weights in
files.

JAX and other users of XLA compile the text. docs/stablehlo.md has an example with JAX, and the files.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export._tree_utils import reorder_kwargs
from torch.export.graph_signature import InputKind
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree as pytree

from . import _api, _XLAC
from ._stablehlo_bundle import (
    InputLocation,
    is_taken,
    signature_of,
    signature_of_program,
    StableHLOFunc,
    StableHLOFunctionMeta,
    StableHLOModelBundle,
    tensors_of,
    value_of,
    VariableSignature,
    VariableType,
    with_state,
    without_state,
)
from ._stablehlo_files import load_bundle, save_bundle
from .experimental._bodies import recording

__all__ = [
    "InputLocation",
    "StableHLOExportOptions",
    "StableHLOFunc",
    "StableHLOFunctionMeta",
    "StableHLOGraphModule",
    "StableHLOModelBundle",
    "VariableSignature",
    "VariableType",
    "exported_program_to_stablehlo",
    "save_as_stablehlo",
    "save_torch_model_as_stablehlo",
]


@dataclasses.dataclass
class StableHLOExportOptions:
    """How a program is exported and saved.

    Args:
        include_human_readable_text: True: text is the only form.
        override_tracing_arguments: the inputs to export for, in place of the program's; they choose the sizes of a
            program with dynamic dims.
        override_tracing_kwargs: the same by name.
        save_weights: whether files have the weights.
        inline_all_constant: True: numbers are in the text.
        export_weights: whether the export has the weights; without them it can be saved and read, but not called.
        custom_ops_allowed_in_graph: empty: an operation is exported as its parts.
        export_node_metadata: False.
    """

    include_human_readable_text: bool = True
    override_tracing_arguments: tuple[Any, ...] | None = None
    override_tracing_kwargs: Mapping[str, Any] | None = None
    save_weights: bool = True
    inline_all_constant: bool = True
    export_weights: bool = True
    custom_ops_allowed_in_graph: set[str] = dataclasses.field(default_factory=set)
    export_node_metadata: bool = False


def _check_options(options: StableHLOExportOptions) -> None:
    default = StableHLOExportOptions()
    fields = ("include_human_readable_text", "inline_all_constant", "custom_ops_allowed_in_graph")
    for name in (*fields, "export_node_metadata"):
        value, only = getattr(options, name), getattr(default, name)
        if value != only:
            raise NotImplementedError(f"StableHLOExportOptions.{name} can only be {only}, but got {value}")


def _check_inputs(func: StableHLOFunc, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    meta, in_spec = func.meta, func.program.call_spec.in_spec
    got, spec = pytree.tree_flatten((args, reorder_kwargs(kwargs, in_spec)))
    if spec != in_spec:
        raise ValueError(f"the model takes the inputs {in_spec}, but got {spec}")
    places = [*zip(meta.input_locations, meta.input_signature), *meta.unused_inputs]
    for place, wanted in places:
        if place.type_ is VariableType.INPUT_ARG and (given := signature_of(got[place.position])) != wanted:
            raise ValueError(
                f"input {place.position} of the model is {wanted.dtype}{wanted.shape}, "
                f"but got {given.dtype}{given.shape}"
            )


class StableHLOGraphModule:
    """An exported model: its StableHLO, and a function like the model.

    Calls run the exported program, not the text, on the device.
    """

    def __init__(self, bundle: StableHLOModelBundle):
        self._bundle = bundle
        self._functions = {func.meta.name: func for func in bundle.stablehlo_funcs}
        self._default_method = bundle.stablehlo_funcs[0].meta.name
        self._modules: dict[str, torch.nn.Module] = {}

    def _function(self, method_name: str | None) -> StableHLOFunc:
        name = self._default_method if method_name is None else method_name
        if name not in self._functions:
            raise ValueError(f"the model has no function {name}, but has {sorted(self._functions)}")
        return self._functions[name]

    def _module(self, func: StableHLOFunc) -> torch.nn.Module:
        name = func.meta.name
        if name not in self._modules:
            missing = tensors_of(func.program).keys() - self._bundle.state_dict.keys()
            if missing:
                raise ValueError(
                    "the model was exported or saved without its weights, so it cannot be called: "
                    f"it lacks {sorted(missing)}"
                )
            self._modules[name] = with_state(func.program, self._bundle.state_dict).module()
        return self._modules[name]

    def evaluate(self, method_name: str | None, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """The function's results for these inputs.

        Args:
            method_name: "forward", or None for the default.
            args, kwargs: as for the model, with the shapes and dtypes of the export; tensors of any device.

        Returns the model's outputs, their tensors on the device. Buffers that the model writes are written. Raises
        ValueError for another name, for a model without weights and for inputs of another number, shape or dtype.
        """
        func = self._function(method_name)
        module = self._module(func)
        inputs = (tuple(args), dict(kwargs or {}))
        _check_inputs(func, *inputs)
        device = _api.device()
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), inputs)
        with torch.no_grad():
            return module(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.evaluate(None, args, kwargs)

    def get_stablehlo_text(self, method_name: str | None = None) -> str:
        """A module of MLIR text with the function `main`; docs/stablehlo.md says what its inputs and outputs are."""
        return self._function(method_name).text

    def get_stablehlo_bytecode(self, method_name: str | None = None) -> bytes:
        """The text in UTF-8. MLIR's readers of bytecode accept it."""
        return self.get_stablehlo_text(method_name).encode()

    def save(self, directory_path: str | os.PathLike, options: StableHLOExportOptions | None = None) -> None:
        """Writes the files of docs/stablehlo.md into the folder, created if missing.

        They replace an older model completely, or not at all. Raises ValueError for names that no file can have.
        """
        options = options or StableHLOExportOptions()
        save_bundle(self._bundle, Path(directory_path), options.save_weights)

    @classmethod
    def load(cls, directory_path: str | os.PathLike) -> "StableHLOGraphModule":
        """Loads a model of save(), from somebody whom you trust: torch.export's files may run code.

        Raises FileNotFoundError for a missing file, ValueError if files do not fit each other.
        """
        return cls(load_bundle(Path(directory_path), _api.device()))


# ---- The program on the device ----
def _check_static(program: ExportedProgram) -> None:
    for node in program.graph.find_nodes(op="placeholder"):
        value = value_of(node)
        sizes = list(value.shape) if isinstance(value, torch.Tensor) else [value]
        if any(isinstance(size, torch.SymInt) for size in sizes):
            raise NotImplementedError(
                f"the input {node.name} has sizes that vary, {sizes}: StableHLO is written for given sizes; export the "
                "model without dynamic_shapes, or name inputs by StableHLOExportOptions.override_tracing_arguments"
            )


def _check_kinds(program: ExportedProgram) -> None:
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.CUSTOM_OBJ, InputKind.TOKEN):
            raise NotImplementedError(f"the program takes {spec.arg.name}, which is no tensor, but {spec.kind.name}")


def _with_sizes(exported: ExportedProgram, options: StableHLOExportOptions) -> ExportedProgram:
    """The program for inputs of given sizes."""
    if options.override_tracing_arguments is not None:
        kwargs = dict(options.override_tracing_kwargs or {})
        exported = torch.export.export(exported.module(), tuple(options.override_tracing_arguments), kwargs)
    _check_static(exported)
    _check_kinds(exported)
    return exported


def _prepare(exported: ExportedProgram, decompositions: dict) -> ExportedProgram:
    """The program without in-place operations, on the device, with a writable state."""
    program = exported.run_decompositions(decompositions)
    program = with_state(program, tensors_of(program))
    program = move_to_device_pass(program, str(_api.device()))
    state = tensors_of(program)
    for name in program.graph_signature.buffers_to_mutate.values():
        state[name] = state[name].clone()
    return with_state(program, state)


# ---- The text ----
class _Tracer(torch.fx.Interpreter):
    """Records the graph's operations, and names one that needs values."""

    def run_node(self, node: torch.fx.Node) -> Any:
        try:
            return super().run_node(node)
        except NotImplementedError:
            raise
        except RuntimeError as error:
            raise RuntimeError(f"{node.target} cannot be exported as StableHLO: {error}") from error


def _write(program: ExportedProgram, name: str) -> tuple[StableHLOFunc, list[torch.Tensor]]:
    """The program's graph as a function, and the constants that it takes."""
    nodes = program.graph.find_nodes(op="placeholder")
    signature = signature_of_program(program)
    count = len(signature.mutations)
    device = _api.device()
    with torch.no_grad(), recording(device.index) as recorder:
        arguments = [recorder.argument(v) if isinstance(v := value_of(n), torch.Tensor) else v for n in nodes]
        results = list(_Tracer(program.graph_module).run(*arguments, enable_io_processing=False))
        tensors = [r for r in results[count:] + results[:count] if isinstance(r, torch.Tensor)]
        body = recorder.take([a for a, n in zip(arguments, nodes) if is_taken(n)], tensors)
        text = _XLAC._body_stablehlo(device.index, body)
    inputs = [*signature.inputs, *((InputLocation.constant(i), signature_of(t)) for i, t in enumerate(body.shared))]
    meta = StableHLOFunctionMeta(
        name=name,
        stablehlo_version="0.0.0",
        input_signature=[each for _, each in inputs],
        output_signature=[signature_of(t) for t in tensors],
        input_locations=[location for location, _ in inputs],
        unused_inputs=signature.unused_inputs,
        input_pytree_spec=signature.input_pytree_spec,
        output_pytree_spec=signature.output_pytree_spec,
        constant_outputs=signature.constant_outputs,
        mutations=signature.mutations,
    )
    return StableHLOFunc(meta, text, without_state(program)), [t.cpu() for t in body.shared]


def exported_program_to_stablehlo(
    exported_model: ExportedProgram, options: StableHLOExportOptions | None = None
) -> StableHLOGraphModule:
    """The program as StableHLO, callable like the model.

    Args:
        exported_model: from torch.export.export(); it stays unchanged.
        options: None: the defaults.

    Raises NotImplementedError for an input with sizes that vary, for a program that draws random numbers, and for an
    operation that has no form in StableHLO; RuntimeError for a program that reads a value while it runs.
    """
    options = options or StableHLOExportOptions()
    _check_options(options)
    exported = _with_sizes(exported_model, options)
    try:
        program = _prepare(exported, {})
        func, constants = _write(program, "forward")
    except RuntimeError:  # an operation without a form may have parts with one
        program = _prepare(exported, torch.export.default_decompositions())
        func, constants = _write(program, "forward")
    state = tensors_of(program) if options.export_weights else {}
    return StableHLOGraphModule(StableHLOModelBundle(state, constants, [func]))


def save_as_stablehlo(
    exported_model: ExportedProgram,
    stablehlo_dir: str | os.PathLike,
    options: StableHLOExportOptions | None = None,
) -> None:
    """exported_program_to_stablehlo() and save() into the folder.

    exported = torch.export.export(model, (x,)) save_as_stablehlo(exported, "model") loaded =
    StableHLOGraphModule.load("model") loaded(x)  # the result of model(x), on the device
    """
    exported_program_to_stablehlo(exported_model, options).save(stablehlo_dir, options)


def save_torch_model_as_stablehlo(
    torchmodel: torch.nn.Module,
    args: tuple[Any, ...],
    path: str | os.PathLike,
    options: StableHLOExportOptions | None = None,
) -> None:
    """Exports the model for inputs like `args`, and saves it as save_as_stablehlo() does."""
    save_as_stablehlo(torch.export.export(torchmodel, args), path, options)
