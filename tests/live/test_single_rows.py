"""Single live rows of series that are under way take a short way through the scoring core: the results are the same."""

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
from tests.checkpoints import FEATURES, SCALER, WINDOW

pytestmark = pytest.mark.slow

STEADY = 145
"""Rows after which a series takes the short way, and some more."""


def streams(model: Path | Engine, options: ScoreOptions, **more: Any) -> Iterator[StreamScorer]:
    """Two of them; the second one always takes the long way."""
    for long in (False, True):
        stream = StreamScorer(model, options, EngineOptions(batch_size=4), max_series=9, **more)
        assert stream.core.single is not None
        if long:
            stream.core.single = None
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
    short.core.single.score = lambda series, *rows: taken.append(len(series)) or score(series, *rows)  # type: ignore
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
