"""Meetings of the replicas of a run (part of `xm`): they happen at once, over the run's store, with bytes and Python
objects.
"""

from collections.abc import Callable, Iterable, Sequence

import torch

from .. import _payloads, _world
from .. import runtime as _runtime
from ..utils.utils import for_each_instance_rewrite
from ._members import Members


def _on_cpu(data):
    return for_each_instance_rewrite(
        data, lambda value: isinstance(value, torch.Tensor) and value.device.type == "xla", lambda t: t.cpu()
    )


def rendezvous(tag: str, payload: bytes = b"", replicas: list | None = None) -> list[bytes]:
    """Waits until all replicas have come to the rendezvous `tag`.

    Args:
        payload: bytes for the others.
        replicas: numbers of the members; None or empty is all.

    Returns all payloads, in order. Raises RuntimeError that names the late replicas.
    """
    replica = _world.current()
    members = Members(replica, [replicas] if replicas else None)
    return [payload] if len(members) == 1 else replica.meet(tag, bytes(payload), members.ranks)


def xla_rendezvous(payload: bytes = b"", ordinals: list | None = None, tag: str | None = None) -> list[bytes]:
    """As rendezvous()."""
    return rendezvous(tag or "", payload, ordinals)


def mesh_reduce(tag: str, data, reduce_fn: Callable):
    """`reduce_fn` of the list of all replicas' `data`, with tensors moved to the CPU.

    Args:
        data: tensors, NumPy's arrays, numbers, texts, and lists, tuples, sets and dicts of them; any picklable value if
            the run has a secret, as with xmp.spawn (docs/replicas.md).

    Raises RuntimeError for other data.
    """
    cpu_data = _on_cpu(data)
    if _runtime.world_size() == 1:
        return reduce_fn([cpu_data])
    takes_any = _world.current().is_private
    return reduce_fn([_payloads.decode(each, takes_any) for each in rendezvous(tag, _payloads.encode(cpu_data))])


def do_on_ordinals(target: Callable, data: Iterable = (), ordinals: Sequence[int] = (0,)) -> None:
    """Calls `target(*data)`, with tensors on the CPU, in the replicas `ordinals`, and waits for it in all replicas."""
    if _runtime.global_ordinal() in ordinals:
        target(*_on_cpu(tuple(data)))
    rendezvous("do_on_ordinals")


def set_replication(device, devices: Sequence) -> None:
    """Accepts the devices that run the same program. The run knows them already, so this only checks them.

    Args:
        device: this thread's device.
        devices: all of them; empty switches replication off.

    Raises ValueError for more devices than the run has.
    """
    if len(devices) > _runtime.world_size():
        raise ValueError(
            f"replication over {list(devices)} needs {len(devices)} replicas, and the run has {_runtime.world_size()}"
        )
