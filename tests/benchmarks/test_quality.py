"""The benchmark of what a user gets, on a folder laid out as its data are."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import average_precision_score

from at_infer import Detector
from benchmarks import live_quality, part_floor, patterns, widths
from benchmarks.quality import __main__ as quality
from benchmarks.quality import commands
from benchmarks.quality.baselines import baselines, seasonal
from benchmarks.quality.generated import FAULTS, cyclic
from benchmarks.quality.series import Group, Series, load
from benchmarks.quality.summary import DEFAULT, regret
from benchmarks.quality.tables import few_rows, markdown
from benchmarks.quality.worth import event_recall, worth

STEPS = ("--max-steps", "2")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "asd").mkdir()
    for part, rows in (("train", 600), ("test", 300)):
        frames = []
        for channel in ("omi-1", "omi-2"):
            values = np.sin(np.arange(rows)[:, None] / 5 + np.arange(2)) + rng.normal(0, 0.1, (rows, 2))
            label = np.zeros(rows, np.uint8)
            if part == "test" and channel == "omi-1":  # nothing is labelled in the other: no figure is defined
                label[160:180] = 1
                values[160:180] += 3
            frame = pl.DataFrame(values.astype(np.float32), schema=["f00", "f01"])
            frames.append(
                frame.with_columns(channel=pl.lit(channel), timestamp=pl.int_range(rows), label=pl.lit(label))
            )
        table = pl.concat(frames)
        (table.drop("label") if part == "train" else table).write_parquet(tmp_path / "asd" / f"{part}.parquet")
    groups = {"ASD": Group("asd", rows_a_day=100, clock=True)}
    for module in ("series", "baselines", "summary", "__main__"):
        monkeypatch.setattr(f"benchmarks.quality.{module}.GROUPS", groups)
    monkeypatch.setattr(live_quality, "GROUPS", groups)
    return tmp_path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The commands that were run; training takes two steps."""
    found: list[list[str]] = []
    run = commands.at_infer

    def noted(*words: object) -> None:
        found.append([str(word) for word in words])
        run(*words, *(STEPS if words[0] == "train" else ()))

    monkeypatch.setattr(commands, "at_infer", noted)
    yield found
    torch.set_flush_denormal(False)  # Hypothesis refuses to draw floats where training has switched it on


def run(monkeypatch: pytest.MonkeyPatch, main: Callable[[], None], data: Path, out: str, *words: object) -> None:
    given = ["--data", data, "--work", data / "work", "--out", data / out, *words]
    monkeypatch.setattr(sys, "argv", ["benchmark", *map(str, given)])
    main()


