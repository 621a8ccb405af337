"""Small helpers: nested data, synthetic data, environment variables, timing."""

import contextlib
import copy
import os
import shutil
import socket
import sys
import tempfile
import time
import types
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import torch

from .. import _XLAC


def eprint(*args, **kwargs) -> None:
    """print() to stderr."""
    print(*args, file=sys.stderr, **kwargs)


def null_print(*args, **kwargs) -> None:
    """Prints nothing, in place of print()."""


def getenv_as(name: str, type: Callable, defval=None):
    """The environment variable `name` as a `type`; `defval` if it is not set.

    A bool is 1, true, yes or on, or 0, false, no, off or empty. Raises ValueError for other words.
    """
    value = os.environ.get(name)
    if value is None:
        return defval
    return (value != "" and _XLAC._env_parse_flag(name, value)) if type is bool else type(value)


def check_env_flag(name: str, default: str = "") -> bool:
    """True if the environment variable says ON, 1, YES, TRUE or Y, in capital letters or not."""
    return os.environ.get(name, default).upper() in ("ON", "1", "YES", "TRUE", "Y")


def get_print_fn(debug: bool | None = None) -> Callable:
    """eprint() for debugging, else null_print(); by default the environment variable DEBUG decides."""
    return eprint if (check_env_flag("DEBUG") if debug is None else debug) else null_print


def as_list(t) -> list:
    """A list of it: lists and tuples as they are, anything else as the only item."""
    return list(t) if isinstance(t, (list, tuple)) else [t]


def list_copy_append(ilist: Iterable, item) -> list:
    """A new list: the items of `ilist`, then `item`."""
    return [*ilist, item]


def flatten_nested_tuple(inputs) -> tuple:
    """The items of nested tuples and lists, in order; anything else alone in a tuple."""
    if not isinstance(inputs, (list, tuple)):
        return (inputs,)
    return tuple(leaf for part in inputs for leaf in flatten_nested_tuple(part))


def shape(inputs) -> list[int]:
    """The sizes of nested lists or tuples, outermost first; [] of anything else. ValueError if they are unequal."""
    if not isinstance(inputs, (list, tuple)):
        return []
    parts = [shape(part) for part in inputs]
    if any(part != parts[0] for part in parts):
        raise ValueError(f"the parts of a list should have one shape, but have {parts}")
    return [len(parts), *(parts[0] if parts else [])]


def for_each_instance(value, select_fn: Callable, fn: Callable) -> None:
    """Calls `fn` on each part of the nested `value` that `select_fn` picks."""
    for_each_instance_rewrite(value, select_fn, lambda part: (fn(part), part)[1])


# Single values, although they have attributes.
WHOLE = (type, types.FunctionType, types.MethodType, types.ModuleType, torch.Tensor, torch.nn.Module)


def for_each_instance_rewrite(value, select_fn: Callable, fn: Callable, rwmap: dict | None = None):
    """Copy of the nested `value` with `fn(part)` for each part that `select_fn` picks.

    Lists, tuples, sets, dicts and objects are nested; classes, functions and modules stay as they are. A part that
    occurs twice, also within itself, is rewritten once.
    """
    rwmap = {} if rwmap is None else rwmap
    if id(value) in rwmap:
        return rwmap[id(value)]

    def rewrite(part):
        return for_each_instance_rewrite(part, select_fn, fn, rwmap)

    if select_fn(value):
        result = fn(value)
    elif isinstance(value, list):
        result = rwmap[id(value)] = type(value)()
        result.extend(rewrite(part) for part in value)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        result = type(value)(*(rewrite(part) for part in value))
    elif isinstance(value, (tuple, set)):
        result = type(value)(rewrite(part) for part in value)
    elif isinstance(value, dict):
        result = rwmap[id(value)] = copy.copy(value)  # a defaultdict keeps what makes its values
        result.clear()
        for key, part in value.items():  # update() of a Counter would count the pairs
            result[rewrite(key)] = rewrite(part)
    elif hasattr(value, "__dict__") and not isinstance(value, WHOLE):
        result = rwmap[id(value)] = copy.copy(value)
        result.__dict__.update((name, rewrite(part)) for name, part in value.__dict__.items())
    else:
        return value
    rwmap[id(value)] = result
    return result


class SampleGenerator:
    """Iterates over the same `data` `sample_count` times: synthetic data in place of a DataLoader."""

    def __init__(self, data, sample_count: int):
        self._data = data
        self._sample_count = sample_count
        self._count = 0

    def __iter__(self):
        return SampleGenerator(self._data, self._sample_count)

    def __len__(self) -> int:
        return self._sample_count

    def __next__(self):
        return self.next()

    def next(self):
        """The data; StopIteration after the last time."""
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        return self._data


class FnDataGenerator:
    """Iterates `count` times over `(data, func(data))` with `data = gen_tensor(batch_size, *dims)`."""

    def __init__(self, func: Callable, batch_size: int, gen_tensor, dims=None, count: int = 1):
        self._func = func
        self._batch_size = batch_size
        self._gen_tensor = gen_tensor
        self._dims = list(dims) if dims else [1]
        self._count = count
        self._emitted = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self):
        return FnDataGenerator(self._func, self._batch_size, self._gen_tensor, self._dims, self._count)

    def __next__(self):
        return self.next()

    def next(self):
        """The next pair; StopIteration after the last one."""
        if self._emitted >= self._count:
            raise StopIteration
        self._emitted += 1
        data = self._gen_tensor(self._batch_size, *self._dims)
        return data, self._func(data)


class DataWrapper:
    """Base of data with parts on a device: override get_tensors() and from_tensors()."""

    def get_tensors(self) -> list:
        """The tensors to move."""
        raise NotImplementedError("get_tensors() must be overridden")

    def from_tensors(self, tensors: list):
        """The same data around moved tensors."""
        raise NotImplementedError("from_tensors() must be overridden")


class LazyProperty:
    """A value that is computed at first use."""

    def __init__(self, gen_fn: Callable):
        self._gen_fn = gen_fn

    @property
    def value(self):
        """The value."""
        if self._gen_fn is not None:
            self._value = self._gen_fn()
            self._gen_fn = None
        return self._value


class Cleaner:
    """Calls `func()` when the object goes, or else at the exit of the process."""

    def __init__(self, func: Callable[[], object]):
        weakref.finalize(self, func)


class TmpFolder:
    """A new temporary folder, of path `name`, deleted with the object."""

    def __init__(self):
        self.name = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, self.name)


class TimedScope:
    """Context manager that prints how long its body took: `{msg}{seconds:.3f}s`."""

    def __init__(self, msg: str = "", printfn: Callable = eprint):
        self._msg = msg
        self._printfn = printfn

    def __enter__(self):
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exc):
        if exc[0] is None:
            self._printfn(f"{self._msg}{time.perf_counter() - self._start:.3f}s")
        return False


def timed(fn: Callable, msg: str = "", printfn: Callable = eprint):
    """Calls `fn` in a TimedScope and returns its result."""
    if not printfn:
        return fn()
    with TimedScope(msg=msg, printfn=printfn):
        return fn()


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """`n` ports that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(n)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]


def parallel_work(num_workers: int, fn: Callable, *args: Iterable) -> list:
    """list(map(fn, *args)) on this many threads. Raises the first exception of `fn` after all calls have ended."""
    with ThreadPoolExecutor(max_workers=num_workers) as executor:
        return list(executor.map(fn, *args))
