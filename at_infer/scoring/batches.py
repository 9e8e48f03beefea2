"""Batches of windows on their way through the engine. Pure numpy."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from at_infer.scoring.series import Bools, Stretch
from at_infer.scoring.windows import Floats, Starts

READY = 4  # batches that wait for the engine, or for what comes behind it, while the other is busy


class Windows(NamedTuple):
    """Windows of one stretch in a batch."""

    stretch: Stretch
    starts: Starts
    bad: Bools | None
    """None: none is."""


class Until(NamedTuple):
    """Number of rows of the stretch so far."""

    stretch: Stretch
    rows: int


@dataclass(slots=True)
class Batch:
    """Windows waiting for the engine, and what to do with their scores."""

    windows: Floats
    filled: int = 0
    rows: int = 0
    """How many rows of the input had come when it was full."""
    work: list[Windows | Until | Stretch] = field(default_factory=list)
    """In order: windows of a stretch, rows that have come, or the end of a stretch."""

    @property
    def room(self) -> int:
        """Room for this many more windows."""
        return len(self.windows) - self.filled

    def add(self, windows: Windows, values: Floats) -> None:
        """Some windows of a stretch, and their values (B,N,F)."""
        self.windows[self.filled : self.filled + len(values)] = values
        self.filled += len(values)
        self.work.append(windows)

    def span(self, window: int) -> tuple[int, int]:
        """First row of the input that its windows cover, and the one behind the last."""
        groups = [item for item in self.work if isinstance(item, Windows)]
        first, last = groups[0], groups[-1]
        return first.stretch.first_row + int(first.starts[0]), last.stretch.first_row + int(last.starts[-1]) + window

    def clear(self) -> None:
        """For other windows."""
        self.filled = 0
        self.work.clear()


class BatchQueue:
    """Gives batches to the engine and merges their scores, in order.

    With `workers`, up to `lanes` batches are in the engine at once, and a few more are ready for it.
    """

    def __init__(
        self,
        run: Callable[[Batch], Floats],
        merge: Callable[[Batch, Floats], None],
        shape: tuple[int, int, int],
        *,
        workers: Executor | None,
        lanes: int,
    ) -> None:
        self.run, self.merge, self.shape, self.workers, self.most = run, merge, shape, workers, lanes + READY
        self.batch = Batch(np.empty(shape, np.float32))
        """The one that is being filled."""
        self.under_way: deque[tuple[Batch, Future[Floats]]] = deque()
        self.spare: list[Batch] = []

    def send(self, rows: int) -> None:
        """Give the batch to the engine when so many rows have come, and merge those before it that are ready."""
        self.batch.rows = rows
        if self.workers is None:
            self._run_now()
            return
        self.under_way.append((self.batch, self.workers.submit(self.run, self.batch)))
        self.batch = self.spare.pop() if self.spare else Batch(np.empty(self.shape, np.float32))
        self._finish(self.most)

    def flush(self, rows: int) -> None:
        """Score what is waiting when so many rows have come."""
        if self.batch.work:
            if self.under_way:
                self.send(rows)
            else:  # nothing else to do meanwhile
                self.batch.rows = rows
                self._run_now()
        self.settle()

    def settle(self) -> None:
        """Wait for full batches that are in the engine."""
        self._finish(0)

    def _run_now(self) -> None:
        self.merge(self.batch, self.run(self.batch))
        self.batch.clear()

    def _finish(self, most: int) -> None:
        """Merge batches in order, until at most so many are under way."""
        while self.under_way and (len(self.under_way) > most or self.under_way[0][1].done()):
            batch, scores = self.under_way[0]
            self.merge(batch, scores.result())  # a batch that failed stays, so that none behind it is merged
            batch.clear()
            self.under_way.popleft()
            self.spare.append(batch)
