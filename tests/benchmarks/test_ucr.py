"""The benchmark on the UCR archive, on a folder laid out as that is."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from benchmarks import ucr
from benchmarks.quality import commands


def test_an_answer_is_right_near_the_anomaly_or_as_near_as_it_is_long() -> None:
    scores = np.zeros(2000, np.float32)
    for row, found in ((899, False), (900, True), (1050, True), (1149, True), (1150, False)):
        assert ucr.is_found(np.where(np.arange(2000) == row, 1, scores), (1000, 1050)) == found, row
    assert ucr.is_found(np.where(np.arange(2000) == 1899, 1, scores), (1000, 1450))


def test_a_method_that_ran_on_some_series_is_compared_on_these() -> None:
    def one(**found: bool) -> dict[str, Any]:
        return {"found": found, "cpu_s": 1} | {key: dict.fromkeys(found, 50.0) for key in ucr.MEANS[1:]}

    found = ucr.summarise([one(a=True, b=True), one(a=False), one(a=True, b=False)], 5, "tiny")
    assert {name: of["accuracy"] for name, of in found["means"].items()} == {"a": 66.7}
    assert found["partly"]["b"]["series"] == 2
    assert {name: of["accuracy"] for name, of in found["partly"]["b"]["means"].items()} == {"a": 100, "b": 50}


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "ucr").mkdir()
    listed = {"name": ["a", "b"], "train_end": 600, "anomaly_start": 900, "anomaly_end": 930, "rows": 1200}
    pl.DataFrame(listed).write_csv(tmp_path / "ucr" / "metadata.csv")
    for name in listed["name"]:
        values = np.sin(np.arange(1200) / 5) + rng.normal(0, 0.05, 1200)
        values[900:930] = 3
        pl.DataFrame({"value": values.astype(np.float32)}).write_parquet(tmp_path / "ucr" / f"{name}.parquet")
    run, trained = commands.at_infer, []

    def quickly(*words: object) -> None:
        if words[0] == "train":
            trained.append(words)
        run(*words, *(("--max-steps", "2") if words[0] == "train" else ()))

    monkeypatch.setattr(commands, "at_infer", quickly)
    for series in (1, 2):
        words = ["ucr", "--data", tmp_path, "--work", tmp_path / "work", "--out", tmp_path / "out.json"]
        monkeypatch.setattr(sys, "argv", [*map(str, words), "--series", str(series)])
        ucr.main()
        torch.set_flush_denormal(False)  # Hypothesis refuses to draw floats where training has switched it on
        assert len(trained) == series
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert tuple(said) == ucr.SUMMARY
    assert (said["series"], said["of"]) == (2, 2)
    assert said["means"]["default"]["accuracy"] == said["means"]["Sub-PCA"]["accuracy"] == 100
    assert len(json.loads((tmp_path / "out.json").read_text())["per_series"]) == 2
