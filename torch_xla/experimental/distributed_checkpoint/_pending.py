"""Checkpoints that a thread is writing, and their errors."""

import collections
import sys
import traceback
import weakref
from concurrent.futures import Future


def _tell_failures(saves: collections.deque[tuple[int, Future]]) -> None:
    """At the end of the process, or of the manager: writes the errors that no call has raised."""
    for step, save in saves:
        error = save.exception() if save.done() else None
        if error is not None:
            sys.stderr.write(
                f"torch_xla: the checkpoint of step {step} was not saved, and no join() of the CheckpointManager has "
                f"told so: {type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"
            )


class PendingSaves:
    """The unfinished saves of a manager, in their order."""

    def __init__(self):
        self._saves: collections.deque[tuple[int, Future]] = collections.deque()
        weakref.finalize(self, _tell_failures, self._saves)

    def add(self, step: int, save: Future) -> None:
        self._saves.append((step, save))

    def wait(self, at_most: int = 0) -> None:
        """Waits until at most this many are pending. Raises the error of the first failed one, once."""
        while len(self._saves) > at_most:
            self._saves.popleft()[1].result()

    def check(self) -> None:
        """Raises the error of a failed save; wait() will raise it, too."""
        for _, save in self._saves:
            if save.done():
                save.result()
