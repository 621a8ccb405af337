"""Bodies of loops: functions recorded once, on stand-ins for their arguments."""

import contextlib
from collections.abc import Iterator, Sequence

import torch

from .. import _XLAC
from ._bucketing.run import is_marked


def device_of(tensors: Sequence[torch.Tensor], what: str) -> int:
    """The number of the device that the tensors are on.

    Raises ValueError if they are not all on one xla device, NotImplementedError for tensors padded by bucketed().
    """
    if any(map(is_marked, tensors)):
        raise NotImplementedError(f"bucketed: loops have no rule for padded dims, and {what} have some")
    devices = {t.device for t in tensors}
    if len(devices) != 1 or (device := devices.pop()).type != "xla":
        raise ValueError(
            f"{what} have to be on one xla device, but are on {sorted(map(str, {t.device for t in tensors}))}"
        )
    return device.index


class Recorder:
    """A body during its recording. Meanwhile operations that need a tensor's value raise RuntimeError."""

    def __init__(self, device: int):
        self._capture = _XLAC._Capture(device)
        self._arguments: list[torch.Tensor] = []
        self.end = self._capture.end
        self.take = self._capture.take

    def argument(self, like: torch.Tensor, sliced: bool = False) -> torch.Tensor:
        """A tensor of the dtype and shape of `like`; `sliced`: of one element of its dim 0."""
        tensor = self._capture.add_argument(like, sliced)
        self._arguments.append(tensor)
        return tensor

    def arguments(self, likes: Sequence[torch.Tensor], sliced: bool = False) -> list[torch.Tensor]:
        return [self.argument(like, sliced) for like in likes]

    def residuals(self, results: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The values from before mark_backward() that `results` need besides `given`; arguments stay as they are."""
        return self._capture.find_residuals(results, given)

    def mark_backward(self) -> None:
        self._capture.mark_backward()

    def check_not_written(self, error: type[Exception] = RuntimeError) -> None:
        """Raises if an argument was the target of an in-place operation."""
        if any(t._version for t in self._arguments):
            raise error(
                "an in-place operation in the body of a loop on one of its arguments; return the new value instead"
            )


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@contextlib.contextmanager
def recording(device: int) -> Iterator[Recorder]:
    """Context manager that records a body. Tensors made in it that depend on the arguments end with it."""
    recorder = Recorder(device)
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # a cast within the body is the body's own
    try:
        # Values saved for the body's gradient are used within it: a checkpoint around it would recompute the loop.
        with torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is):
            yield recorder
    finally:
        torch.set_autocast_cache_enabled(cached)
        recorder.end()
