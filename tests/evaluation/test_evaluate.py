"""`at-infer evaluate`: labels joined to scores, thresholds by protocol, and what stands beside each figure."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from at_infer.config import ScoreConfig
from at_infer.evaluation.evaluate import CONTESTANTS, ROC_RATIOS
from at_infer.models.statistics import Threshold, ValidationRecord
from at_infer.thresholds.quantiles import QUANTILE_LEVELS, quantiles
from at_infer.thresholds.ratio import ratio_threshold
from tests.conftest import Answer
from tests.exported import metadata
from tests.metric_oracles import adjusted, f1
from tests.tiny_onnx import write_model

RunCli = Callable[..., Answer]
ROWS = 600
VALIDATION = np.random.default_rng(5).normal(size=4000).astype(np.float32)


@pytest.fixture
def truth() -> pl.DataFrame:
    """Three series of 200 rows; the last has no anomaly."""
    label = np.zeros(ROWS, np.uint8)
    for first, end in ((20, 50), (120, 125), (230, 290), (399, 400)):
        label[first:end] = 1
    return pl.DataFrame(
        {"host": np.repeat(["a", "b", "c"], 200), "ts": np.tile(np.arange(200), 3), "value": 1.0, "label": label}
    )


@pytest.fixture
def scores(truth: pl.DataFrame) -> pl.DataFrame:
    score = np.random.default_rng(0).normal(size=ROWS) + 1.5 * truth["label"].to_numpy()
    return truth.select("host", "ts", score=pl.Series(score, dtype=pl.Float32))


def recorded(**changes: Any) -> dict[str, str]:
    """Key-value metadata as `at-infer score` writes them."""
    kept = {"levels": list(QUANTILE_LEVELS), "quantiles": quantiles(VALIDATION), "ratio": 0.05, "rows": 4000}
    facts = {"threshold": ratio_threshold(VALIDATION, 0.05), "validation": kept, "score": ScoreConfig().to_dict()}
    return {f"at_infer.{name}": json.dumps(value) for name, value in (facts | changes).items()}


@pytest.fixture
def evaluate(tmp_path: Path, run_cli: RunCli, truth: pl.DataFrame, scores: pl.DataFrame) -> Callable[..., Any]:
    """Run the command on scores and labels in two files; its JSON, or its error line."""

    def run(
        *options: object,
        own: pl.DataFrame | None = None,
        labels: pl.DataFrame | None = None,
        properties: dict[str, str] | None = None,
    ) -> Any:
        paths = tmp_path / "scores.parquet", tmp_path / "test.parquet"
        (scores if own is None else own).write_parquet(
            paths[0], metadata=recorded() if properties is None else properties
        )
        (truth if labels is None else labels).write_parquet(paths[1])
        answer = run_cli("evaluate", paths[0], "--labels", paths[1], "--json", *options)
        if answer.code:
            assert answer.code == 1, answer.err
            assert answer.err.count("\n") == 1, answer.err
            return answer.err
        return json.loads(answer.out)

    return run


# Figures


def test_figures_are_those_of_scikit_learn(evaluate: Any, truth: pl.DataFrame, scores: pl.DataFrame) -> None:
    found = evaluate()
    label, score = truth["label"].to_numpy() > 0, scores["score"].to_numpy()
    alarms = score > np.float32(ratio_threshold(VALIDATION, 0.05))
    whole = {metric: of["score"] for metric, of in found["concatenated"].items()}
    assert whole["auc_roc"] == pytest.approx(roc_auc_score(label, score))
    assert whole["auc_pr"] == pytest.approx(average_precision_score(label, score))
    assert whole["f1"] == pytest.approx(f1_score(label, alarms))
    assert whole["pa_f1"] == pytest.approx(f1(adjusted(alarms, label), label))
    by_series = [average_precision_score(label[i : i + 200], score[i : i + 200]) for i in (0, 200)]
    assert found["per_series_mean"]["auc_pr"]["score"] == pytest.approx(np.mean(by_series))
    assert [one["name"] for one in found["series"]] == ["a", "b"]
    assert found["one_kind_series"] == 1
    assert (found["rows"], found["anomalous_rows"], found["segments"]) == (600, 96, 4)


@pytest.mark.slow
def test_beside_every_figure_stand_random_every_nth_and_constant(evaluate: Any, truth: pl.DataFrame) -> None:
    found = evaluate("--ratio", 0.02)
    for compared in (found["concatenated"], found["per_series_mean"], *(one["figures"] for one in found["series"])):
        assert all(list(of) == list(CONTESTANTS) for of in compared.values())
    label = truth["label"].to_numpy() > 0
    every = np.zeros(ROWS, np.bool_)
    every[::50] = True
    assert found["every_nth"] == 50
    assert found["concatenated"]["f1"]["every_nth"] == pytest.approx(f1(every, label))
    assert found["concatenated"]["pa_f1"]["every_nth"] == pytest.approx(f1(adjusted(every, label), label))
    assert found["concatenated"]["recall"]["constant"] == 1
    assert found["concatenated"]["auc_pr"]["constant"] == pytest.approx(label.mean())
    assert evaluate("--ratio", 0.02) == found
    assert evaluate("--ratio", 0.02, "--seed", 1)["concatenated"]["auc_pr"]["random"] != pytest.approx(
        found["concatenated"]["auc_pr"]["random"]
    )


def test_a_single_series_is_its_own_mean(evaluate: Any, truth: pl.DataFrame, scores: pl.DataFrame) -> None:
    one = scores.head(200).select("ts", "score")
    found = evaluate(own=one, labels=truth.head(200))
    assert found["per_series_mean"] == found["concatenated"]
    assert found["joined_on"] == "ts"


def test_constant_scores_are_worth_what_a_constant_is(evaluate: Any, scores: pl.DataFrame) -> None:
    found = evaluate("--delta", 0.5, own=scores.with_columns(score=pl.lit(1.0, pl.Float32)))
    for of in found["concatenated"].values():
        assert of["score"] == of["constant"]


def test_a_score_that_never_alarms_stands_beside_a_single_alarm(evaluate: Any) -> None:
    found = evaluate("--delta", 1e9)
    assert found["every_nth"] == ROWS
    assert found["concatenated"]["f1"]["score"] == 0
    assert found["concatenated"]["detection_delay_rows"]["score"] is None


def test_rows_without_a_score_are_left_out_and_counted(
    evaluate: Any, truth: pl.DataFrame, scores: pl.DataFrame
) -> None:
    missing = pl.when(pl.col("ts") < 40).then(None).otherwise(pl.col("score"))
    found = evaluate(own=scores.with_columns(score=missing))
    keep = truth["ts"].to_numpy() >= 40
    expected = average_precision_score(truth["label"].to_numpy()[keep], scores["score"].to_numpy()[keep])
    assert (found["rows"], found["unscored_rows"]) == (480, 120)
    assert found["concatenated"]["auc_pr"]["score"] == pytest.approx(expected)
    assert [one["rows"] for one in found["series"]] == [160, 160]


@pytest.mark.slow
def test_false_alarms_per_day_need_to_know_the_day(evaluate: Any, truth: pl.DataFrame, scores: pl.DataFrame) -> None:
    found = evaluate()["concatenated"]
    assert set(found["false_alarms_per_day"].values()) == {None}
    runs = found["false_alarms"]["score"]
    assert evaluate("--rows-per-day", 60)["concatenated"]["false_alarms_per_day"]["score"] == pytest.approx(runs / 10)
    assert evaluate("--interval", 1440)["concatenated"]["false_alarms_per_day"]["score"] == pytest.approx(runs / 10)
    hours = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=i % 200) for i in range(ROWS)]
    dated = evaluate(own=scores.with_columns(ts=pl.Series(hours)), labels=truth.with_columns(ts=pl.Series(hours)))
    assert dated["rows_per_day"] == pytest.approx(24)
    assert dated["concatenated"]["false_alarms_per_day"]["score"] == pytest.approx(runs / 25)


# Protocols


@pytest.mark.slow
def test_the_ratio_takes_its_threshold_from_validation_scores_alone(
    evaluate: Any, scores: pl.DataFrame, write_parquet: Any
) -> None:
    for ratio in (0.01, 0.1):
        found = evaluate("--ratio", ratio)["protocol"]
        assert found["threshold"] == pytest.approx(ratio_threshold(VALIDATION, ratio), rel=0.02)
        assert not found["leaking"]
        louder = evaluate("--ratio", ratio, own=scores.with_columns(pl.col("score") * 10))["protocol"]
        assert louder["threshold"] == found["threshold"]
        other = write_parquet("validation.parquet", score=VALIDATION * 2)
        given = evaluate("--ratio", ratio, "--validation", other)["protocol"]
        assert given["threshold"] == ratio_threshold(VALIDATION * 2, ratio)


def test_the_roc_goes_over_the_papers_ratios(evaluate: Any, truth: pl.DataFrame, scores: pl.DataFrame) -> None:
    found = evaluate()["roc"]
    assert [point["ratio"] for point in found] == list(ROC_RATIOS) == [0.005, 0.01, 0.015, 0.02, 0.1, 0.2, 0.3]
    label, score = truth["label"].to_numpy() > 0, scores["score"].to_numpy()
    for point in found:
        alarms = score > np.float32(point["threshold"])
        assert point["score"]["pa_tpr"] == pytest.approx(adjusted(alarms, label)[label].mean())
        assert point["score"]["fpr"] == pytest.approx(alarms[~label].mean())
        assert point["score"]["f1"] == pytest.approx(f1(alarms, label))
        assert point["random"]["fpr"] == pytest.approx(point["ratio"], abs=0.05)


@pytest.mark.slow
def test_the_published_variant_leaks_and_says_so(
    evaluate: Any, scores: pl.DataFrame, write_parquet: Any, run_cli: RunCli, tmp_path: Path
) -> None:
    train = write_parquet("train.parquet", score=VALIDATION)
    options = ("--protocol", "published-leaking", "--train-scores", train, "--ratio", 0.03)
    found = evaluate(*options)["protocol"]
    together = np.concatenate([VALIDATION, scores["score"].to_numpy()])
    assert found["threshold"] == pytest.approx(np.percentile(together, 97))
    assert found["leaking"]
    assert "LEAKING" in found["how"]
    text = run_cli("evaluate", tmp_path / "scores.parquet", "--labels", tmp_path / "test.parquet", *options).out
    assert "LEAKING: the threshold has seen the test scores" in text
    assert "needs --train-scores, and --ratio instead of --delta" in evaluate("--protocol", "published-leaking")


@pytest.mark.slow
def test_a_model_gives_what_the_file_of_scores_does_not_know(evaluate: Any, tmp_path: Path) -> None:
    known = metadata(
        score=ScoreConfig(mode="reconstruction"),
        quantile_levels=list(QUANTILE_LEVELS),
        validation=[
            ValidationRecord(
                threshold=Threshold(value=1.25, method="ratio", ratio=0.1, validation_rows=4000),
                quantiles={"reconstruction": quantiles(VALIDATION)},
            )
        ],
    )
    model = write_model(tmp_path / "model.onnx", known)
    found = evaluate("--engine", model, properties={})
    assert found["protocol"]["threshold"] == 1.25
    assert found["every_nth"] == 10
    found = evaluate("--engine", model, "--ratio", 0.3, properties={})
    assert found["protocol"]["threshold"] == pytest.approx(ratio_threshold(VALIDATION, 0.3), rel=0.02)
    smoothed = recorded(score=ScoreConfig(mode="reconstruction", smooth=5).to_dict())
    assert "its validation scores belong to --smooth 1" in evaluate(
        "--engine", model, "--ratio", 0.3, properties=smoothed
    )
    foreign = write_model(tmp_path / "foreign.onnx", None)
    assert "was not exported by at-infer" in evaluate("--engine", foreign, properties={})


def test_scores_without_a_threshold_say_what_to_pass(evaluate: Any) -> None:
    assert "has no threshold; give a delta" in evaluate(properties={})
    assert "has no validation scores to take r = 0.01 from" in evaluate("--ratio", 0.01, properties={})
    found = evaluate("--delta", 1.5, properties={})
    assert found["protocol"]["ratio"] is None
    assert found["roc"] == []
    for name, value in (("threshold", "{"), ("time_column", "3"), ("on_bad_time", '"forget"')):
        assert f"metadata are damaged (at_infer.{name}: " in evaluate(properties={f"at_infer.{name}": value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ratio", 0.1, "--delta", 1), "cannot be combined"),
        (("--ratio", 5), "0.01 means one percent"),
        (("--delta", "nan"), "is not a finite number"),
        (("--train-scores", "x"), "only protocol published-leaking"),
        (("--markdown",), "--json and --markdown cannot be combined"),
        (("--rows-per-day", 0), "is not a positive number"),
        (("--rows-per-day", 5, "--interval", 5), "cannot be combined"),
        (
            ("--label-column", "nope"),
            "column 'nope' is missing; the file has host, ts, value, label; name it with",
        ),
        (("--score-column", "host"), "a score is a number"),
        (("--label-column", "host"), "column 'host' is String; labels are 1"),
        (("--time-column", "nope"), "column 'nope' is missing"),
    ],
)
def test_what_cannot_be_is_one_line(evaluate: Any, options: tuple[object, ...], message: str) -> None:
    assert message in evaluate(*options)


# Labels


def test_labels_may_be_in_the_file_of_scores(
    run_cli: RunCli, scores: pl.DataFrame, truth: pl.DataFrame, evaluate: Any, tmp_path: Path
) -> None:
    apart = evaluate()
    assert apart["joined_on"] == "host and ts"
    together = tmp_path / "both.parquet"
    scores.with_columns(truth["label"]).write_parquet(together, metadata=recorded())
    answer = run_cli("evaluate", together, "--json")
    assert json.loads(answer.out)["concatenated"] == apart["concatenated"]


@pytest.mark.parametrize("kind", [pl.Boolean, pl.Int64, pl.Float32])
def test_labels_are_zero_or_one_in_any_type(evaluate: Any, truth: pl.DataFrame, kind: Any) -> None:
    assert evaluate(labels=truth.with_columns(pl.col("label").cast(kind)))["anomalous_rows"] == 96


@pytest.mark.parametrize(("value", "shown"), [(2, "2"), (None, "None"), (-1, "-1")])
def test_other_labels_are_refused_with_their_row(evaluate: Any, truth: pl.DataFrame, value: Any, shown: str) -> None:
    at = pl.when(pl.int_range(pl.len()) == 7).then(value).otherwise(pl.col("label"))
    assert f"column 'label' is {shown} in row 7; labels are 1" in evaluate(labels=truth.with_columns(label=at))


@pytest.mark.parametrize(("value", "kind"), [(0, "normal"), (1, "anomalous")])
def test_labels_of_one_kind_are_refused(evaluate: Any, truth: pl.DataFrame, value: int, kind: str) -> None:
    assert f"every scored row is {kind}" in evaluate(labels=truth.with_columns(label=pl.lit(value)))


def test_files_of_different_length_are_refused(evaluate: Any, truth: pl.DataFrame) -> None:
    assert "has 599 rows" in evaluate(labels=truth.head(599))
    assert "has no rows" in evaluate(labels=truth.head(0))


@pytest.mark.slow
def test_rows_in_another_order_are_refused_unless_joined_by_row(evaluate: Any, truth: pl.DataFrame) -> None:
    swapped = truth[[*range(10), 11, 10, *range(12, ROWS)]]
    message = evaluate(labels=swapped)
    assert "row 10 has ts 11" in message
    assert "has 10; sort both files in the same way" in message
    assert "row 10 has ts 11" in evaluate("--join", "time", labels=swapped)
    assert evaluate("--join", "row", labels=swapped)["joined_on"] == "row number"
    renamed = truth.with_columns(host=pl.col("host").replace("b", "x"))
    assert "row 200 has host x" in evaluate("--join", "series+time", labels=renamed)
    assert evaluate("--join", "time", labels=renamed)["joined_on"] == "ts"


def test_keys_that_a_join_needs_must_be_there(evaluate: Any, truth: pl.DataFrame, scores: pl.DataFrame) -> None:
    assert "column 'ts' is missing" in evaluate("--join", "time", labels=truth.drop("ts"))
    assert "no column identifies the series and time" in evaluate("--join", "series+time", own=scores.select("score"))
    assert evaluate(labels=truth.drop("ts", "host"))["joined_on"] == "row number"
    text = truth.with_columns(pl.col("ts").cast(pl.String))
    assert "column 'ts' is String but in" in evaluate(labels=text)


def test_scores_numbered_by_row_must_be_in_order(evaluate: Any, scores: pl.DataFrame) -> None:
    numbered = scores.select(row=pl.int_range(ROWS), score="score")
    assert evaluate(own=numbered)["joined_on"] == "row number"
    assert "row 0 has row number 599" in evaluate(own=numbered.reverse())


def test_scores_whose_time_goes_back_are_refused(evaluate: Any, scores: pl.DataFrame, truth: pl.DataFrame) -> None:
    order = [*range(10), 11, 10, *range(12, ROWS)]
    assert "ts 10 comes after 11" in evaluate(own=scores[order], labels=truth[order])


def test_scores_must_be_there_and_finite(evaluate: Any, scores: pl.DataFrame) -> None:
    none = scores.with_columns(score=pl.lit(None, pl.Float32))
    assert "no row has a score" in evaluate("--delta", 1, own=none)
    assert "is infinite in row 0" in evaluate(own=scores.with_columns(score=pl.lit(np.inf)))


def test_series_may_be_numbered(evaluate: Any, scores: pl.DataFrame, truth: pl.DataFrame) -> None:
    number = pl.col("host").replace_strict({"a": 3, "b": 1, "c": 2})
    found = evaluate(own=scores.with_columns(host=number), labels=truth.with_columns(host=number))
    assert [one["name"] for one in found["series"]] == ["3", "1"]
    assert found["joined_on"] == "host and ts"


def test_columns_of_others_in_front_of_the_score_are_no_keys(evaluate: Any, scores: pl.DataFrame) -> None:
    noise = pl.Series(np.random.default_rng(2).normal(size=ROWS))
    found = evaluate(own=scores.select("host", "ts", "score").insert_column(0, noise.alias("value")))
    assert found["joined_on"] == "row number"
    named = ("--series-column", "host", "--time-column", "ts")
    found = evaluate(*named, own=scores.insert_column(0, noise.alias("value")))
    assert found["joined_on"] == "host and ts"


def test_a_series_per_file_is_a_series(evaluate: Any, scores: pl.DataFrame) -> None:
    per_file = scores.select(file="host", ts="ts", score="score")
    assert [one["name"] for one in evaluate(own=per_file)["series"]] == ["a", "b"]


# What is shown


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.slow
def test_the_table_labels_point_adjustment_and_puts_chance_beside_it(
    evaluate: Any, run_cli: RunCli, tmp_path: Path, markdown: bool
) -> None:
    evaluate()
    options = ["--markdown"] if markdown else []
    answer = run_cli("evaluate", tmp_path / "scores.parquet", "--labels", tmp_path / "test.parquet", *options)
    assert answer.code == 0
    assert answer.err == ""
    for words in ("buffers 0 to 100, 250 thresholds", "VUS-PR", "affiliation recall", "PA%K F1", "every 20th"):
        assert words in answer.out
    for line in answer.out.splitlines():
        if "F1" in line and line.lower().lstrip("| ").startswith("point-adjusted f1"):
            assert len(line.replace("|", " ").split()) == 6  # two words and four figures
    assert ("| --- |" in answer.out) == markdown


def test_a_point_adjusted_f1_below_chance_is_called_no_evidence(
    evaluate: Any, run_cli: RunCli, tmp_path: Path, scores: pl.DataFrame
) -> None:
    noise = pl.Series(np.random.default_rng(1).normal(size=ROWS), dtype=pl.Float32)
    evaluate("--delta", 9, own=scores.with_columns(score=noise))
    answer = run_cli("evaluate", tmp_path / "scores.parquet", "--labels", tmp_path / "test.parquet", "--delta", 9)
    assert "is no evidence: " in answer.out