@pytest.mark.slow
def test_series_are_measured_once_by_the_commands_themselves_and_then_live(
    monkeypatch: pytest.MonkeyPatch, data: Path, typed: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, quality.main, data, "out.json", "--part", "1/2")
    assert "nothing is measured yet" in capsys.readouterr().err
    for _ in range(2):
        run(monkeypatch, quality.main, data, "out.json")
    ((_, _, _, _, *names),) = [words for words in typed if words[0] == "train"]
    assert names == ["--time-column", "timestamp"]
    summary = json.loads((data / "out.json").read_text())
    assert summary["series"] == {"ASD": {"run": 1, "of": 1}}
    assert {DEFAULT, "network: shape", "paper's score", "PCA", "seasonal profile"} <= summary["means"].keys()
    for figures in summary["means"].values():
        assert 0 <= figures["vus_pr"]["ASD"] <= 100
        assert figures["vus_pr"]["mean"] == figures["vus_pr"]["ASD"]
    assert "group_left_out_vus_pr" in summary["chosen_on"]
    run(monkeypatch, quality.main, data, "seed.json", "--seeds", "1")
    assert json.loads((data / "seed.json").read_text())["regret"] == {"groups": {}, "mean": None, "worst": None}

    capsys.readouterr()
    run(monkeypatch, live_quality.main, data, "live.json", "--rows", "250")
    assert "1 series" in capsys.readouterr().out
    live = json.loads((data / "live.json").read_text())
    assert set(live["groups"]["ASD"]["live_to_whole"]) == {"delay 0", "delay 10", "delay 25"}
    assert all(one["rows"] == 250 - 99 for one in live["per_series"])

    monkeypatch.setattr(widths, "DELAYS", (10,))
    monkeypatch.setattr(widths, "LIVE", [widths.BEFORE, (5, 10, 25, 50)])
    run(monkeypatch, widths.main, data, "widths.json", "--rows", "250")
    (found,) = json.loads((data / "widths.json").read_text())["per_series"]
    own = "5, 10, 25, 50"  # of a model of two features
    assert found["worth"]["whole"][own]["vus_pr"] == summary["means"][DEFAULT]["vus_pr"]["ASD"]
    assert found["worth"]["delay 10"][own]["vus_pr"] == live["per_series"][0]["worth"]["delay 10"]["vus_pr"]
    assert found["worth"]["whole"][own] != found["worth"]["whole"]["25, 50"]

    run(monkeypatch, part_floor.main, data, "floor.json", "--rows", "250")
    of_floors = json.loads((data / "floor.json").read_text())["vus_pr"]
    assert of_floors["delay 25"]["0.001"]["ASD"] == live["per_series"][0]["worth"]["delay 25"]["vus_pr"]
    assert of_floors["whole"]["0.1"] != of_floors["whole"]["0.3"]

    run(monkeypatch, patterns.main, data, "several.json", "--rows", "250", "several")
    (found,) = json.loads((data / "several.json").read_text())["per_series"]
    assert found["worth"]["whole"]["1"]["vus_pr"] == summary["means"][DEFAULT]["vus_pr"]["ASD"]
    assert found["worth"]["whole"]["0"] != found["worth"]["whole"]["1"]


@pytest.mark.slow
def test_few_rows_to_learn_from(monkeypatch: pytest.MonkeyPatch, data: Path, typed: list[list[str]]) -> None:
    run(monkeypatch, quality.main, data, "out.json", "--learn", "250")
    (learnt,) = [words for words in typed if words[0] == "train"]
    assert learnt[1].endswith("train.parquet")
    summary = json.loads((data / "out.json").read_text())
    assert summary["per_series"][0]["name"].endswith("-250")


@pytest.mark.slow
def test_patterns_are_measured_with_the_weight_of_a_model_and_without(
    monkeypatch: pytest.MonkeyPatch, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="no model of one feature"):
        run(monkeypatch, patterns.main, data, "patterns.json")
    values = np.sin(np.arange(2000) / 5) + np.random.default_rng(0).normal(0, 0.1, 2000)
    labels = np.zeros(500, np.bool_)
    labels[200:230] = True
    values[1700:1730] *= -1
    train, test = (pl.DataFrame({"value": part.astype(np.float32)}) for part in (values[:1500], values[1500:]))
    monkeypatch.setattr("benchmarks.quality.series.GROUPS", dict.fromkeys(("ASD", "other"), Group("")))
    detector = Detector(window=20, width=8, heads=2, layers=1, max_steps=2, device="cpu").fit(train)
    models = []
    for group in ("ASD", "other"):
        detector.export(data / group, engine="none")
        models.append((Series(group, "one", train, test, labels), data / group, group == "ASD"))
    monkeypatch.setattr(patterns, "trained", lambda _: models)
    run(monkeypatch, patterns.main, data, "patterns.json")
    found = json.loads((data / "patterns.json").read_text())
    assert found["left_out"]["ASD"]["without"] == found["tables"]["whole"]["vus_pr"]["0"]["ASD"]
    whole = found["per_series"][0]["worth"]["whole"]
    assert whole["3"] != whole["0"]
    assert "| 0: none |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "benchmark"),
    [("patterns", patterns), ("patterns_several", patterns), ("part_floor", part_floor), ("widths", widths)],
)
def test_the_document_shows_what_was_measured(name: str, benchmark: Any) -> None:
    root = Path(__file__).parents[2]
    result = json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert benchmark.summarise(result["per_series"]) == result
    assert benchmark.markdown(result) in (root / "docs" / "method.md").read_text(encoding="utf-8")


