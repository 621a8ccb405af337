"""Metrics and explanations: what compiled, what ran, what fell back, and why."""

import typing

from .. import _XLAC

if typing.TYPE_CHECKING:
    from ._report import Report


def explain() -> "Report":
    """Says of the device's last steps why each program was compiled, what ran on the CPU, and what was read too early.

    It looks at the events of about 500 steps of this process, on all devices and threads. A program needs
    no preparation for it, and asking changes nothing. docs/explain.md lists the mistakes that it knows.

    Returns:
        A report: `print(report)` prints it, `report.findings` lists the mistakes, `report.save_html(path)` writes a
        page.
    """
    from ._history import read_steps  # here: `import torch` loads this package
    from ._report import Report

    return Report(read_steps())


def forget() -> None:
    """Forgets the steps up to now: explain() tells of those that come, for example after the warm-up."""
    _XLAC._clear_history()
