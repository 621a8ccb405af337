"""Queues of limited length with ends that can be closed: one by key, one in order."""

import collections
import threading


class QueueBase:
    """The common part of both queues.

    Args:
        maxsize: the most waiting items: put() waits for room.
    """

    def __init__(self, maxsize: int = 1024):
        self._maxsize = maxsize
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)  # an item came, or none will
        self._emptied = threading.Condition(self._lock)  # an item went, or none may come
        self._no_more_gets = False
        self._no_more_puts = False

    def max_size(self) -> int:
        """The most waiting items."""
        return self._maxsize

    def close(self) -> None:
        """Ends both sides: put() drops its item from now on, get() gives the remaining items, then None."""
        with self._lock:
            self._no_more_gets = self._no_more_puts = True
            self._filled.notify_all()
            self._emptied.notify_all()

    def close_write(self) -> None:
        """No item follows: get() gives the remaining items, then None."""
        with self._lock:
            self._no_more_puts = True
            self._filled.notify_all()


class KeydQueue(QueueBase):
    """Items by key; readers choose the order."""

    def __init__(self, maxsize: int = 1024):
        super().__init__(maxsize)
        self._items: dict = {}
        self._awaited: collections.Counter = collections.Counter()  # keys that readers wait for

    def put(self, key, item) -> None:
        """Waits for room, unless a reader waits for this key, and puts the item, replacing one with the same key."""
        with self._lock:
            self._emptied.wait_for(
                lambda: self._no_more_gets or len(self._items) < self._maxsize or self._awaited[key] > 0
            )
            if not self._no_more_gets:
                self._items[key] = item
                self._filled.notify_all()

    def get(self, key):
        """Waits for the item of this key and takes it. None if the queue has been closed without it."""
        with self._lock:
            self._awaited[key] += 1
            self._emptied.notify_all()
            self._filled.wait_for(lambda: key in self._items or self._no_more_puts)
            self._awaited[key] -= 1
            self._emptied.notify_all()
            return self._items.pop(key, None)


class Queue(QueueBase):
    """Items in order."""

    def __init__(self, maxsize: int = 1024):
        super().__init__(maxsize)
        self._items: collections.deque = collections.deque()

    def put(self, item) -> None:
        """Waits for room and puts the item at the end."""
        with self._lock:
            self._emptied.wait_for(lambda: self._no_more_gets or len(self._items) < self._maxsize)
            if not self._no_more_gets:
                self._items.append(item)
                self._filled.notify()

    def get(self):
        """Waits for the first item and takes it. None if the queue has been closed and is empty."""
        with self._lock:
            self._filled.wait_for(lambda: self._items or self._no_more_puts)
            item = self._items.popleft() if self._items else None
            self._emptied.notify()
            return item
