"""The folders of a run's checkpoints, one for each step, in a directory or in an object store (by fsspec)."""

import time

import fsspec

_DONE = "finished"  # the file that says that a checkpoint is whole, and when it was finished


class StepFolders:
    """Which steps have a checkpoint.

    Args:
        path: a directory, or a URL that fsspec knows; created where it is missing.
    """

    def __init__(self, path: str):
        self._path = str(path).rstrip("/")
        self._files, self._root = fsspec.core.url_to_fs(self._path)
        self._files.makedirs(self._root, exist_ok=True)

    def path_of(self, step: int) -> str:
        """Where the step's checkpoint is, or would be."""
        return f"{self._path}/{step}"

    def _done(self, step: int | str) -> str:
        return f"{self._root}/{step}/{_DONE}"

    def steps(self) -> list[int]:
        """The steps whose checkpoints are whole, in the order in which they were finished."""
        self._files.invalidate_cache()
        found = []
        for entry in self._files.ls(self._root, detail=False):
            name = entry.rstrip("/").rsplit("/", 1)[-1]
            if name.isdecimal() and self._files.exists(self._done(name)):
                found.append((int(self._files.cat_file(self._done(name))), int(name)))
        return [step for _, step in sorted(found)]

    def begin(self, step: int) -> None:
        """The step's checkpoint is not whole from now on."""
        if self._files.exists(self._done(step)):
            self._files.rm_file(self._done(step))

    def finish(self, step: int) -> None:
        """The step's checkpoint is whole."""
        self._files.pipe_file(self._done(step), str(time.time_ns()).encode())

    def delete(self, step: int) -> None:
        """Deletes the step's checkpoint."""
        self.begin(step)
        self._files.rm(f"{self._root}/{step}", recursive=True)
