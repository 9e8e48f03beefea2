"""The comparison with other libraries: what it demands of their answers, and what it says of those that cannot run."""

import argparse
import sys

import numpy as np
import pytest

from benchmarks import peer_worker, peers

ARGS = argparse.Namespace(windows=3, overlap_rows=200, spikes=[150, 250])


def answers(**changes):
    """Everybody finds the first spike, and otherwise agrees."""
    found = {}
    for name in peers.TITLES:
        rows = 200 if name in peers.OVERLAPPING else 300
        found[name] = np.linspace(0, 1, rows)
        found[name][150] = 9.0
    return found | changes


def test_answers_that_make_sense_pass():
    assert peers.check(answers(), ARGS) == pytest.approx({"fp32": 1.0, "int8": 1.0, "int8-overlap": 1.0})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pyod": np.zeros(299)}, "pyod: .* scores for 300 rows"),
        ({"pyod": np.full(300, np.nan)}, "pyod: scores are not finite"),
        ({"deepod": np.zeros(200)}, "deepod: all scores are the same"),
        ({"isolation_forest": np.linspace(1, 0, 300)}, "isolation_forest: the highest score is at 0"),
        ({"fp32": np.linspace(1, 0, 300) + 5 * (np.arange(300) == 150)}, "Not equal to tolerance"),
    ],
)
def test_nonsense_is_not_timed(changes, words):
    with pytest.raises(AssertionError, match=words):
        peers.check(answers(**changes), ARGS)


def test_a_contestant_that_cannot_run_says_why(tmp_path):
    with pytest.raises(RuntimeError, match=r"FileNotFoundError: .*isolation_forest\.pickle"):
        peers.Worker(sys.executable, "isolation_forest", tmp_path)


@pytest.mark.slow
def test_a_contestant_answers_over_its_pipe(tmp_path):
    import polars as pl

    rows = np.random.default_rng(0).normal(size=(300, 3))
    rows[150] *= 20
    table = pl.DataFrame({"timestamp": np.arange(300)} | {f"f{i}": rows[:, i] for i in range(3)})
    table.write_parquet(tmp_path / "rows.parquet")
    table.head(100).write_parquet(tmp_path / "first.parquet")
    peer_worker.fit("isolation_forest", tmp_path)
    worker = peers.Worker(sys.executable, "isolation_forest", tmp_path)
    seconds, scores = worker.score(tmp_path / "rows.parquet")
    assert seconds > 0
    assert scores.argmax() == 150
    assert worker.finish() > 10
    assert worker.startup_s > 0
