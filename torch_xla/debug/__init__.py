"""Metrics and explanations: compiles, runs, fallbacks, and their reasons."""

import typing

from .. import _XLAC

if typing.TYPE_CHECKING:
    from ._report import Report


def explain() -> "Report":
    """Explains the device's last steps: why each program was compiled, which operations ran on the CPU, and which
    values were read too early.

    It looks at the events of about 500 steps of this process, on all devices and threads. A program needs no
    preparation, and the call changes nothing. docs/explain.md lists the known mistakes.

    Returns:
        A report: `print(report)` prints it, `report.findings` lists the mistakes, `report.save_html(path)` writes a
        page.
    """
    from ._history import read_steps  # here: `import torch` loads this package
    from ._report import Report

    return Report(read_steps())


def forget() -> None:
    """Forgets the steps up to now: explain() reports only later ones, for example after the warm-up."""
    _XLAC._clear_history()
