"""Association discrepancy against the published implementation, scipy and brute force."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import jensenshannon
from scipy.special import logsumexp

from at_infer.config import DiscrepancyConfig, Distance, HeadRule, Prior
from at_infer.errors import ConfigError
from at_infer.models.criterion import exact_discrepancy
from tests import oracle
from training.discrepancy import DISTANCES, FLOOR, association_discrepancy, floored
from training.model import Association
from training.published import load_published

DATA = Path(__file__).parents[1] / "data"
DISTANCE_NAMES = get_args(Distance)
HEAD_RULES: tuple[HeadRule, ...] = ("paper", "published")  # exact takes sigma instead of the prior


def associations(layers: int = 2, n: int = 9, seed: int = 0) -> list[Association]:
    torch.manual_seed(seed)

    def random() -> torch.Tensor:
        return torch.softmax(3 * torch.randn(2, 3, n, n), -1)

    return [Association(random(), random(), torch.ones(2, 3, n)) for _ in range(layers)]


def test_published_rule_equals_the_published_implementation():
    published = np.load(DATA / "published_small_io.npz")
    network = load_published(DATA / "published_small_checkpoint.pth", window=50)
    with torch.no_grad():
        _, found = network(torch.from_numpy(published["x"]))
    mean = association_discrepancy(found, DiscrepancyConfig(head_rule="published"))
    np.testing.assert_allclose(2 * mean, published["series_kl_plus_prior_kl"], atol=1e-5, rtol=1e-6)


def test_paper_rule_follows_algorithm_2():
    found = associations(layers=3)
    for b in range(2):
        prior = np.stack([a.prior[b].numpy() for a in found]).astype(np.float64)
        series = np.stack([a.series[b].numpy() for a in found]).astype(np.float64)
        expected = oracle.association_discrepancy(prior, series, FLOOR)
        np.testing.assert_allclose(association_discrepancy(found, DiscrepancyConfig())[b], expected, rtol=1e-5)


@pytest.mark.parametrize("prior", get_args(Prior))
def test_exact_rule_is_algorithm_2_in_double_precision_where_the_prior_underflows(prior):
    n, rng = 60, np.random.default_rng(0)
    sigma = rng.uniform(0.05, 2, (2, 3, n)) if prior != "gaussian-fixed" else np.ones((2, 3, n))
    series = torch.softmax(3 * torch.randn(2, 3, n, n, generator=torch.Generator().manual_seed(0)), -1)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(np.longdouble)
    logits = (
        -np.log(distance + 1) * sigma[..., None] if prior == "power-law" else -(distance**2) / 2 / sigma[..., None] ** 2
    )
    log_p = logits - logsumexp(logits, axis=-1, keepdims=True)
    log_p = logsumexp(log_p, axis=1) - np.log(3)  # the mean over the heads
    s = series.numpy().astype(np.longdouble).mean(axis=1)
    expected = ((np.exp(log_p) - s) * (log_p - np.log(s))).sum(axis=-1)
    scale = torch.from_numpy(sigma).float()
    one = Association(torch.full_like(series, torch.nan), series, scale)
    config = DiscrepancyConfig(head_rule="exact")
    found = association_discrepancy([one], config, prior)
    np.testing.assert_allclose(found, expected.astype(float), rtol=1e-4)
    np.testing.assert_allclose(exact_discrepancy([(scale.numpy(), series.numpy())], config, prior), found, rtol=1e-5)
    if prior == "gaussian":
        assert found.max() > 200  # the floor would end at 36.8


def test_exact_rule_stays_finite_at_the_smallest_scale_and_with_a_series_that_underflows():
    n = 100
    sigma = torch.full((1, 2, n), 1e-5).requires_grad_()
    series = torch.eye(n).flip(0).expand(1, 2, n, n).clone().requires_grad_()
    found = association_discrepancy([Association(series, series, sigma)], DiscrepancyConfig(head_rule="exact"))
    found.sum().backward()
    assert found.isfinite().all()
    assert sigma.grad.isfinite().all()
    assert series.grad.isfinite().all()


@pytest.mark.parametrize("distance", ["js", "wasserstein", "cross-entropy", "l2"])
def test_exact_rule_is_for_the_kl_divergence(distance):
    with pytest.raises(ConfigError, match=f"exact is for distance kl, not {distance}; choose paper"):
        DiscrepancyConfig(head_rule="exact", distance=distance)


def test_published_rule_compares_per_head_first():
    found = associations(layers=1)
    expected = np.zeros(9)
    for m in range(3):
        p, s = found[0].prior[0, m].numpy(), found[0].series[0, m].numpy()
        expected += (oracle.kl(p, s, epsilon=1e-4) + oracle.kl(s, p, epsilon=1e-4)) / 3
    answer = association_discrepancy(found, DiscrepancyConfig(head_rule="published"))
    np.testing.assert_allclose(answer[0], expected, rtol=1e-5)


def test_one_layer_can_be_chosen():
    found = associations(layers=3)
    chosen = association_discrepancy(found, DiscrepancyConfig(layer=1))
    torch.testing.assert_close(chosen, association_discrepancy(found[1:2], DiscrepancyConfig()))


def test_jensen_shannon_equals_scipy():
    found = associations()[0]
    p, s = found.prior[0, 0], found.series[0, 0]
    np.testing.assert_allclose(DISTANCES["js"](p, s, floored), jensenshannon(p, s, axis=1) ** 2, rtol=1e-4)


def test_wasserstein_equals_scipy():
    found = associations()[0]
    p, s = found.prior[0, 0], found.series[0, 0]
    positions = np.arange(9)
    expected = [stats.wasserstein_distance(positions, positions, p[i], s[i]) for i in range(9)]
    np.testing.assert_allclose(DISTANCES["wasserstein"](p, s, floored), expected, rtol=1e-4)


def test_symmetric_kl_and_cross_entropy_equal_scipy():
    found = associations()[0]
    p, s = found.prior[0, 0].double(), found.series[0, 0].double()
    kl = stats.entropy(p, s, axis=1) + stats.entropy(s, p, axis=1)
    np.testing.assert_allclose(DISTANCES["kl"](p, s, floored), kl, rtol=1e-6)
    np.testing.assert_allclose(
        DISTANCES["cross-entropy"](p, s, floored), kl + stats.entropy(p, axis=1) + stats.entropy(s, axis=1), rtol=1e-6
    )


def test_l2_is_the_euclidean_norm():
    found = associations()[0]
    p, s = found.prior[0, 0], found.series[0, 0]
    np.testing.assert_allclose(DISTANCES["l2"](p, s, floored), np.linalg.norm(p - s, axis=1), rtol=1e-5)


@pytest.mark.parametrize("distance", ["kl", "js", "wasserstein", "l2"])
@pytest.mark.parametrize("head_rule", HEAD_RULES)
def test_equal_associations_have_no_discrepancy(distance, head_rule):
    prior = associations()[0].prior
    same = [Association(prior, prior.clone(), torch.ones(2, 3, 9))]
    found = association_discrepancy(same, DiscrepancyConfig(distance=distance, head_rule=head_rule))
    np.testing.assert_allclose(found, 0, atol=2e-6)


@pytest.mark.parametrize("distance", DISTANCE_NAMES)
@pytest.mark.parametrize("head_rule", HEAD_RULES)
def test_underflowed_associations_give_finite_values_and_gradients(distance, head_rule):
    n = 40
    prior = torch.eye(n).expand(1, 2, n, n).clone().requires_grad_()
    series = torch.eye(n).flip(0).expand(1, 2, n, n).clone().requires_grad_()
    config = DiscrepancyConfig(distance=distance, head_rule=head_rule)
    found = association_discrepancy([Association(prior, series, torch.ones(1, 2, n))], config)
    assert found.isfinite().all()
    assert (found > 0).any()
    found.sum().backward()
    assert prior.grad.isfinite().all()
    assert series.grad.isfinite().all()
