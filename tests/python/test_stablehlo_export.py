"""torch_xla.stablehlo: exported models give what the models give, here and after loading; what is refused.

tests/libraries runs the text in JAX.
"""

import copy
import dataclasses
import json
import os
import re
from pathlib import Path

import export_models
import numpy as np
import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla.stablehlo import (
    exported_program_to_stablehlo,
    InputLocation,
    save_as_stablehlo,
    save_torch_model_as_stablehlo,
    StableHLOExportOptions,
    StableHLOGraphModule,
)

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "stablehlo.md").read_text()


def export(model, *args, **kwargs) -> StableHLOGraphModule:
    return exported_program_to_stablehlo(torch.export.export(model, args, kwargs))


def signature(module: StableHLOGraphModule):
    return module._bundle.stablehlo_funcs[0].meta


def main_types(text: str) -> tuple[list[str], list[str]]:
    """Of the function in the text: the types of its inputs and outputs."""
    inputs, outputs = re.search(r"func\.func public @main\((.*?)\) -> \((.*?)\) \{", text).groups()
    return re.findall(r"tensor<(.*?)>", inputs), re.findall(r"tensor<(.*?)>", outputs)


@pytest.mark.parametrize("name", export_models.MODELS)
def test_calls_give_what_the_model_gives(device, name, tmp_path):
    model, args, kwargs = export_models.make(name)
    module = export(model, *args, **kwargs)
    module.save(tmp_path)
    loaded = StableHLOGraphModule.load(tmp_path)
    assert loaded.get_stablehlo_text() == module.get_stablehlo_text()
    assert signature(loaded) == signature(module)
    for again in (module, loaded):
        reference = copy.deepcopy(model)
        for _ in range(2):  # the second one sees the buffers that the first one wrote
            torch.testing.assert_close(again(*args, **kwargs), reference(*args, **kwargs), check_device=False)


@pytest.mark.parametrize("name", export_models.MODELS)
def test_the_signature_fits_the_text(device, name):
    model, args, kwargs = export_models.make(name)
    module = export(model, *args, **kwargs)
    shorts = {"float32": "f32", "bfloat16": "bf16", "int64": "i64", "bool": "i1"}
    meta = signature(module)
    types = [
        ["x".join([*map(str, each.shape), shorts[each.dtype]]) for each in signatures]
        for signatures in (meta.input_signature, meta.output_signature)
    ]
    assert tuple(types) == main_types(module.get_stablehlo_text())
    assert len(meta.input_locations) == len(meta.input_signature)
    assert module.get_stablehlo_bytecode("forward") == module.get_stablehlo_text("forward").encode()


def test_the_files_of_a_model(device, tmp_path):
    model, args, _ = export_models.make("bfloat16")
    save_torch_model_as_stablehlo(model, args, tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    functions = {f"functions/forward.{ending}" for ending in ("meta", "mlir", "pt2")}
    assert names == functions | {f"data/{name}" for name in model.state_dict()}
    bias = np.load(tmp_path / "data" / "linear.bias")
    assert bias.dtype == "V2" and torch.equal(
        torch.from_numpy(bias.view("i2")).view(torch.bfloat16), model.linear.bias.detach()
    )
    meta = json.loads((tmp_path / "functions" / "forward.meta").read_text())
    assert meta["input_locations"][-1] == {"type_": "input_arg", "position": 0, "name": ""}
    assert meta["input_signature"][0] == {"shape": [8, 8], "dtype": "bfloat16", "dynamic_dims": []}
    assert os.path.getsize(tmp_path / "functions" / "forward.pt2") < 60_000


def test_weights_are_not_in_the_program(device, tmp_path):
    save_torch_model_as_stablehlo(nn.Linear(1000, 1000), (torch.ones(1, 1000),), tmp_path)
    assert os.path.getsize(tmp_path / "functions" / "forward.pt2") < 100_000


def test_mutations_are_the_last_outputs(device):
    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x, y):
            self.count.add_(x)
            y.mul_(2)
            return self.count.sum()

    module = export(Writer(), torch.ones(2), torch.ones(3))
    y = torch.ones(3, device=device)
    assert module(torch.ones(2), y).item() == 2 and y.tolist() == [2, 2, 2]
    meta = signature(module)
    assert meta.mutations == [InputLocation.parameter("count"), InputLocation.input_arg(1)]
    assert [each.shape for each in meta.output_signature] == [[], [2], [3]]


