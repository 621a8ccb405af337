"""Values kept for tensors while their memory lives, without weak references to them.

torch.utils.swap_tensors refuses tensors with weak references.
"""

import threading

import torch
from torch.multiprocessing.reductions import StorageWeakRef


class StorageDictionary:
    """Values by the tensors' storages, which views and detached tensors share."""

    def __init__(self):
        self._lock = threading.Lock()  # guards the two below
        self._entries: dict[int, tuple[StorageWeakRef, object]] = {}
        self._next_sweep = 64

    def set(self, t: torch.Tensor, value) -> None:
        """Keeps the value until the storage ends."""
        storage = t.untyped_storage()
        with self._lock:
            self._entries[storage._cdata] = StorageWeakRef(storage), value
            if len(self._entries) >= self._next_sweep:
                self._entries = {key: entry for key, entry in self._entries.items() if not entry[0].expired()}
                self._next_sweep = max(64, 2 * len(self._entries))

    def get(self, t: torch.Tensor):
        """The value. None if there is none."""
        storage, value = self._entries.get(t.untyped_storage()._cdata, (None, None))
        return None if storage is None or storage.expired() else value
