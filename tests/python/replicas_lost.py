"""Replicas that fail, end, differ or are lost in the tests of processes. Each function takes the replica's number."""

import os
import time

import torch
import torch.distributed as dist
from replicas import in_group, numbers_of
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.distributed import xla_backend


def meets_for_ever(rank: int, path: str) -> None:
    """Meetings until another replica is lost; says what it was told."""
    until_told(rank, path, lambda number: xm.mesh_reduce("again", number, sum))


def is_left_alone(rank: int, path: str) -> None:
    """The second replica ends at once. Says what the first one is told where it waits for it."""
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


@in_group
def differing_calls(rank: int) -> None:
    """Collectives that do not match between two replicas: both are told both lines, in each kind of difference."""

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
            assert "replica 0 calls " in text or (
                name == "later" and "but another replica repeats its earlier calls" in text
            ), text
            assert "replica 1 calls " in text and "replicas_lost.py:" in text, text
        xm.rendezvous(name)
        dist.all_reduce(ones(1))  # other groups go on
    with torch_xla.experimental.eager_mode_context(True):
        dist.all_reduce(ones(1))


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


def sends_and_ends(rank: int, path: str) -> None:
    """A replica that ends when it has sent; the other one comes much later, and leaves by no call either."""
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
