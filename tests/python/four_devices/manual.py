"""Programs that say what each device of a plugin does with its shards. test_several_devices.py runs this file."""

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC

xr.use_spmd()
N = xr.global_runtime_device_count()


@pytest.fixture
def mesh():
    return xs.Mesh(range(N), (2, N // 2), ("a", "b"))


@pytest.fixture
def x():
    return torch.arange(64.0).view(8, 8)


def shards(x: torch.Tensor) -> torch.Tensor:
    """Those of spec ("a", "b"), by device."""
    return x.view(2, 4, N // 2, -1).transpose(1, 2).reshape(N, 4, -1)


@pytest.mark.parametrize("spec", [("a", "b"), ("b", None), (None, ("a", "b")), (None, None)])
@pytest.mark.parametrize("marked", [True, False])
def test_elementwise(mesh, x, spec, marked):
    t = x.to("xla")
    if marked:
        xs.mark_sharding(t, mesh, spec)
    part = xs.enable_manual_sharding(t, spec, mesh=mesh)
    assert list(part.shape) == mesh.get_op_sharding(spec).tile_shape(x.shape)
    assert part.sharding_type is xs.ShardingType.MANUAL and part.sharding_spec == "{manual}"
    whole = xs.disable_manual_sharding((part + 1) * 2, spec, x.shape, mesh=mesh)
    assert torch.equal(whole.cpu(), (x + 1) * 2)
    assert whole.sharding_spec == str(mesh.get_op_sharding(spec))


def test_each_device_computes_on_its_own_shard(mesh, x):
    part = xs.enable_manual_sharding(x.to("xla"), ("a", "b"), mesh=mesh)
    whole = xs.disable_manual_sharding(part - part.mean(), ("a", "b"), x.shape, mesh=mesh).cpu()
    assert torch.allclose(shards(whole), shards(x) - shards(x).mean((1, 2), keepdim=True))


def test_collectives(mesh, x):
    part = xs.enable_manual_sharding(x.to("xla"), ("a", "b"), mesh=mesh).global_tensor
    whole = _XLAC._xla_spmd_all_reduce(xm.REDUCE_SUM, part, 0.5, [range(N)])
    largest = _XLAC._xla_spmd_all_reduce(xm.REDUCE_MAX, part, 1.0, [[i, i + N // 2] for i in range(N // 2)])
    scattered = _XLAC._xla_spmd_reduce_scatter(xm.REDUCE_SUM, part, 1.0, 0, 2, [[i, i + N // 2] for i in range(N // 2)])
    whole = xs.disable_manual_sharding(whole, (None, None), whole.shape, mesh=mesh)
    largest = xs.disable_manual_sharding(largest, (None, "b"), (4, 8), mesh=mesh)
    scattered = xs.disable_manual_sharding(scattered, ("a", "b"), (4, 8), mesh=mesh)
    assert torch.equal(whole.cpu(), shards(x).sum(0) * 0.5)
    assert torch.equal(largest.cpu(), x.view(2, 4, 8).amax(0))
    assert torch.equal(scattered.cpu(), x.view(2, 4, 8).sum(0))
    with pytest.raises(ValueError, match="are not all of shard_count 4 devices"):
        _XLAC._xla_spmd_reduce_scatter(xm.REDUCE_SUM, part, 1.0, 0, 4, [[0, 1]])
    with pytest.raises(ValueError, match="are not of one size"):
        _XLAC._xla_spmd_all_reduce(xm.REDUCE_SUM, part, 1.0, [[0], [1, 2]])


def test_shards_stay_over_a_sync(mesh, x):
    part = xs.enable_manual_sharding(x.to("xla"), ("a", "b"), mesh=mesh) * 3
    torch_xla.sync()
    whole = xs.disable_manual_sharding(part - 1, ("a", "b"), x.shape, mesh=mesh)
    assert torch.equal(whole.cpu(), x * 3 - 1)


def test_regions_in_turn_with_gradients(mesh, x):
    p, q = (x.to(device).div(64).requires_grad_() for device in ("xla", "cpu"))
    p.retain_grad()
    q.retain_grad()
    first = xs.enable_manual_sharding(p, ("a", None), mesh=mesh) ** 2
    between = xs.disable_manual_sharding(first, ("a", None), x.shape, mesh=mesh).global_tensor + 1
    second = xs.enable_manual_sharding(between, (None, "b"), mesh=mesh).sin()
    result = xs.disable_manual_sharding(second, (None, "b"), x.shape, mesh=mesh)
    result.global_tensor.sum().backward()
    expected = (q**2 + 1).sin()
    expected.sum().backward()
    assert torch.allclose(result.detach().cpu(), expected, atol=1e-6)
    assert torch.allclose(p.grad.cpu(), q.grad, atol=1e-6)


def test_the_texts(mesh, x):
    t = xs.mark_sharding(x.to("xla"), mesh, ("a", "b")).global_tensor
    part = _XLAC._spmd_full_to_shard_shape(t)
    hlo = _XLAC._get_xla_tensors_hlo([part])
    assert 'custom_call_target="SPMDFullToShardShape", sharding={manual}' in hlo
    with pytest.raises(RuntimeError, match="a tensor without a sharding has no shards"):
        _XLAC._spmd_full_to_shard_shape(torch.ones(8, 8).to("xla"))
    with pytest.raises(RuntimeError, match="only shards become a whole tensor"):
        _XLAC._spmd_shard_to_full_shape(t, mesh.get_op_sharding((None, None)), x.shape, x.dtype)


def test_slices_are_cut_as_their_base(mesh):
    t = xs.mark_sharding(torch.ones(3, 4, 8).to("xla"), mesh, (None, "a", "b")).global_tensor
    assert xs.sharding_spec(t[1]) == str(mesh.get_op_sharding(("a", "b")))
    assert [xs.sharding_spec(part) for part in (t[:, 1], t[..., 1], t[:, :2], t.transpose(1, 2))] == [""] * 4


def test_runs_over_all_devices_are_counted(mesh, x):
    before = met.counter_value("ExecuteReplicated") or 0
    t = xs.mark_sharding(x.to("xla"), mesh, ("a", "b")).global_tensor + 1
    torch_xla.sync(wait=True)
    assert met.counter_value("ExecuteReplicated") == before + 1 and met.counter_value("ExecuteComputation") is None
    assert met.metric_data("ExecuteReplicatedTime")[0] == before + 1 and t.sum().item() == x.sum() + 64


# ---- As a DTensor ----
def test_placements(mesh, x):
    from torch.distributed.tensor import Partial, Replicate, Shard

    t = xs.mark_sharding(x.to("xla"), mesh, (("a", "b"), None))
    assert t.placements == (Shard(0), Shard(0)) and t._spec.mesh.shape == (2, N // 2)
    assert t.mesh_shape == (2, N // 2) and t.partition_spec == ((0, 1), None) and t._spec is t._spec
    other = t.redistribute(mesh, [Replicate(), Shard(1)])
    assert other.placements == (Replicate(), Shard(1)) and torch.equal(other.cpu(), x)
    assert other.sharding_spec == str(mesh.get_op_sharding((None, "b")))
    assert other.redistribute(mesh, [Shard(-1), Shard(-2)]).placements == (Shard(1), Shard(0))
    with pytest.raises(ValueError, match="1 placements for a mesh of 2 axes"):
        t.redistribute(mesh, [Shard(0)])
    for dim in (2, -3):
        with pytest.raises(IndexError, match="of a tensor of 2 dims"):
            t.redistribute(mesh, [Shard(0), Shard(dim)])
    with pytest.raises(NotImplementedError, match="are not all of Shard and Replicate"):
        t.redistribute(mesh, [Partial(), Shard(0)])
    leaf = xs.XLAShardedTensor(x.to("xla"), requires_grad=True)
    leaf.sum().backward()
    assert torch.equal(leaf.grad.cpu(), torch.ones(8, 8))
    with pytest.raises(ValueError, match="does not know its mesh"):
        xs.XLAShardedTensor(torch.ones(2)).placements  # noqa: B018
