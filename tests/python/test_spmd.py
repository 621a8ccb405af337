"""Tensors that are spread over a mesh (torch_xla.distributed.spmd), of as many devices as the process has.

test_several_devices.py runs this file with four, too.
"""

import copy
import functools
import io
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC, experimental
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.distributed.spmd import xla_sharding as sharding
from torch_xla.distributed.spmd.debugging import visualize_sharding, visualize_tensor_sharding
from torch_xla.experimental import xla_sharded_tensor, xla_sharding
from torch_xla.experimental.distributed_checkpoint import prime_optimizer
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

N = xr.global_runtime_device_count()


@pytest.fixture(autouse=True)
def spmd(monkeypatch):
    monkeypatch.setenv("XLA_USE_SPMD", "1")


@pytest.fixture
def mesh():
    return xs.Mesh(range(N), (N, 1), ("data", "model"))


@pytest.fixture
def x(device):
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)


# ---- The devices ----
def test_the_devices_are_one_to_the_program(monkeypatch):
    assert xr.is_spmd() and torch_xla.device_count() == xr.addressable_device_count() == xr.global_device_count() == 1
    assert xr.addressable_runtime_device_count() == N == len(xr.global_runtime_device_attributes())
    assert len(xm.get_xla_supported_devices()) == 1 == xr.world_size()
    monkeypatch.delenv("XLA_USE_SPMD")
    assert not xr.is_spmd() and torch_xla.device_count() == N
    xr.use_spmd()
    assert xr.is_spmd()


def test_meshes(mesh):
    assert mesh.size() == N and mesh.shape() == {"data": N, "model": 1} and mesh.get_axis_name_idx("model") == 1
    assert xs.get_1d_mesh("data").axis_names == ("data",) and xs.get_1d_mesh().shape() == {0: N}
    hybrid = xs.HybridMesh(ici_mesh_shape=(N, 1), axis_names=("data", "model"))
    assert str(hybrid) == str(mesh) and hybrid.dcn_mesh_shape == (1, 1)
    assert xs.Mesh.from_str(str(mesh)).shape() == mesh.shape() and xs.Mesh.from_str("a mesh") is None
    xs.set_global_mesh(mesh)
    assert xs.get_global_mesh() is mesh


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda mesh, x: xs.Mesh(range(N), (1, N + 1)), rf"IDs \({N}\) must match mesh size \({N + 1}\)"),
        (lambda mesh, x: xs.Mesh(range(7, N + 7), (1, N)), rf"Device IDs must be less than mesh size \({N}\), got \[7"),
        (lambda mesh, x: xs.Mesh(range(N + 1), (1, N + 1)), rf"must match the global number of devices \({N}\)"),
        (lambda mesh, x: xs.Mesh(range(N), (1, N), ("a", "a")), "Axis names must be unique"),
        (lambda mesh, x: xs.Mesh(range(N), (1, N), ("a",)), r"axis names \(1\) must match mesh dimensions \(2\)"),
        (lambda mesh, x: xs.HybridMesh(ici_mesh_shape=(N, 1), dcn_mesh_shape=(1,)), "has not as many axes as"),
        (lambda mesh, x: xs.HybridMesh(ici_mesh_shape=(N,), dcn_mesh_shape=(2,)), "does not hold the 1 slices"),
        (lambda mesh, x: xs.HybridMesh(ici_mesh_shape=(N + 1,)), rf"devices of each slice, which are \[{N}\]"),
        (lambda mesh, x: xs.mark_sharding(x, mesh, ("data",)), "not one entry for each dim"),
        (lambda mesh, x: xs.mark_sharding(x, mesh, ("data", "data")), "an axis of the mesh occurs twice"),
        (lambda mesh, x: xs.mark_sharding(x, mesh, ("other", None)), "axis 'other' is none of the mesh's"),
        (lambda mesh, x: xs.mark_sharding(x, mesh, (1.0, None)), "axis 1.0 is none of the mesh's"),
        (lambda mesh, x: xs.mark_sharding(x.cpu(), mesh, ("data", None)), "this one is on cpu"),
        (lambda mesh, x: xs.shard_as(x, x[0]), "only if they are equal"),
        (lambda mesh, x: xs.shard_as(x, [x]), "the nests differ"),
        (lambda mesh, x: visualize_sharding("{tiles}"), "is not as"),
        (lambda mesh, x: visualize_sharding("{devices=[2,2]0,1,2}"), "not as many devices as tiles"),
    ],
)
def test_what_does_not_fit(x, mesh, call, match):
    with pytest.raises(ValueError, match=match):
        call(mesh, x)


