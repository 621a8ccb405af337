"""What replicas do in the tests of processes and threads, each by its number: collectives, meetings, sends."""

import collections
import contextlib
import functools
import os
import pickle
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as funcol

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr
from torch_xla import _world
from torch_xla.distributed import xla_backend

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


def in_group(function):
    """Calls the function within a default group of torch.distributed."""

    @functools.wraps(function)
    def run(*args):
        dist.init_process_group("xla", init_method="xla://")
        function(*args)
        dist.destroy_process_group()

    return run


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
    if rank == 0:  # the other one would replace what was forged for it
        store = _world.process().store
        store.set("meeting/(0, 1)/forged/0/1", b"." + pickle.dumps(Noted(f"{path}.forged")))
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


@in_group
def listens(rank: int) -> None:
    """All sockets that the run listens on, those of the process that started it too."""
    xm.all_reduce("sum", torch.ones(1, device="xla")).cpu()
    dist.all_reduce(torch.ones(1), group=dist.new_group(backend="gloo"))
    addresses = listening_addresses([os.getpid(), os.getppid()])
    xm.rendezvous("looked")
    assert len(addresses) >= 4 and all(address.startswith("0100007F:") for address in addresses), addresses


@in_group
def torch_distributed(rank: int) -> None:
    """The backend xla: each call of torch.distributed."""
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


def joins_again(rank: int) -> None:
    """Default groups one after the other, to which the first replica comes late."""
    for _ in range(3):
        time.sleep(0 if rank else 0.5)
        dist.init_process_group("xla", init_method="xla://")
        x = torch.full((2,), rank + 1.0, device="xla")
        dist.all_reduce(x)
        assert x.tolist() == [3, 3]
        dist.destroy_process_group()


def numbers_of(rank: int, count: int, kind: int = 0) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) + 1000 * rank + 100 * kind


def passes_on(rank: int, size: int) -> None:
    """Everybody sends to the next one and receives from the one before, in several orders, small and large."""
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


def unwanted_result(rank: int) -> None:
    """A collective whose result only one replica keeps runs in all."""
    for _ in range(3):
        total = xm.all_reduce("sum", torch.full((2,), rank + 1.0, device="xla"))
        if rank:
            del total
        torch_xla.sync()
        if not rank:
            assert total.tolist() == [sum(range(1, xr.world_size() + 1))] * 2
