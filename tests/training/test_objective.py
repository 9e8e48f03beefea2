"""The minimax strategy: one backward pass against two, and its special cases."""

from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from at_infer.config import DiscrepancyConfig, Distance, HeadRule, ModelConfig, Prior, Strategy
from training.discrepancy import association_discrepancy
from training.model import AnomalyTransformer, Association
from training.objective import objective
from training.published import load_published

DATA = Path(__file__).parents[1] / "data"


def small(prior: Prior = "gaussian") -> AnomalyTransformer:
    torch.manual_seed(0)
    return AnomalyTransformer(
        ModelConfig(features=3, window=20, width=16, heads=4, layers=2, feed_forward=16, prior=prior)
    )


def gradients(model: AnomalyTransformer) -> dict[str, torch.Tensor]:
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


def test_both_losses_equal_the_published_implementation():
    published = np.load(DATA / "published_small_io.npz")
    network = load_published(DATA / "published_small_checkpoint.pth", window=50)
    x = torch.from_numpy(published["x"])
    losses = objective(
        x, *network(x), discrepancy=DiscrepancyConfig(head_rule="published"), strategy="minimax", lambda_=3.0
    )
    for name, sign in (("loss_maximize", -1), ("loss_minimize", 1)):
        found = losses.reconstruction + sign * 3.0 * losses.discrepancy
        np.testing.assert_allclose(found, published[name], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("head_rule", "distance"), [*product(("paper", "published"), get_args(Distance)), ("exact", "kl")]
)
def test_one_backward_pass_has_the_gradient_of_the_two_published_passes(head_rule, distance):
    model, x = small().double(), torch.randn(5, 20, 3, dtype=torch.float64)
    config = DiscrepancyConfig(head_rule=head_rule, distance=distance)

    x_hat, associations = model(x)
    reconstruction = (x_hat - x).square().mean()

    def discrepancy(detached: str) -> torch.Tensor:
        names = ("prior", "sigma") if detached == "prior" else (detached,)  # rule exact derives the prior from sigma
        parts = [a._replace(**{name: getattr(a, name).detach() for name in names}) for a in associations]
        return association_discrepancy(parts, config).mean()

    (reconstruction - 3.0 * discrepancy("prior")).backward(retain_graph=True)
    (reconstruction + 3.0 * discrepancy("series")).backward()
    expected = gradients(model)

    objective(x, *model(x), discrepancy=config, strategy="minimax", lambda_=3.0).loss.backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
        assert gradient.abs().max() > 0 or name.endswith(".bias"), name


def test_direct_maximisation_is_equation_4():
    model, x = small(), torch.randn(5, 20, 3)
    x_hat, associations = model(x)
    config = DiscrepancyConfig()
    losses = objective(x, x_hat, associations, discrepancy=config, strategy="maximize", lambda_=2.0)
    expected = (x_hat - x).square().mean() - 2.0 * association_discrepancy(associations, config).mean()
    torch.testing.assert_close(losses.loss, expected)


def test_reconstruction_only_leaves_the_scale_alone():
    model, x = small(), torch.randn(5, 20, 3)
    losses = objective(x, *model(x), discrepancy=DiscrepancyConfig(), strategy="reconstruction", lambda_=3.0)
    losses.loss.backward()
    assert model.layers[0].attention.project.weight.grad[-4:].abs().max() == 0
    assert losses.discrepancy > 0


def test_minimax_pulls_the_prior_to_the_series_and_pushes_the_series_away():
    prior = torch.softmax(torch.randn(1, 1, 6, 6), -1).requires_grad_()
    series = torch.softmax(torch.randn(1, 1, 6, 6), -1).requires_grad_()
    association = [Association(prior, series, torch.ones(1, 1, 6))]
    x = torch.zeros(1, 6, 1)
    config = DiscrepancyConfig()
    objective(x, x, association, discrepancy=config, strategy="minimax", lambda_=1.0).loss.backward()
    before = association_discrepancy(association, config).mean().item()
    step = 1e-4
    closer = [Association(prior - step * prior.grad, series, torch.ones(1, 1, 6))]
    farther = [Association(prior, series - step * series.grad, torch.ones(1, 1, 6))]
    assert association_discrepancy(closer, config).mean().item() < before
    assert association_discrepancy(farther, config).mean().item() > before


@pytest.mark.parametrize("prior", get_args(Prior))
@pytest.mark.parametrize("strategy", get_args(Strategy))
@pytest.mark.parametrize("kind", ["zeros", "constant", "huge", "spike", "scale at its floor", "scale at its ceiling"])
def test_losses_and_gradients_stay_finite_for_extreme_input(prior, strategy, kind):
    model = small(prior)
    x = torch.zeros(2, 20, 3)
    if kind == "constant":
        x += 7.0
    elif kind == "huge":
        x = torch.randn(2, 20, 3) * 1e6
    elif kind == "spike":
        x[0, 10, 1] = 1e6
    elif kind.startswith("scale"):
        x = torch.randn(2, 20, 3)
        with torch.no_grad():
            for layer in model.layers:
                layer.attention.project.bias[-4:] = -100.0 if kind.endswith("floor") else 100.0
    for head_rule in get_args(HeadRule):
        losses = objective(
            x, *model(x), discrepancy=DiscrepancyConfig(head_rule=head_rule), strategy=strategy, lambda_=3.0
        )
        losses.loss.backward()
        assert all(torch.isfinite(value) for value in losses)
        assert all(gradient.isfinite().all() for gradient in gradients(model).values())
