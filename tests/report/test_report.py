"""at-infer report: what a page holds, what is refused, and what is left behind."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer.evaluation.metrics.runs import runs
from at_infer.report.payload import rounded, safe_json
from at_infer.report.training import LOSSES
from at_infer.tables import scores as score_files
from at_infer.tables.clock import column_seconds
from tests.checkpoints import checkpoint
from tests.conftest import Answer
from tests.report_pages import NASTY, Page, minutes, noisy_scores, write_scores
from tests.scored import COLUMNS, Score, rows

Cli = Callable[..., Answer]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def report(run_cli: Cli, tmp_path: Path) -> Callable[..., Page]:
    def run(*words: object) -> Page:
        output = tmp_path / "report.html"
        answer = run_cli("report", *words, "-o", output, "--overwrite")
        assert answer.code == 0, answer
        return Page(output)

    return run


def refused(answer: Answer, output: Path) -> str:
    assert answer.code == 1, answer
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1, answer.err
    assert not output.exists()
    assert not list(output.parent.glob(".*.tmp"))
    return answer.err


# What a page holds


def test_every_number_is_that_of_the_file(report: Callable[..., Page], tmp_path: Path) -> None:
    score = noisy_scores(5000)
    labels = np.arange(5000) % 400 < 15
    path = write_scores(tmp_path / "s.parquet", {"time": minutes(5000), "score": score, "label": labels})
    page = report(path, "--labels", path).description
    above, found = score > np.float32(0.5), runs(score > np.float32(0.5))
    assert page["segmentCount"] == len(found) == len(page["segments"]["first"])
    assert sorted(zip(page["segments"]["first"], page["segments"]["end"], strict=True)) == list(
        zip(found.starts, found.ends, strict=True)
    )
    assert page["segments"]["peak"] == sorted(page["segments"]["peak"], reverse=True)
    assert page["days"] == pytest.approx(5000 / 1440)
    used = page["grid"]["used"]
    assert page["grid"]["values"][used] == 0.5
    for k, threshold in enumerate(page["grid"]["values"]):
        assert page["grid"]["rows"][k] == (score > threshold).sum()
        assert page["grid"]["segments"][k] == len(runs(score > threshold))
    assert page["grid"]["rows"][0] == 5000
    assert page["grid"]["rows"][-1] == 0
    assert page["eventCount"] == len(runs(labels))
    hit = [bool(labels[a:b].any()) for a, b in zip(page["segments"]["first"], page["segments"]["end"], strict=True)]
    assert page["segments"]["hit"] == hit
    assert page["grid"]["false"][used] == hit.count(False)
    assert page["grid"]["found"][used] == sum(
        above[a:b].any() for a, b in zip(runs(labels).starts, runs(labels).ends, strict=True)
    )


def test_no_peak_is_lost_in_a_long_file(
    report: Callable[..., Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("at_infer.report.levels.MOST_BUCKETS", 1000)
    monkeypatch.setattr(score_files, "CHUNK_ROWS", 777)
    score = noisy_scores(50_000)
    page = report(write_scores(tmp_path / "s.parquet", {"row": np.arange(50_000), "score": score}))
    assert page.description["bucketRows"] == 64
    high, low = page.array("high"), page.array("low")
    whole = np.append(score, np.full(-len(score) % 64, np.nan, np.float32)).reshape(-1, 64)
    np.testing.assert_array_equal(high, rounded(np.nanmax(whole, axis=1)))
    np.testing.assert_array_equal(low, rounded(np.nanmin(whole, axis=1)))
    assert page.description["segmentCount"] == len(runs(score > 0.5))


@pytest.mark.slow
def test_a_million_rows_take_few_megabytes(report: Callable[..., Page], tmp_path: Path) -> None:
    path = write_scores(tmp_path / "s.parquet", {"time": minutes(1_000_000), "score": noisy_scores(1_000_000)})
    page = report(path)
    assert page.description["bucketRows"] == 1
    assert len(page.array("high")) == 1_000_000
    assert len(page.text) < 4_000_000


def test_series_come_worst_first_and_are_counted_apart(report: Callable[..., Page], tmp_path: Path) -> None:
    scores = {"calm": np.full(50, 0.1), "bad": np.r_[np.ones(20), np.zeros(30)], "odd": np.r_[np.zeros(49), 9.0]}
    path = write_scores(
        tmp_path / "s.parquet",
        {
            "machine": np.repeat(list(scores), 50),
            "t": np.tile(np.arange(50), 3),
            "score": np.concatenate([*scores.values()]),
        },
    )
    page = report(path)
    series = page.description["series"]
    assert [entry["name"] for entry in series] == ["bad", "odd", "calm"]
    assert [(entry["segments"], entry["flagged"]) for entry in series] == [(1, 20), (1, 1), (0, 0)]
    values = page.description["grid"]["values"]
    per_series = page.array("grid.rows").reshape(3, len(values))
    for entry, counts in zip(series, per_series, strict=True):
        np.testing.assert_array_equal(counts, [(np.float32(scores[entry["name"]]) > v).sum() for v in values])
    np.testing.assert_array_equal(per_series.sum(axis=0), page.description["grid"]["rows"])
    np.testing.assert_array_equal(
        page.array("high"), rounded(np.float32(np.concatenate([scores[n] for n in ("bad", "odd", "calm")])))
    )


@pytest.mark.parametrize(
    "score",
    [[0.7], [0.2], [0.5] * 40, [None] * 5, [0.0] * 30, [None, 0.9, None, 0.1], [-3.0, -0.1, 2.0], [1e-38, 3e38]],
    ids=["one row", "one quiet row", "constant", "no score at all", "zeros", "gaps", "negative", "huge"],
)
def test_odd_scores_make_a_page_too(report: Callable[..., Page], tmp_path: Path, score: list[float | None]) -> None:
    known = np.array([s for s in score if s is not None], np.float32)
    page = report(write_scores(tmp_path / "s.parquet", {"row": np.arange(len(score)), "score": score})).description
    assert page["unscored"] == score.count(None)
    grid = page["grid"]
    assert grid["rows"] == [int((known > value).sum()) for value in grid["values"]]
    assert grid["values"][grid["used"]] == 0.5


def test_names_and_values_cannot_leave_their_place(report: Callable[..., Page], tmp_path: Path) -> None:
    path = write_scores(tmp_path / "s.parquet", {NASTY: ["</script>", NASTY], "score": [1.0, 0.1]})
    page = report(path, "--series-column", NASTY)
    assert {entry["name"] for entry in page.description["series"]} == {"</script>", NASTY}
    assert page.text.count("</script") == page.text.count("<script") == 4
    assert "<img" not in page.text
    assert json.loads(safe_json({"a": "</script>\u2028", "b": float("nan")})) == {"a": "</script>\u2028", "b": None}


def test_the_page_asks_for_nothing_from_outside(report: Callable[..., Page], tmp_path: Path) -> None:
    text = report(write_scores(tmp_path / "s.parquet", {"row": [0], "score": [1.0]})).text
    assert "default-src 'none'" in text
    for word in ("src=", "href=", "url(", "@import", "import("):
        assert word not in text, word


def test_times_written_as_text_are_dates_if_they_look_like_it(report: Callable[..., Page], tmp_path: Path) -> None:
    score = [0.1, 0.9]
    dates = write_scores(
        tmp_path / "a.parquet", {"t": ["2024-01-01T00:00:00Z", "2024-01-01T00:01:00Z"], "score": score}
    )
    assert report(dates, "--time-column", "t").description["clock"] == "date"
    words = write_scores(tmp_path / "b.parquet", {"t": ["a", "b"], "score": score})
    page = report(words, "--time-column", "t").description
    assert page["clock"] is None
    assert any("text that is not a date" in note for note in page["notes"])


@pytest.mark.parametrize(
    ("first", "second", "is_date"),
    [
        ("20240101T000000", "20240101T000100", True),
        ("2024-W01-1", "2024-W01-2", True),
        ("2024-01-01 00:00", "2024-01-01T00:01", True),
        ("2024/01/01 00:00", "2024/01/01 00:01", False),
        ("20240101", "20240102", False),
    ],
)
def test_texts_are_dates_to_the_page_where_they_are_dates_to_a_model(
    report: Callable[..., Page], tmp_path: Path, first: str, second: str, is_date: bool
) -> None:
    path = write_scores(tmp_path / "s.parquet", {"time": [first, second], "score": [0.9, 0.1]})
    page = report(path, "--time-column", "time").description
    assert page["clock"] == ("date" if is_date else None)
    if is_date:
        assert column_seconds(pl.Series([first]), "x").tolist() == [1_704_067_200]
        assert page["incidents"]["shown"][0]["times"][0] == 1_704_067_200_000
    else:
        assert any("text that is not a date" in note for note in page["notes"])


def test_a_column_of_dates_with_another_text_is_refused_and_named(run_cli: Cli, tmp_path: Path) -> None:
    path = write_scores(tmp_path / "s.parquet", {"time": ["2024-01-01", "2024/01/02"], "score": [0.9, 0.1]})
    said = refused(run_cli("report", path, "--time-column", "time", "-o", tmp_path / "r.html"), tmp_path / "r.html")
    assert f"{path}: column 'time': Invalid isoformat string: '2024/01/02'" in said


# With data and an engine


@pytest.fixture
def scores_and_data(score: Score, tmp_path: Path) -> tuple[Path, Path]:
    frame = rows(400, seed=3)
    frame = frame.with_columns(f01=pl.when(pl.int_range(400).is_between(205, 209)).then(40.0).otherwise(pl.col("f01")))
    frame.write_parquet(tmp_path / "data.parquet")
    return score(tmp_path / "data.parquet", explain="all").path, tmp_path / "data.parquet"


def test_the_feature_to_blame_is_named_and_shown(
    report: Callable[..., Page], scores_and_data: tuple[Path, Path], plain_score: Score, plain_models: Path
) -> None:
    data = scores_and_data[1]
    scores = plain_score(data, explain="all").path
    page = report(scores, "--data", data, "--engine", plain_models / "model.associations.onnx")
    top, share, exact = page.description["segments"]["top"][0][0]
    detail = page.description["details"][0]
    assert (top, exact, detail["names"][0], detail["reconstructed"]) == ("f01", True, "f01", True)
    errors = pl.read_parquet(scores).select(f"error_{name}" for name in COLUMNS).to_numpy()
    first, end = page.description["segments"]["first"][0], page.description["segments"]["end"][0]
    inside = errors[first:end].sum(axis=0)
    assert share == pytest.approx(inside[1] / inside.sum(), rel=1e-4)
    values = page.array("detail.0.value.0")
    begin = detail["first"]
    frame = pl.read_parquet(data)
    np.testing.assert_array_equal(values, frame["f01"].to_numpy()[begin : begin + len(values)].astype(np.float32))
    windows = page.description["windows"]
    assert [window["segment"] is None for window in windows].count(True) <= 1
    n = windows[0]["rows"]
    for name in ("prior", "series"):
        of_rows = (page.array(f"window.0.{name}").reshape(-1, n, n) / 255.0) ** 2
        np.testing.assert_allclose(of_rows.sum(axis=-1), 1, atol=0.1)
    assert page.array("window.0.sigma").min() > 0


@pytest.mark.parametrize("explain", ["none", "top", "all"])
def test_what_is_missing_is_said(report: Callable[..., Page], score: Score, tmp_path: Path, explain: str) -> None:
    scores = score(rows(60), explain=explain).path
    notes = " ".join(report(scores).description["notes"])
    assert ("--explain" in notes) == (explain == "none")
    assert "--data" in notes
    data = " ".join(report(scores, "--data", tmp_path / "given.parquet").description["notes"])
    assert "--engine" in data
    assert "--rows-per-day" in notes
    assert "--rows-per-day" not in " ".join(report(scores, "--interval", "60").description["notes"])


@pytest.mark.slow
def test_images_show_the_same_figures(
    run_cli: Cli, scores_and_data: tuple[Path, Path], models: Path, tmp_path: Path
) -> None:
    scores, data = scores_and_data
    folder = tmp_path / "figures"
    words = ["report", scores, "--data", data, "--engine", models / "model.associations.onnx", "--png", folder]
    answer = run_cli(*words, "-o", tmp_path / "r.html")
    assert answer.code == 0, answer
    images = {path.name for path in folder.iterdir()}
    assert {"overview.png", "thresholds.png", "segment-1.png", "associations.png"} <= images
    assert all(path.read_bytes().startswith(PNG) for path in folder.iterdir())
    again = run_cli(*words, "-o", tmp_path / "r2.html")
    assert again.code == 1
    assert "exists already" in again.err


@pytest.mark.parametrize("score", [[0.7], [None, None], [0.5] * 9, [-1.0, 2.0]])
@pytest.mark.slow
def test_images_of_odd_scores(run_cli: Cli, tmp_path: Path, score: list[float | None]) -> None:
    path = write_scores(tmp_path / "s.parquet", {"$t_{": minutes(len(score)), "score": score})
    assert run_cli("report", path, "-o", tmp_path / "r.html", "--png", tmp_path / "png").code == 0


# Of a checkpoint


@pytest.mark.slow
def test_a_checkpoint_shows_how_training_went(run_cli: Cli, tmp_path: Path, waves: pl.DataFrame) -> None:
    waves.write_parquet(tmp_path / "train.parquet")
    tiny = ["--width", "8", "--heads", "2", "--layers", "2", "--window", "10", "--threads", "1", "--max-steps", "60"]
    trained = run_cli("train", tmp_path / "train.parquet", "-o", tmp_path / "ckpt.pt", *tiny)
    assert trained.code == 0, trained
    answer = run_cli("report", tmp_path / "ckpt.pt", "-o", tmp_path / "t.html", "--png", tmp_path / "png")
    assert answer.code == 0, answer
    page, kept = Page(tmp_path / "t.html"), torch.load(tmp_path / "ckpt.pt", weights_only=True)["train"]
    assert page.description["evaluations"] == kept["evaluations"]
    np.testing.assert_array_equal(page.array("steps.reconstruction"), kept["steps"]["reconstruction"].numpy())
    scales = np.array(page.description["scales"])
    assert scales.shape == (2, 2, 5)
    assert (np.diff(scales, axis=-1) >= 0).all()
    assert ((scales > 0) & (scales < 2.001)).all()
    assert {path.name for path in (tmp_path / "png").iterdir()} == {
        "reconstruction.png",
        "discrepancy.png",
        "scales.png",
    }


def test_a_checkpoint_of_an_earlier_version_is_reported_by_epochs(run_cli: Cli, tmp_path: Path) -> None:
    kept = checkpoint()
    epochs = [dict.fromkeys(LOSSES, 0.5) | {"step": 10 * k} for k in (1, 2, 3)]
    kept.train.update(epochs=epochs, best_epoch=2)
    kept.save(tmp_path / "ckpt.pt")
    answer = run_cli("report", tmp_path / "ckpt.pt", "-o", tmp_path / "t.html")
    assert answer.code == 0, answer
    assert "best weights after step 20 of 30" in answer.out
    kept.train["best_epoch"] = 7
    kept.save(tmp_path / "ckpt.pt")
    assert "training history is damaged" in run_cli("report", tmp_path / "ckpt.pt", "-o", tmp_path / "u.html").err


# Refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evaluations", [{"step": 5}]),
        ("evaluations", 7),
        ("evaluations", [{name: float("nan") for name in LOSSES}]),
        ("best_step", 3),
        ("best_step", "5"),
        ("ended", None),
        ("steps", {"reconstruction": "many"}),
        ("steps", [1]),
        ("scales", [[[0.1, 0.2]]]),
        ("scales", "none"),
        ("rows", {"train": "all"}),
        ("config", {"learning_rate": "fast"}),
        ("config", 1),
    ],
)
def test_a_damaged_history_of_a_training_is_one_line(run_cli: Cli, tmp_path: Path, name: str, value: Any) -> None:
    kept = checkpoint()
    history = {"evaluations": [dict.fromkeys(LOSSES, 5.0)], "best_step": 5, "ended": "budget"}
    kept.train.update(history)
    kept.save(tmp_path / "sound.pt")
    assert run_cli("report", tmp_path / "sound.pt", "-o", tmp_path / "sound.html").code == 0
    kept.train[name] = value
    kept.save(tmp_path / "ckpt.pt")
    answer = run_cli("report", tmp_path / "ckpt.pt", "-o", tmp_path / "t.html")
    assert answer.code == 1
    assert re.fullmatch(
        r"error: .*ckpt.pt: its training history is damaged \(.+\); train the model again\n", answer.err
    )
    assert not (tmp_path / "t.html").exists()


@pytest.mark.slow
def test_input_that_does_not_belong_together_is_one_line(run_cli: Cli, tmp_path: Path, models: Path) -> None:
    output = tmp_path / "out" / "report.html"
    output.parent.mkdir()
    scores = write_scores(tmp_path / "s.parquet", {"t": np.arange(30), "score": np.ones(30)})
    pl.DataFrame({"t": np.arange(29), "x": np.ones(29)}).write_parquet(tmp_path / "short.parquet")
    pl.DataFrame({"t": np.arange(1, 31), "x": np.ones(30)}).write_parquet(tmp_path / "shifted.parquet")
    write_scores(tmp_path / "bare.parquet", {"t": [1], "score": [1.0]}, threshold=None)
    checkpoint().save(tmp_path / "bare.pt")
    (tmp_path / "text.parquet").write_text("no Parquet")
    for words, said in [
        ([tmp_path / "absent.parquet"], "no such file"),
        ([tmp_path / "text.parquet"], "cannot be read as Parquet"),
        ([tmp_path / "short.parquet"], "column 'score' is missing"),
        ([tmp_path / "bare.parquet"], "has no threshold; give one"),
        ([scores, "--data", tmp_path / "short.parquet"], "has 29 rows"),
        ([scores, "--data", tmp_path / "shifted.parquet"], "has t 1"),
        ([scores, "--labels", tmp_path / "shifted.parquet"], "column 'label' is missing"),
        ([scores, "--labels", tmp_path / "shifted.parquet", "--label-column", "x"], "has t 1"),
        ([scores, "--engine", models / "model.associations.onnx"], "pass the scored rows as --data"),
        ([scores, "--data", scores, "--engine", models / "model.onnx"], "pass model.associations.onnx"),
        ([scores, "--data", scores, "--engine", models / "model.associations.onnx"], "column 'f00' is missing"),
        ([scores, "--threshold", "nan"], "not a finite number"),
        ([models / "model.onnx"], "is a model; give its scores"),
        ([tmp_path / "bare.pt"], "has no training history"),
        ([tmp_path / "bare.pt", "--data", scores], "--data: is for scores"),
        ([scores, "--png", tmp_path / "no" / "where"], "does not exist"),
    ]:
        assert said in refused(run_cli("report", *words, "-o", output), output), words


def test_output_is_never_replaced_unasked(run_cli: Cli, tmp_path: Path) -> None:
    scores = write_scores(tmp_path / "s.parquet", {"row": [0, 1], "score": [1.0, 0.0]})
    (tmp_path / "r.html").write_text("mine")
    answer = run_cli("report", scores, "-o", tmp_path / "r.html")
    assert (answer.code, (tmp_path / "r.html").read_text()) == (1, "mine")
    assert "pass --overwrite" in answer.err
    assert "does not exist" in run_cli("report", scores, "-o", tmp_path / "no" / "r.html").err
    assert run_cli("report", scores, "-o", tmp_path / "r.html", "--overwrite").code == 0


@pytest.mark.slow
def test_scores_are_reported_without_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    scores = write_scores(tmp_path / "s.parquet", {"row": [0, 1], "score": [1.0, 0.0]})
    program = (
        "import sys\nfor name in ('torch', 'training', 'matplotlib'): sys.modules[name] = None\n"
        f"from at_infer.cli import app\napp(['report', {str(scores)!r}, '-o', {str(tmp_path / 'r.html')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_times_with_a_zone_are_shown_in_utc_and_say_so(report: Callable[..., Page], tmp_path: Path) -> None:
    times = pl.Series(minutes(500)).cast(pl.Datetime("us"))
    score = noisy_scores(500)
    for time, zone in ((times, ""), (times.dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"), "UTC")):
        path = tmp_path / f"s{zone}.parquet"
        write_scores(path, {"time": time, "score": score})
        assert report(path).description["zone"] == zone
