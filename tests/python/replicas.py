"""What the replicas of a run do in the tests of processes and threads: each function takes the replica's number."""

import collections
import contextlib
import copy
import os
import pickle
import time

import numpy as np
import torch
from torch import nn

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch_xla import _world

# On a plugin a collective runs at once, so that a step is several programs.
IS_ONE_PROGRAM = os.environ.get("PJRT_DEVICE", "CPU") == "CPU"
DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
]
REDUCTIONS = {
    "sum": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def input_of(rank: int, dtype: torch.dtype, size: int) -> torch.Tensor:
    """What replica `rank` gives: [2 * size, 3], small whole numbers, which all types hold."""
    values = torch.arange(6 * size).reshape(2 * size, 3) * (rank + 2) % 5
    return (values > 1) if dtype is torch.bool else values.to(dtype)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).cpu().numpy()


def is_defined(reduction: str, dtype: torch.dtype) -> bool:
    if dtype.is_complex:
        return reduction == "sum"
    return reduction not in ("and", "or") or not dtype.is_floating_point


def check(actual: torch.Tensor, expected: np.ndarray, dtype: torch.dtype) -> None:
    assert actual.dtype == dtype and actual.device.type == "xla"
    np.testing.assert_array_equal(as_numpy(actual), expected, err_msg=f"{dtype}")


def compare_reductions(rank: int, dtype: torch.dtype, groups: list | None) -> None:
    size = xr.world_size()
    members = next(g for g in groups or [list(range(size))] if rank in g)
    inputs = [as_numpy(input_of(each, dtype, size)) for each in members]
    x = input_of(rank, dtype, size).to("xla")
    for reduction, function in REDUCTIONS.items():
        if not is_defined(reduction, dtype):
            continue
        expected = inputs[0].copy()
        for other in inputs[1:]:
            expected = function(expected, other)
        check(xm.all_reduce(reduction, x, groups=groups), expected, dtype)
        parts = np.split(expected, len(members), axis=0)
        scattered = xm.reduce_scatter(reduction, x, 1.0, 0, len(members), groups)
        check(scattered, parts[members.index(rank)], dtype)


def compare_moves(rank: int, dtype: torch.dtype, groups: list | None) -> None:
    size = xr.world_size()
    members = next(g for g in groups or [list(range(size))] if rank in g)
    inputs = [as_numpy(input_of(each, dtype, size)) for each in members]
    x = input_of(rank, dtype, size).to("xla")
    check(xm.all_gather(x, 0, groups), np.concatenate(inputs, 0), dtype)
    check(xm.all_gather(x, -1, groups), np.concatenate(inputs, 1), dtype)
    mine = members.index(rank)
    exchanged = np.concatenate([np.split(each, len(members), 0)[mine] for each in inputs], 1)
    check(xm.all_to_all(x, 0, 1, len(members), groups), exchanged, dtype)
    received = x.clone()
    xm.collective_broadcast([received], members[-1], groups)
    check(received, inputs[-1], dtype)
    if groups is None:
        pairs = [[i, (i + 1) % size] for i in range(size - 1)]
        expected = inputs[rank - 1] if rank else np.zeros_like(inputs[0])
        check(xm.collective_permute(x, pairs), expected, dtype)


def collectives(rank: int, size: int) -> None:
    """Each collective against NumPy, for each dtype, over all replicas and over groups."""
    assert (xr.global_ordinal(), xr.world_size()) == (rank, size)
    halves = [list(range(size))[::2], list(range(size))[1::2]]
    for dtype in DTYPES:
        for groups in [None] if size == 2 else [None, halves]:
            compare_reductions(rank, dtype, groups)
            compare_moves(rank, dtype, groups)
    lists_and_scales(rank, size)
    list_in_eager_mode(rank, size)
    channels(rank, size)
    meetings(rank, size)


def lists_and_scales(rank: int, size: int) -> None:
    tensors = [torch.full((3, 2), float(rank), device="xla"), torch.arange(4, device="xla") * rank]
    total = sum(range(size))
    xm.all_reduce("sum", tensors)
    assert tensors[0].tolist() == [[total] * 2] * 3 and tensors[1].tolist() == [i * total for i in range(4)]
    assert xm.all_reduce("sum", torch.ones((), device="xla"), scale=0.5).item() == size / 2
    empty = torch.ones(0, 2, device="xla")
    assert xm.all_reduce("sum", empty).shape == (0, 2)
    large = torch.arange(4_000_003, device="xla") * (rank + 1)  # reduced in parts
    factor = total + size
    assert torch.equal(xm.all_reduce("sum", large).cpu(), torch.arange(4_000_003) * factor)
    xm.all_reduce("sum", [large])
    assert torch.equal(large.cpu(), torch.arange(4_000_003) * factor)
    one = torch.tensor(rank + 1.0, device="xla").expand(1)  # of stride 0
    assert xm.all_gather(one).tolist() == [each + 1 for each in range(size)]


