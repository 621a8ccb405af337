"""Works of torch.distributed for collectives that are operations of the graph."""

from collections.abc import Callable

import torch
import torch.distributed as dist


class Recorded(dist.Work):
    """Recorded work: operations that read the tensors come after it."""

    def __init__(self, tensors):
        super().__init__()
        self._future: torch.futures.Future = torch.futures.Future()
        self._future.set_result(tensors)

    def wait(self, timeout=None) -> bool:
        """True."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def get_future(self):
        """A future that holds the result."""
        return self._future


class Receiving(Recorded):
    """A receive that is recorded when the program waits for it, so that sends in between go out first."""

    def __init__(self, tensors, record: Callable[["Receiving"], None]):
        super().__init__(tensors)
        self._record = record

    def wait(self, timeout=None) -> bool:
        """True. Records it."""
        self._record(self)
        return True

    def is_completed(self) -> bool:
        """True. Records it."""
        return self.wait()

    def get_future(self):
        """A future that holds the result. Records it."""
        self.wait()
        return super().get_future()
