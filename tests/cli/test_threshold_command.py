"""`at-infer threshold`: every method on kept quantiles or on scores, and copies that carry the choice."""

import builtins
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import polars as pl
import pytest

from at_infer.config import ScoreConfig
from at_infer.engines import open_engine
from at_infer.incidents.curve import incident_curve
from at_infer.installed import install_extra
from at_infer.models.metadata import Metadata
from at_infer.models.sidecar import load_sidecar, seal, sidecar_path
from at_infer.models.statistics import IncidentOptions, Threshold, ValidationRecord
from at_infer.scoring.windows import WindowLayout
from at_infer.thresholds.quantiles import QUANTILE_LEVELS, ValidationScores, histogram, quantiles
from at_infer.thresholds.ratio import ratio_threshold
from tests.conftest import Answer
from tests.exported import metadata
from tests.tiny_onnx import write_model

RunCli = Callable[..., Answer]
SCORES = np.random.default_rng(0).lognormal(size=50_000).astype(np.float32)
RECORDED = Threshold(value=9.0, method="ratio", ratio=0.02, validation_rows=len(SCORES))


def known(
    scores: np.ndarray = SCORES, *more: ValidationRecord, threshold: Threshold = RECORDED, **changes: Any
) -> Metadata:
    whole = ValidationRecord(threshold=threshold, quantiles={"reconstruction": quantiles(scores)})
    levels = list(QUANTILE_LEVELS)
    return metadata(
        score=ScoreConfig(mode="reconstruction"), quantile_levels=levels, validation=[whole, *more], **changes
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx", known())


@pytest.fixture
def threshold(run_cli: RunCli, model: Path) -> Callable[..., Any]:
    """Run the command; its JSON with the choices by method, or its error line."""

    def run(*options: object, of: Path = model) -> Any:
        answer = run_cli("threshold", of, "--json", *options)
        if answer.code:
            assert answer.code == 1, answer.err
            assert answer.err.count("\n") == 1, answer.err
            return answer.err
        document = json.loads(answer.out)
        shown = document["window"] or document["last"]
        return document | shown | {choice["method"]: choice for choice in shown["choices"]}

    return run


def test_every_method_tells_what_it_would_flag(threshold: Any) -> None:
    found = threshold("--delta", 4, "--rows-per-day", 1440)
    assert [choice["method"] for choice in found["choices"]] == [
        *("recorded", "ratio", "fixed", "gap", "spot", "incidents")
    ]
    for method in ("recorded", "ratio", "fixed", "spot"):
        choice = found[method]
        share = (choice["threshold"] < SCORES).mean()
        assert choice["share"] == pytest.approx(share, rel=0.1, abs=2e-5)  # quantiles are a percent apart below 99 %
        assert choice["rows"] == round(choice["share"] * len(SCORES))
        assert choice["rows_a_day"] == pytest.approx(choice["share"] * 1440)
    assert found["recorded"]["threshold"] == 9
    assert found["ratio"]["threshold"] == pytest.approx(ratio_threshold(SCORES, 0.01), rel=1e-3)
    assert found["gap"]["threshold"] is None
    assert "do not form two clusters" in found["gap"]["note"]
    assert "for rows scored in this way; train again" in found["incidents"]["note"]


def test_a_rate_of_false_incidents_is_shown_and_written(threshold: Any, tmp_path: Path) -> None:
    path, copy = tmp_path / "scores.parquet", tmp_path / "copy.onnx"
    pl.DataFrame({"score": SCORES}).write_parquet(path)
    words = ("--scores", path, "--false-alarms", "5/week", "--interval", 60)
    shown = threshold(*words)
    assert shown["incidents"]["incidents_a_day"] == pytest.approx(5 / 7, rel=0.1)
    assert shown["recorded"]["incidents_a_day"] > shown["incidents"]["incidents_a_day"]
    threshold(*words, "--method", "incidents", "-o", copy)
    with open_engine(copy) as engine:
        assert engine.metadata is not None
        record = engine.metadata.validation_of()
    assert (record.threshold.value, record.threshold.method) == (shown["incidents"]["threshold"], "incidents")
    again = threshold("--false-alarms", "5/week", "--interval", 60, of=copy)
    assert again["incidents"]["threshold"] == record.threshold.value
    assert "is not a rate" in threshold("--false-alarms", "often")


def test_spot_meets_the_rate_per_day(threshold: Any) -> None:
    others = np.random.default_rng(1).lognormal(size=5_000_000)
    for per_day in (0.5, 5.0):
        found = threshold("--interval", 60, "--false-alarms-per-day", per_day)["spot"]["threshold"]
        assert per_day / 2.5 < 1440 * (others > found).mean() < per_day * 2.5
    assert "needs `rows_per_day`" in threshold()["spot"]["note"]
    assert "is not in the tail" in threshold("--rows-per-day", 10)["spot"]["note"]


def test_scores_of_a_file_give_exact_thresholds(threshold: Any, write_parquet: Any) -> None:
    given = np.append(SCORES * 2, np.nan).astype(np.float32)
    path = write_parquet("validation.parquet", score=given)
    found = threshold("--scores", path, "--ratio", 0.003, "--rows-per-day", 1440)
    assert found["rows"] == len(SCORES)
    assert found["ratio"]["threshold"] == ratio_threshold(SCORES * 2, 0.003)
    assert found["recorded"]["rows"] == int((SCORES * 2 > 9).sum())
    assert found["spot"]["threshold"] == pytest.approx(
        2 * threshold("--rows-per-day", 1440)["spot"]["threshold"], rel=0.1
    )


@pytest.mark.slow
def test_scores_of_another_model_or_mode_are_refused(threshold: Any, tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    frame = pl.DataFrame({"score": SCORES})
    frame.write_parquet(path, metadata={"at_infer.checkpoint_sha256": json.dumps("f" * 64)})
    assert "has scores of another model; score with model.onnx" in threshold("--scores", path)
    other = ScoreConfig(mode="reconstruction", smooth=3).to_dict()
    frame.write_parquet(path, metadata={"at_infer.score": json.dumps(other)})
    assert "another score mode, temperature or smoothing" in threshold("--scores", path)
    frame.write_parquet(path, metadata={"at_infer.score": json.dumps(ScoreConfig(mode="reconstruction").to_dict())})
    assert threshold("--scores", path)["rows"] == len(SCORES)
    frame.head(0).write_parquet(path)
    assert "has no rows" in threshold("--scores", path)


def test_two_clusters_give_a_gap(threshold: Any, tmp_path: Path) -> None:
    two = np.append(SCORES, 1e6 * SCORES[:20_000])
    model = write_model(tmp_path / "two.onnx", known(two))
    found = threshold("--method", "gap-log", of=model)["gap-log"]["threshold"]
    assert SCORES.max() < found < 1e6 * SCORES[:20_000].min()


# Copies


@pytest.mark.parametrize(
    ("options", "method", "ratio"),
    [
        (("--method", "ratio", "--ratio", 0.05), "ratio", 0.05),
        (("--method", "fixed", "--delta", 2.5), "fixed", None),
        (("--method", "spot", "--rows-per-day", 1440), "peaks-over-threshold", None),
    ],
)
def test_a_copy_of_an_onnx_file_carries_the_choice_and_nothing_else(
    threshold: Any, model: Path, tmp_path: Path, options: tuple[object, ...], method: str, ratio: float | None
) -> None:
    before = model.read_bytes()
    copy = tmp_path / "copy.onnx"
    found = threshold(*options, "-o", copy)
    assert model.read_bytes() == before
    assert onnx.load(copy).graph == onnx.load(model).graph
    with open_engine(copy) as engine:
        written = engine.metadata
    value = found[str(options[1])]["threshold"]
    expected = Threshold(value=value, method=method, ratio=ratio, validation_rows=len(SCORES))
    assert written == known(threshold=expected)
    assert threshold(of=copy)["recorded"]["threshold"] == value
    assert "exists already; pass --overwrite" in threshold(*options, "-o", copy)
    assert threshold(*options, "-o", copy, "--overwrite")["output"] == str(copy)


LIVE = ValidationRecord(
    align="last",
    threshold=Threshold(value=20.0, method="ratio", ratio=0.02, validation_rows=2000),
    quantiles={"reconstruction": quantiles(2 * SCORES)},
)


def test_both_kinds_of_scores_are_shown_and_a_copy_has_a_threshold_for_each(
    threshold: Any, run_cli: RunCli, tmp_path: Path
) -> None:
    both, copy = write_model(tmp_path / "both.onnx", known(SCORES, LIVE)), tmp_path / "copy.onnx"
    found = threshold("--method", "ratio", "--ratio", 0.05, "-o", copy, of=both)
    assert found["last"]["rows"] == 2000
    assert found["last"]["choices"][0]["threshold"] == 20
    with open_engine(copy) as engine:
        written = engine.metadata
    assert written is not None
    whole, live = written.validation
    assert live.threshold.value == pytest.approx(2 * whole.threshold.value)
    assert (live.threshold.ratio, whole.threshold.ratio) == (0.05, 0.05)
    assert live.quantiles == LIVE.quantiles
    only = threshold("--align", "last", "--method", "fixed", "--delta", 3, "-o", copy, "--overwrite", of=both)
    assert only["window"] is None
    with open_engine(copy) as engine:
        written = engine.metadata
    assert written is not None
    assert written.validation_of().threshold == RECORDED
    assert written.validation_of("last").threshold.value == 3
    text = run_cli("threshold", both).out
    assert text.index("50000 validation scores of whole windows") < text.index("2000 validation scores of last rows")


@pytest.mark.slow
def test_scores_of_last_rows_give_a_model_that_has_none_its_live_threshold(
    threshold: Any, model: Path, tmp_path: Path
) -> None:
    path, copy = tmp_path / "scores.parquet", tmp_path / "copy.onnx"
    layout = WindowLayout(window=8, stride=1, align="last").to_dict()
    pl.DataFrame({"score": 3 * SCORES}).write_parquet(path, metadata={"at_infer.layout": json.dumps(layout)})
    assert "has no validation scores of mode reconstruction of last rows of windows" in threshold("--align", "last")
    assert "has scores of last rows of windows" in threshold("--scores", path, "--align", "window")
    threshold("--scores", path, "--method", "ratio", "-o", copy)
    with open_engine(copy) as engine:
        written = engine.metadata
    value = ratio_threshold(3 * SCORES, 0.01)
    expected = Threshold(value=value, method="ratio", ratio=0.01, validation_rows=len(SCORES))
    kept = {"reconstruction": quantiles(3 * SCORES)}
    curve = incident_curve([3 * SCORES], known(SCORES).score)
    record = ValidationRecord(align="last", threshold=expected, quantiles=kept, incidents=curve)
    assert written == known(SCORES, record)


def test_rules_for_incidents_count_in_scores_and_go_into_the_copy(threshold: Any, tmp_path: Path) -> None:
    path, copy = tmp_path / "scores.parquet", tmp_path / "copy.onnx"
    pl.DataFrame({"score": SCORES}).write_parquet(path)
    assert "--min-rows: is a rule for incidents, which are off; the model has counted" in threshold("--min-rows", 3)
    threshold("--scores", path, "--min-rows", 3, "--method", "incidents", "--false-alarms", "1/1000 rows", "-o", copy)
    with open_engine(copy) as engine:
        written = engine.metadata
    assert written is not None
    curve = written.validation_of().incidents
    assert curve == incident_curve([SCORES], known(SCORES).score, IncidentOptions(min_rows=3))


def test_a_copy_of_a_plan_has_a_sidecar_that_fits(threshold: Any, tmp_path: Path) -> None:
    plan = tmp_path / "model.trt"
    plan.write_bytes(b"a plan")
    facts = {
        "flavour": "rtx",
        "version": "1.7.1.116",
        "compute_capabilities": [86],
        "plan_sha256": hashlib.sha256(b"a plan").hexdigest(),
        "onnx_sha256": "0" * 64,
        "inputs": [],
        "outputs": [],
    }
    sidecar_path(plan).write_text(json.dumps(seal(known(engine=facts)).to_dict()))
    copy = tmp_path / "copy.trt"
    threshold("--method", "fixed", "--delta", 3, "-o", copy, of=plan)
    written = load_sidecar(copy)
    assert written is not None
    assert written.validation_of().threshold.value == 3
    assert copy.read_bytes() == b"a plan"
    original = load_sidecar(plan)
    assert original is not None
    assert original.validation_of().threshold == RECORDED


def test_a_copy_without_the_onnx_package_names_the_extra(
    threshold: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name == "onnx":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    message = threshold("--method", "ratio", "-o", tmp_path / "copy.onnx")
    assert install_extra("export") in message
    assert not (tmp_path / "copy.onnx").exists()
    assert threshold()["recorded"]["threshold"] == 9  # looking needs no onnx package


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "copy.onnx"), "--output: needs --method"),
        (("--method", "fixed"), "--delta: method fixed needs one"),
        (("--method", "gap"), "do not form two clusters"),
        (("--method", "spot"), "needs --rows-per-day, or the --interval of rows"),
        (("--ratio", 1.5), "0.01 means one percent"),
        (("--delta", "inf"), "is not a finite number"),
        (("--false-alarms-per-day", 0), "is not a positive number"),
        (("--method", "ratio", "-o", "copy.trt"), "a copy of model.onnx ends in .onnx"),
        (("--method", "ratio", "-o", "nowhere/copy.onnx"), "does not exist"),
        (("--scores", "nowhere.parquet"), "no such file"),
    ],
)
def test_what_cannot_be_is_one_line(threshold: Any, options: tuple[object, ...], message: str) -> None:
    assert message in threshold(*options)