def list_in_eager_mode(rank: int, size: int) -> None:
    """A list is one program, as an operation is."""
    with torch_xla.experimental.eager_mode_context(True):
        tensors = [torch.full((3,), float(rank), device="xla"), torch.full((2,), rank, device="xla")]
        xm.wait_device_ops()
        met.clear_all()
        xm.all_reduce("sum", tensors, scale=2.0)
        assert torch_xla.experimental.is_eager_mode()
        xm.wait_device_ops()
        assert met.metric_data("EagerOpExecuteTime")[0] == 1
        assert [t.tolist() for t in tensors] == [[size * (size - 1)] * each for each in (3, 2)]


def channels(rank: int, size: int) -> None:
    if rank < 2:
        sent = torch.full((2,), rank + 1.0, device="xla")
        if rank == 0:
            assert xm.send(sent, 7).tolist() == [1, 1]
            assert xm.recv(torch.zeros(2, device="xla"), 8).tolist() == [2, 2]
        else:
            assert xm.recv(torch.zeros(2, device="xla"), 7).tolist() == [1, 1]
            xm.send(sent, 8)
            torch_xla.sync()


def meetings(rank: int, size: int) -> None:
    assert xm.rendezvous("a", bytes([rank])) == [bytes([each]) for each in range(size)]
    assert xm.rendezvous("a") == [b""] * size
    assert xm.rendezvous("pair", b"x", [0, 1]) == [b"x", b"x"] if rank < 2 else True
    assert xm.mesh_reduce("sum", torch.tensor(rank, device="xla"), sum).item() == sum(range(size))
    seen: list = []
    xm.do_on_ordinals(seen.append, (torch.tensor(rank, device="xla"),), ordinals=(1,))
    assert [t.item() for t in seen] == ([1] if rank == 1 else [])


class Own:
    """A value of a class of its own."""

    def __init__(self, value: int):
        self.value = value


