"""The anomaly criterion against the published implementation and Algorithm 3."""

from pathlib import Path

import numpy as np
import pytest

from at_infer.config import WINDOW_MODES, ErrorKind, ScoreConfig
from at_infer.models.criterion import ERROR_FLOOR, anomaly_score, error_and_discrepancy, feature_errors, local_mean
from at_infer.models.statistics import Normal, Scaler
from tests import oracle
from tests.exported import FEATURES, WINDOW, metadata

DATA = Path(__file__).parents[1] / "data"
STATISTICS = [4.0, 1.5]


def test_published_mode_equals_the_published_energy():
    published = np.load(DATA / "published_small_io.npz")
    error = ((published["x"] - published["reconstruction"]) ** 2).mean(-1)
    mean_over_layers = published["series_kl_plus_prior_kl"] / 2
    score = anomaly_score(
        error, mean_over_layers, ScoreConfig(mode="published"), layers_summed=2, discrepancy_statistics=STATISTICS
    )
    np.testing.assert_allclose(score, published["energy"], atol=1e-5)


@pytest.mark.parametrize("mode", WINDOW_MODES)
def test_modes_follow_their_formulas(mode):
    rng = np.random.default_rng(0)
    error, discrepancy = rng.random((4, 30), np.float32), rng.random((4, 30), np.float32) * 9
    config = ScoreConfig(mode=mode, temperature=2.0)
    score = anomaly_score(error, discrepancy, config, layers_summed=3, discrepancy_statistics=STATISTICS)
    for b in range(4):
        weight = oracle.softmax(-discrepancy[b].astype(np.float64))
        expected = {
            "paper": weight * error[b],
            "published": oracle.softmax(-2.0 * 3 * discrepancy[b].astype(np.float64)) * error[b],
            "reconstruction": error[b],
            "centred": error[b],
            "calibrated": oracle.calibrated_weight(discrepancy[b].astype(np.float64), *STATISTICS) * error[b],
            "discrepancy": weight,
            "addition": weight + error[b],
        }[mode]
        np.testing.assert_allclose(score[b], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", WINDOW_MODES)
@pytest.mark.parametrize("level", [0.0, 1e-30, 40.0, 1e6])
def test_scores_are_finite_for_constant_and_extreme_windows(mode, level):
    error = np.full((2, 10), level, np.float32)
    discrepancy = np.full((2, 10), level, np.float32)
    discrepancy[1, 3] = 0
    config = ScoreConfig(mode=mode)
    assert np.isfinite(
        anomaly_score(error, discrepancy, config, layers_summed=3, discrepancy_statistics=[20.0, 1e-6])
    ).all()


# Kinds of error

KINDS = [ErrorKind(centred=centred, normalised=normalised) for centred in (False, True) for normalised in (False, True)]
NORMAL = Normal(error=[0.5, 0.0, 2.0], centred_error=[0.25, 0.0, 1.0], discrepancy={"paper": [20.0, 2.0]})
SCALER = Scaler(mean=[1.0, -2.0, 0.0], scale=[2.0, 0.5, 1.0])


def outputs(windows):
    return {"reconstruction": np.random.default_rng(1).normal(size=windows.shape).astype(np.float32)}


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_every_kind_equal_a_brute_force_computation(kind):
    windows = np.random.default_rng(0).normal(size=(3, WINDOW, FEATURES)).astype(np.float32)
    known = metadata(normal=NORMAL, scaler=SCALER)
    found = feature_errors(windows, outputs(windows), known, kind)
    for b in range(3):
        difference = outputs(windows)["reconstruction"][b] - (windows[b] - np.array(SCALER.mean)) / SCALER.scale
        expected = (oracle.centred(difference) if kind.centred else difference.astype(np.float64)) ** 2
        if kind.normalised:
            expected /= np.array(NORMAL.centred_error if kind.centred else NORMAL.error) + ERROR_FLOOR
        np.testing.assert_allclose(found[b], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 20, 101])
def test_a_local_mean_covers_half_a_window_on_either_side_and_less_at_its_ends(rows):
    x = np.random.default_rng(rows).normal(size=(2, rows, 2)).astype(np.float32) + 1000
    for b in range(2):
        np.testing.assert_allclose(x[b] - local_mean(x)[b], oracle.centred(x[b]), atol=1e-3)


def test_a_constant_offset_is_no_centred_error_and_values_of_a_million_are_finite():
    windows = np.zeros((1, WINDOW, FEATURES), np.float32)
    for level in (0.0, 3.0, 1e6, -1e30):
        found = {"reconstruction": np.full_like(windows, level)}
        with np.errstate(over="ignore"):
            errors = feature_errors(windows, found, metadata(normal=NORMAL), ErrorKind(centred=True, normalised=True))
        np.testing.assert_array_equal(errors, 0)


def test_the_error_of_another_kind_is_formed_from_the_reconstruction():
    windows = np.random.default_rng(0).normal(size=(2, WINDOW, FEATURES)).astype(np.float32)
    given = outputs(windows) | {name: np.ones((2, WINDOW), np.float32) for name in ("error", "discrepancy")}
    known = metadata(normal=NORMAL, score=ScoreConfig(mode="reconstruction", normalise_errors=True))
    same, _ = error_and_discrepancy(windows, given, known, ScoreConfig(mode="addition", normalise_errors=True))
    np.testing.assert_array_equal(same, given["error"])
    for mode, kind in {"centred": KINDS[2], "paper": KINDS[0], "published": KINDS[0]}.items():
        other, _ = error_and_discrepancy(windows, given, known, ScoreConfig(mode=mode))
        np.testing.assert_array_equal(other, feature_errors(windows, given, known, kind).mean(-1))


@pytest.mark.parametrize("mode", ["paper", "published"])
def test_normalising_leaves_the_papers_modes_as_they_are(mode):
    assert ScoreConfig(mode=mode, normalise_errors=True).error_kind == ErrorKind(centred=False, normalised=False)
