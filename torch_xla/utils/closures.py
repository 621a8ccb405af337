"""Handlers that run closures: asynchronous ones on a thread of their own, which step closures use."""

import abc
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from .. import _XLAC


class ClosureHandler(abc.ABC):
    """Something that runs closures."""

    @abc.abstractmethod
    def run(self, closure: Callable[[], object]) -> None:
        """Runs the closure, now or later."""

    def run_all(self, closures: Iterable[Callable[[], object]]) -> None:
        """run() of each, in order."""
        for closure in closures:
            self.run(closure)


class AsyncClosureHandler(ClosureHandler):
    """Runs closures in order on one thread; the exit of the process waits for it.

    Args:
        max_queue_size: the most closures that wait or run: run() waits for room. XLA_MAX_ASYNC_QUEUE overrides it.
    """

    def __init__(self, max_queue_size: int = 100):
        is_set = _XLAC._env_is_set("XLA_MAX_ASYNC_QUEUE")
        size = _XLAC._env_integer("XLA_MAX_ASYNC_QUEUE") if is_set else max_queue_size
        if size < 1:
            raise ValueError(f"max_queue_size is {size} when it should be at least 1")
        self._room = threading.BoundedSemaphore(size)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="xla-step-closure")
        self._pool.submit(int)  # starts the thread now: if that fails no closure is taken
        self._open: set[Future] = set()  # not done yet
        self._failed: list[Future] = []

    def run(self, closure: Callable[[], object]) -> None:
        """Queues the closure.

        Raises RuntimeError, with the exception as its cause, if an earlier one has failed; then it is not queued.
        """
        self.raise_failed()
        self._room.acquire()
        future = self._pool.submit(closure)
        self._open.add(future)
        future.add_done_callback(self._end)

    def raise_failed(self) -> None:
        """Raises RuntimeError for the first failed closure since the last call, if there is one."""
        failed, self._failed = self._failed, []
        if failed:
            raise RuntimeError("an asynchronous closure has failed") from failed[0].exception()

    def has_ended(self) -> bool:
        """Whether all closures have ended, and there is no error that raise_failed() would raise."""
        return not self._open and not self._failed

    def _end(self, done: Future) -> None:
        if done.exception() is not None:
            self._failed.append(done)
        self._open.discard(done)
        self._room.release()
