"""Refuse a second thread instead of mixing two calls of one object."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from lowtide.core.errors import UsageError


class OneThread:
    """Admits one thread at a time; the same thread may enter again. Copies are independent."""

    def __init__(self, what: str, remedy: str) -> None:
        """Take the words of the message: the object in use, and the remedy."""
        self._what, self._remedy = what, remedy
        self._lock = threading.RLock()
        self._thread = ""

    @contextmanager
    def enter(self) -> Generator[None]:
        """Hold the object in this context; raises UsageError if another thread holds it."""
        if not self._lock.acquire(blocking=False):
            raise UsageError(f"{self._what} is in use by thread {self._thread!r}; {self._remedy}")
        try:
            self._thread = threading.current_thread().name
            yield
        finally:
            self._lock.release()

    def __reduce__(self) -> tuple[type["OneThread"], tuple[str, str]]:
        """Copy and pickle without the lock."""
        return OneThread, (self._what, self._remedy)
