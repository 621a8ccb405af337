"""Programs as XLA's HloModuleProto: those that are pending, and those that others have made."""

import struct
import zlib

import pytest
import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_builder as xb
from torch_xla import _XLAC
from torch_xla.core import _protos
from torch_xla.core._hlo_fields import NUMBER_OF, put_literal, TABLE, take_literal
from torch_xla.core.xla_builder import Type

# What jax made of lax.while_loop(lambda s: s.max() < 9, lambda s: s * 2, jnp.maximum(x @ w, 1)).sum(0).
OF_JAX = (
    "78daa595cd6f124118c6e76317da4123196f7b225c241cc8c242c1daa4804d6362132ff54c56582b8605b22c69bd5145ebb927d22337af"
    "3d79f61f32d19b179d9d9dd90f59ec26921066c83eef3cef333f5e88fa76e8f65ed38c6d0ec79586f60511e25867c3c9b8a757aab44ab2"
    "e76f86238b2d77a7a663da966b39dac37c4e430895b30441b080b08600d8076b055cab803e21a43f19cf5c73ec560cba23d75a369f2b63"
    "f6f03ee83e2072d3550000ed1582427c4072af9c8939e89b33b752a3bbc166cb992b84d6084af51e51edf98879dd611fee703a7ab75586"
    "d70801e4eb8a06497a8c267da9c93c74acfd8441563566b64aee39d660deb77ab679c15a8f0416f6be420bf6ca0bc3464c524f963c832b"
    "7419111dc4440d9a651f437b6ec74e79cf0588f0d322ea6233c83e5850b9d0620dc476f512d4794ded12075d5759972d49887137217ef3"
    "05d1c7610494661a5016bffd206481a7b1209a34e3ef22051c04a09f45416451e0056e4366a22ef6d2b8c87756e843c445872823973197"
    "ed4f6c1680773c0cae61298ee616b8ea174627a74cfa4d518f4f5e744ebd3b7994cc9f2c2499334a48e705b5ef217906c326246f36b7ff"
    "4d9ebe419e27b9833c296ac5440d8acdc160833a5d24ad4794e9a8e3e663bb7a0973ea74edab4ac488a275822f92e6114ea4ad1dcc067c"
    "9ea0c27f332a7b96ba97e4fe60e2f6ceacb1e598de6cc16cbb85ef1f304358635024d11649b479bd1bac10f6540276ad54f01ffad8495f"
    "47d14969a499944bdf921aadd26113d3f4d20c86c836f547d1106f6c192b21f06c50952fb696f8240cf052b7e1fc8d85f138d55f06ab76"
    "15f1f03c06663809f2cc094465762bdc0764361cef763e8b66b8a32bdf0ec482d56392c41349c2856e1ca0796c6a1e6a2545e7c7148ffe"
    "ab1e9aeaec5d653f7da50bae21b881e00f1b1fb3b6"
)


def test_a_program_of_jax(device):
    computation = xb.computation_from_module_proto("doubled", zlib.decompress(bytes.fromhex(OF_JAX)))
    assert [(shape.dtype, shape.sizes) for shape in computation.shapes] == [("f32", (2, 3)), ("f32", (3, 2))]
    x, w = torch.tensor([[1, 2, 3], [0.1, 0.2, 0.3]]), torch.tensor([[1, -1], [0.5, 2], [0.0, 1]])
    assert computation([x.to(device), w.to(device)])[0].tolist() == [6, 14]
    run = xb.xla_computation_as_func(computation)
    assert run([x.to(device) * 10, w.to(device)])[0].tolist() == [22, 66]
    with pytest.raises(ValueError, match="the computation doubled takes"):
        run([x.to(device), x.to(device)])


def test_its_text(device):
    computation = xb.computation_from_module_proto("doubled", zlib.decompress(bytes.fromhex(OF_JAX)))
    text = xb.get_computation_hlo(computation)
    assert text.startswith("HloModule") and " while(" in text and " dot(" in text and "-> (f32[2]{0})" in text
    assert _XLAC._xla_computation_text(computation) == text


