"""Loaders that move batches to the device ahead of time and sync after each step (`pl`)."""

import atexit
import functools
import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from .. import _api
from ..core import xla_model
from ..utils.utils import for_each_instance

_END = object()
_running: "weakref.WeakKeyDictionary[threading.Thread, list[_Outlet]]" = weakref.WeakKeyDictionary()
_SECONDS_AT_EXIT = 2.0


class _Outlet:
    """A queue of a device's batches: at most `size` of them."""

    def __init__(self, size: int):
        self._batches: queue.SimpleQueue = queue.SimpleQueue()
        self._slots = threading.Semaphore(size)
        self.closed = False

    def put(self, move: Callable, batch) -> None:
        """Waits for room and puts the moved batch; drops it if there is no reader."""
        self._slots.acquire()
        if self.closed:
            self._slots.release()
        else:
            self._batches.put((move(batch), None))

    def end(self, error: BaseException | None) -> None:
        """No batch follows; the reader gets the error, if there is one."""
        self._batches.put((_END, error))

    def get(self):
        """The next batch or _END. Raises the error."""
        batch, error = self._batches.get()
        self._slots.release()
        if error is not None:
            raise error
        return batch

    def close(self) -> None:
        """Ends reading; waiting get() calls return."""
        self.closed = True
        self._batches.put((_END, None))
        self._slots.release()


class _Reader:
    """Iterates over a device's batches; closes the outlet at the end, or when it is dropped."""

    def __init__(self, outlet: _Outlet):
        self._outlet = outlet

    def __iter__(self):
        return self

    def __next__(self):
        if self._outlet.closed:
            raise StopIteration
        try:
            batch = self._outlet.get()
        except BaseException:
            self.close()
            raise
        if batch is _END:
            self.close()
            raise StopIteration
        return batch

    def close(self) -> None:
        """Ends the reading."""
        self._outlet.close()

    __del__ = close


def _fill(rounds: Iterator[list], moves: Sequence[Callable], outlets: Sequence[_Outlet]) -> None:
    """The thread: moves the batches of each round, one for each device, until there is no reader."""
    error = None
    try:
        for batches in rounds:
            for outlet, move, batch in zip(outlets, moves, batches):
                outlet.put(move, batch)
            if all(outlet.closed for outlet in outlets):
                return
    except BaseException as raised:
        error = raised
    for outlet in outlets:
        outlet.end(error)


@atexit.register
def _end_all() -> None:
    """Ends all threads before the interpreter does: a thread ended in the middle of a copy would end the process."""
    threads = list(_running.items())
    for _, outlets in threads:
        for outlet in outlets:
            outlet.close()
    for thread, _ in threads:
        thread.join(_SECONDS_AT_EXIT)


def _size_of(batch, dim: int) -> int | None:
    """The size along `dim` of the first tensor in the batch."""
    sizes: list[int] = []
    for_each_instance(batch, lambda value: isinstance(value, torch.Tensor), lambda t: sizes.append(t.size(dim)))
    return sizes[0] if sizes else None


def _rounds(batches: Iterator, count: int, fixed_dim: int | None) -> Iterator[list]:
    """Lists of `count` batches; a remainder at the end is dropped.

    With `fixed_dim`, stops at a batch with another size along it than the first.
    """
    size = _END
    while len(batch_round := list(itertools.islice(batches, count))) == count:
        if fixed_dim is not None:
            sizes = {_size_of(batch, fixed_dim) for batch in batch_round}
            size = next(iter(sizes)) if size is _END else size
            if sizes != {size}:
                return
        yield batch_round


class PerDeviceLoader:
    """Iterates once over the batches of a ParallelLoader on one device, with a sync after each."""

    def __init__(self, loader: "ParallelLoader", device, turn: int = 0):
        self._loader = loader
        self._device = device
        self._turn = turn
        self._batches = 0
        self._items: _Reader | None = None

    def __iter__(self):
        return self

    def __next__(self):
        return self.next()

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def next(self):
        """The next batch. Before it and at the end: a sync, every `batches_per_execution` batches."""
        if self._items is None:
            self._items = self._loader._iterate(self._device, self._turn)
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
        _api.sync_devices([str(self._device)], wait=False, cause=_api.SyncCause.LOADER)

    def close(self) -> None:
        """Stops reading ahead."""
        if self._items is not None:
            self._items.close()


