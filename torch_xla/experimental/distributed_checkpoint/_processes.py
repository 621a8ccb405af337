"""The processes of a run, which save and restore together: if one fails, all raise."""

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from ... import _world

T = TypeVar("T")


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Processes:
    """The processes of a group, or this process alone.

    Their calls meet in order, so two threads need a group each.
    """

    def __init__(self, group: dist.ProcessGroup | None):
        self._group = group

    @property
    def is_first(self) -> bool:
        return self._group is None or dist.get_rank(self._group) == 0

    def options(self) -> dict:
        """The writers and readers of a checkpoint, for torch.distributed.checkpoint."""
        return {"process_group": self._group, "no_dist": self._group is None}

    def any(self, value: bool) -> bool:
        """Whether the value is true in any of them."""
        if self._group is None:
            return value
        number = torch.tensor(int(value))
        dist.all_reduce(number, dist.ReduceOp.MAX, self._group)
        return bool(number)

    def do(self, what: str, action: Callable[[], T]) -> T:
        """The action's result here, after it is done in all processes. It may be a meeting itself.

        A single process raises the action's error, several processes raise RuntimeError with `what` and the error of
        each rank.
        """
        return self._share(what, action, lambda result: None)[0]

    def do_first(self, what: str, action: Callable[[], T]) -> T:
        """As do(), but only the first process calls the action; all get its result."""
        act = action if self.is_first else lambda: None
        return self._share(what, act, lambda result: result)[1]

    def _gather(self, value: object) -> list:
        values = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(values, value, self._group)
        return values

    def _share(self, what: str, action: Callable[[], T], passed: Callable[[T], object]) -> tuple:
        """The action's result here, and the shared part of the first process's result."""
        result, failure = None, None
        try:
            result = action()
        except (Exception, CheckpointException) as error:
            failure = error
        if self._group is None:
            if failure is not None:
                raise self._cause(failure)
            return result, result
        told = self._gather((passed(result), self._failures(failure)))
        failures = {rank: text for _, errors in told for rank, text in errors.items()}
        if failures:
            ranks = "; ".join(f"rank {rank}: {text}" for rank, text in sorted(failures.items()))
            raise RuntimeError(f"{what} failed on {ranks}") from failure
        return result, told[0][0]

    def _cause(self, error: BaseException) -> BaseException:
        """torch.distributed.checkpoint wraps errors in one that `except Exception` does not catch."""
        return next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error

    def _failures(self, error: BaseException | None) -> dict[int, str]:
        """Errors by rank; an error shared by torch.distributed.checkpoint names its rank."""
        if error is None:
            return {}
        if isinstance(error, CheckpointException):
            errors = {number: each for number, (each, _) in error.failures.items()}
        else:
            errors = {dist.get_rank(self._group): error}
        return {dist.get_global_rank(self._group, number): _describe(each) for number, each in errors.items()}


def make_groups(group: dist.ProcessGroup | None) -> tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]:
    """Two groups of the processes, for two threads; the second one is `group` if that is given. None without others."""
    if not (dist.is_available() and dist.is_initialized()):
        return None, None
    if group is None:
        run = _world.process()
        if run.size == dist.get_world_size() > 1:
            run.meet("checkpoints", b"")  # the store detects a lost process; gloo waits half an hour
        return dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
    ranks = dist.get_process_group_ranks(group)
    return dist.new_group(ranks, backend="gloo", use_local_synchronization=True), group
