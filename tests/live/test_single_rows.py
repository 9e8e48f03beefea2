"""Live rows of series that are under way take a short way through the scoring core: the results are the same."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from at_infer import EngineOptions, ScoreOptions, StreamScorer, open_engine
from at_infer.engines import Engine
from at_infer.errors import EngineError
from at_infer.live.pushed import Pushed
from at_infer.models.spacing import Spacing
from at_infer.scoring.settings import add_one_by_one
from tests.checkpoints import FEATURES, SCALER, WINDOW

pytestmark = pytest.mark.slow

STEADY = 145
"""Rows after which a series takes the short way, and some more."""


def streams(model: Path | Engine, options: ScoreOptions, *, batch_size: int = 4) -> Iterator[StreamScorer]:
    """Two of them; the second one always takes the long way, and its last step that of files."""
    for long in (False, True):
        stream = StreamScorer(model, options, EngineOptions(batch_size=batch_size), max_series=9)
        assert stream.core.single is not None
        if long:
            stream.core.single = None
            stream.core.settings = replace(stream.core.settings, add_together=add_one_by_one)
        yield stream


def values(rng: np.random.Generator, rows: int) -> np.ndarray:
    noise = rng.normal(size=(rows, FEATURES))
    return (np.array(SCALER.mean) + np.array(SCALER.scale) * noise).astype(np.float32)


def same(one: Pushed, other: Pushed) -> None:
    np.testing.assert_array_equal(one.channels, other.channels)
    np.testing.assert_array_equal(one.is_anomaly, other.is_anomaly)
    assert (one.tags, one.ended, one.refused) == (other.tags, other.ended, other.refused)


@pytest.mark.parametrize("explain", ["none", "top"])
@pytest.mark.parametrize("delay", [0, 5])
def test_results_are_those_of_the_long_way(models: Path, tmp_path: Path, delay: int, explain: Any) -> None:
    options = ScoreOptions(align="last", threshold=1.0, delay=delay, explain=explain)
    engine = copy(open_engine(models / "model.onnx"))
    assert engine.metadata is not None
    engine.metadata = replace(engine.metadata, spacing=Spacing(step=1.0, clock="number"), fill="forward")
    short, long = streams(engine, options)
    rng, numbers, tag = np.random.default_rng(delay), np.zeros(7, np.int64), 0
    assert short.core.single is not None
    taken: list[int] = []
    score = short.core.single.score
    short.core.single.score = lambda series, *rows, **so: taken.append(len(series)) or score(series, *rows, **so)  # type: ignore
    for step in range(STEADY + WINDOW + 60):
        some = np.arange(7) if step < STEADY + WINDOW else rng.permutation(7)[: rng.integers(1, 8)]
        rows = values(rng, len(some))
        if step == STEADY + WINDOW + 20:
            rows[0] = 3e38  # overflows in the engine
        if step == STEADY + WINDOW + 21:
            rows[0, 0], rows[-1, 1] = np.inf, np.nan
        numbers[some] += 1
        if step == STEADY + WINDOW + 30:
            numbers[some[0]] += 1000  # a gap in time
        times, tags = numbers[some].tolist(), list(range(tag, tag + len(some)))
        tag += len(some)
        same(*(one.push_many(rows.copy(), some.tolist(), times, tags) for one in (short, long)))
        if step == STEADY + WINDOW + 40:
            for name, one in (("short", short), ("long", long)):
                one.save(tmp_path / name)
            assert (tmp_path / "short").read_bytes() == (tmp_path / "long").read_bytes()
            short.load(tmp_path / "long")
    assert sum(taken) > 60 or short.scorer.has_onset, "rows took the short way"
    same(short.drain(), long.drain())


@pytest.mark.parametrize("explain", ["none", "top"])
@pytest.mark.parametrize("delay", [0, 5])
def test_any_number_of_rows_of_a_series_may_come_together(
    models: Path, tmp_path: Path, delay: int, explain: Any
) -> None:
    options = ScoreOptions(align="last", threshold=1.0, delay=delay, explain=explain)
    engine = copy(open_engine(models / "model.onnx"))
    assert engine.metadata is not None
    engine.metadata = replace(engine.metadata, spacing=Spacing(step=1.0, clock="number"), fill="forward")
    short, long = streams(engine, options, batch_size=32)
    rng, numbers = np.random.default_rng(delay), np.zeros(3, np.int64)
    taken: list[int] = []
    assert short.core.single is not None
    step = short.core.single.step
    short.core.single.step = lambda series, rows: taken.append(len(series)) or step(series, rows)  # type: ignore
    counts = np.concatenate([[3 * (STEADY + WINDOW)], *(rng.permutation(40) + 1 for _ in range(2))]).tolist()
    for turn, count in enumerate(counts):
        rows = values(rng, count)
        series = np.arange(count) % 3 if turn % 3 == 0 else np.sort(rng.integers(0, turn % 3, count))
        if turn == 40:
            rows[count // 2] = 3e38  # overflows in the engine
        if turn == 42:
            rows[count // 3, 0], rows[-1, 1] = np.inf, np.nan
        times = np.empty(count, np.int64)
        for i, own in enumerate(series):
            numbers[own] += 1 + 1000 * (turn == 44 and i == count // 2)  # a gap in time
            times[i] = numbers[own]
        same(*(one.push_many(rows.copy(), series.tolist(), times.tolist()) for one in (short, long)))
        if turn % 7 == 6:
            for name, one in (("short", short), ("long", long)):
                one.save(tmp_path / name)
            assert (tmp_path / "short").read_bytes() == (tmp_path / "long").read_bytes()
            short.load(tmp_path / "long")
    assert max(taken, default=0) == 32 or short.scorer.has_onset, "rows took the short way"
    same(short.drain(), long.drain())


def test_an_engine_that_fails_is_said_with_the_rows(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short, _ = streams(models / "model.onnx", ScoreOptions(align="last", threshold=1.0))
    rng = np.random.default_rng(0)
    for _ in range(STEADY + WINDOW):
        short.push_many(values(rng, 1))

    def fail(_: object) -> None:
        raise EngineError("out of order")

    monkeypatch.setattr(short.core, "score", fail)
    with pytest.raises(EngineError, match=rf"rows {STEADY + 1} to {STEADY + WINDOW}: out of order"):
        short.push_many(values(rng, 1))
