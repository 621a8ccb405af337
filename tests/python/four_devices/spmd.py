"""Tensors that are spread over a mesh of four devices. test_several_devices.py runs this file, and test_spmd.py too."""

import functools

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_module, distribute_tensor, Partial, Replicate, Shard

import torch_xla.distributed.spmd as xs
import torch_xla.runtime
from torch_xla import _XLAC
from torch_xla.experimental.distributed_checkpoint import CheckpointManager, SPMDLoadPlanner, SPMDSavePlanner
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel


@pytest.fixture(autouse=True)
def spmd(monkeypatch):
    monkeypatch.setenv("XLA_USE_SPMD", "1")


@pytest.fixture
def grid():
    return xs.Mesh(range(4), (2, 2), ("x", "y"))


@pytest.fixture
def x(device):
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)


def test_meshes_over_slices(monkeypatch, x):
    attributes = [{"name": f"CPU:{number}", "slice_index": number // 2} for number in range(4)]
    monkeypatch.setattr(torch_xla.runtime, "global_runtime_device_attributes", lambda: attributes)
    meshes = [
        xs.HybridMesh(ici_mesh_shape=inner, dcn_mesh_shape=outer, axis_names=("x", "y"))
        for inner, outer in [((1, 2), (2, 1)), ((2, 1), (2, 1)), ((2, 1), (1, 2)), ((1, 2), (1, 2))]
    ]
    devices = [mesh.get_logical_mesh().tolist() for mesh in meshes]
    assert devices == [[[0, 1], [2, 3]], [[0], [1], [2], [3]], [[0, 2], [1, 3]], [[0, 1, 2, 3]]]
    shards = xs.mark_sharding(x, meshes[2], ("x", "y")).local_shards
    assert [shard.data.item() for shard in shards] == [1, 3, 2, 4]
    for number, coords in enumerate([(1, 0), (0, 0), (0, 0), (1, 0)]):
        attributes[number]["coords"] = coords
    assert xs.HybridMesh(ici_mesh_shape=(1, 2), dcn_mesh_shape=(2, 1)).device_ids.tolist() == [1, 0, 2, 3]
    with pytest.raises(ValueError, match="does not hold the 2 slices that the devices are in"):
        xs.HybridMesh(ici_mesh_shape=(2, 2))
    attributes[1]["slice_index"] = 1
    with pytest.raises(ValueError, match=r"devices of each slice, which are \[1, 3\]"):
        xs.HybridMesh(ici_mesh_shape=(1, 2), dcn_mesh_shape=(2, 1))


@pytest.mark.parametrize(
    "spec, text",
    [
        ((None, None), "{replicated}"),
        (("x", None), "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"),
        ((None, "x"), "{devices=[1,2,2]0,1,2,3 last_tile_dim_replicate}"),
        (("y", None), "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}"),
        (("x", "y"), "{devices=[2,2]0,1,2,3}"),
        (("y", "x"), "{devices=[2,2]0,2,1,3}"),
        ((("x", "y"), None), "{devices=[4,1]0,1,2,3}"),
        ((None, ("y", "x")), "{devices=[1,4]0,2,1,3}"),
    ],
)
def test_shards(device, grid, spec, text):
    values = torch.arange(35.0).view(7, 5)
    x = values.to(device)
    sharded = xs.mark_sharding(x, grid, spec)
    assert sharded.sharding_spec == text
    shards = sharded.local_shards
    assert [shard.shard_device for shard in shards] == [f"CPU:{i}" for i in range(4)]
    for shard in shards:
        assert shard.data.device.type == "cpu"
        whole = values if shard.indices is ... else values[tuple(shard.indices)]
        assert shard.unpadded_data.equal(whole) and shard.data.sum() == whole.sum()
    assert len({shard.data.shape for shard in shards}) == 1
    same = [tuple(map(str, shard.indices)) if shard.indices is not ... else () for shard in shards]
    for place in set(same):
        ids = [shard.replica_id for shard, of in zip(shards, same) if of == place]
        assert sorted(ids) == list(range(same.count(place)))
    if spec != (None, None):
        for shard in shards:
            shard.unpadded_data = -shard.unpadded_data
        sharded.load_local_shards_(shards)
        assert x.cpu().equal(-values)


def test_a_tensor_of_shards(grid):
    make = xs.xla_sharded_tensor.global_tensor_from_cpu_shards
    shards = [torch.full((2, 1), float(i)) for i in range(4)]
    whole = make(shards, grid.get_op_sharding(("x", "y")))
    assert whole.tolist() == [[0, 1], [0, 1], [2, 3], [2, 3]] and whole.device.type == "xla"
    assert xs.sharding_spec(whole) == "{devices=[2,2]0,1,2,3}"
    assert make(shards, grid.get_op_sharding(("x", "y")), (3, 2)).tolist() == [[0, 1], [0, 1], [2, 3]]
    assert make([torch.ones(3)] * 4, grid.get_op_sharding((None,))).tolist() == [1, 1, 1]
    for shape, match in (((5, 2), r"shape \[2, 1\] does not fit: \[3, 1\]"), ((4,), "not as many dims")):
        with pytest.raises(RuntimeError, match=match):
            make(shards, grid.get_op_sharding(("x", "y")), shape)
    with pytest.raises(RuntimeError, match="3 shards for 4 devices"):
        make(shards[:3], grid.get_op_sharding(("x", "y")))


def test_shards_that_do_not_fit(x, grid):
    sharded = xs.mark_sharding(x, grid, ("x", None))
    shards = sharded.local_shards
    with pytest.raises(RuntimeError, match="3 shards for 4 devices"):
        sharded.load_local_shards_(shards[:3])
    shards[1].data = torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"shape \[3\] does not fit: \[1, 2\]"):
        sharded.load_local_shards_(shards)
    with pytest.raises(RuntimeError, match="call clear_sharding"):
        xs.mark_sharding(x, grid, ("y", None))
    assert xs.sharding_spec(x) == sharded.sharding_spec
    assert xs.annotate_custom_sharding(x, grid, ("y", None)).sharding_spec.startswith("{devices=[2,1,2]0,2")
    with pytest.raises(RuntimeError, match="this one is replicated"):
        xs.mark_sharding(x + 1, grid, (None, None)).load_local_shards_(shards)
    for call in (xs.enable_manual_sharding, functools.partial(xs.disable_manual_sharding, full_shape=x.shape)):
        if not _XLAC._xla_shares_memory():  # a plugin has it: manual.py
            break
        with pytest.raises(NotImplementedError, match="what each device of a mesh does"):
            call(x, (None, None), mesh=grid)


def test_several_devices_want_use_spmd(x, grid, monkeypatch):
    monkeypatch.delenv("XLA_USE_SPMD")
    with pytest.raises(RuntimeError, match=r"wants torch_xla\.runtime\.use_spmd"):
        xs.mark_sharding(x, grid, (None, None))


def test_minibatches_are_shared_out(device):
    spec = xs.ShardingSpec(xs.get_1d_mesh("data"), ("data", None), minibatch=True)
    spec.apply(torch.ones(8, 2, device=device))
    with pytest.raises(RuntimeError, match="must be divisible by local runtime device count"):
        spec.apply(torch.ones(6, 2, device=device))


def test_what_fully_sharded_modules_shard(device):
    mesh = xs.Mesh(range(4), (2, 2), ("data", "fsdp"))

    class Pair(nn.Linear):
        def forward(self, x):
            return (super().forward(x), {})

    class Nothing(nn.Linear):
        def forward(self, x):
            return {}

    layer = SpmdFullyShardedDataParallel(Pair(4, 2), mesh=mesh, extra_data_axis="data")
    assert xs.sharding_spec(layer.weight) == "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"
    output, _ = layer(torch.ones(8, 4, device=device))
    assert xs.sharding_spec(output) == "{devices=[4,1]0,1,2,3}"
    with pytest.raises(RuntimeError, match="shard_output= says what to do"):
        SpmdFullyShardedDataParallel(Nothing(4, 2), mesh=mesh, extra_data_axis="data")(torch.ones(8, 4, device=device))


def test_tensors_of_torch_distributed(device):
    mesh = init_device_mesh("xla", (2, 2), mesh_dim_names=("a", "b"))
    sharded = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Replicate(), Shard(1)])
    assert sharded.sharding_spec == "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}" and sharded.device == device
    assert distribute_tensor(torch.ones(4, 4), mesh, [Replicate(), Shard(-1)]).sharding_spec == sharded.sharding_spec
    assert distribute_tensor(torch.ones(4), mesh).sharding_spec == "{replicated}"
    source = torch.ones(4, 4, device=device, requires_grad=True)
    leaf = distribute_tensor(source, mesh, [Shard(0), Replicate()])
    leaf.sum().backward()
    assert leaf.is_leaf and leaf.grad.tolist() == [[1.0] * 4] * 4 and source.grad is None
    assert distribute_tensor(torch.ones(4, 2), mesh, [Shard(0), Shard(0)]).sharding_spec == "{devices=[4,1]0,1,2,3}"
    with pytest.raises(ValueError, match="none of Shard and Replicate"):
        distribute_tensor(torch.ones(4), mesh, [Partial(), Shard(0)])
    with pytest.raises(ValueError, match="not one for each dim"):
        distribute_tensor(torch.ones(4), mesh, [Shard(0)])

    def shard(name, module, mesh):
        for parameter in module.parameters(recurse=False):
            distribute_tensor(parameter, mesh, [Shard(0), Replicate()])

    seen = []
    assert xs.xla_distribute_tensor(torch.ones(4), mesh, [Shard(0), Replicate()]).sharding_spec.startswith(
        "{devices=[2,2]"
    )
    model = distribute_module(
        nn.Linear(4, 4).to(device),
        mesh,
        shard,
        lambda inputs, mesh: seen.append("in"),
        lambda module, output, mesh: seen.append("out"),
    )
    assert xs.sharding_spec(model.weight) == "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"
    model(torch.ones(2, 4, device=device))
    assert seen == ["in", "out"]
    model = xs.xla_distribute_module(nn.Linear(4, 4), mesh, xs.auto_policy)
    assert model.weight.device == device
    with pytest.raises(ValueError, match="input_fn takes 1 arguments"):
        distribute_module(nn.Linear(4, 4), mesh, None, lambda inputs: inputs)


