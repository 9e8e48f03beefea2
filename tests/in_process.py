"""Workers without a cluster, and an engine that costs nothing: what a run on many machines does, in this process."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from at_infer.cluster.worker import Job, Lost, Opened, SplitWorker, WorkerSettings
from at_infer.engines import Scoring
from at_infer.models.metadata import Metadata
from tests.exported import metadata

Answer = Callable[[SplitWorker, Job], Any]


class EasyEngine(Scoring):
    """Scores depend on the values of a row, on its place in the window, and on the rest of the window."""

    def __init__(self, path: Path, known: Metadata | None = None) -> None:
        self.path, self.metadata = path, known or metadata()
        self.missing: list[str] = []
        self.outputs = ("score", "reconstruction")

    def run(self, windows: np.ndarray) -> dict[str, np.ndarray]:
        rows = np.abs(windows).sum(axis=2)
        place = np.arange(1, windows.shape[1] + 1, dtype=np.float32)
        score = rows * place + rows.max(axis=1, keepdims=True)
        return {"score": score, "reconstruction": windows / 2}

    def describe(self) -> str:
        return "an easy engine"


class InProcess:
    """One worker after another gets a job; `answer` may stand in for what a worker does."""

    def __init__(self, settings: WorkerSettings, count: int, answer: Answer | None) -> None:
        self.count, self.answer = count, answer
        self.workers = [SplitWorker(settings) for _ in range(count)]
        self.opened: list[Opened] = []
        for worker in self.workers:
            opened = worker.open(None)
            assert isinstance(opened, Opened), opened
            self.opened.append(opened)
        self.scored: list[str] = []

    def run(self, jobs: deque[Job]) -> Iterator[tuple[Job, Any] | None]:
        turn = 0
        while jobs:
            job = jobs.popleft()
            worker = self.workers[turn % self.count]
            turn += 1
            answer = self.answer(worker, job) if self.answer is not None else None
            if answer is None:
                answer = getattr(worker, job.method)(job.payload)
            if job.method == "score" and not isinstance(answer, Lost):
                self.scored.append(job.payload.name)
            yield None
            yield job, answer


class Opener:
    """Opens workers and remembers them."""

    def __init__(self, count: int = 2, answer: Answer | None = None) -> None:
        self.count, self.answer = count, answer
        self.runs: list[InProcess] = []

    @contextmanager
    def __call__(self, settings: WorkerSettings) -> Iterator[InProcess]:
        self.runs.append(InProcess(settings, self.count, self.answer))
        yield self.runs[-1]


def read_splits(folder: Path) -> pl.DataFrame:
    """All rows, in order of the names."""
    return pl.concat([pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