class Noted:
    """A value whose reading runs code: it leaves a file."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


VALUES = [
    [None, True, 3, 2.5, 1j, "text", b"bytes", (1, [2], {"a": {3}}), slice(1, 2), range(3)],
    [
        torch.arange(3),
        torch.ones(2, 2).t().to(torch.bfloat16),
        torch.tensor(True),
        torch.empty(0, 3),
        torch.ones(2) * 1j,
    ],
    [
        nn.Parameter(torch.ones(2)),
        torch.ones(1, requires_grad=True),
        torch.Size([2, 3]),
        torch.float16,
        torch.device("cpu"),
    ],
    [
        np.float32(1.5),
        np.arange(4.0).reshape(2, 2).T,
        np.array(["a", "bc"]),
        np.datetime64("2020-01-01"),
        np.bool_(True),
    ],
    [collections.Counter("aab"), collections.OrderedDict(a=1), collections.deque([1])],
    [collections.defaultdict(list, a=[1])],
]


def values_of_meetings(rank: int, path: str) -> None:
    """What the others send: values of all kinds, of own classes too, and nothing that was written by others."""
    reduced = xm.mesh_reduce("values", (rank, VALUES), list)
    assert [each for each, _ in reduced] == [0, 1] and str(reduced[1][1]) == str(VALUES)
    assert [own.value for own in xm.mesh_reduce("own", Own(rank), list)] == [0, 1]
    store = _world.process().store
    store.set(f"meeting/(0, 1)/forged/0/{1 - rank}", b"." + pickle.dumps(Noted(f"{path}.forged")))
    try:
        _world.process().meet("forged", b"")
        raise AssertionError("a value that nobody has signed")
    except RuntimeError as error:
        assert "is not signed with XLA_RUN_SECRET" in str(error)
    assert not os.path.exists(f"{path}.forged")


def listening_addresses(pids: list[int]) -> list[str]:
    """Where the processes take connections, as Linux writes it: 0100007F:1234 is port 0x1234 of 127.0.0.1."""
    sockets = set()
    for pid in pids:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    rows = []
    for name in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{name}") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def listens(rank: int) -> None:
    """All sockets that the run listens on, those of the process that started it too."""
    import torch.distributed as dist

    xm.all_reduce("sum", torch.ones(1, device="xla")).cpu()
    dist.init_process_group("xla", init_method="xla://")
    dist.all_reduce(torch.ones(1), group=dist.new_group(backend="gloo"))
    addresses = listening_addresses([os.getpid(), os.getppid()])
    xm.rendezvous("looked")
    assert len(addresses) >= 4 and all(address.startswith("0100007F:") for address in addresses), addresses
    dist.destroy_process_group()


def meets_for_ever(rank: int, path: str) -> None:
    """Meetings until another replica is lost; says what it was told."""
    until_told(rank, path, lambda number: xm.mesh_reduce("again", number, sum))


def is_left_alone(rank: int, path: str) -> None:
    """The second replica ends at once. Says what the first one is told where it waits for it."""
    import torch.distributed as dist

    if rank == 1:
        return
    ones = torch.ones(1, device="xla")
    told = []
    for wait in (
        lambda: xm.rendezvous("never"),
        lambda: xm.mesh_reduce("never", 1, sum),
        lambda: xm.broadcast_master_param(nn.Linear(2, 2).to("xla")),
        lambda: xm.all_reduce("sum", ones),
        lambda: dist.init_process_group("xla", init_method="xla://"),
    ):
        try:
            wait()
        except RuntimeError as error:
            told.append(str(error).splitlines()[0])
    with open(path, "w") as file:
        file.write("\n".join(told))


def differing_calls(rank: int) -> None:
    """Collectives that do not match between two replicas: both are told both lines, in each kind of difference."""
    import torch.distributed as dist

    dist.init_process_group("xla", init_method="xla://")

    def ones(*sizes, **options):
        return torch.ones(*sizes, device="xla", **options)

    def swapped(group):
        for call in (dist.all_reduce, lambda t, group: dist.broadcast(t, 0, group=group))[:: 1 - 2 * rank]:
            call(ones(4), group=group)

    def later(group):
        for step in range(6):
            reduction = dist.ReduceOp.MAX if rank and step == 3 else dist.ReduceOp.SUM
            dist.all_reduce(ones(4), reduction, group=group)
            torch_xla.sync(wait=True)

    cases = {
        "dtype": lambda group: dist.all_reduce(ones(4, dtype=[torch.float32, torch.float64][rank]), group=group),
        "count": lambda group: dist.all_reduce(ones([4, 6][rank]), group=group),
        "reduction": lambda group: dist.all_reduce(ones(4), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank], group=group),
        "order": swapped,
        "root": lambda group: dist.broadcast(ones(4), rank, group=group),
        "rows": lambda group: dist.all_to_all_single(ones(4), ones(4 + rank), [2, 2], [2 + rank, 2], group=group),
        "CPU": lambda group: dist.all_reduce(torch.ones([4, 6][rank]), group=group),
        "later": later,
    }
    for name, call in cases.items():
        group = dist.new_group([0, 1])
        for again in (False, True):  # the group stays as it is
            try:
                again_on = torch.ones(1) if name == "CPU" else ones(1)
                dist.all_reduce(again_on, group=group) if again else call(group)
                torch_xla.sync(wait=True)
                raise AssertionError(f"{name} differed, and replica {rank} was told nothing")
            except RuntimeError as error:
                text = str(error)
            assert "replica 0 calls " in text or (name == "later" and "where another replica has gone on" in text), text
            assert "replica 1 calls " in text and "replicas.py:" in text, text
        xm.rendezvous(name)
        dist.all_reduce(ones(1))  # other groups go on
    with torch_xla.experimental.eager_mode_context(True):
        dist.all_reduce(ones(1))
    dist.destroy_process_group()


# ---- Training ----
def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 6, generator=generator), torch.randint(4, (8,), generator=generator)


def train(model: nn.Module, batches, steps: int, lr: float = 0.1) -> list[torch.Tensor]:
    """Parameters after the steps. `batches(step)` gives a batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batches(step)
        nn.functional.cross_entropy(model(x), y).backward()
        xm.optimizer_step(optimizer, barrier=True)
    return [p.detach().cpu() for p in model.parameters()]


def half_batches(rank: int, path: str) -> None:
    """Trains on this replica's half of each batch; a step is one program. Saves the parameters."""
    size = xr.world_size()

    def batches(step):
        return tuple(t.chunk(size)[rank].to("xla") for t in batch_of(step))

    model = make_model().to("xla")
    train(model, batches, 3)
    before = met.counter_value("ExecuteComputation"), xr.get_num_cached_compilation_graph()
    parameters = train(model, batches, 5)
    if IS_ONE_PROGRAM:
        assert met.counter_value("ExecuteComputation") - before[0] <= 5 + len(parameters)
        assert xr.get_num_cached_compilation_graph() - before[1] <= 2
    assert not [name for name in met.counter_names() if name.startswith("aten::")]
    torch.save(parameters, f"{path}.{rank}")


