"""Saves that do not come to their end: at the n-th operation on files the process is killed, or the disk is full."""

import builtins
import errno
import fcntl
import io
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

KINDS = ["killed", "full"]
FREEING = ("unlink", "remove", "rmdir", "rename", "replace")  # a full disk takes them


class Killed(BaseException):
    """The process has ended here, so that it does nothing more to files."""


class Disk:
    """The operations that change files, of which those from number `at` on do not happen.

    Args:
        kind: "killed": not even those that would tidy up. "full": those that need room raise OSError.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, at: int):
        self.kind, self.at, self.count = kind, at, 0
        for name in (*FREEING, "mkdir"):
            monkeypatch.setattr(os, name, self._guard(name, getattr(os, name)))
        monkeypatch.setattr(os, "fsync", self._fsync(os.fsync))
        for module in (builtins, io):
            monkeypatch.setattr(module, "open", self._open(module.open))

    def _fails(self, name: str) -> bool:
        if self.kind == "full" and name in FREEING:
            return False
        self.count += 1
        return self.count >= self.at

    def _stop(self) -> None:
        raise Killed if self.kind == "killed" else OSError(errno.ENOSPC, "no space left")

    def _guard(self, name: str, function: Callable) -> Callable:
        def call(*args, **kwargs):
            if self._fails(name):
                self._stop()
            return function(*args, **kwargs)

        return call

    def _fsync(self, function: Callable) -> Callable:
        def fsync(fd) -> None:
            if self._fails("fsync"):
                if _is_written(fd):
                    os.ftruncate(fd, os.fstat(fd).st_size // 2)
                self._stop()
            function(fd)

        return fsync

    def _open(self, function: Callable) -> Callable:
        def open_(file, mode="r", *args, **kwargs):
            fails = any(letter in mode for letter in "wxa+") and self._fails("open")
            if fails and self.count == self.at and self.kind == "killed":
                function(file, mode, *args, **kwargs).close()  # it is there, and empty
            if fails:
                self._stop()
            return function(file, mode, *args, **kwargs)

        return open_


def _is_written(fd: int) -> bool:
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def names_in(folder: Path) -> list[str]:
    """Of the files below the folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def check_interrupted_saves(
    kind: str, folder: Path, save: Callable[[int], None], load: Callable[[], int], least: int, leaves: bool = False
) -> None:
    """Interrupts save() at each of its operations: load() gives the number that was saved before, or the new one whole.

    Args:
        folder: where it saves; after the next save nothing is left there of what did not come to its end.
        least: how many operations it has at least, or the test does not see them.
        leaves: whether something is left after all.
    """
    numbers = itertools.count(1)
    save(next(numbers))
    count = len(names_in(folder))
    for at in itertools.count(1):
        before, new = load(), next(numbers)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, kind, at)
            try:
                save(new)
            except (Killed, OSError, RuntimeError):
                assert disk.count >= at
        assert load() in (before, new)
        if disk.count < at:
            break
        save(next(numbers))
        assert load() == new + 1
        assert leaves or len(names_in(folder)) == count, names_in(folder)
    assert at > least