# ---- Marks ----
def test_a_mark_is_of_the_memory(x, mesh):
    sharded = xs.mark_sharding(x, mesh, ("data", None))
    text = _XLAC._get_xla_sharding_spec(x)
    assert text == (f"{{devices=[{N},1]{','.join(map(str, range(N)))}}}" if N > 1 else "{replicated}")
    assert isinstance(sharded, xs.XLAShardedTensor) and sharded.sharding_spec == text and text in repr(sharded)
    assert sharded.sharding_type == (xs.ShardingType.TILED if N > 1 else xs.ShardingType.REPLICATED)
    assert type(sharded + 1) is xs.XLAShardedTensor and type(sharded.global_tensor) is torch.Tensor
    x.add_(1)
    torch_xla.sync()
    assert sharded.tolist() == [[2, 3], [4, 5]] and xs.sharding_spec(x.detach()) == xs.sharding_spec(x) == text
    assert xs.sharding_spec(x + 1) == xs.sharding_spec(x[0]) == xs.sharding_spec(x.t()) == ""
    assert type(xs.clear_sharding(sharded)) is torch.Tensor and xs.sharding_spec(x) == ""
    assert sharded.local_shards is None and sharded.sharding_type is None and sharded.sharding_spec == ""


def test_views_of_one_tensor_have_marks_of_their_own(device, mesh):
    whole = torch.zeros(8, 8, device=device)
    top, bottom = whole[:4], whole[4:]
    xs.mark_sharding(top, mesh, ("data", None))
    xs.mark_sharding(bottom, mesh, (None, "data"))
    xs.mark_sharding(whole, mesh, (None, None))
    parameter = nn.Parameter(bottom)
    bottom.add_(1)
    torch_xla.sync()
    marked = [xs.sharding_spec(t) for t in (top, whole[:4], bottom.detach(), parameter, whole, whole[2:6])]
    rows, columns = (str(mesh.get_op_sharding(spec)) for spec in (("data", None), (None, "data")))
    assert marked == [rows, rows, columns, columns, "{replicated}", ""]
    xs.clear_sharding(top)
    assert [xs.sharding_spec(t) for t in (top, bottom, whole)] == ["", columns, "{replicated}"]


def test_names_of_the_first_versions():
    assert xla_sharding.Mesh is xs.Mesh and xla_sharding.mark_sharding is xs.mark_sharding
    assert xla_sharding.clear_sharding is xs.clear_sharding
    assert xla_sharding.HybridMesh is sharding.HybridMesh is xs.HybridMesh and sharding.Mesh is xs.Mesh
    assert xla_sharding.get_1d_mesh is sharding.get_1d_mesh is xs.get_1d_mesh
    assert xla_sharding.set_global_mesh is sharding.set_global_mesh is xs.set_global_mesh
    assert sharding.get_global_mesh is xs.get_global_mesh
    assert xla_sharded_tensor.XLAShard is xs.XLAShard
    assert xla_sharded_tensor.XLAShardedTensor is xs.XLAShardedTensor
    assert experimental.compile is torch_xla.compile


def test_copies_keep_the_mark(x, mesh):
    sharded = xs.mark_sharding(x, mesh, ("data", None))
    for t in (sharded.clone(), copy.deepcopy([sharded, sharded])[1], sharded.detach(), torch.nn.Parameter(sharded)):
        assert isinstance(t, xs.XLAShardedTensor) and t.sharding_spec == sharded.sharding_spec and t.equal(sharded)


def test_a_mark_ends_with_the_memory(device, mesh):
    for _ in range(200):
        xs.mark_sharding(torch.zeros(2, 2, device=device), mesh, ("data", None))
    assert len(xs.xla_sharded_tensor._marks._entries) < 200


