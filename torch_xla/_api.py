"""The functions of the top level: devices, sync, step, compile, seeds."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable

import torch

from . import _auto_sync, _closures, _XLAC
from ._device_module import random
from ._XLAC import SyncCause
from .debug import metrics_saver


def device(index: int | None = None) -> torch.device:
    """The device `xla:index`, by default the current one.

    Raises IndexError if there is no such device.
    """
    if index is None:
        return torch.device(_XLAC._xla_get_default_device())
    if not 0 <= index < device_count():
        try:
            _XLAC._xla_check_device(index)  # its error lists the devices
        except RuntimeError as error:
            raise IndexError(str(error)) from None
    return torch.device("xla", index)


def devices() -> list[torch.device]:
    """All devices of this process."""
    return [torch.device("xla", index) for index in range(device_count())]


def real_devices() -> list[str]:
    """The hardware behind the devices, as `["CPU:0"]`."""
    return _XLAC._xla_get_devices()


def is_spmd() -> bool:
    """Whether the program sees all devices as one (XLA_USE_SPMD)."""
    return _XLAC._env_flag("XLA_USE_SPMD")


def device_count() -> int:
    """The number of devices for tensors in this process."""
    return 1 if is_spmd() else _XLAC._xla_num_devices()


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs the pending operations of this thread and of ended threads on the current device, then their step closures.

    Args:
        wait: also wait for the end of the run. Without it the next step is recorded while this one runs.
            XLA_SYNC_WAIT=1 waits always.
        reset_scope: accepted for the original's sake.

    Raises RuntimeError if the compile failed, or an earlier run whose error was not raised yet.
    """
    del reset_scope
    sync_devices([""], wait)


def sync_devices(names: Iterable[str], wait: bool, cause: SyncCause = SyncCause.USER) -> None:
    """sync() of the named devices; "" is the current one. `cause` is the cause in analyses."""
    for name in names:
        _XLAC._xla_step_marker(name, [], wait, cause)
    metrics_saver.save_step()
    _closures.run()


@contextlib.contextmanager
def step():
    """Context manager of one step: syncs before and after its body, but not after an optimizer's step within."""
    sync()
    try:
        with _auto_sync.held(device().index):
            yield
    finally:
        sync()


class _Limits:
    """The limits of a function or block that torch_xla.compile() runs.

    Args:
        name: for errors.
        full_graph: it must be one program.
        most: the largest number of different programs of its calls; None: no limit.
    """

    def __init__(self, name: str, full_graph: bool, most: int | None):
        self._name, self._full_graph, self._most = name, full_graph, most
        self._compiled = 0

    @contextlib.contextmanager
    def held(self):
        """Within its body no sync splits a program that must stay one."""
        before = _XLAC._set_records_one_program(self._full_graph)
        try:
            yield
        finally:
            _XLAC._set_records_one_program(before)

    def check_runs(self, runs: int) -> None:
        """Called before the block's program runs."""
        if self._full_graph and runs:
            raise RuntimeError(
                "Unexpected execution happens inside the compiled function, exiting: "
                f"torch_xla.compile(full_graph=True): {self._name} ran {runs} programs before its end, as something in "
                "it needs a value: .item(), print, a branch on a tensor. XLA_DEBUG=1 prints the lines"
            )

    def count(self, compiles: int) -> None:
        """Called after the compile."""
        self._compiled += compiles
        if self._most is not None and self._compiled > self._most:
            raise RuntimeError(
                f"torch_xla.compile(max_different_graphs={self._most}): {self._name} has had {self._compiled} "
                "different programs. XLA_DEBUG=1 prints in what each differs from those before"
            )


@contextlib.contextmanager
def _named(name: str):
    """Programs recorded in its body have this name in analyses and dumps; an empty name changes nothing."""
    before = _XLAC._get_current_graph_name()
    _XLAC._set_current_graph_name(name or before)
    try:
        yield
    finally:
        _XLAC._set_current_graph_name(before)


@contextlib.contextmanager
def _programs_of_its_own(name: str, limits: _Limits):
    with _named(name and f"{name}_clear_pending"):
        sync_devices([""], False, SyncCause.BEFORE_COMPILE)
    runs, _ = _XLAC._count_own_programs()
    lazy = _XLAC._set_own_lazy(True)  # also in eager mode
    with _named(name):
        try:
            with _auto_sync.held(device().index), limits.held():
                yield
            limits.check_runs(_XLAC._count_own_programs()[0] - runs)
        finally:
            _, programs = _XLAC._count_own_programs()
            sync_devices([""], False, SyncCause.COMPILE)
            _XLAC._set_own_lazy(lazy)
    limits.count(_XLAC._count_own_programs()[1] - programs)


