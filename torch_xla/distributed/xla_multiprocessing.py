"""Starting the processes of a run (`xmp`). A run is the calling process, whatever devices it has."""

from collections.abc import Callable

import torch


def spawn(
    fn: Callable,
    args: tuple = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Calls `fn(0, *args)` in this process and returns when it has ended.

    Args:
        fn: takes the process's number first.
        nprocs: None or 1.
        join, daemon, start_method: accepted for the original's sake: no process is started.

    Raises ValueError for another nprocs.
    """
    del join, daemon, start_method
    if nprocs not in (None, 1):
        raise ValueError(f"nprocs={nprocs} needs several processes, and a run is one: leave nprocs away or pass 1")
    fn(0, *args)


class MpModelWrapper:
    """A model that processes share until each moves it to its device.

    Args:
        model: on the CPU.
    """

    def __init__(self, model: torch.nn.Module):
        self._model = model

    def to(self, device) -> torch.nn.Module:
        """Moves the model to `device` and returns it."""
        return self._model.to(device)


class MpSerialExecutor:
    """Calls a function in one process after the other."""

    def run(self, fn: Callable):
        """Returns `fn()`."""
        return fn()
