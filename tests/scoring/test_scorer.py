"""Scorer and its options: which score, which threshold, what is done with bad values."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import ScoreOptions, Scorer, open_engine
from at_infer.errors import ConfigError, DataError
from at_infer.models.criterion import ERROR_FLOOR
from at_infer.thresholds.ratio import quantile_threshold
from tests.checkpoints import PLAIN, WINDOW, checkpoint
from tests.conftest import WriteParquet
from tests.scored import COLUMNS, Edit, Score, Scored, by_hand, rows, values, windows

# Scores and thresholds


@pytest.mark.slow
def test_the_threshold_is_the_models_or_the_one_asked_for(plain_score: Score, plain_edited: Edit) -> None:
    frame, source = rows(2000), checkpoint(score=PLAIN)
    levels, record = source.quantile_levels, source.validation_of()
    of_mode = record.quantiles
    own = plain_score(frame)
    assert own.summary.threshold == record.threshold.value
    assert 0 < own.summary.anomalies < 400
    given = plain_score(frame, threshold=0.5)
    assert given.frame["is_anomaly"].to_list() == (own.score > 0.5).tolist()
    ratio = plain_score(frame, ratio=0.25).summary
    assert ratio.threshold == quantile_threshold(levels, of_mode["reconstruction"], 0.25)
    assert ratio.anomalies / 2000 == pytest.approx(0.25, abs=0.05)
    other = plain_score(frame, mode="paper").summary
    assert other.threshold == quantile_threshold(levels, of_mode["paper"], 0.05)
    assert plain_score(frame, mode="paper", ratio=0.5).summary.threshold < other.threshold
    with pytest.raises(ConfigError, match="do not form two clusters"):
        plain_score(frame, threshold="auto")
    two = [1e-6] * 200 + [10.0] * (len(levels) - 200)
    clusters = plain_edited(validation=[record.to_dict() | {"quantiles": {"reconstruction": two}}])
    assert 1e-6 < plain_score(frame, engine=clusters, threshold="auto").summary.threshold < 10


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), 1e300, "0.5", "none", np.float32(0.5)])
def test_a_threshold_that_is_no_number_is_refused(threshold: Any) -> None:
    with pytest.raises(ConfigError, match="finite number"):
        ScoreOptions(threshold=threshold)


def test_options_that_exclude_each_other_are_refused(score: Score) -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        ScoreOptions(threshold=1.0, ratio=0.1)
    with pytest.raises(ConfigError, match="use skip instead of pad"):
        ScoreOptions(align="last", short_series="pad")
    for name in ("align", "short_series", "on_bad_rows", "explain"):
        with pytest.raises(ConfigError, match=f"{name}: 'x' is not one of"):
            ScoreOptions(**{name: "x"})
    for given in ({"ratio": 1.5}, {"smooth": 0}, {"batch_size": 0}, {"mode": "x"}, {"temperature": -1.0}):
        with pytest.raises(ConfigError, match=rf"^{next(iter(given))}: "):
            score(rows(60), **given)


@pytest.mark.parametrize("mode", ["reconstruction", "centred", "calibrated", "paper", "discrepancy", "addition"])
@pytest.mark.parametrize("explain", ["none", "all"])
@pytest.mark.slow
def test_both_graphs_give_the_same_scores_in_every_mode(
    plain_score: Score, plain_models: Path, mode: Any, explain: Any
) -> None:
    frame = rows(105)
    fused = plain_score(frame, mode=mode, explain=explain)
    raw = plain_score(frame, mode=mode, explain=explain, engine=plain_models / "model.associations.onnx")
    assert raw.summary.score_mode == mode
    for name in raw.frame.select(pl.selectors.float()).columns:
        np.testing.assert_allclose(raw.frame[name], fused.frame[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_errors_can_be_normalised_when_scoring_and_explain_themselves(plain_score: Score) -> None:
    frame = rows(105)
    with pytest.raises(ConfigError, match="belongs to `normalise_errors` False; with another one give"):
        plain_score(frame, normalise_errors=True)
    for mode in ("reconstruction", "centred"):
        found = plain_score(frame, mode=mode, normalise_errors=True, threshold=1.0, explain="all")
        errors = found.frame.select(pl.selectors.starts_with("error_")).to_numpy()
        np.testing.assert_allclose(found.score, errors.mean(axis=1), rtol=1e-5)
        usual = checkpoint(score=PLAIN).normal
        assert usual is not None
        plain = plain_score(frame, mode=mode, explain="all").frame.select(pl.selectors.starts_with("error_")).to_numpy()
        weights = 1 / (np.array(usual.centred_error if mode == "centred" else usual.error) + ERROR_FLOOR)
        np.testing.assert_allclose(errors, plain * weights, rtol=1e-5)
    assert (
        plain_score(frame, mode="paper", normalise_errors=True).score.tolist()
        == plain_score(frame, mode="paper").score.tolist()
    )


@pytest.mark.slow
def test_a_model_of_an_earlier_version_knows_nothing_usual(plain_score: Score, plain_edited: Edit) -> None:
    frame, earlier = rows(105), plain_edited(normal=None)
    np.testing.assert_array_equal(plain_score(frame, engine=earlier).score, plain_score(frame).score)
    centred = plain_score(frame, engine=earlier, mode="centred", threshold=1.0)
    np.testing.assert_array_equal(centred.score, plain_score(frame, mode="centred").score)
    for given in ({"mode": "calibrated"}, {"normalise_errors": True}):
        with pytest.raises(ConfigError, match="which this model does not have; train and export it again"):
            plain_score(frame, engine=earlier, **given)


def test_an_engine_without_reconstruction_cannot_form_another_error(plain_score: Score, plain_edited: Edit) -> None:
    frame, engine = rows(60), plain_edited(outputs=["score", "error", "discrepancy"])
    np.testing.assert_allclose(
        plain_score(frame, engine=engine, mode="calibrated").score, plain_score(frame, mode="calibrated").score
    )
    with pytest.raises(ConfigError, match="has only score, error, discrepancy, too little for mode centred"):
        plain_score(frame, engine=engine, mode="centred")


def test_a_mode_of_the_other_head_rule_needs_another_export(score: Score) -> None:
    with pytest.raises(ConfigError, match="at-infer export --score-mode published"):
        score(rows(60), mode="published")


def test_the_temperature_counts_in_mode_published_only(plain_score: Score, plain_edited: Edit) -> None:
    frame = rows(60)
    with pytest.raises(ConfigError, match="temperature: mode reconstruction does not use it"):
        plain_score(frame, temperature=5.0)
    engine = plain_edited(score={"mode": "published"}, discrepancy={"head_rule": "published"})
    with pytest.raises(ConfigError, match="the model's belongs to `temperature` 50; with another one give"):
        plain_score(frame, engine=engine, temperature=5.0)
    flat = plain_score(frame, engine=engine, temperature=1e-6, threshold=1.0)
    np.testing.assert_allclose(flat.score * WINDOW, plain_score(frame).score, rtol=1e-3)


@pytest.mark.slow
def test_an_engine_with_its_score_alone_gives_it_but_no_other(
    plain_score: Score, plain_models: Path, plain_edited: Edit
) -> None:
    frame, engine = rows(60), plain_edited(outputs=["score"])
    np.testing.assert_array_equal(
        plain_score(frame, engine=engine, smooth=3, threshold=1.0).score[0], mean_of(plain_score(frame))
    )
    np.testing.assert_array_equal(plain_score(frame, engine=engine).score, plain_score(frame).score)
    with pytest.raises(ConfigError, match="has only score, too little for mode paper"):
        plain_score(frame, engine=engine, mode="paper")
    for explain in ("top", "all"):
        with pytest.raises(ConfigError, match="has no output reconstruction; export it with all outputs"):
            plain_score(frame, engine=engine, explain=explain)


def mean_of(found: Scored) -> np.float32:
    return found.score[:2].astype(np.float64).mean().astype(np.float32)


def test_smoothing_is_the_models_or_the_one_asked_for_and_stays_within_a_series(
    plain_score: Score, plain_edited: Edit, small_parts: None
) -> None:
    frame = rows(100, s=["a"] * 55 + ["b"] * 45)
    plain = plain_score(frame, series_column="s").score

    def mean(width: int) -> np.ndarray:
        return np.concatenate(
            [
                [part[max(0, i - width // 2) : i - width // 2 + width].mean() for i in range(len(part))]
                for part in (plain[:55], plain[55:])
            ]
        )

    smooth = plain_edited(score={"smooth": 5})
    np.testing.assert_allclose(plain_score(frame, engine=smooth, series_column="s").score, mean(5), atol=1e-6)
    found = plain_score(frame, engine=smooth, series_column="s", smooth=50, threshold=1.0)
    np.testing.assert_allclose(found.score, mean(50), atol=1e-6)
    with pytest.raises(
        ConfigError, match="the model's belongs to `smooth` 5; with another one give a number as `threshold`"
    ):
        plain_score(frame, engine=smooth, smooth=1)


def test_smoothing_looks_back_only_if_rows_are_scored_as_the_last(plain_score: Score) -> None:
    frame = rows(40)
    plain = plain_score(frame, align="last").score[WINDOW - 1 :]
    found = plain_score(frame, align="last", smooth=4, threshold=1.0).score[WINDOW - 1 :]
    expected = [plain[max(0, i - 3) : i + 1].mean() for i in range(len(plain))]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_explanations_name_the_feature_with_the_largest_error(plain_score: Score, plain_models: Path) -> None:
    frame = rows(100).with_columns(f01=pl.when(pl.int_range(pl.len()) == 50).then(1e4).otherwise("f01"))
    found = plain_score(frame, explain="all").frame
    assert found.columns == ["row", "score", "is_anomaly", "top_feature", "top_feature_share", "error", *ERRORS]
    errors = found.select(ERRORS).to_numpy()
    np.testing.assert_allclose(errors.mean(axis=1), found["score"], rtol=1e-4)
    assert found["top_feature"].to_list() == [COLUMNS[j] for j in errors.argmax(axis=1)]
    np.testing.assert_allclose(found["top_feature_share"], errors.max(axis=1) / errors.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found["error"], errors.mean(axis=1), rtol=1e-5)
    assert (found["top_feature"][50], found["top_feature_share"][50]) == ("f01", pytest.approx(1, abs=1e-3))
    top = plain_score(frame, explain="top").frame
    assert top.equals(found.drop(ERRORS))
    source = checkpoint(score=PLAIN)
    z = (windows(frame, [0]) - np.float32(source.scaler.mean)) / np.float32(source.scaler.scale)
    squares = np.square(by_hand(plain_models, windows(frame, [0]), "reconstruction") - z)
    np.testing.assert_allclose(errors[:WINDOW], squares[0], atol=1e-5)


ERRORS = [f"error_{name}" for name in COLUMNS]


def test_a_part_without_any_score_is_written_like_the_others(score: Score, small_parts: None) -> None:
    frame = rows(5 * WINDOW).with_columns(
        f00=pl.when(pl.int_range(pl.len()).is_between(WINDOW, 3 * WINDOW - 1)).then(None).otherwise("f00")
    )
    found = score(frame, explain="all", on_bad_rows="null", batch_size=1)
    assert found.unscored == list(range(WINDOW, 3 * WINDOW))
    for name in ("is_anomaly", "top_feature", "top_feature_share", "error", *ERRORS):
        assert found.frame[name].is_null().arg_true().to_list() == found.unscored


# Missing and bad values


GAPS = rows(60).with_columns(
    f00=pl.when(pl.int_range(pl.len()).is_in([0, 1, 30])).then(None).otherwise("f00"),
    f02=pl.when(pl.int_range(pl.len()).is_in([5, 31, 32])).then(float("nan")).otherwise("f02"),
)


@pytest.mark.slow
def test_gaps_are_filled_by_the_policy_of_the_model(score: Score, edited: Edit) -> None:
    mean = dict(zip(COLUMNS, checkpoint().scaler.mean, strict=True))
    known = GAPS.fill_nan(None)
    forward = known.with_columns(pl.col(name).forward_fill().fill_null(mean[name]) for name in COLUMNS)
    by_mean = known.with_columns(pl.col(name).fill_null(mean[name]) for name in COLUMNS)
    for fill, expected in (("forward", forward), ("mean", by_mean)):
        found = score(GAPS, engine=edited(fill=fill))
        np.testing.assert_array_equal(found.score, score(expected).score)
        assert found.summary.bad_windows == 0
    with pytest.raises(DataError, match=r"given\.parquet: column 'f00' has no value in row 0; fix the row, or pass"):
        score(GAPS)


@pytest.mark.slow
def test_forward_does_not_reach_from_one_series_into_the_next(score: Score, edited: Edit, small_parts: None) -> None:
    frame = GAPS.with_columns(s=pl.Series(["a"] * 30 + ["b"] * 30))
    mean = checkpoint().scaler.mean
    clean = frame.with_columns(
        f00=pl.when(pl.int_range(pl.len()).is_in([0, 1, 30])).then(mean[0]).otherwise("f00"),
        f02=pl.col("f02").fill_nan(None).forward_fill(),
    )
    found = score(frame, engine=edited(fill="forward"), series_column="s")
    np.testing.assert_array_equal(found.score, score(clean, series_column="s").score)


def test_a_gap_of_one_column_alone_is_filled_in_the_same_way(score: Score, edited: Edit) -> None:
    empty = rows(60).with_columns(f01=pl.lit(None, pl.Null))
    filled = rows(60).with_columns(f01=pl.lit(checkpoint().scaler.mean[1], pl.Float32))
    np.testing.assert_array_equal(score(empty, engine=edited(fill="forward")).score, score(filled).score)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), 1e300, None, float("nan")])
@pytest.mark.slow
def test_bad_values_are_refused_by_file_row_and_column_or_take_their_window_along(
    plain_score: Score, write_parquet: WriteParquet, tmp_path: Path, value: float | None, small_parts: None
) -> None:
    bad = rows(75).cast(pl.Float64).with_columns(f01=pl.when(pl.int_range(pl.len()) == 52).then(value).otherwise("f01"))
    write_parquet("many/1.parquet", bad[:25])
    second = write_parquet("many/2.parquet", bad[25:])
    with pytest.raises(DataError, match=rf"^{second}: column 'f01' .* in row 27; fix the row, or pass on_bad_rows"):
        plain_score(tmp_path / "many")
    found = plain_score(tmp_path / "many", on_bad_rows="null")
    assert found.unscored == list(range(40, 60))
    assert (found.summary.bad_windows, found.summary.unscored_rows) == (1, 20)
    good = [row for row in range(75) if row not in found.unscored]
    np.testing.assert_array_equal(found.score[good], plain_score(rows(75)).score[good])


def test_overlapping_windows_help_out_around_a_bad_row(score: Score) -> None:
    bad = rows(75).with_columns(f01=pl.when(pl.int_range(pl.len()) == 30).then(None).otherwise("f01"))
    found = score(bad, on_bad_rows="null", stride=5)
    assert found.unscored == list(range(30, 35))  # no window of rows 30 to 34 spares row 30


def test_values_that_the_engine_cannot_stand_are_refused_with_their_rows(score: Score, models: Path) -> None:
    frame = rows(105).with_columns(f00=pl.when(pl.int_range(pl.len()) == 50).then(1e30).otherwise("f00"))
    for engine in ("model.onnx", "model.associations.onnx"):
        with pytest.raises(DataError, match="rows 40 to 59: the engine returned no finite score"):
            score(frame, engine=models / engine)
        found = score(frame, engine=models / engine, on_bad_rows="null", explain="all")
        assert found.unscored == list(range(40, 60))
        assert found.summary.bad_windows == 1


def test_a_short_series_is_refused_skipped_or_padded(plain_score: Score, plain_models: Path) -> None:
    frame = rows(70, s=["a"] * 30 + ["b"] * 7 + ["c"] * 33)
    with pytest.raises(DataError, match="series 'b': has 7 rows, fewer than the model's window of 20"):
        plain_score(frame, series_column="s")
    with pytest.raises(DataError, match="the input: has 7 rows"):
        plain_score(frame[:7])
    skipped = plain_score(frame, series_column="s", short_series="skip")
    assert skipped.unscored == list(range(30, 37))
    padded = plain_score(frame, series_column="s", short_series="pad")
    filled = np.concatenate([np.repeat(values(frame)[30:31], 13, axis=0), values(frame)[30:37]])
    np.testing.assert_allclose(padded.score[30:37], by_hand(plain_models, filled[None])[0, 13:], atol=1e-6)
    assert padded.unscored == []
    assert (padded.summary.short_series, skipped.summary.short_series) == (1, 1)


# In memory


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 3}, {"align": "last"}, {"mode": "paper", "ratio": 0.1}, {"smooth": 5, "threshold": 1.0}],
    ids=str,
)
@pytest.mark.slow
def test_a_scorer_in_memory_gives_what_score_file_writes(
    plain_score: Score, plain_models: Path, options: dict[str, Any]
) -> None:
    frame = rows(205)
    expected = plain_score(frame, **options)
    with Scorer(plain_models / "model.onnx", ScoreOptions(**options)) as scorer:
        found = scorer.score(frame.select(COLUMNS).to_numpy())
        again = scorer.score(values(frame).tolist())
    np.testing.assert_array_equal(found.score, expected.score)
    np.testing.assert_array_equal(found.is_anomaly, expected.frame["is_anomaly"].fill_null(value=False))
    np.testing.assert_array_equal(again.score, found.score)


def test_a_scorer_leaves_the_rows_of_its_caller_alone(models: Path) -> None:
    given = values(rows(60))
    given[3, 1] = np.nan
    before = given.copy()
    with Scorer(models / "model.onnx", ScoreOptions(on_bad_rows="null")) as scorer:
        found = scorer.score(given)
    np.testing.assert_array_equal(given, before)
    assert np.flatnonzero(np.isnan(found.score)).tolist() == list(range(WINDOW))
    assert not found.is_anomaly[:WINDOW].any()


def test_a_scorer_says_what_is_wrong_with_rows(models: Path) -> None:
    with Scorer(models / "model.onnx") as scorer:
        with pytest.raises(DataError, match=r"have shape \[30, 2\], the model takes \(n, 3\)"):
            scorer.score(np.zeros((30, 2)))
        with pytest.raises(DataError, match="the input: has 0 rows"):
            scorer.score(np.zeros((0, 3)))
        with pytest.raises(DataError, match="column 'f00' is infinite, or too large for float32, in row 0"):
            scorer.score(np.full((30, 3), 1e300))
    with Scorer(models / "model.onnx", ScoreOptions(short_series="skip")) as scorer:
        assert scorer.score(np.zeros((0, 3))).score.shape == (0,)
        assert np.isnan(scorer.score(np.zeros((5, 3))).score).all()


def test_an_engine_that_was_given_open_stays_open(score: Score, models: Path) -> None:
    with open_engine(models / "model.onnx") as engine:
        first = score(rows(60), engine=engine)
        assert score(rows(60), engine=engine).frame.equals(first.frame)


def test_a_batch_size_is_looked_for_only_when_there_is_much_to_do(score: Score, monkeypatch: Any) -> None:
    monkeypatch.setattr("at_infer.scoring.batch_size.PROBE_WINDOWS", 20)
    measured: list[int] = []
    speeds = {1: 1.0, 8: 100.0, 16: 102.0, 32: 110.0}

    def speed(_engine: object, _metadata: object, size: int, **_: int) -> float:
        measured.append(size)
        return speeds[size]

    monkeypatch.setattr("at_infer.scoring.batch_size.windows_per_s", speed)
    assert score(rows(100)).summary.batch_size == 8
    assert not measured
    assert score(rows(1000)).summary.batch_size == 32
    assert score(rows(1000), batch_size=5).summary.batch_size == 5
    assert measured == [1, 8, 16, 32]
    speeds[16] = 90.0  # larger ones are not tried then
    assert score(rows(1000)).summary.batch_size == 8
    assert measured[4:] == [1, 8, 16]
