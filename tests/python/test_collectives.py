"""Collectives, processes and sharding in a run of one device: each gives what one replica gets."""

import functools

import pytest
import torch
from torch import nn

import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel


@pytest.fixture
def x(device):
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)


# ---- Collectives ----
def test_all_reduce_gives_a_new_tensor(x):
    result = xm.all_reduce(xm.REDUCE_SUM, x, scale=0.5, groups=[[0]])
    assert result.tolist() == [[0.5, 1.0], [1.5, 2.0]] and x.tolist() == [[1, 2], [3, 4]]
    xm.all_reduce(xm.REDUCE_MAX, x).zero_()
    assert x.tolist() == [[1, 2], [3, 4]]


def test_all_reduce_of_a_list_writes_in_place(x):
    parameter = nn.Parameter(x.clone())
    both = [x, parameter]
    assert xm.all_reduce("sum", both, scale=2.0) is both
    assert x.tolist() == parameter.tolist() == [[2, 4], [6, 8]]


def test_gather_and_scatter(x):
    output = torch.zeros_like(x)
    assert xm.all_gather(x, dim=-1).tolist() == x.tolist()
    assert xm.all_gather(x, output=output) is output and output.tolist() == x.tolist()
    other_shape = torch.zeros(5, 1, device=x.device)
    assert xm.all_gather(x, output=other_shape, channel_id=1, use_global_device_ids=True) is other_shape
    assert other_shape.tolist() == x.tolist()
    assert [t.tolist() for t in xm.all_gather([x, x + 1])] == [x.tolist(), (x + 1).tolist()]
    assert xm.reduce_scatter("sum", x, 2.0, scatter_dim=1, shard_count=1).tolist() == [[2, 4], [6, 8]]
    assert xm.reduce_scatter("sum", [x], 1.0, 0, 1, output=[output], channel_id=1)[0] is output
    assert xm.all_to_all(x, 0, 1, 1).tolist() == x.tolist()
    assert xm.all_gather_bucketized([x])[0].tolist() == x.tolist()
    assert xm.reduce_scatter_bucketized("sum", [x], 0.5, 0, 1)[0].tolist() == [[0.5, 1], [1.5, 2]]


def test_permute_and_broadcast(x):
    assert xm.collective_permute(x, [[0, 0]]).tolist() == x.tolist()
    assert xm.collective_permute(x, []).tolist() == [[0, 0], [0, 0]]
    xm.collective_broadcast([x])
    xm.broadcast_master_param(nn.Linear(2, 2))
    assert x.tolist() == [[1, 2], [3, 4]]


def test_gradients_of_collectives(x):
    x.requires_grad_()
    (xf.all_reduce("sum", x, scale=2.0) + xf.all_gather(x, dim=1)).sum().backward()
    assert x.grad.tolist() == [[3, 3], [3, 3]]
    w = torch.randn(3, 2, device=x.device)
    torch.testing.assert_close(xf.distributed_mm(w, x, split=2), w @ x)


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda x: xm.all_reduce("sum", x, groups=[[0, 1]]), ValueError, "the run has 1, numbered from 0"),
        (lambda x: xm.all_reduce("avg", x), ValueError, "reduction 'avg' is not known; allowed are sum, mul"),
        (lambda x: xm.all_gather(x[0, 0]), IndexError, "no dimensions"),
        (lambda x: xm.reduce_scatter("sum", x, 1.0, 0, 2), ValueError, "shard_count=2 does not fit the group"),
        (lambda x: xm.reduce_scatter("sum", x, 1.0, 2, 1), IndexError, "out of range"),
        (lambda x: xm.all_to_all(x, 0, 1, 2), ValueError, "split_count=2"),
        (lambda x: xm.collective_permute(x, [[0, 1]]), ValueError, "replica 1 does not exist"),
        (lambda x: xm.collective_broadcast([x], root_ordinal=3), ValueError, "replica 3 does not exist"),
        (lambda x: xm.send(x, 0), RuntimeError, "needs a second replica"),
        (lambda x: xm.set_replication("xla:0", ["xla:0", "xla:1"]), ValueError, "needs 2 replicas"),
    ],
)
def test_what_needs_more_devices_is_refused(x, call, error, match):
    with pytest.raises(error, match=match):
        call(x)


def test_meetings(x):
    assert xm.rendezvous("tag", b"payload") == [b"payload"] and xm.xla_rendezvous(b"p", tag="t") == [b"p"]
    (reduced,) = xm.mesh_reduce("tag", (x, 3), lambda values: values)
    assert reduced[0].device.type == "cpu" and reduced[0].tolist() == x.tolist() and reduced[1] == 3
    assert xm.mesh_reduce("tag", 3, sum) == 3
    seen = []
    xm.do_on_ordinals(lambda t: seen.append(t.device.type), (x,))
    xm.do_on_ordinals(seen.append, (1,), ordinals=(1,))
    assert seen == ["cpu"]
    xm.set_replication(xm.xla_device(), xm.get_xla_supported_devices())


