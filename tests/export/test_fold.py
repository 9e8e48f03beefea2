"""Folded networks against what they were before."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from at_infer.config import ModelConfig, Padding, Prior
from export.fold import fold
from training.model import AnomalyTransformer

CONFIG = {"features": 3, "window": 20, "width": 16, "heads": 4, "feed_forward": 24}


def network(**changes) -> AnomalyTransformer:
    """With biases and norms unlike those that networks begin with."""
    torch.manual_seed(0)
    made = AnomalyTransformer(ModelConfig(**(CONFIG | changes)))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter += torch.randn_like(parameter)
    return made.eval()


def folded(**changes) -> AnomalyTransformer:
    made = network(**changes)
    fold(made)
    return made


def outputs(made: AnomalyTransformer, x: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        x_hat, associations = made(x)
    return [x_hat, *(part for association in associations for part in association)]


@pytest.mark.parametrize("padding", get_args(Padding))
@pytest.mark.parametrize("prior", get_args(Prior))
@pytest.mark.parametrize("layers", [1, 3])
def test_a_folded_network_says_what_it_said(padding, prior, layers):
    x = torch.randn(5, 20, 3)
    before = outputs(network(padding=padding, prior=prior, layers=layers), x)
    after = outputs(folded(padding=padding, prior=prior, layers=layers), x)
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new, old, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("x", [torch.zeros(1, 20, 3), torch.ones(1, 20, 3), 1e6 * torch.randn(1, 20, 3)])
def test_odd_windows_stay_finite_and_the_same(x):
    for old, new in zip(outputs(network(layers=2), x), outputs(folded(layers=2), x), strict=True):
        assert new.isfinite().all()
        torch.testing.assert_close(new, old, rtol=1e-3, atol=1e-4)


def test_only_the_biases_that_matter_are_left():
    names = {name.removeprefix("layers.0.") for name, _ in folded(layers=1).named_parameters() if "bias" in name}
    attention = {f"attention.{name}.bias" for name in ("project.q", "project.sigma", "out")}
    assert names == attention | {"feed_forward.0.bias", "norm1.bias", "norm2.bias", "norm.bias", "projection.bias"}


def test_the_weights_it_was_given_stay_as_they_are():
    made = network(layers=2)
    before = [(parameter, parameter.clone()) for parameter in made.parameters()]
    fold(made)
    assert all(torch.equal(parameter, kept) for parameter, kept in before)