def test_manual_sharding_over_one_device(x):
    if N == 1:
        mesh = xs.Mesh([0], (1, 1))
        part = xs.enable_manual_sharding(x, (0, None), mesh=mesh)
        assert xs.disable_manual_sharding(part * 2, (0, None), x.shape, mesh=mesh).tolist() == [[2, 4], [6, 8]]
        with pytest.raises(ValueError, match="full_shape"):
            xs.disable_manual_sharding(part, (0, None), (4, 2), mesh=mesh)


def test_wrappers(x, mesh):
    assert xs.wrap_if_sharded(x) is x and xs.wrap_if_sharded(3) == 3
    xs.mark_sharding(x, mesh, ("data", None))
    assert isinstance(xs.wrap_if_sharded(x), xs.XLAShardedTensor) == (N > 1)
    wrapped = xs.wrap_as_sharded_tensor(x)
    assert xs.wrap_as_sharded_tensor(wrapped) is wrapped and xs.unwrap_sharded_tensor(x) is x
    y = torch.zeros_like(x)
    xs.shard_as({"a": x}, {"a": y})
    assert xs.sharding_spec(y) == xs.sharding_spec(x)
    copied = copy.deepcopy(x)
    assert copied.equal(x)
    file = io.BytesIO()
    torch.save(wrapped, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).equal(x)


def test_gradients_are_sharded(x, mesh):
    x.requires_grad_()
    y = xs.mark_sharding_with_gradients(x, mesh, ("data", None))
    assert xs.sharding_spec(xs.MarkShardingFunction.apply(x * 2, mesh, ("data", None))) == xs.sharding_spec(y)
    (y * torch.ones_like(y)).sum().backward()
    assert xs.sharding_spec(y) == xs.sharding_spec(x.grad) != "" == xs.sharding_spec(x)
    assert x.grad.tolist() == [[1, 1], [1, 1]]


def test_linear_layers(x):
    layer = nn.Linear(2, 3).to(x.device)
    expected = F.linear(x, layer.weight, layer.bias)
    assert xs.XLAPatchedLinear.apply(x, layer.weight, layer.bias).equal(expected)
    assert xs.xla_patched_nn_linear_forward(layer, x).equal(expected)
    assert xs.apply_xla_patch_to_nn_linear(layer) is layer


def test_a_barrier_in_the_backward(device):
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    model, x = copy.deepcopy(eager).to(device), torch.randn(4, 2)
    assert xs.apply_backward_optimization_barrier(m=model[2]) is model[2]
    for net, place in ((eager, "cpu"), (model, device)):
        net(x.to(place)).square().sum().backward()
    text = _XLAC._get_xla_tensors_text([model[0].weight.grad])
    assert text.count("optimization_barrier") == 1
    for parameter, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), expected.grad)


# ---- Training ----
def test_training_is_that_of_one_device(device, mesh):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    model = copy.deepcopy(plain)
    xs.mark_sharding(model[0].weight, mesh, ("data", None))
    xs.mark_sharding(model[2].weight, mesh, (None, "data"))
    marked = xs.sharding_spec(model[0].weight)
    losses = []
    for network in (plain, model):
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.1)
        torch.manual_seed(1)
        for _ in range(3):
            data = torch.randn(12, 8).to(device)
            if network is model:
                data = xs.mark_sharding(data, mesh, ("data", None))
            loss = network(data).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    if os.environ.get("PJRT_DEVICE", "CPU") == "CPU":
        assert losses[:3] == losses[3:]
    np.testing.assert_allclose(losses[:3], losses[3:], rtol=1e-5)  # devices that share out a sum add in another order
    assert xs.sharding_spec(model[0].weight) == marked
    assert xs.sharding_spec(model.state_dict()["0.weight"]) == marked


def test_the_state_of_an_optimizer_before_its_first_step(device, mesh):
    weight, bias = nn.Parameter(torch.ones(4, 2, device=device)), nn.Parameter(torch.ones(4, device=device))
    xs.mark_sharding(weight, mesh, ("data", None))
    optimizer = prime_optimizer(torch.optim.AdamW([weight, bias], lr=0.5))
    assert weight.tolist() == [[1, 1]] * 4 and bias.tolist() == [1] * 4 and weight.grad is None
    assert xs.sharding_spec(optimizer.state[weight]["exp_avg"]) == xs.sharding_spec(weight)
    assert xs.sharding_spec(optimizer.state[bias]["exp_avg"]) in ("", "{replicated}")  # a plugin tells what is so
    assert prime_optimizer(torch.optim.SGD([weight])).state_dict()["state"] == {}