def count_programs() -> int:
    """Programs of this process: compiled, planned again for other sizes, or from disk."""
    return _counter("UncachedCompile") + _counter("ReplannedProgram") + _counter("PersistentCacheHit")


def _counter(name: str) -> int:
    return _XLAC._xla_counter_value(name) or 0


class _Region:
    """The result of torch_xla.compile() without a function: a decorator, or the context manager of a block.

    Each wrapped function has its own limits.
    """

    def __init__(self, name: str | None, full_graph: bool, most: int | None, replay: bool):
        self._name, self._full_graph, self._most, self._replay = name, full_graph, most, replay
        self._of_block = _Limits(name or "the block", full_graph, most)
        self._entered = threading.local()  # .regions, innermost last

    def __call__(self, f: Callable) -> Callable:
        if not callable(f):
            raise TypeError(f"torch_xla.compile() wants a function, but got {f!r}; its other arguments have names")
        name = self._name or getattr(f, "__name__", "")
        if self._replay:
            from ._replay import ReplayedFunction

            return ReplayedFunction(f, name or "the function")
        limits = _Limits(name or "the function", self._full_graph, self._most)

        @functools.wraps(f)
        def call(*args, **kwargs):
            with _programs_of_its_own(name, limits):
                return f(*args, **kwargs)

        return call

    def __enter__(self) -> None:
        if self._replay:
            raise ValueError("torch_xla.compile(replay=True) wants the function that is to be replayed, not a block")
        region = _programs_of_its_own(self._name or "", self._of_block)
        region.__enter__()
        self._entered.regions = [*getattr(self._entered, "regions", ()), region]

    def __exit__(self, *error) -> bool | None:
        return self._entered.regions.pop().__exit__(*error)


def compile(
    f: Callable | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: dict | None = None,
    *,
    replay: bool = False,
):
    """Runs the function, or the body of the `with` statement, as separate programs: it syncs before and after.

    A decorator of functions and methods, with arguments and without.

    Args:
        f: the function to wrap; without it a decorator is returned, which is also a context manager.
        full_graph: it must be one program: RuntimeError if another one ran before its end.
        name: for errors, analyses and dumps; by default the function's.
        max_different_graphs: largest number of different programs of all calls together; RuntimeError above it.
        custom_compile_options: passed to set_custom_compile_options() at once; None changes nothing.
        replay: from the third call on the function's Python does not run any more: the recorded operations run again on
            the call's arguments, on the other tensors that they read and write, and with new random numbers
            (docs/replay.md). It is one program, without limits. RuntimeError if calls differ in anything else. A method
            is recorded for each object. Needs a function, not a block.
    """
    if custom_compile_options is not None:
        set_custom_compile_options(custom_compile_options)
    region = _Region(name, full_graph, max_different_graphs, replay)
    return region if f is None else region(f)


def set_custom_compile_options(options: dict, device: torch.device | str | None = None) -> None:
    """Sets the plugin's options for all later compiles, in place of earlier ones; `{}` removes them.

    Args:
        options: by the plugin's names for them, as `{"xla_gpu_autotune_level": 0}`: str, bool, int or float. Programs
            compiled with other options are kept beside the new ones.
        device: for the programs of this device alone. They come beside the options for all devices, and before these
            where both name an option.

    Raises ValueError with the embedded engine, which has no options, and TypeError for values of other types. An option
    unknown to the plugin makes the next sync raise RuntimeError.
    """
    _XLAC._set_custom_compile_options(options, None if device is None else str(device))


def manual_seed(seed: int, device=None) -> None:
    """Sets the seed of the device's default generator, by default the current device's.

    Seeds are not part of a program: a new seed compiles nothing.
    """
    _XLAC._xla_set_rng_seed(seed & random.SEED_MASK, "" if device is None else str(device))


def launch(fn: Callable, args: tuple = (), start_method: str = "spawn", debug_single_process: bool = False) -> None:
    """Calls `fn(index, *args)` in each process of the run, as xmp.spawn() does.

    Args:
        start_method: as for xmp.spawn().
        debug_single_process: only this process, with index 0.
    """
    from .distributed import xla_multiprocessing

    xla_multiprocessing.spawn(fn, args, 1 if debug_single_process else None, start_method=start_method)
