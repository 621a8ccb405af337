"""What the replicas of a run do in the tests of torch.distributed: each function takes the replica's number first."""

import itertools
import threading
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.tensor as dt
from replicas_lost import until_told
from replicas_training import batch_of, IS_ONE_PROGRAM
from torch import nn
from torch.distributed import _functional_collectives as funcol
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
    StateDictOptions,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard, MixedPrecisionPolicy
from torch.distributed.tensor import distribute_module, distribute_tensor, DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module, RowwiseParallel

import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr
from torch_xla import _peers
from torch_xla.experimental.distributed_checkpoint import _writer, CheckpointManager


def programs() -> int:
    """How many have run."""
    return met.counter_value("ExecuteComputation") or 0


def fallbacks() -> list[str]:
    """Operations that ran on the CPU; PyTorch reads numbers where it looks at random states and pickled objects."""
    names = (name for name in met.counter_names() if name.startswith("aten::"))
    return [name for name in names if name != "aten::_local_scalar_dense"]


# ---- Functional collectives ----
def tensor_of(rank: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank))


def check_functional(rank: int, inputs: list, collective, of_all) -> None:
    """Values and gradients of a collective against `of_all`, which computes all replicas' results from all inputs."""

    def weigh(outs) -> torch.Tensor:
        return sum((out * tensor_of(7, *out.shape).to(out.device)).sum() for out in outs)

    expected_inputs = [[t.clone().requires_grad_() for t in each] for each in inputs]
    expected = of_all(expected_inputs)
    sum((each + 1) * weigh(expected[each]) for each in range(len(inputs))).backward()
    x = [t.to("xla").requires_grad_() for t in inputs[rank]]
    torch_xla.sync()
    before = programs()
    actual = collective(x)
    ((rank + 1) * weigh(actual)).backward()
    assert programs() == before or not IS_ONE_PROGRAM  # nothing has run yet
    for result, wanted in zip(actual, expected[rank]):
        torch.testing.assert_close(result.detach().cpu(), wanted.detach(), rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(x, expected_inputs[rank]):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-5, atol=1e-5)


def functional_collectives(rank: int, size: int) -> None:
    """Each functional collective, with gradients, over a mesh."""
    mesh = init_device_mesh("xla", (size,))
    ranks = range(size)

    def check(collective, of_all, *shapes) -> None:
        inputs = [[tensor_of(each, *shape) for shape in shapes or [(2 * size, 3 * size)]] for each in ranks]
        check_functional(rank, inputs, collective, of_all)

    def total(x, i=0):
        return sum(each[i] for each in x)

    def cut(x, dim=0, i=0):
        return [[part] for part in total(x, i).chunk(size, dim)]

    check(lambda x: [funcol.all_reduce(x[0], "sum", mesh)], lambda x: [[total(x)]] * size)
    for dim in (0, 1):
        check(
            lambda x, dim=dim: [funcol.all_gather_single(x[0], dim, mesh)],
            lambda x, dim=dim: [[torch.cat([each[0] for each in x], dim)]] * size,
        )
        check(lambda x, dim=dim: [funcol.reduce_scatter_single(x[0], "sum", dim, mesh)], lambda x, dim=dim: cut(x, dim))
    check(
        lambda x: [funcol.all_to_all_single(x[0], None, None, mesh)],
        lambda x: [[torch.cat([each[0].chunk(size)[i] for each in x])] for i in ranks],
    )
    # Replica i sends j rows to replica j.
    check(
        lambda x: [funcol.all_to_all_single(x[0], [rank] * size, list(ranks), mesh)],
        lambda x: [[torch.cat([each[0].split(list(ranks))[i] for each in x])] for i in ranks],
        (sum(ranks), 2),
    )
    turned = [(i + 1) % size for i in ranks]
    check(lambda x: [funcol.permute_tensor(x[0], turned, mesh)], lambda x: [x[i - 1] for i in ranks], (6,))
    shapes = (size, 2), (2 * size,)
    check(lambda x: funcol.all_reduce_coalesced(x, "sum", mesh), lambda x: [[total(x), total(x, 1)]] * size, *shapes)
    check(
        lambda x: funcol.all_gather_single_coalesced(x, mesh),
        lambda x: [[torch.cat([each[i] for each in x]) for i in (0, 1)]] * size,
        *shapes,
    )
    check(
        lambda x: funcol.reduce_scatter_single_coalesced(x, "sum", [0, 0], mesh),
        lambda x: [a + b for a, b in zip(cut(x), cut(x, i=1))],
        *shapes,
    )
    functional_reductions(rank, size, mesh)


