"""Peaks over threshold: the fit against scipy's, the threshold against the distribution it should find."""

import numpy as np
import pytest
from scipy.stats import genpareto

from at_infer.errors import ConfigError
from at_infer.thresholds.peaks import LOWEST_SHAPE, fit_pareto, peaks_threshold


@pytest.mark.parametrize("shape", [-0.3, -0.05, 0.0, 0.1, 0.5, 1.2])
@pytest.mark.parametrize("scale", [1e-6, 3.0])
def test_the_fit_is_at_least_as_likely_as_that_of_scipy(shape: float, scale: float) -> None:
    y = genpareto.rvs(shape, scale=scale, size=3000, random_state=1)
    found = fit_pareto(y)
    theirs = genpareto.fit(y / scale, floc=0)

    def likelihood(c: float, of_scale: float) -> float:
        return float(genpareto.logpdf(y / scale, c, scale=of_scale).sum())

    assert likelihood(found.shape, found.scale / scale) >= likelihood(theirs[0], theirs[2]) - 1e-4
    assert found.shape == pytest.approx(theirs[0], abs=5e-3)
    assert found.scale / scale == pytest.approx(theirs[2], rel=5e-3)
    assert found.shape == pytest.approx(shape, abs=0.1)


def test_the_shape_stays_where_a_maximum_exists() -> None:
    y = np.random.default_rng(0).uniform(size=2000)  # a uniform distribution has shape -1
    assert fit_pareto(y).shape == pytest.approx(LOWEST_SHAPE, abs=0.02)


@pytest.mark.parametrize("kind", ["exponential", "normal", "lognormal", "pareto"])
@pytest.mark.parametrize("rate", [1e-3, 1e-4])
@pytest.mark.slow
def test_the_threshold_is_exceeded_at_the_rate_asked_for(kind: str, rate: float) -> None:
    """Fitted on 20 000 values, counted on ten million others."""
    draw = {
        "exponential": lambda rng, n: rng.exponential(size=n),
        "normal": lambda rng, n: rng.normal(size=n),
        "lognormal": lambda rng, n: rng.lognormal(size=n),
        "pareto": lambda rng, n: rng.pareto(3.0, size=n),
    }[kind]
    x = draw(np.random.default_rng(0), 20_000)
    initial = float(np.quantile(x, 0.98))
    found = peaks_threshold(x[x > initial] - initial, initial, len(x), rate)
    exceeded = (draw(np.random.default_rng(1), 10_000_000) > found).mean()
    assert rate / 2.5 < exceeded < rate * 2.5


def test_the_exponential_limit_is_met_smoothly() -> None:
    y = -np.log1p(-(np.arange(2000) + 0.5) / 2000)
    found = peaks_threshold(y, 5.0, 100_000, 1e-4)
    assert found == pytest.approx(5 + np.log(0.02 / 1e-4), rel=0.02)


def test_what_has_no_tail_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 scores above the 98% quantile are too few"):
        peaks_threshold(np.arange(3.0), 0.0, 100, 1e-3)
    with pytest.raises(ConfigError, match="is not in the tail; use method ratio"):
        peaks_threshold(np.arange(20.0), 0.0, 100, 0.5)
    with pytest.raises(ConfigError, match="are equal; use method ratio"):
        peaks_threshold(np.ones(20), 0.0, 1000, 1e-3)