def starts_early(rank: int, path: str) -> None:
    """The sums of gradients start in the middle of the backward and are waited for behind it; `path` has the steps."""
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(4, 512, device="xla")
    xm.broadcast_master_param(model)
    torch_xla.sync(wait=True)
    xm.rendezvous("made")
    if rank == 1:
        xm.rendezvous("compiled")
    model(x).square().sum().backward()
    xm.optimizer_step(optimizer, barrier=True)
    if rank == 0:
        with open(path) as file:
            steps = file.read().split("[torch_xla] steps\n")[-1]
        last_product = steps.rindex("aten::mm of")
        assert [steps.count(f"{how}xla::all_reduce of") for how in ("start ", "wait for ", "")] == [3, 3, 7]
        assert steps.index("start xla::all_reduce of") < steps.rindex("start xla::all_reduce of") < last_product
        assert last_product < steps.index("wait for xla::all_reduce of")
        xm.rendezvous("compiled")
    assert torch.isfinite(model[0].weight).all()


def profiles_sums(rank: int, folder: str) -> None:
    """Writes a trace of a training step whose sums of gradients go on beside its other steps."""
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        model(torch.ones(4, 512, device="xla")).square().sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync(wait=True)

    step()
    with torch.profiler.profile() as profiler:
        step()
    profiler.export_chrome_trace(os.path.join(folder, f"{rank}.json"))


def gradients(rank: int) -> None:
    """Of collectives that gradients go through."""
    size = xr.world_size()
    x = torch.full((2, 2), rank + 1.0, device="xla", requires_grad=True)
    (xf.all_reduce("sum", x, scale=0.5) * (rank + 1)).sum().backward()
    assert x.grad.tolist() == [[0.5 * sum(range(1, size + 1))] * 2] * 2
    x.grad = None
    weight = torch.arange(2.0 * 2 * size, device="xla").reshape(2, -1) * (rank + 1)
    (xf.all_gather(x, dim=1) * weight).sum().backward()
    assert x.grad.tolist() == weight[:, 2 * rank : 2 * rank + 2].tolist()
    compiled(rank)


def compiled(rank: int) -> None:
    """Collectives in a function of torch.compile, without a break."""
    size = xr.world_size()
    x = torch.full((2, 2), rank + 1.0, device="xla")
    gather = torch.compile(lambda t: xm.all_gather(t * 2, dim=1) + 1, backend="openxla", fullgraph=True)
    assert gather(x).tolist() == [[2 * each + 3.0 for each in range(size) for _ in range(2)]] * 2
    reduce = torch.compile(lambda t: xm.all_reduce("max", t) - 1, backend="openxla", fullgraph=True)
    assert reduce(x).tolist() == [[size - 1.0] * 2] * 2


def batch_norm(rank: int) -> None:
    """SyncBatchNorm, this package's and PyTorch's, over parts of a batch is BatchNorm over the whole one."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend  # noqa: F401 (registers the backend)

    dist.init_process_group("xla", init_method="xla://")
    for make, dtype in (
        (xf.SyncBatchNorm, torch.float32),
        *((nn.SyncBatchNorm, t) for t in (torch.float32, torch.bfloat16)),
    ):
        torch.manual_seed(0)
        whole = torch.randn(8, 3, 4, 4).to(dtype)
        expected_norm, norm = nn.BatchNorm2d(3), make(3).to("xla")
        expected_input = whole.float().clone().requires_grad_()
        slopes = torch.randn(8, 3, 4, 4)
        expected_norm(expected_input).backward(slopes)
        x = whole.chunk(xr.world_size())[rank].to("xla").requires_grad_()
        out = norm(x)
        assert out.dtype == dtype
        out.backward(slopes.chunk(xr.world_size())[rank].to("xla", dtype))
        part = expected_input.grad.chunk(xr.world_size())[rank]
        tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
        torch.testing.assert_close(x.grad.float().cpu(), part, **tolerance)
        torch.testing.assert_close(norm.running_var.cpu(), expected_norm.running_var)
        torch.testing.assert_close(norm.running_mean.cpu(), expected_norm.running_mean)
        gradient = norm.weight.grad.clone()
        dist.all_reduce(gradient)
        torch.testing.assert_close(gradient.cpu(), expected_norm.weight.grad, **tolerance)
    dist.destroy_process_group()


def loader(rank: int, path: str) -> None:
    """The training of the seeds, with a loader, as written."""
    model = make_model().to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [batch_of(2 * step + rank) for step in range(4)]
    for data, target in pl.ParallelLoader(batches, [xm.xla_device()]).per_device_loader(xm.xla_device()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        xm.optimizer_step(optimizer)
    torch.save([p.detach().cpu() for p in model.parameters()], f"{path}.{rank}")


def multiplies(rank: int) -> None:
    """A product whose left side is spread over the replicas."""
    whole = torch.arange(12.0).view(3, 4)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(rank))
    w = whole[:, 2 * rank : 2 * rank + 2].to("xla").requires_grad_()
    for split in (1, 2):
        torch.testing.assert_close(xf.distributed_mm(w, x.to("xla"), split).detach().cpu(), whole @ x)
    try:
        xf.distributed_mm(w, x[:3].to("xla"))
        raise AssertionError("a product of shapes that do not fit")
    except ValueError as error:
        assert "x has 3 rows when it should have 4" in str(error)


def joins_again(rank: int) -> None:
    """Default groups one after the other, to which the first replica comes late."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend  # noqa: F401 (registers the backend)

    for _ in range(3):
        time.sleep(0 if rank else 0.5)
        dist.init_process_group("xla", init_method="xla://")
        x = torch.full((2,), rank + 1.0, device="xla")
        dist.all_reduce(x)
        assert x.tolist() == [3, 3]
        dist.destroy_process_group()


