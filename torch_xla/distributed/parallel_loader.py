"""Loaders that move batches to the device ahead of time and sync after each step (`pl`)."""

import functools
import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from .. import _api
from ..core import xla_model

_END = object()


def _fill(
    items: Iterator, move: Callable, batches: queue.SimpleQueue, slots: threading.Semaphore, ended: threading.Event
):
    """The thread: puts moved batches, then _END or the exception that ended it."""
    try:
        for item in items:
            slots.acquire()
            if ended.is_set():
                return
            batches.put((move(item), None))
        batches.put((_END, None))
    except BaseException as error:
        batches.put((_END, error))


def _prefetch(items: Iterator, move: Callable, size: int) -> Iterator:
    """Yields `move(item)` for each item; a thread is up to `size` of them ahead. It raises what the thread raised."""
    batches: queue.SimpleQueue = queue.SimpleQueue()
    slots, ended = threading.Semaphore(size), threading.Event()
    args = (items, move, batches, slots, ended)
    threading.Thread(target=_fill, args=args, name="xla-loader", daemon=True).start()
    try:
        while True:
            batch, error = batches.get()
            if error is not None:
                raise error
            if batch is _END:
                return
            slots.release()
            yield batch
    finally:  # also when the loop over it is left early
        ended.set()
        slots.release()


class PerDeviceLoader:
    """Iterates once over the batches of a ParallelLoader on one device, with a sync after each."""

    def __init__(self, loader: "ParallelLoader", device):
        self._loader = loader
        self._device = device
        self._batches = 0
        self._items: Iterator | None = None

    def __iter__(self):
        return self

    def __next__(self):
        return self.next()

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def next(self):
        """The next batch. Before it and at the end: a sync, every `batches_per_execution` batches."""
        if self._items is None:
            self._items = self._loader._iterate(self._device)
        if self._batches and self._batches % self._loader.batches_per_execution == 0:
            self._sync()
        try:
            item = next(self._items)
        except StopIteration:
            self._sync()
            raise
        self._batches += 1
        return item

    def _sync(self) -> None:
        _api.sync_devices([str(self._device)], wait=False)

    def close(self) -> None:
        """Stops reading ahead."""
        if self._items is not None:
            self._items.close()


class ParallelLoader:
    """Reads a loader of CPU tensors and moves its batches to the device on a thread of its own.

    Args:
        cpu_loader: iterable of batches: nested lists, tuples, dicts of CPU tensors. Other tensors stay where they are.
        devices: one device, as `[torch_xla.device()]`.
        batchdim: the dim of the batches, for several devices.
        batches_per_execution: batches between two syncs.
        loader_prefetch_size, device_prefetch_size: together the batches that wait, at most.
        host_to_device_transfer_threads: accepted for the original's sake: a copy takes no time worth a thread.
        input_sharding: a ShardingSpec, checked and else without effect.

    Raises NotImplementedError for several devices, ValueError for a batches_per_execution under 1. An exception of
    cpu_loader is raised by the batch that it prevented.
    """

    def __init__(
        self,
        cpu_loader: Iterable,
        devices: Sequence,
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding=None,
    ):
        if len(devices) != 1:
            raise NotImplementedError(f"a loader feeds one device, and {len(devices)} were given: {list(devices)}")
        if batches_per_execution < 1:
            raise ValueError(f"batches_per_execution is {batches_per_execution} when it should be at least 1")
        self._cpu_loader = cpu_loader
        self._devices = [torch.device(device) for device in devices]
        self._batches_per_execution = batches_per_execution
        self._prefetch_size = max(1, loader_prefetch_size + device_prefetch_size)
        self._input_sharding = input_sharding
        self._loaders: weakref.WeakSet[PerDeviceLoader] = weakref.WeakSet()

    @property
    def batches_per_execution(self) -> int:
        """Batches between two syncs."""
        return self._batches_per_execution

    def per_device_loader(self, device) -> PerDeviceLoader:
        """The loader of one of the devices. Raises ValueError for another one."""
        if torch.device(device) not in self._devices:
            raise ValueError(f"{device} is not among the loader's devices {self._devices}")
        loader = PerDeviceLoader(self, torch.device(device))
        self._loaders.add(loader)
        return loader

    def per_device_samples(self) -> int:
        """Batches for each device."""
        return len(self._cpu_loader) // len(self._devices)

    def close(self) -> None:
        """Stops reading ahead."""
        for loader in self._loaders:
            loader.close()

    def _iterate(self, device: torch.device) -> Iterator:
        """Starts to read.

        The first batch is read on this thread, which so draws the seeds of a shuffle in the order of a loop without us.
        """

        # Must not refer to this object: the thread holds it, and ends when nobody holds the loader.
        send = functools.partial(xla_model.send_cpu_data_to_device, device=device, input_sharding=self._input_sharding)
        items = iter(self._cpu_loader)
        first = list(itertools.islice(items, 1))
        return _prefetch(itertools.chain(first, items), lambda batch: send([batch])[0], self._prefetch_size)


class MpDeviceLoader:
    """A loader whose batches are on the device. Each `for` over it syncs after each step and at its end.

    It has the attributes of `loader`, such as a DataLoader's `dataset`.

    Args:
        loader: iterable of batches of CPU tensors, such as a DataLoader.
        device: where they go.
        kwargs: as for ParallelLoader.
    """

    def __init__(self, loader: Iterable, device, **kwargs):
        self._loader = loader
        self._device = device
        self._parallel_loader_kwargs = kwargs

    def __iter__(self) -> PerDeviceLoader:
        return ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs).per_device_loader(
            self._device
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str):
        if name == "_loader":  # not set yet: a copy is being made
            raise AttributeError(name)
        return getattr(self._loader, name)