# ---- Processes ----
def test_torch_distributed_of_one_process(run_python):
    out = run_python("""
        import torch, torch.distributed as dist
        import torch_xla.distributed.xla_backend as xbn
        dist.init_process_group("xla", rank=0, world_size=1, store=dist.HashStore())
        assert isinstance(dist.group.WORLD, xbn.ProcessGroupXla)
        x = torch.ones(3, device="xla")
        dist.all_reduce(x)
        gathered = [torch.zeros(3, device="xla")]
        dist.all_gather(gathered, x)
        part = torch.zeros(3, device="xla")
        dist.reduce_scatter(part, [x])
        objects = [None]
        dist.all_gather_object(objects, {"a": 1})
        dist.broadcast(x, 0)
        dist.barrier()
        print(x.tolist(), gathered[0].tolist(), part.tolist(), objects)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1).to("xla"))
        model(x[None]).sum().backward()
        print(model.module.weight.grad.tolist())
        dist.destroy_process_group()
    """)
    assert out.splitlines()[:2] == ["[1.0, 1.0, 1.0] [1.0, 1.0, 1.0] [1.0, 1.0, 1.0] [{'a': 1}]", "[[1.0, 1.0, 1.0]]"]


# ---- Sharding ----
def test_a_mesh_of_one_device(x):
    mesh = xs.Mesh([0], (1, 1), ("data", "model"))
    assert mesh.size() == 1 and mesh.shape() == {"data": 1, "model": 1} and mesh.get_axis_name_idx("model") == 1
    assert xs.get_1d_mesh("data").axis_names == ("data",)
    assert xs.HybridMesh(ici_mesh_shape=(1, 1)).mesh_shape == (1, 1)
    assert xs.mark_sharding(x, mesh, ("data", None)) is x
    assert xs.mark_sharding(x, mesh, (None, ("data", "model"))) is x
    assert _XLAC._get_xla_sharding_spec(x) == "{maximal device=0}"
    assert _XLAC._get_xla_sharding_spec(xs.clear_sharding(x)) == "" == _XLAC._get_xla_sharding_spec(x + 1)
    xs.set_global_mesh(mesh)
    assert xs.get_global_mesh() is mesh
    assert xs.ShardingSpec(mesh, (0, None)).can_apply(x) and not xs.ShardingSpec(mesh, (0,)).can_apply(x)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda mesh, x: xs.Mesh([0], (1, 2)), r"mesh_shape \(1, 2\) does not hold 1 devices"),
        (lambda mesh, x: xs.Mesh([0, 1], (1, 2)), r"device_ids \[0, 1\] are not the run's devices \[0\]"),
        (lambda mesh, x: xs.Mesh([0], (1, 1), ("a", "a")), "a name occurs twice"),
        (lambda mesh, x: xs.Mesh([0], (1, 1), ("a",)), "not as many as the axes"),
        (lambda mesh, x: xs.mark_sharding(x, mesh, ("data",)), "not one entry for each dim"),
        (lambda mesh, x: xs.mark_sharding(x, mesh, ("data", "data")), "an axis of the mesh occurs twice"),
        (lambda mesh, x: xs.mark_sharding(x, mesh, ("other", None)), "axis 'other' is none of the mesh's"),
        (lambda mesh, x: xs.mark_sharding(x.cpu(), mesh, ("data", None)), "this one is on cpu"),
    ],
)
def test_shardings_that_do_not_fit(x, call, match):
    with pytest.raises(ValueError, match=match):
        call(xs.Mesh([0], (1, 1), ("data", "model")), x)


def test_use_spmd(monkeypatch):
    monkeypatch.setattr(xr, "_spmd", False)
    assert not xr.is_spmd()
    xr.use_spmd()
    assert xr.is_spmd()


def test_modules_sharded_over_one_device(device, monkeypatch):
    monkeypatch.setattr(xs.xla_sharding, "_global_mesh", None)
    wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.ReLU, nn.Linear})
    seen = []
    with pytest.raises(ValueError, match="there is no mesh"):
        SpmdFullyShardedDataParallel(nn.Linear(2, 2))
    xs.set_global_mesh(xs.Mesh([0], (1, 1), ("fsdp", "model")))
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
    assert all(p.device == device and p.grad is not None for p in sharded.parameters())
    with pytest.raises(ValueError, match="no axis 'data', but \\['fsdp', 'model'\\]"):
        SpmdFullyShardedDataParallel(nn.Linear(2, 2), extra_data_axis="data")
    with pytest.raises(RuntimeError, match="already"):
        SpmdFullyShardedDataParallel(sharded)


def test_a_sharding_of_batches_leaves_other_tensors_alone(device):
    spec = xs.ShardingSpec(xs.Mesh([0], (1,), ("data",)), ("data", None))
    (batch,) = pl.MpDeviceLoader([(torch.ones(2, 3), torch.zeros(2))], device, input_sharding=spec)
    assert [tuple(t.shape) for t in batch] == [(2, 3), (2,)] and all(t.device == device for t in batch)


def test_modules_that_compute_again():
    from torch_xla.distributed.fsdp import checkpoint_module

    module = checkpoint_module(nn.Linear(2, 2))
    module(torch.ones(1, 2)).sum().backward()
    assert module.weight.grad.tolist() == [[1, 1], [1, 1]]
