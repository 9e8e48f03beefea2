"""StreamScorer: rows of many series as they come, each scored as the last of its window."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from at_infer.engines import Engine, Provider
from at_infer.errors import ConfigError, DataError
from at_infer.live.memory import Series, SeriesMemory
from at_infer.live.rings import Ints
from at_infer.live.state import load_state, save_state
from at_infer.live.times import Time, check_order, moment
from at_infer.scoring.scorer import Bools, ScoreOptions, Scorer
from at_infer.scoring.windows import Floats

MAX_SERIES = 10_000
BLOCK_ROWS = 1024


class StreamScore(NamedTuple):
    """Of one row; no score before a series has a full window, nor between the rows that `every` asks for."""

    score: float | None
    is_anomaly: bool


@dataclass(slots=True)
class Pushed:
    """What became of some rows."""

    score: Floats
    """One entry per row; NaN: no score."""
    is_anomaly: Bools
    refused: dict[int, str] = field(default_factory=dict)
    """Rows that were not taken, and why. The series goes on as if they had not come."""
    dropped: list[Series] = field(default_factory=list)
    """Series that had to make room for others."""


class StreamScorer:
    """Scores rows as they come, exactly as `at-infer score --align last` scores them in a file.

    >>> with StreamScorer("model.onnx") as stream:                         # doctest: +SKIP
    ...     for row in rows:                                               # F numbers, or a mapping by column name
    ...         score, is_anomaly = stream.push(row, series="pump 7")

    `push_many` takes rows of any series together and gives their windows to the engine in batches. `every` scores
    only each so-many-th row of a series; `max_series` bounds the memory.
    """

    def __init__(
        self,
        engine: str | Path | Engine,
        options: ScoreOptions | None = None,
        *,
        every: int = 1,
        max_series: int = MAX_SERIES,
        provider: Provider = "cpu",
        threads: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        options = options or ScoreOptions()
        if options.explain != "none":
            raise ConfigError("explain: a stream has no explanations; score a file with --explain")
        if every < 1:
            raise ConfigError(f"every: {every} is too small; at least 1")
        self.every = every
        self.scorer = Scorer(
            engine,
            replace(options, align="last"),
            provider=provider,
            threads=threads,
            batch_size=batch_size,
        )
        try:
            self.scorer.choose_batch_size(0)
            assert self.scorer.batch_size is not None
            self.batch_size: int = self.scorer.batch_size
            self.metadata, self.threshold = self.scorer.metadata, self.scorer.threshold
            window, features = self.metadata.model.window, self.metadata.model.features
            self.memory = SeriesMemory(
                max_series,
                window=window,
                features=features,
                smooth=self.scorer.config.smooth,
                spare=min(self.batch_size - 1, window // 8),
            )
        except BaseException:
            self.close()
            raise
        self._windows: Floats = np.empty((self.batch_size, window, features), np.float32)
        self._mean = np.asarray(self.metadata.scaler.mean, np.float32)

    def push(self, row: ArrayLike | Mapping[str, Any], *, series: Series = "", time: Time | None = None) -> StreamScore:
        """Take one row of a series: values in the order of the model's columns, or by name; None is missing.

        Raises `DataError` for a row that cannot be used; the stream goes on without it.
        """
        values: Any = [row]
        if isinstance(row, Mapping):
            absent = [name for name in self.metadata.columns if name not in row]
            if absent:
                raise DataError(f"row: column {absent[0]!r} is missing")
            values = [[row[name] for name in self.metadata.columns]]
        pushed = self.push_many(values, [series], None if time is None else [time])
        if pushed.refused:
            raise DataError(f"row: {pushed.refused[0]}")
        score = float(pushed.score[0])
        return StreamScore(None if np.isnan(score) else score, bool(pushed.is_anomaly[0]))

    def push_many(
        self, rows: ArrayLike, series: Sequence[Series] | None = None, times: Sequence[Time] | None = None
    ) -> Pushed:
        """Take rows (n,F) of any series in the order they came; without `series` they are all of one."""
        features = self.metadata.model.features
        try:
            with np.errstate(over="ignore"):  # too large for float32: infinite, and refused as such
                values = np.array(rows, np.float32, ndmin=2)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"rows: are not numbers of shape (n, {features}) ({error})") from None
        if values.ndim != 2 or values.shape[1] != features:
            raise DataError(f"rows: have shape {list(values.shape)}, the model takes (n, {features})")
        names = [""] * len(values) if series is None else series
        if len(names) != len(values) or (times is not None and len(times) != len(values)):
            raise DataError(f"rows: there are {len(values)}, with {len(names)} series and {len(times or names)} times")
        pushed = Pushed(np.full(len(values), np.nan, np.float32), np.zeros(len(values), np.bool_))
        self._refuse_values(values, pushed.refused)
        for block in self._blocks(names):
            taken, slots, ranks = self._enter(block, names, times, pushed)
            if len(taken):
                pushed.score[taken] = self._score(values[taken], slots, ranks)
        pushed.is_anomaly = self.scorer.verdict(pushed.score)
        return pushed

    @property
    def series(self) -> int:
        """How many series are remembered."""
        return len(self.memory.slots)

    def save(self, path: str | Path, extra: Mapping[str, Any] | None = None) -> None:
        """Write all that is remembered of the series, and `extra` as JSON, to a file: complete or not at all."""
        save_state(Path(path), self, dict(extra or {}))

    def load(self, path: str | Path) -> dict[str, Any]:
        """Go on where `save` was called, and return its `extra`; refuses the state of another model or score."""
        return load_state(Path(path), self)

    def close(self) -> None:
        """Free what the engine holds; an engine that was given open stays open."""
        self.scorer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_values(self, values: Floats, refused: dict[int, str]) -> None:
        """Infinities never fit, gaps only if the model has a way to fill them."""
        unusable = ~np.isfinite(values) if self.metadata.fill == "error" else np.isinf(values)
        if not unusable.any():
            return
        for i in np.flatnonzero(unusable.any(axis=1)).tolist():
            j = int(np.flatnonzero(unusable[i])[0])
            what = "has no value" if np.isnan(values[i, j]) else "is infinite, or too large for float32"
            refused[i] = f"column {self.metadata.columns[j]!r} {what}"

    def _blocks(self, names: Sequence[Series]) -> Iterator[range]:
        """Consecutive rows of so few series that none of them is dropped for another of the same block."""
        first, seen = 0, set[Series]()
        for i, name in enumerate(names):
            seen.add(name)
            if len(seen) > self.memory.max_series or i - first == BLOCK_ROWS:
                yield range(first, i)
                first, seen = i, {name}
        yield range(first, len(names))

    def _enter(
        self, block: range, names: Sequence[Series], times: Sequence[Time] | None, pushed: Pushed
    ) -> tuple[Ints, Ints, Ints]:
        """The rows that can be taken, their slots, and how many rows of the same series come before each."""
        memory = self.memory
        taken, slots, ranks, seen = [], [], [], dict[int, int]()
        for i in block:
            if i in pushed.refused:
                continue
            if times is not None:
                try:
                    now = moment(times[i])
                    known = memory.slots.get(names[i])
                    if known is not None and (last := memory.times[known]) is not None:
                        check_order(last[0], now, last[1], times[i])
                except DataError as error:
                    pushed.refused[i] = str(error)
                    continue
            slot, dropped = memory.see(names[i])
            if dropped is not None:
                pushed.dropped.append(dropped)
            if times is not None:
                memory.times[slot] = (now, times[i])
            taken.append(i)
            slots.append(slot)
            ranks.append(rank := seen.get(slot, 0))
            seen[slot] = rank + 1
        return np.array(taken, np.int64), np.array(slots, np.int64), np.array(ranks, np.int64)

    def _score(self, values: Floats, slots: Ints, ranks: Ints) -> Floats:
        """Rows that are taken (r,F) -> their scores (r,)."""
        memory, window = self.memory, self.metadata.model.window
        numbers = memory.counts[slots] + ranks
        self._fill(values, slots, numbers)
        wave = ranks // (memory.rows.spare + 1)  # more rows of a series than the rings have to spare: one wave by one
        waves = [np.flatnonzero(wave == w) for w in range(int(wave.max()) + 1)]
        due = (numbers >= window - 1) & ((numbers - (window - 1)) % self.every == 0)
        batch = _Batch(self.scorer, self._windows, np.full(len(values), np.nan, np.float32))
        for rows in waves:
            memory.rows.put(slots[rows], numbers[rows], values[rows])
            scored = rows[due[rows]]
            while len(scored):
                now, scored = np.split(scored, [batch.room])
                memory.rows.take(slots[now], numbers[now], batch.next(now))
        memory.counts[slots] = numbers + 1  # of equal slots the last one counts
        return self._smooth(batch.finish(), slots, numbers, waves)

    def _smooth(self, scores: Floats, slots: Ints, numbers: Ints, waves: list[Ints]) -> Floats:
        """Mean of the last scores of the series; rows without a score stay so, and have no say."""
        ring = self.memory.scores
        if ring.window == 1:
            return scores
        means = np.empty_like(scores)
        for rows in waves:
            ring.put(slots[rows], numbers[rows], scores[rows, None])
            past = ring.take(slots[rows], numbers[rows])[..., 0]
            known = ~np.isnan(past)
            with np.errstate(invalid="ignore"):
                means[rows] = np.where(known, past, 0.0).sum(axis=1, dtype=np.float64) / known.sum(axis=1)
        return np.where(np.isnan(scores), scores, means)

    def _fill(self, values: Floats, slots: Ints, numbers: Ints) -> None:
        """Fill gaps in place by the model's policy, as `Filler` does for a file."""
        gaps: Bools = np.isnan(values)
        if not gaps.any():
            return
        if self.metadata.fill == "mean":
            values[gaps] = np.broadcast_to(self._mean, values.shape)[gaps]
            return
        ring, last = self.memory.rows, dict[int, Floats]()
        with_gaps = set(np.flatnonzero(gaps.any(axis=1)).tolist())
        for i, slot in enumerate(slots.tolist()):
            if i in with_gaps:
                before = last.get(slot)
                if before is None:
                    number = int(numbers[i])
                    before = ring.rows[slot, (number - 1) % ring.length] if number else self._mean
                values[i, gaps[i]] = before[gaps[i]]
            last[slot] = values[i]


class _Batch:
    """Windows that wait for the engine, and the scores of the rows they belong to."""

    def __init__(self, scorer: Scorer, windows: Floats, scores: Floats) -> None:
        self.scorer, self.windows, self.scores = scorer, windows, scores
        self.rows: list[Ints] = []
        self.filled = 0

    @property
    def room(self) -> int:
        """How many windows fit; at least one."""
        if self.filled == len(self.windows):
            self._run()
        return len(self.windows) - self.filled

    def next(self, rows: Ints) -> Floats:
        """Where the windows of these rows go."""
        self.rows.append(rows)
        self.filled += len(rows)
        return self.windows[self.filled - len(rows) : self.filled]

    def finish(self) -> Floats:
        """All scores."""
        if self.filled:
            self._run()
        return self.scores

    def _run(self) -> None:
        found = self.scorer._score_windows(self.windows[: self.filled])
        self.scores[np.concatenate(self.rows)] = found[:, -1, 0]
        self.rows.clear()
        self.filled = 0
