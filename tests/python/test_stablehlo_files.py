"""The files of exported models: an interrupted save, names that lead elsewhere, files that do not fit each other."""

import copy
import dataclasses
import io
import json
import os
import random
import shutil
from pathlib import Path

import interrupted
import numpy as np
import pytest
import torch
from torch import nn

from torch_xla import stablehlo
from torch_xla.stablehlo import InputLocation, StableHLOGraphModule, VariableSignature


class Model(nn.Module):
    """Has a parameter, a buffer that it writes, a number among its results, an input that it does not take."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))

    def forward(self, x, unused):
        self.count += 1
        return x @ self.weight, 7


INPUTS = (torch.ones(4, 2), torch.ones(5, dtype=torch.int32))


@pytest.fixture(scope="module")
def exported():
    return stablehlo.exported_program_to_stablehlo(torch.export.export(Model(), INPUTS))


@pytest.fixture(scope="module")
def saved(exported, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    exported.save(folder)
    return folder


@pytest.fixture
def bundle(saved, tmp_path):
    """A copy of the folder, which a test may damage."""
    shutil.copytree(saved, tmp_path / "model")
    return tmp_path / "model"


def edit_meta(bundle: Path, edit) -> None:
    path = bundle / "functions" / "forward.meta"
    fields = json.loads(path.read_text())
    edit(fields)
    path.write_text(json.dumps(fields))


# ---- Names ----
@pytest.mark.parametrize("name", ["../../esc/planted", "/proc/planted", "other", "", ".", 7, None])
def test_a_function_has_the_name_of_its_file(bundle, tmp_path, name):
    (tmp_path / "esc").mkdir()
    edit_meta(bundle, lambda fields: fields.update(name=name))
    with pytest.raises(ValueError, match=rf"forward.meta names its function {name!r}"):
        StableHLOGraphModule.load(bundle).save(tmp_path / "out")
    assert os.listdir(tmp_path / "esc") == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a b", "é", "-x", "a\nb"])
def test_names_of_functions_are_plain(bundle, tmp_path, name):
    for end in (".meta", ".mlir", ".pt2"):
        (bundle / "functions" / f"forward{end}").rename(bundle / "functions" / f"{name}{end}")
    meta = bundle / "functions" / f"{name}.meta"
    meta.write_text(meta.read_text().replace('"name": "forward"', f'"name": {json.dumps(name)}'))
    with pytest.raises(ValueError, match="which is no name of a function"):
        StableHLOGraphModule.load(bundle)


@pytest.mark.parametrize("name", ["../../planted", "/proc/planted", "a/../b", "a//b", ".", "a\0b"])
def test_names_of_the_state_stay_in_their_folder(exported, tmp_path, name):
    module = copy.copy(exported)
    module._bundle = dataclasses.replace(exported._bundle, state_dict={name: torch.ones(1)})
    with pytest.raises(ValueError, match="which is no name of a file for a tensor"):
        module.save(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []


def test_names_of_the_state_may_have_folders(device, tmp_path):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ParameterDict({"a/b": torch.ones(2)})

        def forward(self, x):
            return x + self.parts["a/b"]

    stablehlo.save_torch_model_as_stablehlo(Named(), (torch.ones(2),), tmp_path)
    assert StableHLOGraphModule.load(tmp_path)(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize(
    "part", ["functions", "data", "functions/forward.mlir", "functions/forward.pt2", "data/weight"]
)
def test_links_out_of_the_folder_are_refused(bundle, tmp_path, part):
    (bundle / part).rename(tmp_path / "elsewhere")
    (bundle / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link out of the folder of the export"):
        StableHLOGraphModule.load(bundle)


def test_a_save_writes_through_no_link(exported, bundle, tmp_path):
    for part in ("data", "functions"):
        (bundle / part).rename(tmp_path / part)
        (bundle / part).symlink_to(tmp_path / part)
    for name in (".new", ".saved"):
        (bundle / name).symlink_to(tmp_path / "data")
    before = interrupted.names_in(tmp_path / "data"), (tmp_path / "data" / "weight").stat().st_mtime_ns
    exported.save(bundle)
    assert StableHLOGraphModule.load(bundle)(*INPUTS)[1] == 7
    assert before == (interrupted.names_in(tmp_path / "data"), (tmp_path / "data" / "weight").stat().st_mtime_ns)


# ---- Files that are missing, or do not fit ----
@pytest.mark.parametrize("name", ["functions/forward.mlir", "functions/forward.pt2", "data/weight", "data/count"])
def test_a_missing_file_is_named(bundle, name):
    (bundle / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
        StableHLOGraphModule.load(bundle)


def array(values) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


FLOATS = np.ones((2, 3), "float32")
WRONG_ARRAYS = {
    "sizes": (array(FLOATS.T.copy()), r"is float32\[3, 2\] when the signature has float32\[2, 3\]"),
    "elements": (array(FLOATS.astype("int32")), r"is int32\[2, 3\] when the signature has float32\[2, 3\]"),
    "order of bytes": (array(FLOATS.astype(">f4")), r"is >f4\[2, 3\] when"),
    "too short": (array(FLOATS)[:-1], "has 23 bytes of elements"),
    "too long": (array(FLOATS) + b"x", "has 25 bytes of elements"),
    "huge": (
        array(FLOATS).replace(b"(2, 3)", b"(2, 3000000000000)").replace(b" " * 12 + b"\n", b"\n"),
        r"is float32\[2, 30+\]",
    ),
    "objects": (array(np.array([[None] * 3] * 2)), "is object"),
    "none": (b"", "is no array as numpy.save writes it"),
    "noise": (bytes(range(256)), "is no array as numpy.save writes it"),
    "header": (array(FLOATS).replace(b"descr", b"desc("), "is no array as numpy.save writes it"),
}


@pytest.mark.parametrize("kind", WRONG_ARRAYS)
def test_an_array_of_another_type_is_refused(bundle, kind):
    content, text = WRONG_ARRAYS[kind]
    (bundle / "data" / "weight").write_bytes(content)
    with pytest.raises(ValueError, match=f"data/weight {text}"):
        StableHLOGraphModule.load(bundle)


def test_arrays_in_the_order_of_columns_are_read(bundle):
    (bundle / "data" / "weight").write_bytes(array(np.asfortranarray(np.arange(6, dtype="float32").reshape(2, 3))))
    assert StableHLOGraphModule.load(bundle)(*INPUTS)[0][0].tolist() == [3, 5, 7]


def places_in(value, place=()):
    """The keys that lead to each value in what JSON holds, and the value."""
    if place:
        yield place, value
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places_in(each, (*place, key))


def put(fields, place, new) -> None:
    """Puts the value at its place; ... leaves it out."""
    for key in place[:-1]:
        fields = fields[key]
    if new is ...:
        del fields[place[-1]]
    else:
        fields[place[-1]] = new


def test_no_part_of_the_signature_can_be_another_one(bundle, monkeypatch):
    """Each value in it is replaced, or left out: all are checked, but for the version."""
    path = bundle / "functions" / "forward.meta"
    text, program = path.read_text(), torch.export.load(bundle / "functions" / "forward.pt2")
    monkeypatch.setattr(torch.export, "load", lambda path: program)
    defaults = [("dynamic_dims", []), ("position", -1), ("name", "")]
    count = 0
    for place, old in places_in(json.loads(text)):
        lists = (old[1:], old + old[:1]) if isinstance(old, list) and old else ()
        for new in (..., [], None, -1, "float64", True, [[]], {"x": 1}, *lists):
            fields = json.loads(text)
            put(fields, place, new)
            is_default = new is ... and (place[-1], old) in defaults
            is_version = place == ("stablehlo_version",) and new is not ...
            if is_default or is_version or json.dumps(fields) == text:
                continue
            path.write_text(json.dumps(fields))
            with pytest.raises(ValueError, match="functions/forward"):
                StableHLOGraphModule.load(bundle)
                print(place, old, new)  # which one it was
            count += 1
    assert count > 300


def test_a_signature_that_is_no_json_is_refused(bundle):
    path = bundle / "functions" / "forward.meta"
    content = path.read_bytes()
    for new in (b"", content[:100], b"[" * 100_000, b"\xff\xfe", b"null", b"[]"):
        path.write_bytes(new)
        with pytest.raises(ValueError, match=r"forward.meta is no signature of a function"):
            StableHLOGraphModule.load(bundle)


@pytest.mark.parametrize("end", ["meta", "mlir", "pt2"])
def test_a_file_of_another_model_is_refused(device, bundle, tmp_path, end):
    stablehlo.save_torch_model_as_stablehlo(nn.Linear(2, 3), INPUTS[:1], tmp_path / "other")
    shutil.copy(tmp_path / "other" / "functions" / f"forward.{end}", bundle / "functions")
    with pytest.raises(ValueError, match=r"functions/forward.* has "):
        StableHLOGraphModule.load(bundle)


@pytest.mark.parametrize("end", ["mlir", "pt2"])
def test_a_file_that_was_cut_is_refused(bundle, end):
    path = bundle / "functions" / f"forward.{end}"
    content = path.read_bytes()
    for size in (0, 1, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=rf"forward.{end} (has no function main|is no program of torch.export)"):
            StableHLOGraphModule.load(bundle)


def test_bytes_that_are_changed_give_an_error_or_the_same_types(bundle, monkeypatch):
    """Random damage to each file of text or arrays."""
    program = torch.export.load(bundle / "functions" / "forward.pt2")
    monkeypatch.setattr(torch.export, "load", lambda path: program)
    chance = random.Random(0)
    for name in ("functions/forward.meta", "functions/forward.mlir", "data/weight", "data/count"):
        path = bundle / name
        content = path.read_bytes()
        for _ in range(60):
            damaged = bytearray(content)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            path.write_bytes(damaged)
            try:
                state = StableHLOGraphModule.load(bundle)._bundle.state_dict
            except ValueError as error:
                assert name in str(error)
            else:
                assert {key: (t.shape, t.dtype) for key, t in state.items()} == {
                    "weight": ((2, 3), torch.float32),
                    "count": ((2,), torch.int64),
                }
        path.write_bytes(content)


def with_constant(module: StableHLOGraphModule) -> StableHLOGraphModule:
    """The model with a further argument, as if its text took a constant."""
    func = module._bundle.stablehlo_funcs[0]
    meta = dataclasses.replace(
        func.meta,
        input_locations=[*func.meta.input_locations, InputLocation.constant(0)],
        input_signature=[*func.meta.input_signature, VariableSignature([2], "bfloat16")],
    )
    text = func.text.replace(") -> (", ", %constant: tensor<2xbf16>) -> (", 1)
    constants = [torch.tensor([1, 2], dtype=torch.bfloat16)]
    funcs = [dataclasses.replace(func, meta=meta, text=text)]
    return StableHLOGraphModule(
        dataclasses.replace(module._bundle, additional_constants=constants, stablehlo_funcs=funcs)
    )


def test_constants(exported, tmp_path):
    with_constant(exported).save(tmp_path)
    (constant,) = StableHLOGraphModule.load(tmp_path)._bundle.additional_constants
    assert constant.tolist() == [1, 2] and constant.dtype == torch.bfloat16
    for key, new in [("shape", [3]), ("shape", [-2]), ("dtype", "int8"), ("dtype", "nn"), ("dynamic_dims", [0])]:
        with_constant(exported).save(tmp_path)
        edit_meta(tmp_path, lambda fields, change={key: new}: fields["input_signature"][-1].update(change))
        with pytest.raises(ValueError, match=r"forward.(meta|mlir) (has|is no signature)"):
            StableHLOGraphModule.load(tmp_path)
    with_constant(exported).save(tmp_path)
    (tmp_path / "constants" / "0").unlink()
    with pytest.raises(FileNotFoundError, match="constants/0 is missing"):
        StableHLOGraphModule.load(tmp_path)


# ---- Saving over an older model ----
@pytest.mark.parametrize("kind", interrupted.KINDS)
def test_an_interrupted_save_leaves_what_was_there(exported, tmp_path, monkeypatch, kind):
    """Programs are not written, which takes the time; in their place a file."""
    program = exported._bundle.stablehlo_funcs[0].program
    monkeypatch.setattr(torch.export, "save", lambda program, path: Path(path).write_bytes(b"program"))
    monkeypatch.setattr(torch.export, "load", lambda path: program)

    def save(value: int) -> None:
        module = copy.copy(exported)
        state = {name: torch.full_like(t, value) for name, t in exported._bundle.state_dict.items()}
        func = exported._bundle.stablehlo_funcs[0]
        func = dataclasses.replace(func, text=f"// {value}\n{func.text}")
        module._bundle = dataclasses.replace(exported._bundle, state_dict=state, stablehlo_funcs=[func])
        module.save(tmp_path)

    def load() -> int:
        bundle = StableHLOGraphModule.load(tmp_path)._bundle
        number = int(bundle.stablehlo_funcs[0].text.split()[1])
        assert all(t.unique().tolist() == [number] for t in bundle.state_dict.values())
        return number

    interrupted.check_interrupted_saves(kind, tmp_path, save, load, least=12)


def test_nothing_of_an_older_model_is_left(exported, bundle):
    (bundle / "README").write_text("of the user")
    shutil.copy(bundle / "functions" / "forward.meta", bundle / "functions" / "before.meta")
    exported.save(bundle, stablehlo.StableHLOExportOptions(save_weights=False))
    names = {f"functions/forward.{end}" for end in ("meta", "mlir", "pt2")}
    assert set(interrupted.names_in(bundle)) == {"README", *names}
    with pytest.raises(ValueError, match="saved without its weights"):
        StableHLOGraphModule.load(bundle)(*INPUTS)
