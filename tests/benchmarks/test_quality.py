"""The benchmark of score modes, on a folder laid out as its data are."""

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import average_precision_score

from benchmarks import quality

TINY = ["--width", "8", "--heads", "2", "--window", "20", "--steps", "2", "--stride", "20"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "asd").mkdir()
    for part, rows in (("train", 300), ("test", 200)):
        frames = []
        for channel in ("omi-1", "omi-2", "omi-3"):
            values = np.sin(np.arange(rows)[:, None] / 5 + np.arange(2)) + rng.normal(0, 0.1, (rows, 2))
            label = np.zeros(rows, np.uint8)
            if part == "test" and channel != "omi-3":  # nothing is labelled there: no figure is defined
                label[100:120] = 1
                values[100:120] += 3
            frame = pl.DataFrame(values.astype(np.float32), schema=["f00", "f01"])
            frames.append(
                frame.with_columns(channel=pl.lit(channel), timestamp=pl.int_range(rows), label=pl.lit(label))
            )
        table = pl.concat(frames)
        (table.drop("label") if part == "train" else table).write_parquet(tmp_path / "asd" / f"{part}.parquet")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, data: Path, *words: object) -> None:
    given = ["--data", data, "--work", data / "work", "--out", data / "out.json", "--groups", "ASD", *TINY, *words]
    monkeypatch.setattr(sys, "argv", ["quality", *map(str, given)])
    quality.main()


def test_channels_are_measured_once_and_summed_up(
    monkeypatch: pytest.MonkeyPatch, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, data, "--most", 1)
    assert "1 channels, 1 left to do" in capsys.readouterr().out
    assert not (data / "out.json").exists()
    run(monkeypatch, data)
    assert "ASD omi-1" not in capsys.readouterr().out
    summary = json.loads((data / "out.json").read_text())
    assert summary["channels"]["ASD"] == 2
    worth = summary["worth"]
    assert {"auto", "random|1", "PCA|50", "moving average 51|10", "paper|1", "centred normalised|50"} <= worth.keys()
    for figures in worth.values():
        assert 0 <= figures["vus_pr"]["ASD"] <= 100
        assert figures["vus_pr"]["mean"] == figures["vus_pr"]["ASD"]
    assert worth["moving average 101|10"]["auc_pr"]["ASD"] > worth["random|1"]["auc_pr"]["ASD"]
    assert set(summary["auto_chose"]) == {"ASD omi-1", "ASD omi-2"}


def test_figures_are_those_of_the_metrics() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.random(500).astype(np.float32), rng.random(500) < 0.1
    found = quality.worth(scores, labels)
    assert found["auc_pr"] == pytest.approx(100 * average_precision_score(labels, scores))
