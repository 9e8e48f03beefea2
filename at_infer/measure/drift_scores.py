"""Scores for the search for drift: formed here, or read from what `at-infer score` wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from at_infer.choices import Explain
from at_infer.errors import DataError
from at_infer.measure.drift_blocks import Floats, Reference, SeriesDrift
from at_infer.models.metadata import Metadata
from at_infer.models.view_sums import LARGEST
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.series import SeriesState
from at_infer.scoring.settings import Finisher
from at_infer.tables.clock import Seconds
from at_infer.tables.row_stream import RowStream
from at_infer.tables.scores import ScoredFile
from at_infer.thresholds.choose import ScoringWay, choose_for_scoring
from at_infer.thresholds.recorded import check_written_by


class ScoreSource(Protocol):
    """Where scores come from."""

    notes: list[str]

    def start(self, series: SeriesDrift) -> None:
        """A series begins."""

    def push(self, values: Floats, file: str, row: int, times: Seconds | None) -> None:
        """Its next rows, which may be changed."""

    def end(self) -> None:
        """No more rows of this series."""

    def finished(self, *, end: bool = False) -> Iterator[SeriesDrift]:
        """Series that have ended and got all their scores, each once; at the end all that are left."""


class DriftScorer(Scorer):
    """Gaps and short series are no reason to stop; errors of the features beside the score, if the model tells them."""

    def __init__(self, model: str | Path, engine_options: EngineOptions | None) -> None:
        super().__init__(model, ScoreOptions(on_bad_rows="null", short_series="skip"), engine_options)

    def default_explain(self) -> Explain:
        """Mode `fusion` has the residuals anyway."""
        return "all" if self.config.mode != "fusion" and "reconstruction" in self.engine.outputs else "none"


class OwnScores:
    """By the scoring core."""

    def __init__(self, scorer: Scorer, rows: int) -> None:
        self.notes = list(scorer.notes)
        self.known = Reference.of(scorer.metadata, scorer.chosen, _normal_errors(scorer))
        self.channels = 1 if self.known.error is None else 1 + len(scorer.metadata.columns)
        settings = scorer.row_settings
        if scorer.config.mode == "fusion":
            features, finish = len(scorer.metadata.columns), settings.finish
            settings = settings.finished_by(lambda: _WithErrors(finish(), features), channels=1 + features)
        self.core: RowScorer = scorer.rows(scorer.batch_size_for(rows), settings=settings)
        self.waiting: dict[SeriesState, SeriesDrift] = {}
        self.state: SeriesState | None = None

    def start(self, series: SeriesDrift) -> None:
        """A series begins."""
        self.state = self.core.start(series.name)
        self.waiting[self.state] = series

    def push(self, values: Floats, file: str, row: int, times: Seconds | None) -> None:
        """Its next rows."""
        assert self.state is not None
        self.core.push(self.state, values, file, row, times)
        self._take()

    def end(self) -> None:
        """No more rows of this series."""
        assert self.state is not None
        self.core.end(self.state)
        self.state = None

    def finished(self, *, end: bool = False) -> Iterator[SeriesDrift]:
        """Series that have all their scores."""
        if end:
            self.core.flush()
            self._take()
        for state, series in list(self.waiting.items()):
            if state is not self.state and (series.scored_rows == series.rows):
                yield self.waiting.pop(state)

    def _take(self) -> None:
        for part in self.core.take():
            self.waiting[part.series].score(part.channels[:, : self.channels])


class _WithErrors:
    """Mode `fusion`, and squared residuals of the reconstruction behind each score."""

    def __init__(self, fusion: Finisher, features: int) -> None:
        self.fusion, self.residuals = fusion, slice(features, 2 * features)
        self.waiting = np.empty((0, features), np.float32)

    def add(self, rows: Floats) -> Floats:
        self.waiting = np.concatenate([self.waiting, rows[:, self.residuals]])
        return self._join(self.fusion.add(rows))

    def end(self) -> Floats:
        return self._join(self.fusion.end())

    def _join(self, scores: Floats) -> Floats:
        ready, self.waiting = self.waiting[: len(scores)], self.waiting[len(scores) :]
        with np.errstate(over="ignore"):
            return np.concatenate([scores, np.minimum(np.square(ready), LARGEST)], axis=1)

    is_steady = False

    def remember(self) -> dict[str, Any]:
        raise NotImplementedError

    def recall(self, kept: dict[str, Any]) -> None:
        raise NotImplementedError


def _normal_errors(scorer: Scorer) -> Floats | None:
    """Mean squared errors of validation rows, of the kind that comes with the scores; None if none come."""
    normal, kind = scorer.metadata.normal, scorer.config.error_kind
    if normal is None or "reconstruction" not in scorer.engine.outputs:
        return None
    if kind.normalised:
        return np.ones(len(normal.error), np.float32)
    return np.asarray(normal.centred_error if kind.centred else normal.error, np.float32)


class WrittenScores:
    """As `at-infer score` wrote them for the same rows."""

    def __init__(self, source: str, metadata: Metadata, model: Path, stream: RowStream) -> None:
        self.file = ScoredFile(source)
        known = check_written_by(self.file.properties, metadata, source, model)
        if self.file.rows != stream.rows:
            raise DataError(
                f"{source}: has {self.file.rows} rows, {stream.source} has {stream.rows}; give the scores of these rows"
            )
        chosen = choose_for_scoring(metadata, metadata.score, source=str(model), way=ScoringWay(*known.way()))
        self.notes = [
            *chosen.notes,
            "errors of features are compared only without `scores`",
        ]
        self.known = Reference.of(metadata, chosen, None)
        self.chunks = (chunk.scores for chunk in self.file.chunks())
        self.held = np.empty(0, np.float32)
        self.series: SeriesDrift | None = None
        self.ended: list[SeriesDrift] = []

    def start(self, series: SeriesDrift) -> None:
        """A series begins."""
        self.series = series

    def push(self, values: Floats, file: str, row: int, times: Seconds | None) -> None:  # noqa: ARG002 - a protocol
        """Its next rows."""
        assert self.series is not None
        while len(self.held) < len(values):
            self.held = np.concatenate([self.held, next(self.chunks)])
        self.series.score(self.held[: len(values), None])
        self.held = self.held[len(values) :]

    def end(self) -> None:
        """No more rows of this series."""
        assert self.series is not None
        self.ended.append(self.series)

    def finished(self, *, end: bool = False) -> Iterator[SeriesDrift]:  # noqa: ARG002 - nothing waits
        """Series that have all their scores."""
        ended, self.ended = self.ended, []
        yield from ended
