"""Notes SIGTERM, the request to end this process."""

import signal
import threading

from ... import _XLAC

_asked = threading.Event()
_before = None  # what SIGTERM did before watch()


def watch() -> None:
    """From now on SIGTERM is noted and does not end the process.

    Raises RuntimeError outside of the main thread, where Python takes no signals.
    """
    global _before
    if _before is not None:
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "SIGTERM can be watched by the main thread only: make the CheckpointManager there, or give it "
            "chkpt_on_preemption=False"
        )
    _before = signal.signal(signal.SIGTERM, lambda number, frame: _asked.set()) or signal.SIG_DFL


def was_asked() -> bool:
    """Whether the signal has come since watch()."""
    return _asked.is_set()


def _stop_watching() -> None:
    global _before
    if _before is not None:
        signal.signal(signal.SIGTERM, _before)
        _before = None
        _asked.clear()


# Names for programs that use the original's library
_XLAC._activate_preemption_sync_manager = watch
_XLAC._deactivate_preemption_sync_manager = _stop_watching
_XLAC._sync_point_reached = lambda step: was_asked()