def test_a_call_leaves_the_model_and_the_files_as_they_are(device, tmp_path):
    model, args, _ = export_models.make("mutation")
    model.to(device)
    module = export(model, *(a.to(device) for a in args))
    module.save(tmp_path)
    module(*args)
    assert model.count.item() == 0
    assert np.load(tmp_path / "data" / "count") == 0
    module.save(tmp_path)
    assert np.load(tmp_path / "data" / "count") == 1


def test_the_exported_program_stays_as_it_is(device):
    model, args, kwargs = export_models.make("nested")
    exported = torch.export.export(model, args, kwargs)
    before = str(exported)
    exported_program_to_stablehlo(exported)
    assert str(exported) == before
    assert {t.device.type for t in exported.constants.values()} == {"cpu"}


def test_what_is_no_tensor_stands_in_the_signature(device):
    model, args, kwargs = export_models.make("nested")
    meta = signature(export(model, *args, **kwargs))
    assert meta.constant_outputs == [(3, None), (4, 7)]
    meta = signature(export(Second(), torch.ones(2), torch.ones(3), None, 5))
    assert [each.position for each in meta.input_locations] == [1]
    assert [(place.position, each.dtype) for place, each in meta.unused_inputs] == [
        (0, "float32"),
        (2, "NoneType"),
        (3, "int"),
    ]


class Second(nn.Module):
    """Leaves inputs out."""

    def forward(self, x, y, nothing, number):
        return y * number


def test_calls_compile_once_and_are_one_program(device, compiles):
    model, args, _ = export_models.make("attention")
    module = export(model, *args)
    kept = module(*args)
    torch_xla.sync(wait=True)
    met.clear_all()
    compiles.reset()
    for _ in range(3):
        kept = module(*args)
        torch_xla.sync(wait=True)
    assert kept.device == device
    assert compiles.value == 0 and met.metric_data("ExecuteTime")[0] == 3
    assert met.executed_fallback_ops() == []


def test_an_export_runs_nothing(device):
    model, args, _ = export_models.make("convolutions")
    exported = torch.export.export(model, args)
    count = met.metric_data("ExecuteTime")
    exported_program_to_stablehlo(exported)
    assert met.metric_data("ExecuteTime") == count


def test_an_operation_of_the_users_own_is_exported_as_its_parts(device):
    @torch.library.custom_op("export_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2

    twice.register_fake(torch.empty_like)

    class Model(nn.Module):
        def forward(self, x):
            return twice(x) + 1

    x = torch.randn(4)
    module = export(Model(), x)
    assert "stablehlo.sine" in module.get_stablehlo_text()
    torch.testing.assert_close(module(x).cpu(), x.sin() * 2 + 1)


def test_an_operation_without_a_form_is_written_as_its_parts(device):
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))  # aten::_weight_norm_interface has none
    x = torch.randn(2, 4)
    module = export(model, x)
    assert "stablehlo.sqrt" in module.get_stablehlo_text()
    torch.testing.assert_close(module(x).cpu(), model(x))


@pytest.mark.checks_values
def test_a_division_of_integers_by_a_tensor_is_exported(device):
    class Divide(nn.Module):
        def forward(self, a, b):
            return a // b, a % b, 7 % b

    inputs = (torch.tensor([7, -8]), torch.tensor([2, 3]))
    program = exported_program_to_stablehlo(torch.export.export(Divide(), inputs))
    assert "stablehlo.divide" in program.get_stablehlo_text("forward")
    assert [t.tolist() for t in program(*(t.to(device) for t in inputs))] == [t.tolist() for t in Divide()(*inputs)]


def test_numbers_stand_in_the_text(device):
    class Model(nn.Module):
        def forward(self, x, n):
            return x * n + 0.25, x > 1.5

    module = export(Model(), torch.arange(3.0), 3)
    assert main_types(module.get_stablehlo_text())[0] == ["3xf32"]
    assert [t.tolist() for t in module(torch.arange(3.0), 3)] == [[0.25, 3.25, 6.25], [False, False, True]]


# ---- Options ----
def dynamic(size: int = 4) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=2)
    return torch.export.export(nn.Linear(3, 2), (torch.ones(size, 3),), dynamic_shapes=({0: batch},))