def test_the_text_of_a_function(device):
    shapes = [xb.mkshape(Type.F32, (3,))] * 2
    text = xb.get_computation_hlo(xb.create_computation("f", lambda a, b: a * b + a, shapes))
    assert "ENTRY %main (p0.1: f32[3]{0}, p1.1: f32[3]{0}) -> (f32[3]{0})" in text
    assert "multiply(f32[3]{0} %p0.1, f32[3]{0} %p1.1)" in text


PROGRAMS = {
    "products": (lambda a, b: a @ b, [(2, 3, 4), (2, 4, 5)]),
    "convolution": (lambda x, w: F.max_pool2d(F.conv2d(x, w, padding=1, stride=2), 2), [(2, 3, 8, 8), (4, 3, 3, 3)]),
    "order": (lambda x: torch.sort(x, 1), [(3, 9)]),
    "rows": (lambda x: torch.softmax(x, 1), [(3, 9)]),
    "largest": (lambda x: x.argmax(1), [(3, 7)]),
    "sums": (lambda x: x.cumsum(1), [(3, 7)]),
    "parts": (lambda x, y: F.pad(torch.cat([x, y])[1:4].flip(0), (1, 2)), [(3, 4), (2, 4)]),
    "places": (lambda x, y: x.index_add(0, torch.tensor([1, 2, 1], device=x.device), y), [(5, 4), (3, 4)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_pending(device, name):
    fn, sizes = PROGRAMS[name]
    tensors = [torch.randn(size, device=device) for size in sizes]
    index = torch.tensor([1, 2, 1], device=device)
    torch_xla.sync()
    results = fn(*tensors)
    results = list(results) if isinstance(results, tuple) else [results]
    computation = xb.computation_from_module_proto(name, _XLAC._get_xla_tensors_hlo_proto(results))
    given = {tuple(t.shape): t for t in (*tensors, index)}
    again = computation([given[shape.sizes] for shape in computation.shapes])
    for one, other in zip(results, again, strict=True):
        torch.testing.assert_close(one, other)


def test_the_bytes_are_what_xla_reads(device):
    """The first fields of an HloModuleProto, by hand."""
    x = torch.ones(2, device=device)
    torch_xla.sync()
    proto = _XLAC._get_xla_tensors_hlo_proto([x + x])
    assert proto.startswith(b"\x0a\x07program" + b"\x12\x04main")
    module = _protos.decode(TABLE, "Module", proto)
    (entry,) = module["computations"]
    assert [i["opcode"] for i in entry["instructions"]] == ["parameter", "add", "tuple"]
    assert entry["instructions"][1]["operand_ids"] == [entry["instructions"][0]["id"]] * 2
    assert module["entry_computation_id"] == entry["id"] and entry["root_id"] == entry["instructions"][2]["id"]
    assert entry["instructions"][1]["metadata"]["source_file"] == __file__


def test_numbers_in_buffers():
    table = {"M": {"i": (1, "int"), "l": (2, "ints"), "f": (3, "floats"), "n": (20, "*M"), "s": (4, "*string")}}
    message = {"i": -1, "l": [0, 1, 300, -5], "f": [0.5, -2.0], "n": [{"i": 1 << 40}, {}], "s": ["a", "bc"]}
    data = _protos.encode(table, "M", message)
    assert data[:11] == b"\x08" + b"\xff" * 9 + b"\x01" and struct.pack("<2f", 0.5, -2) in data
    again = _protos.decode(table, "M", data + b"\x28\x07")  # and a field 5 that the table has not
    assert {name: again[name] for name in "ilfs"} == {name: message[name] for name in "ilfs"}
    assert [each["i"] for each in again["n"]] == [1 << 40, 0]


@pytest.mark.parametrize("data", [b"\x0a\x07prog", b"\x0b", b"\xff", b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_buffer(data):
    with pytest.raises(ValueError, match="no protocol buffer"):
        xb.computation_from_module_proto("broken", data)


@pytest.mark.parametrize("name", [name for name in vars(Type) if name.isupper()])
def test_literals(name):
    dtype = xb.Op.to_torch_type(getattr(Type, name))
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    shape = {"element_type": 0, "dimensions": [2, 3], "layout": {"minor_to_major": [1, 0]}}
    shape["element_type"] = NUMBER_OF[getattr(Type, name)]
    literal = put_literal(shape, tensor.flatten().tolist())
    assert torch.equal(take_literal(literal), tensor)
    turned = put_literal(shape, tensor.t().flatten().tolist())
    turned["shape"] = shape | {"layout": {"minor_to_major": [0, 1]}}
    assert torch.equal(take_literal(turned), tensor)


INSTRUCTIONS = [
    ("round-nearest-afz", [[-2.5, -0.5, 0.5, 1.4]], {}, [-3, -1, 1, 1]),
    ("cbrt", [[-8.0, 0.0, 27.0]], {}, [-2, 0, 3]),
    ("is-finite", [[1.0, torch.inf, torch.nan]], {}, [True, False, False]),
    ("sign", [[-2.0, 0.0, 3.0]], {}, [-1, 0, 1]),
    ("count-leading-zeros", [[0, 1, -1]], {}, [32, 31, 0]),
    ("divide", [[7, -7, 9], [2, 2, -4]], {}, [3, -3, -2]),
    ("remainder", [[7, -7, 9], [2, 2, -4]], {}, [1, -1, 1]),
    ("shift-right-logical", [[-8, -8, 9, 5], [1, 0, 2, 31]], {}, [(1 << 31) - 4, -8, 2, 0]),
    ("shift-right-arithmetic", [[-8, 9], [1, 2]], {}, [-4, 2]),
    ("reverse", [[1.0, 2.0, 3.0]], {"dimensions": [0]}, [3, 2, 1]),
    ("topk", [[1.0, 3.0, 2.0, 3.0]], {"k": 2, "largest": True}, ([3, 3], [1, 3])),
    ("topk", [[1.0, 3.0, 2.0, 3.0]], {"k": 1, "largest": False}, ([1], [0])),
]


@pytest.mark.parametrize("opcode, operands, fields, want", INSTRUCTIONS)
def test_instructions(device, opcode, operands, fields, want):
    kinds = {float: "f32", int: "s32"}
    shapes = [
        {"element_type": NUMBER_OF[kinds[type(numbers[0])]], "dimensions": [len(numbers)]} for numbers in operands
    ]
    given = [
        {"opcode": "parameter", "shape": shape, "parameter_number": number, "id": number}
        for number, shape in enumerate(shapes)
    ]
    last = {"opcode": opcode, "id": 9, "shape": shapes[0], "operand_ids": list(range(len(operands))), **fields}
    program = {"parameters": shapes}
    entry = {"instructions": [*given, last], "id": 5, "root_id": 9, "program_shape": program}
    module = {"computations": [entry], "entry_computation_id": 5, "host_program_shape": program}
    computation = xb.computation_from_module_proto(opcode, _protos.encode(TABLE, "Module", module))
    tensors = [torch.tensor(n, dtype=torch.float32 if isinstance(n[0], float) else torch.int32) for n in operands]
    results = computation([tensor.to(device) for tensor in tensors])
    wanted = want if isinstance(want, tuple) else (want,)
    for result, expected in zip(results, wanted, strict=True):
        torch.testing.assert_close(result.cpu(), torch.tensor(expected).to(result.dtype))


def test_an_instruction_without_a_form(device):
    x = torch.ones(2, device=device)
    torch_xla.sync()
    proto = _XLAC._get_xla_tensors_hlo_proto([x.sin()]).replace(b"\x12\x04sine", b"\x12\x04fogg")
    with pytest.raises(NotImplementedError, match="the instruction 'fogg' of HLO"):
        xb.computation_from_module_proto("fog", proto)([x])