def functional_reductions(rank: int, size: int, mesh) -> None:
    """What has no gradient: broadcast, and each reduction."""
    values = [torch.arange(size) + 3 * each + 1 for each in range(size)]
    x = values[rank].to("xla")
    assert funcol.broadcast(x, size - 1, mesh).cpu().equal(values[-1])
    folds = {"sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum}
    folds |= {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}
    for name, fold in folds.items():
        expected = values[0]
        for other in values[1:]:
            expected = fold(expected, other)
        assert funcol.all_reduce(x, name, mesh).cpu().equal(expected), name
        assert funcol.reduce_scatter_single(x, name, 0, mesh).cpu().equal(expected[rank : rank + 1]), name
    mean = sum(values) / size
    assert funcol.all_reduce(x.float(), "avg", mesh).cpu().equal(mean)
    scaled = x.float()
    dist.all_reduce(scaled, dist.ReduceOp.PREMUL_SUM(0.5))
    assert scaled.cpu().equal(sum(values) * 0.5)


# ---- FSDP2 ----
class Net(nn.Module):
    """Sizes that no number of replicas divides, a block within a block, a weight that two layers share."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(6, 9)
        self.block = nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Sequential(nn.Linear(9, 9), nn.LayerNorm(9)))
        self.tied = nn.Linear(9, 9)
        self.tied.weight = self.block[0].weight
        self.last = nn.Linear(9, 4)

    def forward(self, x):
        return self.last(self.tied(self.block(self.first(x).relu())))


def adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(model, optimizer, batches, steps=range(4), after=lambda: None) -> None:
    """Steps with clipped gradients."""
    for step in steps:
        optimizer.zero_grad()
        x, y = batches(step)
        nn.functional.cross_entropy(model(x).float(), y).backward()
        if hasattr(model, "clip_grad_norm_"):
            model.clip_grad_norm_(0.5)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        after()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, put together if it is a DTensor."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def check_same(actual, expected, tolerance: float = 1e-5) -> None:
    """All parameters."""
    for (name, ours), theirs in zip(actual.named_parameters(), expected.parameters()):
        torch.testing.assert_close(
            whole(ours), theirs.detach(), rtol=tolerance, atol=tolerance, msg=lambda m, n=name: n + m
        )


def check_same_state(actual, expected) -> None:
    """All states of two optimizers."""
    ours, theirs = (optimizer.state_dict()["state"] for optimizer in (actual, expected))
    assert ours.keys() == theirs.keys() and theirs
    for key, state in theirs.items():
        for name, value in state.items():
            torch.testing.assert_close(whole(ours[key][name]), value, rtol=1e-5, atol=1e-5)


def batches_of(index: int, count: int):
    """Function that gives part `index` of `count` of each batch, on the device."""
    return lambda step: tuple(t.chunk(count)[index].to("xla") for t in batch_of(step))


def fully_sharded(rank: int, size: int) -> None:
    """FSDP2 in its forms against a run of one process."""
    expected, expected_optimizer = trained(adam)
    mesh = init_device_mesh("xla", (size,))
    forms = {
        "resharded": {"mesh": mesh},
        "kept": {"mesh": mesh, "reshard_after_forward": False},
        "offloaded": {"mesh": mesh, "offload_policy": CPUOffloadPolicy()},
    }
    if size == 4:
        forms["replicated pairs"] = {"mesh": init_device_mesh("xla", (2, 2), mesh_dim_names=("copy", "part"))}
        forms["kept in pairs"] = {"mesh": mesh, "reshard_after_forward": 2}
    for name, arguments in forms.items():
        model = sharded_net(**arguments)
        optimizer = adam(model.parameters())
        counts: list[tuple] = []
        train(
            model,
            optimizer,
            batches_of(rank, size),
            after=lambda c=counts: c.append((programs(), xr.get_num_cached_compilation_graph())),
        )
        check_same(model, expected)
        check_same_state(optimizer, expected_optimizer)
        if name != "offloaded" and IS_ONE_PROGRAM:  # a step is one program, and soon a known one
            assert [later[0] - earlier[0] for earlier, later in itertools.pairwise(counts)] == [1, 1, 1], (name, counts)
            assert counts[-1][1] == counts[-2][1], (name, counts)
    in_mixed_precision(rank, size, mesh)
    gradients_of_parts(rank, size, mesh)


def trained(make_optimizer) -> tuple:
    """Model and optimizer of one process on the CPU."""
    model = Net()
    optimizer = make_optimizer(model.parameters())
    train(model, optimizer, batch_of)
    return model, optimizer


def sharded_net(**arguments) -> nn.Module:
    model = Net().to("xla")
    fully_shard([model.block, model.tied], **arguments)
    return fully_shard(model, **arguments)


def in_mixed_precision(rank: int, size: int, mesh) -> None:
    """Layers compute in bfloat16, parameters and their updates stay float32."""
    expected, _ = trained(sgd)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded_net(mesh=mesh, mp_policy=policy)
    seen: set = set()
    model.last.register_forward_hook(
        lambda module, args, out: seen.update([args[0].dtype, module.weight.dtype, out.dtype])
    )
    optimizer = sgd(model.parameters())
    train(model, optimizer, batches_of(rank, size))
    assert seen == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {p.grad.dtype for p in model.parameters()} == {torch.float32}
    check_same(model, expected, 1e-2)
    with pytest.raises(AssertionError):  # and it is not float32 that was computed in
        check_same(model, expected)


def gradients_of_parts(rank: int, size: int, mesh) -> None:
    """A batch in two parts, of which the second sends; with sums for means."""
    expected, model = Net(), sharded_net(mesh=mesh)
    for group in (model, model.block):
        group.set_gradient_divide_factor(1.0)
    for part in range(2):
        model.set_requires_gradient_sync(part == 1)
        x, y = batches_of(2 * rank + part, 2 * size)(0)
        nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    x, y = batch_of(0)
    nn.functional.cross_entropy(expected(x), y, reduction="sum").backward()
    for ours, theirs in zip(model.parameters(), expected.parameters()):
        assert ours.to_local().numel() <= -(-theirs.shape[0] // size) * theirs[0].numel()
        torch.testing.assert_close(whole(ours.grad), theirs.grad, rtol=1e-5, atol=1e-5)


# ---- DTensor ----
def distributed_tensors(rank: int, size: int) -> None:
    """Placements, redistribution, modules, random numbers."""
    mesh = init_device_mesh("xla", (size,), mesh_dim_names=("all",))
    assert mesh.device_type == "xla" and mesh.get_local_rank() == rank and mesh["all"] == mesh
    x = tensor_of(0, 2 * size + 1, 5)  # in parts of several sizes
    for placement in (Shard(0), Shard(1), Replicate(), Partial()):
        before = programs()
        results = {
            to: distribute_tensor(x, mesh, [placement]).redistribute(mesh, [to]) for to in (Shard(0), Replicate())
        }
        results[Shard(1)] = results[Shard(0)].redistribute(mesh, [Shard(1)])
        assert programs() == before or not IS_ONE_PROGRAM
        for to, result in results.items():
            assert result.placements == (to,) and result.device.type == "xla"
            assert result.full_tensor().cpu().equal(x)
        for dim in (0, 1):
            parts = x.chunk(size, dim)
            expected = parts[rank] if rank < len(parts) else x.narrow(dim, 0, 0)
            assert results[Shard(dim)].to_local().cpu().equal(expected)
    own = tensor_of(rank, 2 * size)
    assert distribute_tensor(own, mesh, [Shard(0)], src_data_rank=None).to_local().cpu().equal(own.chunk(size)[rank])
    assert distribute_tensor(own, mesh, [Shard(0)]).to_local().cpu().equal(tensor_of(0, 2 * size).chunk(size)[rank])
    assert distribute_tensor(own, mesh).placements == (Replicate(),)
    total = DTensor.from_local(own.to("xla"), mesh, [Partial()])
    torch.testing.assert_close(whole(total + total), 2 * sum(tensor_of(each, 2 * size) for each in range(size)))
    distributed_products(size, mesh)
    module = distribute_module(nn.Linear(3, 2), mesh)
    assert module.weight.placements == (Replicate(),) and module.weight.device_mesh == mesh
    assert mesh.device_type == "xla"
    torch.manual_seed(5)
    random = dt.rand(4 * size, device_mesh=mesh, placements=[Shard(0)]).full_tensor().cpu()
    assert len(random.unique()) == 4 * size
    same = [None] * size
    dist.all_gather_object(same, random.tolist())
    assert same == [random.tolist()] * size


def distributed_products(size: int, mesh) -> None:
    """Gradients through a product of tensors that lie differently."""
    a, b = tensor_of(1, 2 * size, 6), tensor_of(2, 6, 5)
    for tensor in (a, b):
        tensor.requires_grad_()
    (a @ b).relu().sum().backward()
    for placements in ((Shard(0), Replicate()), (Shard(1), Shard(0)), (Replicate(), Shard(1))):
        ours = [distribute_tensor(t.detach(), mesh, [p]).requires_grad_() for t, p in zip((a, b), placements)]
        (ours[0] @ ours[1]).relu().sum().backward()
        for mine, theirs in zip(ours, (a, b)):
            torch.testing.assert_close(whole(mine.grad), theirs.grad, rtol=1e-5, atol=1e-5)


def make_mlp() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4))


def tensor_parallel(rank: int, size: int) -> None:
    """A column-wise layer and a row-wise one; with four replicas also pairs of them, under FSDP2."""
    expected = make_mlp()
    optimizer = adam(expected.parameters())
    train(expected, optimizer, batch_of)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    meshes = [init_device_mesh("xla", (1, size), mesh_dim_names=("data", "model"))]
    meshes += [init_device_mesh("xla", (2, 2), mesh_dim_names=("data", "model"))] if size == 4 else []
    for mesh in meshes:
        model = parallelize_module(make_mlp().to("xla"), mesh["model"], plan)
        data = mesh["data"]
        if data.size() > 1:
            fully_shard(model[0], mesh=data)
            fully_shard(model, mesh=data)
        else:
            assert model[0].weight.to_local().shape == (8 // size, 6)
            assert model[2].weight.to_local().shape == (4, 8 // size)
        optimizer = adam(model.parameters())
        counts: list[int] = []
        train(
            model,
            optimizer,
            batches_of(data.get_local_rank(), data.size()),
            after=lambda c=counts: c.append(programs()),
        )
        check_same(model, expected)
        assert counts[3] - counts[2] == 1 or not IS_ONE_PROGRAM


# ---- Checkpoints ----
def saves(rank: int, path: str) -> None:
    """Trains a while and saves, in three ways."""
    size = xr.world_size()
    model = sharded_net(mesh=init_device_mesh("xla", (size,)))
    optimizer = adam(model.parameters())
    train(model, optimizer, batches_of(rank, size), range(2))
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.save(state, checkpoint_id=f"{path}/whole")
    saving = dcp.async_save(state, checkpoint_id=f"{path}/async")
    train(model, optimizer, batches_of(rank, size), range(2, 3))  # what is saved is what was there
    saving.result()
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(full, f"{path}/full.pt")
    dist.destroy_process_group()


def saves_together(rank: int, path: str) -> None:
    """Checkpoints by the numbers of steps."""
    dist.init_process_group("xla", init_method="xla://")
    for part in (saves_steps, fails_together, asks_while_it_saves):
        part(rank, f"{path}/{part.__name__}")
    dist.destroy_process_group()


def saves_steps(rank: int, path: str) -> None:
    """Saves by the numbers of steps, and loads."""
    checkpoints = CheckpointManager(path, 5, max_to_keep=1)
    state = {"weight": torch.full((3,), 5.0, device="xla")}
    assert not checkpoints.save(3, state) and checkpoints.save(5, state) and checkpoints.save_async(10, state)
    checkpoints.join()
    state["weight"].zero_()
    checkpoints.restore(10, state)
    assert checkpoints.all_steps() == [10] and state["weight"].tolist() == [5.0] * 3


class Module:
    """Has a state, and takes any."""

    def state_dict(self) -> dict:
        return {"x": torch.ones(2)}

    def load_state_dict(self, state: dict) -> None:
        pass


def fail(*args, **kwargs):
    """A storage that does not do what it should."""
    raise OSError("no storage")


def fails_together(rank: int, path: str) -> None:
    """Where one replica cannot save or restore, all raise an error that names it, and go on."""
    checkpoints = CheckpointManager(path, 1, chkpt_on_preemption=False, num_of_threads=2)
    state = {"weight": torch.full((3,), 5.0, device="xla"), "module": Module()}
    checkpoints.save(0, state)
    ways = {
        "save": lambda: checkpoints.save(0, state),
        "restore": lambda: checkpoints.restore(0, state),
        "save_async": lambda: (checkpoints.save_async(1, state), checkpoints.join()),
    }
    for owner, method, failing, names in [
        (checkpoints._folders, "begin", 0, ["save", "save_async"]),
        (checkpoints._folders, "finish", 0, ["save", "save_async"]),
        (checkpoints._folders, "steps", 0, ["restore"]),
        (_writer, "_write_files_from_queue", 1, ["save", "save_async"]),
        (FileSystemReader, "read_data", 1, ["restore"]),
        (state["module"], "state_dict", 1, ["save", "save_async", "restore"]),
        (state["module"], "load_state_dict", 1, ["restore"]),
    ]:
        for name in names:
            with pytest.MonkeyPatch.context() as patch:
                if rank == failing:
                    patch.setattr(owner, method, fail)
                with pytest.raises(RuntimeError, match=f"failed on rank {failing}: OSError: no storage"):
                    ways[name]()
            assert checkpoints.all_steps() == [0]
    ways["save_async"]()
    state["weight"].zero_()
    ways["restore"]()
    assert checkpoints.all_steps() == [0, 1] and state["weight"].tolist() == [5.0] * 3


def asks_while_it_saves(rank: int, path: str) -> None:
    """The replicas ask each other for signals while their threads write, in another order on each."""
    checkpoints = CheckpointManager(path, 10, process_group=dist.new_group(backend="gloo"))
    state = {"weight": torch.full((3,), 5.0, device="xla")}
    save, has_asked = checkpoints._save, threading.Event()
    if rank == 0:
        checkpoints._save = lambda *args: (has_asked.wait(), save(*args))
    assert checkpoints.save_async(10, state)
    if rank == 1:
        time.sleep(0.3)  # its thread waits for the other one by now
    assert not checkpoints.reached_preemption(10)
    has_asked.set()
    checkpoints.join()
    assert checkpoints.all_steps() == [10]


def goes_on(rank: int, path: str, kind: str) -> None:
    """Loads what others saved, trains on and compares with a run that nothing interrupted."""
    size = xr.world_size()
    model = sharded_net(mesh=init_device_mesh("xla", (size,)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    optimizer = adam(model.parameters())
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.load(state, checkpoint_id=f"{path}/{kind}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, optimizer, batches_of(rank, size), range(2, 4))
    expected, expected_optimizer = trained(adam)
    check_same(model, expected)
    check_same_state(optimizer, expected_optimizer)
    loads_a_file(rank, path, model)
    dist.destroy_process_group()


def trains_for_ever(rank: int, path: str) -> None:
    """Until another replica is lost: steps of FSDP2, each saved, all but the first in the same place."""
    size = xr.world_size()
    model = sharded_net(mesh=init_device_mesh("xla", (size,)))
    optimizer = adam(model.parameters())

    def step(number: int) -> None:
        train(model, optimizer, batches_of(rank, size), [number])
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{path}.saved.{min(number, 1)}")

    until_told(rank, path, step)


def loads_a_file(rank: int, path: str, model) -> None:
    """Which only the first replica reads."""
    full = torch.load(f"{path}/full.pt") if rank == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, full, options=options)
    expected = Net()
    train(expected, adam(expected.parameters()), batch_of, range(3))
    check_same(model, expected)


def against_one_process(rank: int, size: int) -> None:
    _peers._IDLE_SECONDS = 1e6  # programs are counted, however slow this machine is
    for work in (functional_collectives, distributed_tensors, tensor_parallel, fully_sharded):
        work(rank, size)
        assert not fallbacks(), (work, fallbacks())
    dist.destroy_process_group()