def test_sizes_that_vary_are_refused(device):
    with pytest.raises(NotImplementedError, match=r"the input input has sizes that vary, \[.*, 3\]: .* given sizes"):
        exported_program_to_stablehlo(dynamic())


def test_other_arguments_choose_the_sizes(device):
    options = StableHLOExportOptions(override_tracing_arguments=(torch.ones(7, 3),))
    module = exported_program_to_stablehlo(dynamic(), options)
    assert main_types(module.get_stablehlo_text()) == (["2x3xf32", "2xf32", "7x3xf32"], ["7x2xf32"])
    assert module(torch.ones(7, 3)).shape == (7, 2)


@pytest.mark.parametrize("option", ["save_weights", "export_weights"])
def test_without_weights_a_model_is_not_called(device, option, tmp_path):
    model = nn.Linear(2, 2)
    options = StableHLOExportOptions(**{option: False})
    save_as_stablehlo(torch.export.export(model, (torch.ones(1, 2),)), tmp_path, options)
    assert not list(tmp_path.glob("data/*"))
    loaded = StableHLOGraphModule.load(tmp_path)
    assert len(main_types(loaded.get_stablehlo_text())[0]) == 3
    with pytest.raises(ValueError, match=r"without its weights, .* lacks \['bias', 'weight'\]"):
        loaded(torch.ones(1, 2))


@pytest.mark.parametrize(
    "option",
    [
        {"include_human_readable_text": False},
        {"inline_all_constant": False},
        {"custom_ops_allowed_in_graph": {"mine"}},
        {"export_node_metadata": True},
    ],
)
def test_options_that_are_refused(device, option):
    (name,) = option
    assert name in {field.name for field in dataclasses.fields(StableHLOExportOptions)}
    exported = torch.export.export(nn.ReLU(), (torch.ones(2),))
    with pytest.raises(NotImplementedError, match=f"StableHLOExportOptions.{name} can only be"):
        exported_program_to_stablehlo(exported, StableHLOExportOptions(**option))


# ---- What is refused ----
class Program(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize(
    "function, error, text",
    [
        (lambda x: nn.functional.dropout(x, 0.5), NotImplementedError, "draws random numbers"),
        (lambda x: x.nonzero(), RuntimeError, "aten.nonzero.default cannot be exported as StableHLO: nothing runs"),
    ],
)
def test_programs_that_have_no_text(device, function, error, text):
    with pytest.raises(error, match=text):
        export(Program(function), torch.ones(4))
    assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]  # nothing is left of the attempt


def test_an_operation_without_a_form(device):
    with pytest.raises(NotImplementedError, match="no StableHLO of this graph: aten::_fft_r2c"):
        export(Program(lambda x: torch.fft.rfft(x).real), torch.ones(4))


def test_wrong_inputs(device):
    module = export(nn.Linear(3, 2), torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"input 0 of the model is float32\[4, 3\], but got float32\[5, 3\]"):
        module(torch.ones(5, 3))
    with pytest.raises(ValueError, match=r"input 0 of the model is float32\[4, 3\], but got float64\[4, 3\]"):
        module(torch.ones(4, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match="the model takes the inputs"):
        module(torch.ones(4, 3), 1)
    with pytest.raises(ValueError, match=r"the model has no function backward, but has \['forward'\]"):
        module.evaluate("backward", (torch.ones(4, 3),))


def test_inputs_by_name_in_another_order(device):
    class Model(nn.Module):
        def forward(self, x, *, a, b):
            return x + a - b

    module = export(Model(), torch.zeros(2), a=torch.ones(2), b=torch.ones(1))
    assert module(torch.zeros(2), b=torch.ones(1), a=torch.full((2,), 5.0)).tolist() == [4, 4]


def test_a_folder_that_is_none_of_an_export(device, tmp_path):
    with pytest.raises(FileNotFoundError, match="it is no folder of an export"):
        StableHLOGraphModule.load(tmp_path)


def test_names_of_the_package(device):
    assert torch_xla.save_as_stablehlo is save_as_stablehlo
    assert torch_xla.save_torch_model_as_stablehlo is save_torch_model_as_stablehlo


# ---- The document ----
def test_the_example_of_the_document(device, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)[0], names)
    expected = names["model"](names["x"])
    assert "func.func public @main(" in capsys.readouterr().out
    torch.testing.assert_close(names["loaded"](names["x"]).cpu(), expected)
