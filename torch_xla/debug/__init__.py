"""Metrics and explanations: compiles, runs, fallbacks, and their reasons."""

import typing

from .. import _XLAC

if typing.TYPE_CHECKING:
    from ._programs import ProgramReport
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
    from ._programs import read_reports
    from ._report import Report

    return Report(read_steps(), read_reports())


def program_reports() -> "list[ProgramReport]":
    """What the compiler says of each program, where the device is compiled for and not there (XLA_COMPILE_ONLY).

    Memory, cost, estimated time, the optimized program, or the compiler's error: of the last 256 programs of this
    process, in the order of their compiles. explain() shows the same. Empty for other devices.
    """
    from ._programs import read_reports  # here: `import torch` loads this package

    return read_reports()


def forget() -> None:
    """Forgets the steps up to now: explain() reports only later ones, for example after the warm-up."""
    _XLAC._clear_history()
    _XLAC._forget_program_reports()
