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


PAIRS = [[i, i + N // 2] for i in range(N // 2)]  # the devices that axis "a" joins


@pytest.mark.parametrize("synced", [False, True])
def test_collectives_of_xla_model(mesh, x, synced):
    part = xs.enable_manual_sharding(x.to("xla"), ("a", None), mesh=mesh).global_tensor + 0
    if synced:
        torch_xla.sync()  # a shard that is read by another program is one still
    top, bottom = x[:4], x[4:]

    def joined(t, spec, shape):
        return xs.disable_manual_sharding(t, spec, shape, mesh=mesh).cpu()

    assert joined(xm.all_reduce("sum", part, 0.5, PAIRS), (None, None), (4, 8)).equal((top + bottom) / 2)
    assert joined(xm.all_reduce("max", part), (None, None), (4, 8)).equal(bottom)
    assert joined(xm.all_gather(part, 0, PAIRS), (None, None), (8, 8)).equal(x)
    assert joined(xm.all_gather(part, -1, PAIRS), (None, None), (4, 16)).equal(torch.cat([top, bottom], 1))
    assert joined(xm.reduce_scatter("sum", part, 1.0, -1, 2, PAIRS), (None, "a"), (4, 8)).equal(top + bottom)
    assert joined(xm.all_to_all(part, 1, 0, 2, PAIRS), (None, "a"), (8, 8)).equal(x)
    swap = [pair for i, j in PAIRS for pair in ((i, j), (j, i))]
    assert joined(xm.collective_permute(part, swap), ("a", None), (8, 8)).equal(x.roll(4, 0))
    assert joined(xm.collective_permute(part, PAIRS)[:2], ("a", None), (4, 8)).equal(torch.cat([0 * top[:2], top[:2]]))
    in_place = [part + 1, part * 2]
    xm.all_reduce("sum", in_place, 1.0, PAIRS)
    assert joined(in_place[1], (None, None), (4, 8)).equal(2 * (top + bottom))
    copy = part + 1
    xm.collective_broadcast([copy], PAIRS[0][1], PAIRS)
    assert joined(copy, (None, None), (4, 8)).equal(bottom + 1)


@pytest.mark.parametrize(
    "collective, spec, shape, compute",
    [
        (lambda t: xm.all_gather(t, 0, PAIRS), ("a", None), (16, 8), lambda x: torch.cat([x, x])),
        (lambda t: xm.reduce_scatter("sum", t, 3.0, 1, 2, PAIRS), (None, "a"), (4, 8), lambda x: (x[:4] + x[4:]) * 3),
        (lambda t: xm.all_to_all(t, 1, 0, 2, PAIRS), (None, "a"), (8, 8), lambda x: x),
        (lambda t: xm.collective_permute(t, PAIRS), ("a", None), (8, 8), lambda x: torch.cat([0 * x[:4], x[:4]])),
    ],
)
def test_gradients_of_collectives(mesh, x, collective, spec, shape, compute):
    p, q = (x.to(device).requires_grad_() for device in ("xla", "cpu"))
    part = collective(xs.enable_manual_sharding(p, ("a", None), mesh=mesh).global_tensor)
    weight = torch.arange(float(torch.Size(shape).numel())).view(shape)
    xs.disable_manual_sharding(part, spec, shape, mesh=mesh).global_tensor.mul(weight.to("xla")).sum().backward()
    compute(q).mul(weight).sum().backward()
    assert p.grad.cpu().equal(q.grad)


def test_collectives_of_whole_tensors(mesh, x):
    t = xs.mark_sharding(x.to("xla"), mesh, ("a", None)).global_tensor
    assert xm.all_reduce("sum", t, groups=PAIRS).cpu().equal(x)  # one value of all devices: nothing to add
    assert xm.all_gather(t).cpu().equal(x)
    exchanges = {
        "all_gather": lambda: xm.all_gather(t, groups=PAIRS),
        "reduce_scatter": lambda: xm.reduce_scatter("sum", t, 1.0, 0, 2, PAIRS),
        "all_to_all": lambda: xm.all_to_all(t, 0, 0, 2, PAIRS),
        "collective_permute": lambda: xm.collective_permute(t, PAIRS),
    }
    for name, exchange in exchanges.items():
        with pytest.raises(RuntimeError, match=rf"{name}\(\) got a whole tensor when it should get shards"):
            exchange()
    with pytest.raises(ValueError, match=f"device {N} does not exist: the program has {N}, numbered from 0"):
        xm.all_reduce("sum", t, groups=[[0, N]])
    with pytest.raises(ValueError, match="do not have each of the program's"):
        xm.all_reduce("sum", t, groups=[[0, 1]])


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
