"""Training on several devices by threads (`dp`): each device is a replica of the run while a loop runs on it."""

import copy
import threading
from collections.abc import Callable, Iterable, Sequence

import torch

from .. import _api, _device_module, _world
from ..core import xla_model
from . import parallel_loader


class Context:
    """State of a loop for its device from one epoch to the next, as attributes.

    Args:
        device: the loop's.
    """

    def __init__(self, device: torch.device):
        self.device = device

    def getattr_or(self, name: str, defval):
        """The attribute of that name; a missing one becomes `defval`, or the result of `defval()`."""
        value = getattr(self, name, None)
        if value is None:
            value = defval() if callable(defval) else defval
            setattr(self, name, value)
        return value


class DataParallel:
    """A copy of a model on each of several devices, which threads train together.

    Args:
        network: a module, or a function without arguments that makes one.
        device_ids: devices or their names; None is all devices, an empty list the CPU by PyTorch itself.
        batchdim: the dim of the batches.
        drop_last: leave out the last batches if not every device gets one; always done, because all replicas must meet.
        numbered: the loop gets (number, batch) from its loader, as the first releases had it; False gives batches.
        kwargs: as for ParallelLoader.
    """

    def __init__(
        self,
        network,
        device_ids: Sequence | None = None,
        batchdim: int = 0,
        drop_last: bool = True,
        numbered: bool = True,
        **kwargs,
    ):
        names = xla_model.get_xla_supported_devices() if device_ids is None else [str(each) for each in device_ids]
        module = network if isinstance(network, torch.nn.Module) else network()
        self._device_ids = names or ["cpu"]
        self._is_native = not names
        self._models = [module if self._is_native else copy.deepcopy(module).to(name) for name in self._device_ids]
        self._contexts = [Context(torch.device(name)) for name in self._device_ids]
        self._numbered = numbered
        self._loader_options = {"batchdim": batchdim, **kwargs}

    @property
    def devices(self) -> list[str]:
        """Names of the devices."""
        return self._device_ids

    @property
    def models(self) -> list[torch.nn.Module]:
        """The model of each device."""
        return self._models

    def __call__(
        self, loop_fn: Callable, loader: Iterable, batchdim: int = 0, fixed_batch_size: bool = False, **kwargs
    ):
        """Runs one epoch: `loop_fn(model, loader, device, context)` in a thread for each device.

        Args:
            loop_fn: trains or tests; its loader gives the device's batches.
            loader: of CPU tensors. The i-th batch goes to device i modulo their number.
            batchdim: the dim of the batches, if it is not 0.
            fixed_batch_size: stop at the first batch with another size than the first.
            kwargs: for `loop_fn`.

        Returns the calls' results, in the order of the devices. Raises the first exception of a loop after all have
        ended.
        """
        options = {**self._loader_options, "fixed_batch_size": fixed_batch_size}
        options["batchdim"] = batchdim or options["batchdim"]
        if self._is_native:
            items = enumerate(loader) if self._numbered else iter(loader)
            return [loop_fn(self._models[0], items, self._contexts[0].device, self._contexts[0], **kwargs)]
        xla_model.wait_device_ops()
        loops = parallel_loader.ParallelLoader(loader, self._device_ids, **options)
        try:
            return self._run(loop_fn, loops, kwargs)
        finally:
            loops.close()

    def _run(self, loop_fn: Callable, loops: parallel_loader.ParallelLoader, kwargs: dict) -> list:
        def run(number: int):
            context = self._contexts[number]
            items = loops.per_device_loader(context.device)
            numbered = enumerate(items) if self._numbered else items
            return loop_fn(self._models[number], numbered, context.device, context, **kwargs)

        return run_replicas([context.device for context in self._contexts], run, loops.close)


def run_replicas(devices: Sequence[torch.device], work: Callable, on_error: Callable | None = None) -> list:
    """Calls `work(number)` in a thread for each device; these threads are the replicas of a run.

    Args:
        on_error: called when a thread has raised, to release the others.

    Returns the results. Raises the first exception after all have ended.
    """
    results: list = [None] * len(devices)
    errors: list[BaseException] = []
    replicas = _replicas(len(devices))
    threads: list[threading.Thread] = []
    are_started = threading.Event()

    def run(number: int) -> None:
        are_started.wait()
        if len(threads) < len(devices):
            return  # no thread could be started for one of them: the caller raises
        index = _device_module._existing(devices[number])
        try:
            with _world.replica_of_device(replicas[number], index), torch.xla.device(index):
                results[number] = work(number)
                _api.sync_devices([str(devices[number])], wait=True)
                replicas[number].finish_sends()
        except BaseException as error:
            errors.append(error)
            if on_error is not None:
                on_error()
        finally:
            replicas[number].leave()  # waiting replicas get an error

    try:
        for number in range(len(devices)):
            thread = threading.Thread(target=run, args=(number,), daemon=True)
            thread.start()
            threads.append(thread)
    finally:
        are_started.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def _replicas(count: int) -> list[_world.Replica]:
    """The replicas of one call, which meet in this process's memory."""
    import torch.distributed as dist

    store = dist.HashStore()
    return [_world.Replica(rank, count, rank, count, lambda: store, f"thread {rank} of ") for rank in range(count)]
