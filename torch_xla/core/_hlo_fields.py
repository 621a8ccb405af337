"""The parts of XLA's HloModuleProto that hold a program: numbers of fields, and of element types."""

import torch

from ._shapes import TORCH_TYPES

_CONVOLUTION = {
    "kernel_input_feature_dimension": (3, "int"),
    "kernel_output_feature_dimension": (4, "int"),
    "kernel_spatial_dimensions": (6, "ints"),
    "input_batch_dimension": (7, "int"),
    "input_feature_dimension": (8, "int"),
    "output_batch_dimension": (9, "int"),
    "output_feature_dimension": (10, "int"),
    "input_spatial_dimensions": (11, "ints"),
    "output_spatial_dimensions": (12, "ints"),
}
_INSTRUCTION = {
    "name": (1, "string"),
    "opcode": (2, "string"),
    "shape": (3, "Shape"),
    "metadata": (7, "Metadata"),
    "literal": (8, "Literal"),
    "parameter_number": (9, "int"),
    "tuple_index": (13, "int"),
    "dimensions": (14, "ints"),
    "window": (15, "Window"),
    "convolution_dimension_numbers": (16, "Convolution"),
    "slice_dimensions": (17, "*SliceDim"),
    "dynamic_slice_sizes": (20, "ints"),
    "padding_config": (21, "Padding"),
    "custom_call_target": (28, "string"),
    "dot_dimension_numbers": (30, "Dot"),
    "gather_dimension_numbers": (33, "Gather"),
    "gather_slice_sizes": (34, "ints"),
    "id": (35, "int"),
    "operand_ids": (36, "ints"),
    "called_computation_ids": (38, "ints"),
    "scatter_dimension_numbers": (48, "Scatter"),
    "feature_group_count": (50, "int"),
    "precision_config": (51, "Precision"),
    "batch_group_count": (58, "int"),
    "is_stable": (60, "bool"),
    "comparison_direction": (63, "string"),
    "k": (81, "int"),
    "largest": (85, "bool"),
}
TABLE = {
    "Module": {
        "name": (1, "string"),
        "entry_computation_name": (2, "string"),
        "computations": (3, "*Computation"),
        "host_program_shape": (4, "ProgramShape"),
        "id": (5, "int"),
        "entry_computation_id": (6, "int"),
    },
    "Computation": {
        "name": (1, "string"),
        "instructions": (2, "*Instruction"),
        "program_shape": (4, "ProgramShape"),
        "id": (5, "int"),
        "root_id": (6, "int"),
    },
    "Instruction": _INSTRUCTION,
    "ProgramShape": {"parameters": (1, "*Shape"), "result": (2, "Shape"), "parameter_names": (3, "*string")},
    "Shape": {
        "element_type": (2, "int"),
        "dimensions": (3, "ints"),
        "tuple_shapes": (4, "*Shape"),
        "layout": (5, "Layout"),
        "is_dynamic_dimension": (6, "ints"),
    },
    "Layout": {"minor_to_major": (1, "ints")},
    "Metadata": {"op_name": (2, "string"), "source_file": (3, "string"), "source_line": (4, "int")},
    "Literal": {
        "shape": (1, "Shape"),
        "preds": (2, "ints"),
        "u8s": (3, "bytes"),
        "s32s": (4, "ints"),
        "s64s": (5, "ints"),
        "u32s": (6, "ints"),
        "u64s": (7, "ints"),
        "f32s": (8, "floats"),
        "f64s": (9, "doubles"),
        "f16s": (11, "bytes"),
        "c64s": (12, "floats"),
        "bf16s": (13, "bytes"),
        "s8s": (15, "bytes"),
        "u16s": (16, "bytes"),
        "s16s": (17, "bytes"),
        "c128s": (18, "doubles"),
    },
    "Window": {"dimensions": (1, "*WindowDim")},
    "WindowDim": {
        "size": (1, "int"),
        "stride": (2, "int"),
        "padding_low": (3, "int"),
        "padding_high": (4, "int"),
        "window_dilation": (5, "int"),
        "base_dilation": (6, "int"),
        "window_reversal": (7, "bool"),
    },
    "Convolution": _CONVOLUTION,
    "SliceDim": {"start": (1, "int"), "limit": (2, "int"), "stride": (3, "int")},
    "Padding": {"dimensions": (1, "*PaddingDim")},
    "PaddingDim": {"edge_padding_low": (1, "int"), "edge_padding_high": (2, "int"), "interior_padding": (3, "int")},
    "Dot": {
        "lhs_contracting_dimensions": (1, "ints"),
        "rhs_contracting_dimensions": (2, "ints"),
        "lhs_batch_dimensions": (3, "ints"),
        "rhs_batch_dimensions": (4, "ints"),
    },
    "Gather": {
        "offset_dims": (1, "ints"),
        "collapsed_slice_dims": (2, "ints"),
        "start_index_map": (3, "ints"),
        "index_vector_dim": (4, "int"),
        "operand_batching_dims": (5, "ints"),
        "start_indices_batching_dims": (6, "ints"),
    },
    "Scatter": {
        "update_window_dims": (1, "ints"),
        "inserted_window_dims": (2, "ints"),
        "scatter_dims_to_operand_dims": (3, "ints"),
        "index_vector_dim": (4, "int"),
        "input_batching_dims": (5, "ints"),
        "scatter_indices_batching_dims": (6, "ints"),
    },
    "Precision": {"operand_precision": (1, "ints")},
}
TUPLE = 13
_NUMBERS = {
    "pred": 1,
    "s8": 2,
    "s16": 3,
    "s32": 4,
    "s64": 5,
    "u8": 6,
    "u16": 7,
    "u32": 8,
    "u64": 9,
    "f16": 10,
    "f32": 11,
    "f64": 12,
    "c64": 15,
    "bf16": 16,
    "c128": 18,
}
NUMBER_OF = _NUMBERS  # by the type's name
NAME_OF = {number: name for name, number in _NUMBERS.items()}


