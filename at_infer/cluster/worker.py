"""A worker: one engine, and the few things that it is asked to do. Ray makes actors of it; it knows nothing of Ray."""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from at_infer import __version__
from at_infer.errors import AtInferError, DataError, OutputError
from at_infer.models.family import engine_for
from at_infer.models.kinds import file_sha256
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.scorer import Scorer
from at_infer.tables.columns import Columns, Place, Survey

if TYPE_CHECKING:
    from at_infer.cluster.scoring import SplitResult, SplitTask

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What every worker has to know."""

    version: str
    engine: str
    engine_sha256: str
    options: ScoreOptions
    engine_options: EngineOptions
    columns: Columns
    folder: str
    """Where splits are written."""

    @property
    def threads(self) -> int:
        """CPUs of a worker."""
        return self.engine_options.threads or 1


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker that is ready."""

    host: str
    pid: int
    engine: str
    """Runtime and device in words."""
    engine_file: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Something the user can fix, said by a worker."""

    kind: Literal["data", "engine", "output"]
    message: str


class Job(NamedTuple):
    """A method of `SplitWorker` and what it is called with."""

    method: Literal["survey", "measure", "score"]
    payload: Any
    attempts: int = 1


class Lost(NamedTuple):
    """A worker died on a job."""

    why: str


class Workers(Protocol):
    """Some workers that are open, or opening."""

    @property
    def count(self) -> int:
        """How many there are to be."""

    @property
    def opened(self) -> Sequence[Opened]:
        """Those that have been ready so far."""

    def run(self, jobs: deque[Job]) -> Iterator[tuple[Job, Any] | None]:
        """Assign jobs, also those added meanwhile, and yield each result; None now and then."""


OpenWorkers = Callable[[WorkerSettings], AbstractContextManager[Workers]]


class SplitWorker:
    """One engine on one machine. polars is loaded when it is needed: whoever starts workers sets its threads first."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.host = socket.gethostname()

    def open(self, compute_capability: int | None) -> Opened | Failure:
        """Open the engine that fits this machine's GPU, or its lack of one."""

        def open_engine() -> Opened:
            given = self.settings
            if given.version != __version__:
                raise AtInferError(f"has at-infer {__version__}, the run was started by {given.version}")
            path = Path(given.engine)
            if not path.is_file():
                raise AtInferError(f"{path}: no such file; every machine must find the engine under this path")
            if file_sha256(path) != given.engine_sha256:
                raise AtInferError(f"{path}: is another file than where the run was started; copy it to every machine")
            if not Path(given.folder).is_dir():
                raise AtInferError(f"{given.folder}: no such folder; every machine must see the output under this path")
            if given.engine_options.provider == "cpu":
                path = engine_for(path, compute_capability)
            self.scorer = Scorer(path, given.options, given.engine_options)
            self.batch_size: int | None = None
            return Opened(self.host, os.getpid(), self.scorer.engine.describe(), path.name)

        answer = _failures(open_engine)
        return Failure("engine", f"worker on {self.host}: {answer.message}") if isinstance(answer, Failure) else answer

    def survey(self, places: Sequence[Place]) -> list[Survey | Failure]:
        """Look at the key columns of some files."""
        from at_infer.tables.ranges import survey

        def look(place: Place) -> Survey | Failure:
            return _failures(lambda: survey(place, self.settings.columns, self.scorer.row_settings.longest_step))

        return [look(place) for place in places]

    def measure(self, rows: int) -> float | Failure:
        """Rows per second of the engine, with the batch size for about this many rows."""

        def measure() -> float:
            size = self._batch_size(rows)
            self.scorer.engine_rows_per_s(size)  # warm-up
            return self.scorer.engine_rows_per_s(size)

        return _failures(measure)

    def score(self, task: "SplitTask") -> "SplitResult | Failure":
        """Score a split and write it."""
        from at_infer.cluster.scoring import score_split

        def score() -> "SplitResult":
            size = self._batch_size(task.share)
            return score_split(task, self.scorer, size, self.settings.columns, Path(self.settings.folder))

        return _failures(score)

    def _batch_size(self, rows: int) -> int:
        """Looked for once."""
        if self.batch_size is None:
            self.batch_size = self.scorer.batch_size_for(rows)
        return self.batch_size


def _failures(act: Callable[[], T]) -> T | Failure:
    """Errors that the user can fix travel as values: as exceptions Ray would wrap them."""
    try:
        return act()
    except DataError as error:
        return Failure("data", str(error))
    except OutputError as error:
        return Failure("output", str(error))
    except AtInferError as error:
        return Failure("engine", str(error))