def torch_distributed(rank: int) -> None:
    """The backend xla: each call of torch.distributed."""
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as funcol

    import torch_xla.distributed.xla_backend  # noqa: F401 (registers the backend)

    dist.init_process_group("xla", init_method="xla://")
    size = dist.get_world_size()
    assert (dist.get_rank(), size, dist.get_backend()) == (rank, 2, "xla")
    x = torch.arange(4.0, device="xla") + rank
    reduced = {}
    for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
        reduced[op] = x.clone()
        dist.all_reduce(reduced[op], getattr(dist.ReduceOp, op))
    assert {op: t.tolist() for op, t in reduced.items()} == {
        "SUM": [1, 3, 5, 7],
        "AVG": [0.5, 1.5, 2.5, 3.5],
        "PRODUCT": [0, 2, 6, 12],
        "MIN": [0, 1, 2, 3],
        "MAX": [1, 2, 3, 4],
    }
    received = x.clone()
    dist.broadcast(received, 1)
    assert received.tolist() == [1, 2, 3, 4]
    gathered = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(gathered, x)
    flat = torch.empty(8, device="xla")
    dist.all_gather_into_tensor(flat, x)
    assert torch.cat(gathered).tolist() == flat.tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
    part = torch.empty(2, device="xla")
    dist.reduce_scatter_tensor(part, x)
    other = torch.empty(2, device="xla")
    dist.reduce_scatter(other, list(x.chunk(2)))
    assert part.tolist() == other.tolist() == [[1, 3], [5, 7]][rank]
    dist.reduce_scatter(other, [2 * x])  # as the original takes it
    assert other.tolist() == [[2, 6], [10, 14]][rank]
    try:
        dist.reduce_scatter(other, [x[:2], x[:2], x[:2]])
        raise AssertionError("a reduce_scatter of three parts")
    except ValueError as error:
        assert "[2], [2], [2] when it should get 2 tensors of shape [2], or one of all of them" in str(error)
    exchanged = torch.empty_like(x)
    dist.all_to_all_single(exchanged, x)
    assert exchanged.tolist() == [[0, 1, 1, 2], [2, 3, 3, 4]][rank]
    parts = [torch.empty(2, device="xla") for _ in range(size)]
    dist.all_to_all(parts, list(x.chunk(2)))
    assert torch.cat(parts).tolist() == exchanged.tolist()
    dist.scatter(part, list(x.chunk(2)) if rank == 1 else None, src=1)
    assert part.tolist() == [[1, 2], [3, 4]][rank]
    dist.reduce(x, 0)
    assert x.tolist() == [[1, 3, 5, 7], [1, 2, 3, 4]][rank]
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    (dist.send if rank == 0 else dist.recv)(part, 1 - rank)
    assert part.tolist() == [1, 2]
    alone = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(part, group=alone)
    met.clear_counters()
    functional = funcol.all_reduce(part, "sum", dist.group.WORLD)
    assert functional.tolist() == [2, 4]
    assert met.counter_value("xla::all_reduce") == met.counter_value("xla::AllReduce") == 1
    dist.barrier()
    dist.destroy_process_group()