def test_the_model_itself_is_never_replaced(threshold: Any, model: Path) -> None:
    assert "is the model itself" in threshold("--method", "ratio", "-o", model, "--overwrite")


def test_a_model_of_others_is_refused(threshold: Any, tmp_path: Path) -> None:
    assert "was not exported by at-infer" in threshold(of=write_model(tmp_path / "foreign.onnx", None))
    assert "no such file" in threshold(of=tmp_path / "nothing.onnx")


# What is shown


def test_the_text_shows_a_histogram_and_a_table(run_cli: RunCli, model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.onnx"
    answer = run_cli("threshold", model, "--rows-per-day", 1440, "--method", "ratio", "-o", copy)
    assert answer.code == 0
    assert answer.out.startswith("50000 validation scores of whole windows (quantiles stored in")
    assert sum("#" in line for line in answer.out.splitlines()) > 5
    assert "< recorded" in answer.out
    assert "gap statistic, two clusters: the validation scores do not form two clusters" in answer.out
    assert f"{copy}: a copy with thresholds by ratio: " in answer.out
    assert answer.out.endswith(" for whole windows\n")


@pytest.mark.parametrize("kind", ["lognormal", "normal", "constant", "zeros and others"])
def test_a_histogram_counts_every_score_once(kind: str) -> None:
    rng = np.random.default_rng(0)
    scores = {
        "lognormal": SCORES,
        "normal": rng.normal(size=5000).astype(np.float32),
        "constant": np.full(100, 2.5, np.float32),
        "zeros and others": np.append(np.zeros(3000), rng.exponential(size=3000)).astype(np.float32),
    }[kind]
    whole = ValidationScores.of_scores("scores", scores)
    kept = ValidationScores("quantiles", len(scores), list(QUANTILE_LEVELS), quantiles(scores))
    for of in (whole, kept):
        bins = histogram(of)
        assert sum(one.share for one in bins) == pytest.approx(1)
        assert (bins[0].low, bins[-1].high) == (scores.min(), scores.max())
        for one in bins[:-1]:
            assert (scores > np.float32(one.high)).mean() == pytest.approx(of.share_above(one.high), abs=0.01)
