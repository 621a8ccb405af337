"""The functions of the top level: devices, sync, step, compile, seeds."""

import contextlib
from collections.abc import Callable, Iterable

import torch

from . import _closures, _XLAC

SEED_MASK = 2**64 - 1  # seeds and offsets of the generators are that wide


def device(index: int | None = None) -> torch.device:
    """The device `xla:index`, by default the current one.

    Raises RuntimeError if there is no such device.
    """
    if index is None:
        return torch.device(_XLAC._xla_get_default_device())
    _XLAC._xla_check_device(index)
    return torch.device("xla", index)


def devices() -> list[torch.device]:
    """All devices of this process."""
    return [torch.device("xla", index) for index in range(device_count())]


def real_devices() -> list[str]:
    """The hardware behind the devices, as `["CPU:0"]`."""
    return _XLAC._xla_get_devices()


def device_count() -> int:
    """How many devices this process has."""
    return _XLAC._xla_num_devices()


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs everything that is pending on the current device, then the step closures.

    Args:
        wait: also wait until it has run. Without it the next step is recorded while this one runs. XLA_SYNC_WAIT=1
            waits always.
        reset_scope: accepted for the original's sake.

    Raises RuntimeError if compiling failed, or a run that nobody has waited for yet.
    """
    del reset_scope
    sync_devices([""], wait)


def sync_devices(names: Iterable[str], wait: bool) -> None:
    """sync() of the devices of these names, "" being the current one."""
    wait = wait or _XLAC._env_flag("XLA_SYNC_WAIT")
    for name in names:
        _XLAC._xla_step_marker(name, [], wait)
    _closures.run()


@contextlib.contextmanager
def step():
    """Context manager of one step: syncs before its body and after it."""
    sync()
    try:
        yield
    finally:
        sync()


def compile(
    f: Callable | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: dict | None = None,
):
    """Runs the function, or the body of the `with` statement, as programs of its own: it syncs before and after.

    Args:
        f: the function to wrap; without it a context manager (which is also a decorator) is returned.
        full_graph, name, max_different_graphs, custom_compile_options: accepted for the original's sake.
    """
    del full_graph, name, max_different_graphs, custom_compile_options
    return step() if f is None else step()(f)


def manual_seed(seed: int, device=None) -> None:
    """Sets the seed of the device's default generator, by default the current device's.

    Seeds are no part of a program: a new one compiles nothing.
    """
    _XLAC._xla_set_rng_seed(seed & SEED_MASK, "" if device is None else str(device))


def launch(fn: Callable, args: tuple = (), start_method: str = "spawn", debug_single_process: bool = False) -> None:
    """Calls `fn(index, *args)` in each process of the run; here that is this process, with index 0.

    Args:
        start_method, debug_single_process: accepted for the original's sake.
    """
    from .distributed import xla_multiprocessing

    del debug_single_process
    xla_multiprocessing.spawn(fn, args, start_method=start_method)
