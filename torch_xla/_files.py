"""Files that replace older ones only when they are complete: an interrupted save leaves the older file."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import Any, IO

import torch

_ASIDE = ".new"  # suffix of incomplete files


def sync_file(file: IO) -> None:
    """Syncs the file's contents to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: str | os.PathLike) -> None:
    """Syncs the folder's file names to the disk, if its file system can."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


def identify(path: str | os.PathLike) -> tuple[int, int] | None:
    """The identity of the path's present file; None without a file."""
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def _lock(file: IO, wait: bool) -> bool:
    """Locks the file for this process. False if another process has it, or if locks do not work there."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _delete_abandoned(folder: str, prefix: str) -> None:
    """Deletes files of killed writers: unlocked ones."""
    for name in os.listdir(folder):
        if name.startswith(prefix) and name.endswith(_ASIDE):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError), open(path, "r+b") as file:
                if _lock(file, wait=False):
                    os.unlink(path)


def _open_aside(target: str) -> IO[bytes]:
    """A new file beside the target, locked until it is closed."""
    folder, name = os.path.split(target)
    prefix = os.fsdecode(b"." + os.fsencode(name)[:100] + b".")
    _delete_abandoned(folder, prefix)
    while True:
        file = open(os.path.join(folder, f"{prefix}{os.urandom(8).hex()}{_ASIDE}"), "xb")
        _lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:  # else another writer took it for an abandoned file before the lock
            return file
        file.close()


def _take_mode_and_owner(file: IO, of: os.stat_result) -> None:
    os.fchmod(file.fileno(), stat.S_IMODE(of.st_mode))
    if (of.st_uid, of.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):  # only root gives files away
            os.fchown(file.fileno(), of.st_uid, of.st_gid)


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """A file to write, which becomes `path` when the block ends. After an error, or a crash, `path` is as it was.

    A link stays one: the file that it names is replaced. The new file has the mode of the old one and, where that is
    allowed, its owner. Pipes, /dev/null and the like are written in place.

    Raises OSError as open(path, "wb") does, and in a folder that takes no new file.
    """
    old = os.stat(path) if os.path.exists(path) else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(path, "wb") as file:
            yield file
        return
    target = os.path.realpath(path)
    if old is not None:
        os.close(os.open(target, os.O_WRONLY | os.O_CLOEXEC))  # a read-only file is not replaced
    with _open_aside(target) as file:
        try:
            yield file
            if old is not None:
                _take_mode_and_owner(file, old)
            sync_file(file)
            os.replace(file.name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise
    sync_folder(os.path.dirname(target))


def torch_save(data: Any, file_or_path: Any) -> None:
    """torch.save() by replacing(): a path gets the whole file or nothing."""
    is_path = isinstance(file_or_path, (str, os.PathLike))
    if not is_path or not os.path.isdir(os.path.dirname(os.path.realpath(file_or_path))):  # its error is PyTorch's
        torch.save(data, file_or_path)
        return
    with replacing(file_or_path) as file:
        torch.save(data, file)