def distributed_data_parallel(rank: int, path: str, compile: bool) -> None:
    """DDP over the backend xla."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend  # noqa: F401 (registers the backend)

    dist.init_process_group("xla", init_method="xla://")
    model = nn.parallel.DistributedDataParallel(make_model().to("xla"), gradient_as_bucket_view=True)
    model = torch.compile(model) if compile else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        x, y = (t.chunk(2)[rank].to("xla") for t in batch_of(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    torch.save([p.detach().cpu() for p in model.parameters()], f"{path}.{rank}")
    dist.destroy_process_group()


def rebuilds_buckets(rank: int, path: str) -> None:
    """DDP's second step puts its buckets in another order, within a step that is one program. Of two models the second
    finds collectives of the first in the trace."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend

    dist.init_process_group("xla", init_method="xla://")
    models = [nn.parallel.DistributedDataParallel(make_model().to("xla"), bucket_cap_mb=1e-3) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]

    def step(x, y):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    for number in range(4):
        x, y = (t.chunk(2)[rank].to("xla") for t in batch_of(number))
        torch_xla.sync()
        before = met.counter_value("ExecuteComputation") or 0
        torch_xla.compile(step, full_graph=IS_ONE_PROGRAM)(x, y)
        runs = met.counter_value("ExecuteComputation") - before
        assert runs == 1 or not IS_ONE_PROGRAM, (number, runs)

    def reads(x, y):
        step(x, y)
        return models[0].module[0].weight.sum().item()

    try:
        torch_xla.compile(reads, full_graph=True)(x, y)
        raise AssertionError("a value was read")
    except RuntimeError as error:
        assert "Unexpected execution" in str(error)
    assert all(torch.equal(*pair) for pair in zip(*(model.parameters() for model in models)))
    torch.save([p.detach().cpu() for p in models[1].parameters()], f"{path}.{rank}")
    dist.destroy_process_group()


def zero_redundancy(rank: int, path: str) -> None:
    """Optimizers whose state is spread: this package's, and PyTorch's over the backend xla."""
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer as OfTorch

    import torch_xla.distributed.xla_backend  # noqa: F401 (registers the backend)
    from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

    dist.init_process_group("xla", init_method="xla://")
    trained = {}
    for name in ("ours", "clipped", "torch"):
        model = make_model().to("xla")
        parameters = list(model.parameters())
        if name == "torch":
            optimizer = OfTorch(parameters, torch.optim.Adam, lr=0.01)
        else:
            optimizer = ZeroRedundancyOptimizer(
                parameters, torch.optim.Adam, grad_clipping=name == "clipped", max_norm=0.1, lr=0.01
            )
        for step in range(4):
            x, y = (t.chunk(2)[rank].to("xla") for t in batch_of(step))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            if name == "torch":
                xm.reduce_gradients(optimizer)
            optimizer.step()
        trained[name] = [p.detach().cpu() for p in parameters]
        if name == "ours":  # a step is one program
            runs = met.counter_value("ExecuteComputation")
            optimizer.step()
            assert not IS_ONE_PROGRAM or met.counter_value("ExecuteComputation") == runs + 1
        if name == "clipped":
            assert optimizer.grad_norm.item() > 0.1
            part = optimizer.base_optimizer.state[optimizer.base_optimizer.param_groups[0]["params"][0]]["exp_avg"]
            assert part.numel() == 6 * 16 / 2
            saved = optimizer.state_dict()
            optimizer.load_state_dict(saved)
            assert optimizer.state_dict()["base_state"].keys() == saved["base_state"].keys()
    torch.save(trained, f"{path}.{rank}")
    dist.destroy_process_group()


