"""Lines about a training and scalars for TensorBoard, as the original's example programs print and write them."""

import functools
import multiprocessing
import time
import unittest
from collections.abc import Callable, Mapping
from datetime import datetime

from .. import _world
from ..debug import metrics
from ..debug.metrics_compare_utils import parse_metrics_report


def mp_test(func: Callable) -> Callable:
    """Decorator of a method of unittest.TestCase: runs it in a process of its own, which must end with exit status 0.

    The process is forked, so do not use the device before. Each call returns the exit status.
    """

    @functools.wraps(func)
    def run(*args, **kwargs) -> int:
        process = multiprocessing.get_context("fork").Process(target=func, args=args, kwargs=kwargs)
        process.start()
        process.join()
        if args and isinstance(args[0], unittest.TestCase):
            args[0].assertEqual(process.exitcode, 0)
        return process.exitcode

    return run


def _place(device) -> str:
    """ "xla:0/3": the device and the replica's number in its run."""
    return f"{device}/{_world.current().rank}"


def get_summary_writer(logdir: str | None):
    """A SummaryWriter of TensorBoard that writes to the folder, or None if that is empty.

    Raises ImportError if neither tensorboardX nor tensorboard is installed.
    """
    if not logdir:
        return None
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(logdir)
    write_to_summary(writer, 0, {"TensorboardStartTimestamp": time.time()})
    return writer


def write_to_summary(
    summary_writer,
    global_step: int | None = None,
    dict_to_write: Mapping[str, float] | None = None,
    write_xla_metrics: bool = False,
) -> None:
    """Writes scalars.

    Args:
        summary_writer: from get_summary_writer(); None writes nothing.
        global_step: their step.
        dict_to_write: scalars by name.
        write_xla_metrics: also all numbers of the metrics report, and `aten_ops_sum`: the number of fallbacks.
    """
    if summary_writer is None:
        return
    scalars = dict(dict_to_write or {})
    if write_xla_metrics:
        numbers = parse_metrics_report(metrics.metrics_report())
        fallbacks = sum(value for name, value in numbers.items() if name.startswith("aten::"))
        scalars |= numbers | {"aten_ops_sum": fallbacks}
    for name, value in scalars.items():
        summary_writer.add_scalar(name, value, global_step)


def close_summary_writer(summary_writer) -> None:
    """Flushes and closes it; does nothing for None."""
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()


def now(format: str = "%H:%M:%S") -> str:
    """The time of day."""
    return datetime.now().strftime(format)


def print_training_update(
    device,
    step: int,
    loss: float,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer=None,
) -> None:
    """Prints `| Training Device=xla:0/0 Epoch=1 Step=20 Loss=0.12345 Rate=1234.50 GlobalRate=1200.00 Time=12:34:56`.

    Args:
        device: the device of the training.
        step: batches so far.
        loss: a number, or a tensor of one element, which this reads.
        rate, global_rate: items per second now, and since the beginning (xm.RateTracker).
        epoch: left out if it is None.
        summary_writer: also gets both rates.
    """
    parts = [f"| Training Device={_place(device)}", f"Epoch={epoch}" if epoch is not None else None]
    parts += [f"Step={step}", f"Loss={float(loss):.5f}", f"Rate={rate:.2f}", f"GlobalRate={global_rate:.2f}"]
    print(*filter(None, parts), f"Time={now()}", flush=True)
    write_to_summary(summary_writer, dict_to_write={"examples/sec": rate, "average_examples/sec": global_rate})


def print_test_update(device, accuracy: float | None, epoch: int | None = None, step: int | None = None) -> None:
    """Prints `| Test Device=xla:0/0 Step=20 Epoch=1 Accuracy=98.76 Time=12:34:56`; None values are left out."""
    parts = [
        f"| Test Device={_place(device)}",
        f"Step={step}" if step is not None else None,
        f"Epoch={epoch}" if epoch is not None else None,
        f"Accuracy={accuracy:.2f}" if accuracy is not None else None,
    ]
    print(*filter(None, parts), f"Time={now()}", flush=True)
