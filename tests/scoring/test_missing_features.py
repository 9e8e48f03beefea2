"""Features that are missing for a while: left out of the score, which goes on by the others."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import EngineOptions, ScoreOptions, StreamScorer
from at_infer.cluster.run import score_on_workers
from at_infer.config import ScoreConfig
from at_infer.engines import open_engine
from at_infer.errors import ConfigError, DataError
from at_infer.models.fusion import Fusion
from at_infer.models.statistics import ViewScale, ViewStatistics
from at_infer.scoring.missing import PATIENCE, SETTLE, TOLD_AFTER, MissingFeatures
from tests.in_process import Opener, read_splits
from tests.options import by_kind
from tests.scored import COLUMNS, Edit, Score, rows, values

ONE = EngineOptions(batch_size=1)
MASK = {"on_missing_feature": "mask", "batch_size": 1}


def without(frame: pl.DataFrame, column: str, first: int, end: int) -> pl.DataFrame:
    gone = pl.int_range(pl.len()).is_between(first, end - 1)
    return frame.with_columns(pl.when(gone).then(None).otherwise(pl.col(column)).alias(column))


def seen(fill: Any, empty: list[bool], pieces: int = 1) -> list[int]:
    """In which rows the first of two features is left out."""
    data = np.zeros((len(empty), 2), np.float32)
    data[np.array(empty), 0] = np.nan
    missing = MissingFeatures(fill, 2)
    masks = [missing.mask(part) for part in np.array_split(data, pieces)]
    return np.flatnonzero(np.concatenate(masks)[:, 0]).tolist()


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_a_feature_is_missing_at_once_or_after_a_while_and_settles_as_long_as_it_was_gone(pieces: int) -> None:
    empty = [5 <= i < 8 or 100 <= i < 300 for i in range(600)]
    assert seen("error", empty, pieces) == [*range(5, 11), *range(100, 300 + SETTLE)]
    assert seen("forward", empty, pieces) == list(range(100 + PATIENCE, 300 + SETTLE))


def test_features_that_all_come_back_at_once_count_at_once() -> None:
    data = np.zeros((20, 2), np.float32)
    data[5:10] = np.nan
    mask = MissingFeatures("error", 2).mask(data)
    assert mask[5:10].all()
    assert not mask[10:].any()


def cut(scale: ViewScale, keep: list[int]) -> ViewScale:
    return replace(
        scale,
        centre={name: [of[j] for j in keep] for name, of in scale.centre.items()},
        spread={name: [of[j] for j in keep] for name, of in scale.spread.items()},
    )


@pytest.mark.parametrize("causal", [False, True])
def test_a_feature_that_is_always_missing_is_as_if_the_model_did_not_know_it(models: Path, causal: bool) -> None:
    with open_engine(models / "model.onnx") as engine:
        assert engine.metadata is not None
        assert engine.metadata.normal is not None
        known = engine.metadata.normal.views
    assert known is not None
    known = replace(known, patterns="", live_patterns="")  # of all features together: its mean stands for a missing one
    keep = [0, 2]
    fewer = ViewStatistics(
        next=[known.next[j] for j in keep],
        ahead=[known.ahead[j] for j in keep],
        whole=cut(known.whole, keep),
        live=cut(known.live, keep),
        network_weight=known.network_weight,
        widths=known.widths,
        part_floor=known.part_floor,
    )
    parts = np.random.default_rng(0).normal(size=(3, 700, 3)).astype(np.float32)
    mask = np.tile(np.array([0, 1, 0], np.float32), (700, 1))
    all_, some = (
        Fusion(known, ScoreConfig(), causal=causal, mask=True),
        Fusion(fewer, ScoreConfig(), causal=causal),
    )
    found = [all_.add(np.concatenate([*parts, mask], axis=1)), all_.end()]
    expected = [some.add(np.concatenate(parts[:, :, keep], axis=1)), some.end()]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"align": "last"}, {"align": "last", "delay": 5}, {"explain": "all"}, {"mode": "addition"}], ids=str
)
@pytest.mark.slow
def test_nothing_changes_where_nothing_is_missing(score: Score, models: Path, options: dict[str, Any]) -> None:
    frame = rows(300)
    options |= {"engine": models / "model.associations.onnx"}
    found = score(frame, **options, **MASK)
    assert found.frame.drop("missing_features").equals(score(frame, batch_size=1, **options).frame)
    assert found.summary.missing_features == {}


@pytest.mark.parametrize("mode", [None, "reconstruction", "paper", "addition"])
@pytest.mark.slow
def test_the_others_go_on_being_scored_and_the_dead_one_is_never_to_blame(
    score: Score, two_layer_models: Path, mode: Any
) -> None:
    frame = without(rows(600), "f01", 200, 400)
    engine = two_layer_models / "model.associations.onnx"
    with pytest.raises(DataError, match="column 'f01' has no value in row 200"):
        score(frame, mode=mode, engine=engine)
    found = score(frame, mode=mode, engine=engine, explain="all", **MASK)
    assert found.unscored == []
    assert found.summary.missing_features == {"f01": 200 + SETTLE}
    gone = found.frame[200 : 400 + SETTLE]
    assert "f01" not in gone["top_feature"].to_list()
    assert (gone["error_f01"] == 0).all()
    usual = score(rows(600), mode=mode, engine=engine).frame["score"].median()
    assert gone["score"].median() == pytest.approx(usual, rel=0.15)


def test_a_sensor_that_dies_and_returns_raises_no_alarm_by_itself(score: Score) -> None:
    whole = score(rows(900), threshold=2.0)
    found = score(without(rows(900), "f01", 300, 600), threshold=2.0, **MASK)
    assert found.frame["score"].max() < 1.5 * whole.frame["score"].max()


def test_an_absent_column_is_missing_in_all_rows(score: Score, tmp_path: Path) -> None:
    frame = rows(200)
    found = score(frame.drop("f01"), **MASK)
    assert found.summary.missing_features == {"f01": 200}
    assert found.frame.equals(score(frame.with_columns(f01=pl.lit(None, pl.Float32)), **MASK).frame)
    with pytest.raises(DataError, match="column 'f00' is missing"):
        score(frame.select(other="f00"), **MASK)


def test_an_engine_that_does_not_tell_features_apart_is_refused(score: Score, plain_edited: Edit) -> None:
    with pytest.raises(ConfigError, match=r"on_missing_feature: .* has only score, which does not tell features apart"):
        score(rows(60), engine=plain_edited(outputs=["score"]), **MASK)


@pytest.mark.parametrize("align", ["window", "last"])
@pytest.mark.slow
def test_splits_have_the_same_scores(score: Score, models: Path, tmp_path: Path, align: Any) -> None:
    frame = without(without(rows(1300), "f01", 300, 700), "f02", 500, 520)
    plain = score(frame, align=align, **MASK)
    apart = score_on_workers(
        tmp_path / "given.parquet",
        models / "model.onnx",
        tmp_path / "apart",
        open_workers=Opener(1),
        split_rows=320,
        **by_kind(align=align, **MASK),
    )
    assert read_splits(tmp_path / "apart").equals(plain.frame)
    assert apart.missing_features == plain.summary.missing_features == {"f01": 400 + SETTLE, "f02": 40}


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.slow
def test_a_stream_has_the_scores_of_a_file_and_says_when_a_feature_goes_and_comes(
    score: Score, models: Path, tmp_path: Path, delay: int
) -> None:
    frame = without(without(rows(500), "f01", 100, 250), "f02", 300, 305)
    expected = score(frame, align="last", delay=delay, **MASK).score
    data, state = values(frame), tmp_path / "state"
    found: list[float] = []
    changes = []
    for first, end in pairwise([0, 50, 103, 170, 260, 290, 340, 500]):
        options = ScoreOptions(on_missing_feature="mask")
        with StreamScorer(models / "model.onnx", options, ONE, delay=delay) as stream:
            if first:
                stream.load(state)
            pushed = stream.push_many(data[first:end].copy())
            changes += [change._replace(row=first + change.row) for change in pushed.features]
            assert not pushed.refused
            found += [s for s, tag in zip(pushed.score, pushed.tags, strict=True) if tag is not None]
            stream.save(state)
            if end == 500:
                found += stream.drain().score.tolist()
    np.testing.assert_array_equal(np.array(found, np.float32), expected)
    told = [(change.row, change.feature, change.is_back, change.rows) for change in changes]
    assert told == [(100 + TOLD_AFTER - 1, "f01", False, TOLD_AFTER), (250, "f01", True, 150)]
    with pytest.raises(ConfigError, match="belongs to another model"):
        StreamScorer(models / "model.onnx", engine_options=ONE, delay=delay).load(state)


def test_a_stream_refuses_a_row_without_any_value(models: Path) -> None:
    with StreamScorer(models / "model.onnx", ScoreOptions(on_missing_feature="mask")) as stream:
        assert stream.push({"f00": 1.0}).score is None
        with pytest.raises(DataError, match="row: column 'f00' has no value"):
            stream.push([None] * len(COLUMNS))


def test_the_command_line_tells_what_was_missing(run_cli: Callable[..., Any], models: Path, tmp_path: Path) -> None:
    without(rows(200), "f01", 50, 60).drop("f02").write_parquet(tmp_path / "in.parquet")
    words = ["score", tmp_path / "in.parquet", "--engine", models / "model.onnx", "-o", tmp_path / "out.parquet"]
    answer = run_cli(*words, "--on-missing-feature", "mask")
    assert "missing and masked in the score: f01 (20 rows), f02 (200 rows)" in answer.out