def test_the_document_shows_the_tables_of_its_results() -> None:
    root = Path(__file__).parents[2]
    result = json.loads((root / "benchmarks" / "results" / "quality.json").read_text(encoding="utf-8"))
    few = json.loads((root / "benchmarks" / "results" / "quality_500.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "method.md").read_text(encoding="utf-8")
    for table in [*markdown(result), few_rows(few)]:
        assert table in page, table.splitlines()[0]


def test_baselines_find_what_is_plain_to_see(data: Path) -> None:
    series = next(load(data, "ASD"))
    found = {name: worth(scores, series.labels, 100) for name, scores in baselines(series)}
    for name in ("moving average 101", "PCA", "AR, next row", "fusion without a network"):
        assert found[name]["vus_pr"] > found["random"]["vus_pr"]


def test_figures_are_those_of_the_metrics() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.random(500).astype(np.float32), rng.random(500) < 0.1
    expected = 100 * average_precision_score(labels, scores)
    assert worth(scores, labels, 1440)["auc_pr"] == pytest.approx(expected, abs=0.01)


def test_events_count_down_to_the_threshold_with_one_false_alarm_a_day() -> None:
    labels = np.zeros(1000, np.bool_)
    labels[[100, 300, 500]] = True
    scores = np.zeros(1000, np.float32)
    scores[[100, 700, 300, 800, 500]] = [9, 8, 7, 6, 5]
    assert event_recall(scores, labels, days=1) == pytest.approx(2 / 3)
    assert event_recall(scores, labels, days=2) == 1


def test_regret_is_the_best_single_score_minus_the_default() -> None:
    table = {DEFAULT: {"vus_pr": {"a": 50.0, "b": 70.0}}, "PCA": {"vus_pr": {"a": 60.0, "b": 10.0}}}
    found = regret(table, ["a", "b"])
    assert (found["groups"]["a"]["regret"], found["groups"]["b"]["regret"]) == (10, -60)
    assert (found["mean"], found["worst"]) == (-25, 10)


def test_a_profile_by_time_of_day_leaves_nothing_of_a_pure_cycle() -> None:
    x = np.tile(np.linspace(0, 1, 288, dtype=np.float32), 10)[:, None]
    residuals = seasonal(x[: 7 * 288 + 50], x[7 * 288 + 50 :], 288)
    assert all(np.abs(np.median(residual)) < 1e-3 for residual in residuals)


def test_generated_cycles_have_a_fault_of_each_kind() -> None:
    name, train, test, labels = next(cyclic())
    series = Series("cyclic", name, train, test, labels)
    assert np.count_nonzero(np.diff(labels.astype(int)) == 1) == len(FAULTS)
    assert series.options == ["--time-column", "timestamp"]
    assert test["timestamp"][0] > train["timestamp"][-1]


def test_live_rows_are_taken_around_the_anomalies() -> None:
    labels = np.zeros(1000, np.bool_)
    labels[[600, 601, 100]] = True
    part = live_quality.slice_of(labels, 200)
    assert labels[part].sum() == 2
    assert part.start < 600 < part.stop == part.start + 200


def test_the_document_quotes_single_views_from_the_results() -> None:
    root = Path(__file__).parents[2]
    means = json.loads((root / "benchmarks" / "results" / "quality.json").read_text(encoding="utf-8"))["means"]
    lines = (root / "docs" / "method.md").read_text(encoding="utf-8").splitlines()
    views = {
        "shape": "network: shape",
        "next row": "AR, next row",
        "rows ahead": "AR, 5 rows ahead",
        "activity, next row": "activity of AR, next row",
    }
    for view, name in views.items():
        (line,) = [line for line in lines if line.startswith(f"| {view} |") and re.search(r"\(\d", line)]
        quoted = re.findall(r"([A-Za-z]+(?: [ab])?) \((\d+\.\d)\)", line)
        assert len(quoted) > 2
        for group, value in quoted:
            assert float(value) == pytest.approx(means[name]["vus_pr"][group], abs=0.0501), (view, group)
