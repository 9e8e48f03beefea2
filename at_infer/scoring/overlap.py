"""Reading and writing in parallel with scoring, with bounded queues; errors are passed on."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")

_POLL_S = 0.1


class ReadAhead(Generic[T]):
    """Takes items from an iterator in a thread, at most `depth` ahead."""

    def __init__(self, items: Iterator[T], depth: int = 2) -> None:
        self.busy_s = 0.0
        """Seconds the iterator itself took."""
        self._queue: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(items,), name="read-ahead", daemon=True)
        self._thread.start()

    def _run(self, items: Iterator[T]) -> None:
        try:
            while not self._stop.is_set():
                begin = time.perf_counter()
                item = next(items, None)
                self.busy_s += time.perf_counter() - begin
                self._put(item, None)
                if item is None:
                    return
        except BaseException as error:  # it belongs to whoever waits for the next item
            self._put(None, error)

    def _put(self, item: T | None, error: BaseException | None) -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._queue.put((item, error), timeout=_POLL_S)
                return

    def __iter__(self) -> Iterator[T]:
        while True:
            item, error = self._queue.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item

    def close(self) -> None:
        """Stop reading; what was read ahead is dropped."""
        self._stop.set()
        self._thread.join()


class WriteBehind(Generic[T]):
    """Hands items to a function in a thread, at most `depth` behind."""

    def __init__(self, write: Callable[[T], None], depth: int = 2) -> None:
        self.busy_s = 0.0
        self._write = write
        self._queue: queue.Queue[T | None] = queue.Queue(depth)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="write-behind", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._error is not None:
                continue  # the first error counts; the rest is thrown away
            try:
                begin = time.perf_counter()
                self._write(item)
                self.busy_s += time.perf_counter() - begin
            except BaseException as error:
                self._error = error

    def put(self, item: T) -> None:
        """Queue an item; raises what an earlier one met."""
        if self._error is not None:
            raise self._error
        self._queue.put(item)

    def close(self) -> None:
        """Wait until everything is written; raises what went wrong."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
