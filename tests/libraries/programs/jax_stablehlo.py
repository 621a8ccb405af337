"""Exported models in JAX: it reads the files alone, and gives what the models give."""

import json
import os
import re
import sys
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax.extend.mlir import ir

DOCUMENT = Path(__file__).parents[3] / "docs" / "stablehlo.md"
jax.config.update("jax_enable_x64", True)


def load_array(path: Path, dtype: str) -> np.ndarray:
    """An array of the export, or of bfloat16, which numpy writes as bytes."""
    array = np.load(path)
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


def run(folder: Path, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """All results of the function in the folder, for the user's inputs."""
    meta = json.loads((folder / "functions" / "forward.meta").read_text())
    arguments = []
    for place, signature in zip(meta["input_locations"], meta["input_signature"]):
        if place["type_"] == "input_arg":
            arguments.append(inputs[place["position"]])
        elif place["type_"] == "parameter":
            arguments.append(load_array(folder / "data" / place["name"], signature["dtype"]))
        else:
            arguments.append(load_array(folder / "constants" / str(place["position"]), signature["dtype"]))
        assert list(arguments[-1].shape) == signature["shape"] and str(arguments[-1].dtype) == signature["dtype"]
    with mlir.make_ir_context():
        module = ir.Module.parse((folder / "functions" / "forward.mlir").read_text())
    devices = xla_client.DeviceList((jax.devices("cpu")[0],))
    backend = jax.devices("cpu")[0].client
    program = backend.compile_and_load(module, devices, xla_client.CompileOptions())
    parts = program.execute_sharded([jax.numpy.asarray(a) for a in arguments]).disassemble_into_single_device_arrays()
    results = [np.asarray(part[0]) for part in parts]
    types = [(list(r.shape), str(r.dtype)) for r in results]
    assert types == [(each["shape"], each["dtype"]) for each in meta["output_signature"]]
    return results


def check(name: str, folder: Path) -> None:
    """Exports the model, runs it in JAX, and compares with PyTorch on the CPU."""
    import export_models
    import torch
    from torch.utils import _pytree as pytree

    from torch_xla import stablehlo

    def to_numpy(t: torch.Tensor) -> np.ndarray:
        t = t.detach()
        return t.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if t.dtype is torch.bfloat16 else t.numpy()

    model, args, kwargs = export_models.make(name)
    stablehlo.save_as_stablehlo(torch.export.export(model, args, kwargs), folder)
    inputs = [to_numpy(t) for t in pytree.tree_leaves((args, kwargs))]
    got = run(folder, inputs)
    expected = [t for t in pytree.tree_leaves(model(*args, **kwargs)) if isinstance(t, torch.Tensor)]
    state = dict(model.named_buffers())
    meta = json.loads((folder / "functions" / "forward.meta").read_text())
    expected += [state[place["name"]] for place in meta["mutations"]]
    assert len(got) == len(expected)
    for ours, theirs in zip(got, map(to_numpy, expected)):
        exact = theirs.dtype.kind in "bi"
        error = 0 if exact else 2.0**-7 if theirs.dtype == ml_dtypes.bfloat16 else 1e-5
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=error, atol=error)
    print(name, [each["dtype"] for each in meta["output_signature"]])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
    from export_models import MODELS

    for model_name in MODELS:
        check(model_name, Path(sys.argv[1], model_name))
    # The programs of docs/stablehlo.md: the first writes what the second reads.
    os.chdir(sys.argv[1])
    names = {}
    for program in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(program, names)
    expected = names["model"](names["torch"].from_numpy(names["inputs"][0])).detach().numpy()
    np.testing.assert_allclose(np.asarray(names["outputs"][0]), expected, rtol=1e-5, atol=1e-6)
