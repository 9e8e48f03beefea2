"""The simulation behind the default size of splits, and the figures that the documents quote."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from at_infer.cluster.splits import SPLIT_S, SPLITS_PER_WORKER
from benchmarks.scale_out_figure import draw
from benchmarks.scale_out_simulation import Costs, above, series_lengths, simulate, split_lengths

RESULTS = json.loads((Path(__file__).parents[2] / "benchmarks/results/scale_out.json").read_text(encoding="utf-8"))
FREE = Costs(rows_per_s=1000.0, split_overhead_s=0.0, driver_s=0.0, halo_rows=0)


def test_series_have_a_heavy_tail() -> None:
    series = series_lengths(1e8)
    assert series.sum() == pytest.approx(1e8, rel=0.3)
    assert series.max() > 1000 * np.median(series)


def test_splits_hold_all_rows_and_are_no_longer_than_they_should_be() -> None:
    series = series_lengths(1e7)
    splits = split_lengths(series, 5_000, 0)
    assert splits.sum() == pytest.approx(series.sum(), rel=1e-3)
    assert splits.max() <= 5_000
    assert len(split_lengths(series, 5_000, 50)) == len(splits)
    assert split_lengths(series, None, 50).tolist() == series.tolist()


def test_without_costs_only_the_last_splits_keep_workers_waiting() -> None:
    series = series_lengths(1e8)
    assert simulate(series, 1_000, 100, FREE).busy > 0.99
    assert simulate(series, None, 100, FREE).busy < 0.5  # one series keeps everybody waiting
    assert simulate(series, None, 1, FREE).busy == pytest.approx(1.0)


def test_the_makespan_is_that_of_a_schedule_by_hand() -> None:
    costs = Costs(rows_per_s=10.0, split_overhead_s=1.0, driver_s=0.5, halo_rows=0)
    run = simulate(np.array([100, 60, 40]), None, 1, costs)
    speed = float(np.exp(np.random.default_rng(1).normal(0.0, 0.1, 1))[0])
    assert run.makespan_s == pytest.approx(20 / speed + 3 * 1.5)
    assert run.ideal_s == pytest.approx(20 / speed)


def test_a_driver_that_cannot_keep_up_keeps_workers_waiting() -> None:
    slow = Costs(rows_per_s=1000.0, split_overhead_s=0.0, driver_s=0.01, halo_rows=0)
    series = series_lengths(1e8)
    assert simulate(series, 1_000, 1000, slow).busy == pytest.approx(0.1, abs=0.02)  # 100 splits of 1 s in a second


def test_the_default_is_the_one_that_was_simulated_and_keeps_1000_workers_busy() -> None:
    assert (RESULTS["split_s"], RESULTS["splits_per_worker"]) == (SPLIT_S, SPLITS_PER_WORKER)
    assert [entry["busy"] > 0.9 for entry in RESULTS["simulated"]["default"]] == [True] * 3
    assert RESULTS["simulated"]["above_90_percent"] == above(RESULTS["simulated"]["by_split"], 0.9)
    for entry in RESULTS["simulated"]["above_90_percent"]:
        assert entry["from_s"] <= SPLIT_S <= entry["to_s"]
    at_default = [entry["busy"] for entry in RESULTS["simulated"]["by_split"] if entry["split_s"] == SPLIT_S]
    assert min(at_default) > 0.9


def test_the_plot_is_that_of_the_results() -> None:
    drawn = draw(RESULTS)
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert (Path(__file__).parents[2] / "docs/img/scale_out.svg").read_text(encoding="utf-8") == drawn