# ---- Checkpoints ----
def cut(value: torch.Tensor, grid: xs.Mesh, spec: tuple) -> dict:
    return {"nest": [xs.mark_sharding(value.to("xla"), grid, spec).global_tensor], "step": 7}


@pytest.mark.parametrize("saves_later", [False, True])
def test_checkpoints_are_written_by_shards_and_read_for_another_mesh(grid, tmp_path, saves_later):
    value = torch.randn(5, 6)
    state = cut(value, grid, ("x", "y"))
    if saves_later:
        manager = CheckpointManager(str(tmp_path), 1, chkpt_on_preemption=False)
        manager.save_async(0, state)
        state["nest"][0].zero_()
        manager.join()
        tmp_path = tmp_path / "0"
    else:
        planner = SPMDSavePlanner()
        dcp.save(state, checkpoint_id=tmp_path, planner=planner)
        assert list(planner.sharded_state_dict) == ["nest.0"] and list(planner.unsharded_state_dict) == ["step"]
    chunks = FileSystemReader(tmp_path).read_metadata().state_dict_metadata["nest.0"].chunks
    assert sorted((*chunk.offsets, *chunk.sizes) for chunk in chunks) == [
        (0, 0, 3, 3), (0, 3, 3, 3), (3, 0, 2, 3), (3, 3, 2, 3)
    ]  # fmt: skip
    other = xs.Mesh(range(4), (4,), ("all",))
    for spec in [(None, "all"), ("all", None), (None, None)]:
        loaded = cut(torch.zeros(5, 6), other, spec)
        sharding = xs.sharding_spec(loaded["nest"][0])
        loaded["step"] = 0
        dcp.load(loaded, checkpoint_id=tmp_path, planner=SPMDLoadPlanner())
        assert torch.equal(loaded["nest"][0].cpu(), value) and loaded["step"] == 7
        assert xs.sharding_spec(loaded["nest"][0]) == sharding
    plain = {"nest": [torch.zeros(5, 6)], "step": 0}
    dcp.load(plain, checkpoint_id=tmp_path)
    assert torch.equal(plain["nest"][0], value)


def test_a_checkpoint_of_other_sizes_is_refused(grid, tmp_path):
    dcp.save(cut(torch.ones(4, 4), grid, ("x", "y")), checkpoint_id=tmp_path, planner=SPMDSavePlanner())
    loaded = cut(torch.zeros(4, 8), grid, ("x", "y"))
    with pytest.raises(dcp.api.CheckpointException, match="Size mismatch"):
        dcp.load(loaded, checkpoint_id=tmp_path, planner=SPMDLoadPlanner())
    assert not loaded["nest"][0].any()
