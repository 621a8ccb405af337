"""Notes SIGTERM, the request to end this process."""

import signal
import threading

_asked = threading.Event()
_is_watching = False


def watch() -> None:
    """From now on SIGTERM is noted and does not end the process.

    Raises RuntimeError outside of the main thread, where Python takes no signals.
    """
    global _is_watching
    if _is_watching:
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "SIGTERM can be watched by the main thread only: make the CheckpointManager there, or give it "
            "chkpt_on_preemption=False"
        )
    signal.signal(signal.SIGTERM, lambda number, frame: _asked.set())
    _is_watching = True


def was_asked() -> bool:
    """Whether the signal has come since watch()."""
    return _asked.is_set()