# ---- Batches ----
def test_batches_are_sharded(device, mesh):
    spec = xs.ShardingSpec(mesh, ("data", None))
    (batch,) = pl.MpDeviceLoader([(torch.ones(2, 3), torch.zeros(2))], device, input_sharding=spec)
    assert [tuple(t.shape) for t in batch] == [(2, 3), (2,)] and all(t.device == device for t in batch)
    assert xs.sharding_spec(batch[0]) and not xs.sharding_spec(batch[1])
    by_keys = {"a": spec, "b": xs.ShardingSpec(mesh, (None,))}
    (batch,) = pl.MpDeviceLoader([{"a": torch.ones(2, 3), "b": torch.zeros(2)}], device, input_sharding=by_keys)
    assert xs.sharding_spec(batch["a"]) and xs.sharding_spec(batch["b"]) == "{replicated}"
    with pytest.raises(KeyError):
        next(iter(pl.MpDeviceLoader([{"c": torch.ones(2, 3)}], device, input_sharding=by_keys)))
    with pytest.raises(ValueError, match="should be one too, and is a Tensor"):
        next(iter(pl.MpDeviceLoader([torch.ones(2, 3)], device, input_sharding=by_keys)))
    assert spec.can_apply(torch.ones(2, 3)) and not spec.can_apply(torch.ones(2))


# ---- Modules ----
def test_fully_sharded_modules(device, monkeypatch):
    monkeypatch.setattr(xs.mesh, "_global_mesh", None)
    wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.ReLU, nn.Linear})
    seen = []
    with pytest.raises(ValueError, match="there is no mesh"):
        SpmdFullyShardedDataParallel(nn.Linear(2, 2))
    xs.set_global_mesh(xs.Mesh(range(N), (N, 1), ("fsdp", "model")))
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    expected = model(torch.ones(4, 2))
    sharded = SpmdFullyShardedDataParallel(
        model, shard_output=lambda y, mesh: seen.append(y.shape), auto_wrap_policy=wrap
    )
    found = sharded(torch.ones(4, 2, device=device))
    torch.testing.assert_close(found.cpu(), expected)
    assert len(seen) == 4 and isinstance(sharded[0], SpmdFullyShardedDataParallel)
    assert next(iter(sharded.state_dict())) == "_orig_module.0._orig_module.weight" and sharded.module is model
    found.sum().backward()
    assert all(p.device == device and p.grad is not None and xs.sharding_spec(p) for p in sharded.parameters())
    with pytest.raises(ValueError, match="data axis is not in the mesh: its axes are \\['fsdp', 'model'\\]"):
        SpmdFullyShardedDataParallel(nn.Linear(2, 2), extra_data_axis="data")
    with pytest.raises(RuntimeError, match="already"):
        SpmdFullyShardedDataParallel(sharded)


# ---- Pictures ----
def test_pictures_of_shardings(x, mesh, capsys):
    assert visualize_sharding("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", use_color=False).row_count == 2
    out = capsys.readouterr().out
    assert "[0, 1]" in out and "[2, 3]" in out and "last_tile_dim_replicate" in out
    table = visualize_sharding("{devices=[2,2]3,2,1,0}", use_color=False, scale=0.5, max_width=60)
    assert (table.row_count, len(table.columns)) == (2, 2)
    assert visualize_sharding("{devices=[2]1,0}").row_count == 2
    visualize_tensor_sharding(x, use_color=False)
    assert f"{xr.device_type()} {list(range(N))}" in capsys.readouterr().out
    xs.mark_sharding(x, mesh, ("data", None))
    assert visualize_tensor_sharding(x).row_count == N


def test_numbers_of_devices_are_numpy_arrays(x):
    mesh = xs.Mesh(np.arange(N), (N,))
    assert mesh.get_logical_mesh().tolist() == list(range(N))