class ParallelLoader:
    """Reads a loader of CPU tensors and moves its batches to the devices on a thread of its own.

    Args:
        cpu_loader: iterable of batches: nested lists, tuples, dicts of CPU tensors. Other tensors stay where they are.
        devices: as `[torch_xla.device()]`. The i-th batch goes to the device i modulo their number; batches that do not
            reach all of them at the end are dropped.
        batchdim: the dim of the batches.
        batches_per_execution: batches between two syncs.
        loader_prefetch_size, device_prefetch_size: together the batches that wait for each device, at most.
        host_to_device_transfer_threads: accepted for the original's sake: a copy takes no time worth a thread.
        input_sharding: a ShardingSpec for the tensors with as many dims, or a dict of them by the batches' keys.
        fixed_batch_size: end at the first batch with another size than the first.
        loader: the first releases' name of cpu_loader.

    Raises ValueError for no loader, no devices and a batches_per_execution under 1. An exception of cpu_loader is
    raised in place of its batch, on all devices.
    """

    def __init__(
        self,
        cpu_loader: Iterable | None = None,
        devices: Sequence = (),
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding=None,
        fixed_batch_size: bool = False,
        loader: Iterable | None = None,
    ):
        cpu_loader = loader if cpu_loader is None else cpu_loader
        if cpu_loader is None:
            raise ValueError("cpu_loader is missing")
        if not devices:
            raise ValueError("a loader needs a device to feed")
        if batches_per_execution < 1:
            raise ValueError(f"batches_per_execution is {batches_per_execution} when it should be at least 1")
        self._cpu_loader = cpu_loader
        self._devices = [torch.device(device) for device in devices]
        self._fixed_dim = batchdim if fixed_batch_size else None
        self._batches_per_execution = batches_per_execution
        self._prefetch_size = max(1, loader_prefetch_size + device_prefetch_size)
        self._input_sharding = input_sharding
        self._loaders: weakref.WeakSet[PerDeviceLoader] = weakref.WeakSet()
        self._turns = [0] * len(self._devices)  # loaders handed out, by device
        self._streams: dict[int, list[_Reader | None]] = {}  # by turn: the readers of devices that have not begun
        self._lock = threading.Lock()

    @property
    def batches_per_execution(self) -> int:
        """Batches between two syncs."""
        return self._batches_per_execution

    def per_device_loader(self, device) -> PerDeviceLoader:
        """The loader of one of the devices; the n-th loaders of all devices belong together. Raises ValueError for
        another device.
        """
        if torch.device(device) not in self._devices:
            raise ValueError(f"{device} is not among the loader's devices {self._devices}")
        number = self._devices.index(torch.device(device))
        loader = PerDeviceLoader(self, torch.device(device), self._turns[number])
        self._turns[number] += 1
        self._loaders.add(loader)
        return loader

    def per_device_samples(self) -> int:
        """Batches for each device."""
        return len(self._cpu_loader) // len(self._devices)

    def close(self) -> None:
        """Stops reading ahead."""
        for loader in list(self._loaders):
            loader.close()
        with self._lock:
            self._streams.clear()  # readers that are dropped close

    def _iterate(self, device: torch.device, turn: int) -> _Reader:
        """The batches of a device; the first device of a turn starts to read."""
        with self._lock:
            if turn not in self._streams:
                self._streams[turn] = self._start()
            streams = self._streams[turn]
            number = self._devices.index(device)
            stream, streams[number] = streams[number], None
            if not any(streams):
                del self._streams[turn]
            return stream

    def _start(self) -> list[_Reader | None]:
        """Starts to read.

        The first round is read on this thread, so the seeds of a shuffle are drawn in the order of a plain loop.
        """

        # Must not refer to this object: the thread holds it, and ends when the loaders are dropped.
        send = functools.partial(xla_model.send_cpu_data_to_device, input_sharding=self._input_sharding)
        moves = [lambda batch, device=device: send([batch], device)[0] for device in self._devices]
        batches = (batch for batch in self._cpu_loader)  # iter() of an iterator should be itself, but not all comply
        rounds = _rounds(batches, len(self._devices), self._fixed_dim)
        first = list(itertools.islice(rounds, 1))
        outlets = [_Outlet(self._prefetch_size) for _ in self._devices]
        args = (itertools.chain(first, rounds), moves, outlets)
        thread = threading.Thread(target=_fill, args=args, name="xla-loader", daemon=True)
        _running[thread] = outlets
        thread.start()
        return [_Reader(outlet) for outlet in outlets]


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
