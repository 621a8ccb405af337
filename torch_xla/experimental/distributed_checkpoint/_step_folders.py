"""The folders of a run's checkpoints, one for each step, in a directory or in an object store (by fsspec)."""

import re
from collections.abc import Callable

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ... import _files
from ._writer import METADATA

_DONE = "finished"  # marks a complete checkpoint, with a number greater than all earlier ones
_STEP = re.compile(r"0|[1-9][0-9]*")


def _name_of(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


class StepFolders:
    """The checkpoints by step. One process at a time may write, any number may read.

    Args:
        path: a directory, or a URL that fsspec knows; created if missing.
    """

    def __init__(self, path: str):
        self._path = str(path).rstrip("/")
        self._files, self._root = fsspec.core.url_to_fs(self._path)
        self._is_local = isinstance(self._files, LocalFileSystem)
        self._files.makedirs(self._root, exist_ok=True)

    def path_of(self, step: int) -> str:
        """The place of the step's checkpoint."""
        return f"{self._path}/{step}"

    def _folder(self, step: int) -> str:
        return f"{self._root}/{step}"

    def _done(self, step: int) -> str:
        return f"{self._folder(step)}/{_DONE}"

    def _names(self, folder: str) -> list[str]:
        self._files.invalidate_cache()
        try:
            return [_name_of(entry) for entry in self._files.ls(folder, detail=False)]
        except FileNotFoundError:  # an object store has no empty folders
            return []

    def _sync(self, folder: str) -> None:
        if self._is_local:
            _files.sync_folder(folder)

    def find_number(self, step: int) -> int | None:
        """The place of the step in the order; None: its checkpoint is incomplete, or was deleted meanwhile."""
        try:
            return int(self._files.cat_file(self._done(step)))
        except (OSError, ValueError):
            return None

    def _numbers(self) -> dict[int, int]:
        """The places of steps with complete checkpoints."""
        steps = [int(name) for name in self._names(self._root) if _STEP.fullmatch(name)]
        found = {step: self.find_number(step) for step in steps}
        return {step: number for step, number in found.items() if number is not None}

    def steps(self) -> list[int]:
        """The steps with complete checkpoints, in the order of their completion."""
        numbers = self._numbers()
        return sorted(numbers, key=lambda step: (numbers[step], step))

    def begin(self, step: int) -> None:
        """Makes the step's folder. Deletes incomplete checkpoints in it, to make room."""
        if self.find_number(step) is None:
            self._clear(step)
        self._files.makedirs(self._folder(step), exist_ok=True)

    def finish(self, step: int, save_id: str) -> None:
        """Completes the step's checkpoint: the save with this name replaces an older one."""
        try:
            self._put_in_place(step, save_id)
        except BaseException:
            if self.find_number(step) is None:
                self._clear(step)
            raise
        self._delete_files(step, but=save_id)

    def _put_in_place(self, step: int, save_id: str) -> None:
        folder = self._folder(step)
        self._files.mv(f"{folder}/{METADATA}.{save_id}", f"{folder}/{METADATA}")
        self._sync(folder)
        number = str(max(self._numbers().values(), default=0) + 1).encode()
        if self._is_local:
            with _files.replacing(self._done(step)) as file:
                file.write(number)
        else:  # an object appears complete
            self._files.pipe_file(self._done(step), number)
        self._sync(self._root)

    def discard(self, step: int, save_id: str) -> None:
        """Deletes the files of an uncompleted save with this name."""
        if self.find_number(step) is None:
            self._clear(step)
        else:
            self._remove(step, lambda name: save_id in name or name == f"{METADATA}.tmp")

    def _clear(self, step: int) -> None:
        """Deletes the files of the step's saves, first the mark of completeness."""
        if self._files.isfile(self._done(step)):
            self._files.rm_file(self._done(step))
        self._delete_files(step)

    def _delete_files(self, step: int, but: str = "") -> None:
        """Deletes the files of the step's saves, except the save with this name. Deletes an empty folder as well."""

        def is_one(name: str) -> bool:
            is_data = name.startswith("__") and name.endswith(".distcp")
            is_metadata = name.startswith(METADATA) and (name != METADATA or not but)
            return (is_data or is_metadata) and not (but and but in name)

        self._remove(step, is_one)

    def _remove(self, step: int, selects: Callable[[str], bool]) -> None:
        names = self._names(self._folder(step))
        chosen = [name for name in names if selects(name)]
        for name in chosen:
            self._files.rm_file(f"{self._folder(step)}/{name}")
        if chosen == names and self._files.isdir(self._folder(step)):
            self._files.rmdir(self._folder(step))

    def delete(self, step: int) -> None:
        """Deletes the step's checkpoint; from the first moment it counts as incomplete."""
        self._files.rm_file(self._done(step))
        try:
            self._sync(self._folder(step))
        finally:
            self._files.rm(self._folder(step), recursive=True)
