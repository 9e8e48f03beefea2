"""The anomaly criterion against the published implementation and Algorithm 3."""

from pathlib import Path

import numpy as np
import pytest

from at_infer.config import SCORE_MODES, ScoreConfig
from at_infer.criterion import anomaly_score
from tests import oracle

DATA = Path(__file__).parent / "data"


def test_published_mode_equals_the_published_energy():
    published = np.load(DATA / "published_small_io.npz")
    error = ((published["x"] - published["reconstruction"]) ** 2).mean(-1)
    mean_over_layers = published["series_kl_plus_prior_kl"] / 2
    score = anomaly_score(error, mean_over_layers, ScoreConfig(mode="published"), layers_summed=2)
    np.testing.assert_allclose(score, published["energy"], atol=1e-5)


@pytest.mark.parametrize("mode", SCORE_MODES)
def test_modes_follow_their_formulas(mode):
    rng = np.random.default_rng(0)
    error, discrepancy = rng.random((4, 30), np.float32), rng.random((4, 30), np.float32) * 9
    score = anomaly_score(error, discrepancy, ScoreConfig(mode=mode, temperature=2.0), layers_summed=3)
    for b in range(4):
        weight = oracle.softmax(-discrepancy[b].astype(np.float64))
        expected = {
            "paper": weight * error[b],
            "published": oracle.softmax(-2.0 * 3 * discrepancy[b].astype(np.float64)) * error[b],
            "reconstruction": error[b],
            "discrepancy": weight,
            "addition": weight + error[b],
        }[mode]
        np.testing.assert_allclose(score[b], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", SCORE_MODES)
@pytest.mark.parametrize("level", [0.0, 1e-30, 40.0, 1e6])
def test_scores_are_finite_for_constant_and_extreme_windows(mode, level):
    error = np.full((2, 10), level, np.float32)
    discrepancy = np.full((2, 10), level, np.float32)
    discrepancy[1, 3] = 0
    assert np.isfinite(anomaly_score(error, discrepancy, ScoreConfig(mode=mode), layers_summed=3)).all()
