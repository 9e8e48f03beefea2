"""The network against the published implementation and against brute force."""

import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from at_infer.config import ModelConfig, Padding, Prior
from tests import oracle
from training.model import AnomalyTransformer, sinusoids
from training.published import load_published

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def published() -> dict[str, np.ndarray]:
    return dict(np.load(DATA / "published_small_io.npz"))


@pytest.fixture(scope="module")
def answers(published):
    network = load_published(DATA / "published_small_checkpoint.pth", window=50)
    with torch.no_grad():
        return network(torch.from_numpy(published["x"]))


def network(**options) -> AnomalyTransformer:
    torch.manual_seed(0)
    shape = {"features": 3, "window": 12, "width": 8, "heads": 2, "layers": 2, "feed_forward": 16}
    return AnomalyTransformer(ModelConfig(**(shape | options))).eval()


def test_reconstruction_equals_the_published_network(published, answers):
    np.testing.assert_allclose(answers[0], published["reconstruction"], atol=1e-5)


@pytest.mark.parametrize("layer", [0, 1])
def test_associations_and_scales_equal_the_published_network(published, answers, layer):
    association = answers[1][layer]
    unnormalised = published[f"prior_unnormalised_{layer}"].astype(np.float64)
    np.testing.assert_allclose(association.series, published[f"series_{layer}"], atol=1e-5)
    np.testing.assert_allclose(association.sigma, published[f"sigma_{layer}"], atol=1e-5)
    np.testing.assert_allclose(association.prior, unnormalised / unnormalised.sum(-1, keepdims=True), atol=1e-5)


def test_the_reconstruction_is_the_same_without_associations():
    x = torch.randn(4, 12, 3)
    with torch.no_grad():
        assert torch.equal(network().reconstruct(x), network()(x)[0])


def test_series_association_follows_algorithm_1():
    model = network(layers=1)
    attention = model.layers[0].attention
    x = torch.randn(2, 12, 8)
    with torch.no_grad():
        out, association = attention(x)
    weight, bias = attention.project.weight.detach().numpy(), attention.project.bias.detach().numpy()
    for b in range(2):
        projected = x[b].numpy() @ weight.T + bias
        q, k, v, s = projected[:, :8], projected[:, 8:16], projected[:, 16:24], projected[:, 24:]
        heads = []
        for m in range(2):
            part = slice(4 * m, 4 * m + 4)
            logits = math.sqrt(2 / 8) * q[:, part] @ k[:, part].T
            series = np.stack([oracle.softmax(row) for row in logits])
            np.testing.assert_allclose(association.series[b, m], series, atol=1e-6)
            sigma = 3 ** (1 / (1 + np.exp(-5.0 * s[:, m])) + 1e-5) - 1
            np.testing.assert_allclose(association.prior[b, m], oracle.gaussian_prior(sigma), atol=1e-6)
            heads.append(series @ v[:, part])
        expected = np.concatenate(heads, axis=1) @ attention.out.weight.detach().numpy().T
        np.testing.assert_allclose(out[b], expected + attention.out.bias.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("padding", get_args(Padding))
def test_embedding_is_a_convolution_of_three_steps_with_the_edges_padded_as_configured(padding: Padding):
    model = network(width=8, padding=padding)
    x = torch.randn(2, 12, 3)
    kernel = model.embedding.token.weight.view(8, 3, 3).permute(0, 2, 1)
    padded = torch.nn.functional.pad(x.transpose(1, 2), (1, 1), mode=padding)
    expected = torch.nn.functional.conv1d(padded, kernel).transpose(1, 2) + sinusoids(12, 8)
    torch.testing.assert_close(model.embedding(x), expected)


@pytest.mark.parametrize("prior", ["gaussian", "gaussian-fixed", "power-law"])
def test_rows_of_both_associations_are_distributions(prior: Prior):
    _, associations = network(prior=prior)(torch.randn(4, 12, 3))
    for association in associations:
        for p in (association.prior, association.series):
            assert (p >= 0).all()
            torch.testing.assert_close(p.sum(-1), torch.ones(4, 2, 12))


def test_fixed_prior_is_a_gaussian_of_scale_one():
    _, associations = network(prior="gaussian-fixed")(torch.randn(1, 12, 3))
    np.testing.assert_allclose(
        associations[0].prior[0, 0].detach(), oracle.gaussian_prior(np.ones(12)), rtol=1e-5, atol=1e-12
    )


def test_power_law_prior_has_a_learned_exponent():
    model = network(prior="power-law")
    _, associations = model(torch.randn(1, 12, 3))
    alpha = associations[0].sigma[0, 0].detach().numpy().astype(np.float64)
    assert np.ptp(alpha) > 0
    np.testing.assert_allclose(associations[0].prior[0, 0].detach(), oracle.power_law_prior(alpha), rtol=1e-4)
    associations[0].prior[..., 0].sum().backward()
    assert model.layers[0].attention.project.weight.grad[-2:].abs().sum() > 0


@pytest.mark.parametrize(
    "options",
    [
        {"window": 2},
        {"features": 1},
        {"width": 7, "heads": 7},
        {"width": 9, "heads": 3},
        {"layers": 4, "heads": 1},
        {"window": 333, "features": 55},
    ],
    ids=str,
)
def test_any_shape_is_possible(options):
    model = network(**options)
    config = model.config
    x_hat, associations = model(torch.randn(2, config.window, config.features))
    assert x_hat.shape == (2, config.window, config.features)
    assert len(associations) == config.layers
    assert associations[0].series.shape == (2, config.heads, config.window, config.window)
    assert associations[0].sigma.shape == (2, config.heads, config.window)


@pytest.mark.parametrize("prior", ["gaussian", "gaussian-fixed", "power-law"])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e6, -1e6])
def test_constant_windows_give_finite_answers(prior: Prior, value: float):
    x_hat, associations = network(prior=prior)(torch.full((1, 12, 3), value))
    assert x_hat.isfinite().all()
    assert all(part.isfinite().all() for association in associations for part in association)


def test_the_scale_reaches_its_floor_and_its_ceiling_without_harm():
    model = network(window=60)
    attention = model.layers[0].attention
    sigma = attention.scale(torch.tensor([[[-1e4, 1e4]] * 60]))
    assert 0 < sigma.min() < 2e-5
    assert 1.99 < sigma.max() < 2.001
    prior = attention.prior(sigma)
    torch.testing.assert_close(prior[0, 0], torch.eye(60))
    np.testing.assert_allclose(prior[0, 1], oracle.gaussian_prior(np.full(60, sigma.max().item())), atol=1e-6)


def test_constants_are_buffers_that_move_with_the_model_and_stay_out_of_the_state_dict():
    model = network()
    assert {name.rsplit(".", 1)[-1] for name, _ in model.named_buffers()} == {"position", "distance"}
    assert not any("position" in name or "distance" in name for name in model.state_dict())
    assert all(buffer.device.type == "meta" for _, buffer in network().to("meta").named_buffers())


def test_autocast_keeps_scale_and_prior_in_float32():
    model = network()
    with torch.autocast("cpu", torch.bfloat16):
        _, associations = model(torch.randn(2, 12, 3))
    assert associations[1].sigma.dtype == torch.float32
    assert associations[1].prior.dtype == torch.float32


@pytest.mark.gpu
def test_cuda_gives_the_same_answers_as_the_cpu():
    model, x = network(), torch.randn(2, 12, 3)
    expected, _ = model(x)
    answer, _ = model.cuda()(x.cuda())
    torch.testing.assert_close(answer.cpu(), expected, atol=1e-4, rtol=1e-4)