def odd_model() -> nn.Module:
    """Rows that two replicas cannot share evenly, a number, and a parameter that nobody uses."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    model.scale = nn.Parameter(torch.tensor(0.5))
    model.unused = nn.Parameter(torch.ones(4))
    return model


def train_odd(model: nn.Module, optimizer, steps: int, rank: int | None = None) -> None:
    """Steps of two backward passes each, over the batches of one replica of two, or over those of both."""
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(2):
            x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(10 * step + part))
            x = x if rank is None else x[rank].to("xla")
            (model(x) * model.scale).square().mean().backward()
        optimizer.step()


SPREAD = {
    "plain": {},
    "summed": {"use_grad_acc_hook": True},
    "late": {"lazy_init": True, "higher_cc_precision": True},
    "clipped": {"grad_clipping": True, "max_norm": 0.05, "grad_norm_groups": [[0], [1]]},
}


def spread_state(rank: int, path: str) -> None:
    """Options of the optimizer whose state is spread, what it saves, and what becomes of it."""
    from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

    def make(model, **options):
        options = {"grad_clipping": False, "save_master_weights": True, "lr": 0.05, "weight_decay": 0.1, **options}
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **options)

    trained = {}
    for name, options in SPREAD.items():
        model = odd_model().to("xla")
        optimizer = make(model, **options)
        if name == "late":
            try:
                optimizer.step()
                raise AssertionError("a step before init_zero()")
            except RuntimeError as error:
                assert "call init_zero() before the first step" in str(error)
            optimizer.init_zero()
        train_odd(model, optimizer, 3, rank)
        assert name != "summed" or (model.weight.grad is None and model.weight.main_grad.shape == (3, 5))
        trained[name] = [p.detach().cpu() for p in model.parameters()]
    saved = optimizer.state_dict()
    assert saved["shape_info"] == {0: (3, 5), 1: (3,), 2: (), 3: (4,)}
    assert saved["base_state"][0]["exp_avg"].shape == (2, 5) and 3 not in saved["base_state"]
    saved = copy.deepcopy(saved)
    other = nn.Linear(5, 3).to("xla")
    other.scale, other.unused = nn.Parameter(torch.zeros((), device="xla")), nn.Parameter(torch.zeros(4, device="xla"))
    again = make(other, **options)
    again.load_state_dict(saved)  # with the parts
    trained["loaded"] = [p.detach().cpu() for p in other.parameters()]
    other.load_state_dict({name: p.detach() + 1 for name, p in model.state_dict().items()})
    model.load_state_dict(other.state_dict())
    del saved["sharded_master_weights"]
    again.load_state_dict(saved)
    optimizer.load_state_dict(copy.deepcopy(saved))
    for each, its in ((model, optimizer), (other, again)):
        train_odd(each, its, 1, rank)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    torch.save(trained, f"{path}.{rank}")


# ---- What goes wrong ----
def fails(rank: int) -> None:
    """Replica 1 raises, while the others wait for it."""
    if rank == 1:
        raise KeyError("the replica's own error")
    xm.all_reduce("sum", torch.ones(2, device="xla")).cpu()


def fails_while_it_runs(rank: int, path: str) -> None:
    """Replica 1 raises while a program of its own waits for replica 0, which comes to no collective."""
    x = xm.all_reduce("sum", torch.ones(2, device="xla"))
    x.cpu()
    if rank == 1:
        x = xm.all_reduce("sum", x)
        torch_xla.sync()
        with open(path, "w") as file:
            file.write(str(time.monotonic()))
        raise KeyError(f"the replica's own error, {x.shape}")
    xm.rendezvous("where nobody comes")


def raises_what_cannot_be_pickled() -> None:
    class Unpicklable(Exception):
        pass

    raise Unpicklable


def stops_coming(rank: int, path: str) -> None:
    """Steps with a collective for ever, until another replica is lost; says what it was told."""
    x = torch.ones(2, device="xla")

    def step(number: int) -> None:
        nonlocal x
        x = xm.all_reduce("max", x + 1)
        x.cpu()
        time.sleep(0.01)

    until_told(rank, path, step)


def until_told(rank: int, path: str, step) -> None:
    """Calls step(number) until it raises, and writes what it was told."""
    try:
        for number in range(10_000):
            step(number)
            if number == 3:
                with open(f"{path}.{rank}.running", "w"):
                    pass
    except RuntimeError as error:
        with open(f"{path}.{rank}", "w") as file:
            file.write(str(error))


def read_by_one(rank: int, path: str) -> None:
    """Results that the first replica reads, while the others wait for it at a meeting, elsewhere, or have ended."""

    def total() -> None:
        result = xm.all_reduce("sum", torch.full((2,), rank + 1.0, device="xla"))
        assert rank or result.tolist() == [sum(range(1, xr.world_size() + 1))] * 2

    total()
    xm.rendezvous("read")
    total()
    if rank == 0:
        with open(path, "w"):
            pass
    while not os.path.exists(path):
        time.sleep(0.05)
    total()


def unwanted_result(rank: int) -> None:
    """A collective whose result only one replica keeps runs in all."""
    for _ in range(3):
        total = xm.all_reduce("sum", torch.full((2,), rank + 1.0, device="xla"))
        if rank:
            del total
        torch_xla.sync()
        if not rank:
            assert total.tolist() == [sum(range(1, xr.world_size() + 1))] * 2


# ---- Sends and receives of torch.distributed ----
def numbers_of(rank: int, count: int, kind: int = 0) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) + 1000 * rank + 100 * kind


def passes_on(rank: int, size: int) -> None:
    """Everybody sends to the next one and receives from the one before, in several orders, small and large."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend as xla_backend

    xla_backend.join()
    after, before = (rank + 1) % size, (rank - 1) % size
    for device in ("xla", "cpu"):
        for count in (3, 1 << 19):  # the large ones fit into no socket's buffer
            own = numbers_of(rank, count).to(device)
            received = torch.zeros_like(own)
            for is_send_first in (True, False):
                received.zero_()
                calls = [lambda: dist.isend(own, after), lambda: dist.irecv(received, before)]  # noqa: B023
                for work in [call() for call in (calls if is_send_first else reversed(calls))]:
                    work.wait()
                assert received.cpu().equal(numbers_of(before, count))
            received.zero_()
            pairs = [dist.P2POp(dist.irecv, received, before), dist.P2POp(dist.isend, own, after)]
            for work in dist.batch_isend_irecv(pairs):
                assert work.is_completed() and work.get_future().done()
            assert received.cpu().equal(numbers_of(before, count))
    between_steps(rank, size)
    several_at_once(rank, size)
    dist.destroy_process_group()