def torch_type(shape: dict) -> torch.dtype:
    """The dtype of a Shape that is not a tuple. Raises NotImplementedError for an element type that PyTorch lacks."""
    number = shape["element_type"]
    if number not in NAME_OF:
        raise NotImplementedError(f"the element type {number} of HLO is not known")
    return TORCH_TYPES[NAME_OF[number]]


def put_literal(shape: dict, values: list) -> dict:
    """A Literal of the shape. `values`: its elements in row-major order."""
    name, tensor = NAME_OF[shape["element_type"]], torch.tensor(values, dtype=torch_type(shape))
    kind = TABLE["Literal"][f"{name}s"][1]
    if kind == "bytes":
        content = tensor.view(torch.uint8).numpy().tobytes()
    else:
        content = (torch.view_as_real(tensor).flatten() if tensor.is_complex() else tensor).tolist()
    return {"shape": shape, f"{name}s": content}


def take_literal(literal: dict) -> torch.Tensor:
    """The tensor, on the CPU."""
    shape = literal["shape"]
    name, dtype = NAME_OF[shape["element_type"]], torch_type(shape)
    content = literal[f"{name}s"]
    if isinstance(content, bytes):
        tensor = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0, dtype=dtype)
    elif dtype.is_complex:
        tensor = torch.view_as_complex(torch.tensor(content, dtype=dtype.to_real()).reshape(-1, 2))
    elif dtype in (torch.uint32, torch.uint64):
        tensor = torch.tensor(content, dtype=torch.int64).to(dtype)
    else:
        tensor = torch.tensor(content, dtype=dtype)
    order = list(reversed(shape["layout"].get("minor_to_major", []))) or list(range(len(shape["dimensions"])))
    in_memory = tensor.reshape([shape["dimensions"][d] for d in order])
    return in_memory.permute([order.index(d) for d in range(len(order))])
