"""Collectives and processes in a run of one device: each gives what one replica gets."""

import pickle

import pytest
import replicas
import torch
from torch import nn

import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend as xla_backend
import torch_xla.experimental.pjrt_backend as pjrt_backend
from torch_xla import _payloads


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


def test_values_without_a_secret(tmp_path):
    """What lies in a store that others reach runs no code."""
    for value in replicas.VALUES:
        read = _payloads.decode(_payloads.encode(value), takes_any=False)
        assert str(read) == str(value) and [type(each) for each in read] == [type(each) for each in value]
    noted = pickle.dumps(replicas.Noted(str(tmp_path / "noted")))
    with pytest.raises(
        RuntimeError, match=r"a replica sent a \w+.open, whose reading may run code.*or set XLA_RUN_SECRET"
    ):
        _payloads.decode(noted, takes_any=False)
    assert not (tmp_path / "noted").exists()
    _payloads.decode(noted, takes_any=True)
    assert (tmp_path / "noted").exists()


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


def test_the_backends_first_name():
    assert pjrt_backend.ProcessGroupXla is xla_backend.ProcessGroupXla


def test_a_process_group_without_a_backend(run_python):
    """As without the package it serves CPU tensors, and those of the device too."""
    out = run_python("""
        import torch, torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import distribute_tensor, Shard
        dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
        for device in ("cpu", "xla"):
            x = torch.ones(3, device=device)
            dist.all_reduce(x)
            print(x.tolist())
        mesh = init_device_mesh("cpu", (1,))
        print(distribute_tensor(torch.ones(2), mesh, [Shard(0)]).to_local().tolist())
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        print(model.module.weight.grad.tolist())
        dist.destroy_process_group()
    """)
    assert out.splitlines() == ["[1.0, 1.0, 1.0]", "[1.0, 1.0, 1.0]", "[1.0, 1.0]", "[[1.0, 1.0], [1.0, 1.0]]"]


# ---- Modules ----
def test_modules_that_compute_again():
    from torch_xla.distributed.fsdp import checkpoint_module

    module = checkpoint_module(nn.Linear(2, 2))
    module(torch.ones(1, 2)).sum().backward()
    assert module.weight.grad.tolist() == [[1, 1], [1, 1]]