def between_steps(rank: int, size: int) -> None:
    """What is sent is what was there, also where the program goes on and writes over it; permutes do not take it."""
    import torch.distributed as dist

    after, before = (rank + 1) % size, (rank - 1) % size
    own = numbers_of(rank, 1 << 19).to("xla")
    work = dist.isend(own, after)
    own += 7
    torch_xla.sync(wait=True)
    own.zero_()
    torch_xla.sync(wait=True)
    pairs = [[i, (i + 1) % size] for i in range(size)]
    assert xm.collective_permute(torch.full((2,), float(rank), device="xla"), pairs).tolist() == [before] * 2
    total = torch.ones(2, device="xla")
    dist.all_reduce(total)
    assert total.tolist() == [size] * 2
    received = torch.empty(1 << 19, device="xla")
    dist.recv(received, before)
    work.wait()
    assert received.cpu().equal(numbers_of(before, 1 << 19))


def several_at_once(rank: int, size: int) -> None:
    """Receives that are waited for in another order than they were asked for; some that nobody waits for."""
    import torch.distributed as dist

    others = [each for each in range(size) if each != rank]
    received = {
        (each, kind): torch.empty(2, device="xla") for each in others for kind in range(3)
    }  # kind 2 has a tag of its own
    works = {key: dist.irecv(tensor, key[0], tag=5 * (key[1] == 2)) for key, tensor in received.items()}
    for kind in (2, 0, 1):
        for each in others:
            dist.isend(numbers_of(rank, 2, kind).to("xla"), each, tag=5 * (kind == 2))
    for each in reversed(others):
        works[each, 1].wait()  # and with it the one before of its tag
        works[each, 0].wait()
        assert [received[each, kind].tolist() for kind in (0, 1)] == [numbers_of(each, 2, k).tolist() for k in (0, 1)]
    for each in others:
        dist.irecv(torch.zeros(2, device="xla"), each, tag=9)
        dist.isend(numbers_of(rank, 2).to("xla"), each, tag=9)
    torch_xla.sync()


def sends_and_ends(rank: int, path: str) -> None:
    """A replica that ends when it has sent; the other one comes much later, and leaves by no call either."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend as xla_backend

    xla_backend.join()
    if rank == 0:
        dist.isend(numbers_of(rank, 1 << 19).to("xla"), 1)
        return
    time.sleep(3)
    received = torch.empty(1 << 19, device="xla")
    dist.recv(received, 0)
    assert received.cpu().equal(numbers_of(0, 1 << 19))
    with open(path, "w"):
        pass


def sends_for_ever(rank: int, path: str) -> None:
    """In a ring, until another replica is lost."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend as xla_backend

    xla_backend.join()
    size = xr.world_size()
    own, received = torch.ones(4, device="xla"), torch.empty(4, device="xla")

    def step(number: int) -> None:
        works = [dist.isend(own, (rank + 1) % size), dist.irecv(received, (rank - 1) % size)]
        for work in works:
            work.wait()
        received.cpu()

    until_told(rank, path, step)


def sends_alone(rank: int, path: str) -> None:
    """To the third of four, which receives nothing any more once it is lost."""
    import torch.distributed as dist

    import torch_xla.distributed.xla_backend as xla_backend

    xla_backend.join()

    def step(number: int) -> None:
        if rank == 2:
            for source in (0, 1, 3):
                dist.recv(torch.empty(4, device="xla"), source)
        else:
            dist.isend(torch.full((4,), float(number), device="xla"), 2)
        torch_xla.sync(wait=True)
        time.sleep(0.05)

    until_told(rank, path, step)
