"""Settings check themselves and survive JSON."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from at_infer.config import PRESETS, SCORE_MODES, Config, DiscrepancyConfig, ModelConfig, ScoreConfig, TrainConfig
from at_infer.errors import ConfigError
from at_infer.models.statistics import Normal

EXAMPLES: list[Config] = [
    replace(PRESETS["paper"].model, features=25),
    ModelConfig(features=1, window=10, width=8, heads=2, layers=1, feed_forward=4, prior="power-law"),
    DiscrepancyConfig(head_rule="published", distance="wasserstein", layer=2),
    ScoreConfig(mode="published", temperature=1.5),
    TrainConfig(),
    TrainConfig(
        max_steps=None,
        epochs=5,
        stride=None,
        discrepancy=DiscrepancyConfig(distance="l2"),
        compile=True,
        precision="bf16",
    ),
    ScoreConfig(mode="centred", smooth=5, normalise_errors=True),
    Normal(error=[0.1], centred_error=[0.0], discrepancy={"paper": [20.0, 1.0], "published": [1.0, 2.0]}),
]


@pytest.mark.parametrize("config", EXAMPLES, ids=lambda config: type(config).__name__)
def test_a_round_trip_through_json_changes_nothing(config: Config) -> None:
    assert type(config).from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("config", EXAMPLES, ids=lambda config: type(config).__name__)
def test_unknown_and_missing_fields_are_errors_not_defaults(config: Config) -> None:
    values = config.to_dict()
    with pytest.raises(ConfigError, match="unexpected or missing fields: surprise"):
        type(config).from_dict(values | {"surprise": 1})
    for name in values.keys() - {
        "normalise_errors",
        "padding",
        "level",
        "noise",
        "views",
    }:  # earlier versions had no such choice
        with pytest.raises(ConfigError, match="unexpected or missing fields"):
            type(config).from_dict({other: value for other, value in values.items() if other != name})


def test_the_papers_preset_is_the_papers() -> None:
    model, train = PRESETS["paper"]
    assert (model.window, model.width, model.heads, model.layers, model.feed_forward) == (100, 512, 8, 3, 512)
    assert (model.prior, model.padding) == ("gaussian", "circular")
    assert (train.lambda_, train.learning_rate, train.batch_size, train.epochs) == (3.0, 1e-4, 32, 10)
    assert (train.max_steps, train.evaluate_every, train.patience, train.tolerance) == (None, None, 3, 0.0)
    assert (train.stride, train.warm_up, train.cool_down) == (None, 0.0, 0.0)
    assert (train.strategy, train.discrepancy.distance, train.discrepancy.head_rule) == ("minimax", "kl", "paper")
    assert SCORE_MODES[:3] == ("fusion", "paper", "published")
    assert set(SCORE_MODES[3:]) == {"reconstruction", "centred", "calibrated", "discrepancy", "addition"}


def test_the_default_preset_is_the_defaults_counted_in_steps() -> None:
    model, train = PRESETS["default"]
    assert (model, train) == (ModelConfig(features=1), TrainConfig())
    assert (model.padding, train.epochs) == ("replicate", None)
    assert train.max_steps is not None


def test_a_network_of_an_earlier_version_is_circular() -> None:
    values = ModelConfig(features=3).to_dict()
    del values["padding"]
    assert ModelConfig.from_dict(values) == ModelConfig(features=3, padding="circular")


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (EXAMPLES[0], {"features": 0}, "features: 0 is too small; it must be at least 1"),
        (EXAMPLES[0], {"window": 1}, "window: 1 is too small; it must be at least 2"),
        (EXAMPLES[0], {"layers": -1}, "layers"),
        (EXAMPLES[0], {"heads": 7}, "heads: 7 heads do not divide a width of 512"),
        (EXAMPLES[0], {"prior": "flat"}, "prior: 'flat' is not one of gaussian, gaussian-fixed, power-law"),
        (EXAMPLES[2], {"distance": "cosine"}, "distance"),
        (EXAMPLES[2], {"head_rule": "mine"}, "head_rule"),
        (EXAMPLES[2], {"layer": -1}, "layer"),
        (EXAMPLES[3], {"mode": "best"}, "mode: 'best' is not one of fusion, paper, published"),
        (EXAMPLES[3], {"temperature": 0.0}, "temperature"),
        (EXAMPLES[3], {"temperature": float("nan")}, "temperature"),
        (EXAMPLES[3], {"temperature": float("inf")}, "temperature"),
        (EXAMPLES[0], {"padding": "zeros"}, "padding: 'zeros' is not one of replicate, circular"),
        (EXAMPLES[4], {"epochs": 0}, "epochs"),
        (EXAMPLES[4], {"max_steps": None}, "max_steps: there is no budget; give max_steps or epochs"),
        (EXAMPLES[4], {"evaluate_every": 0}, "evaluate_every"),
        (EXAMPLES[4], {"warm_up": 1.0}, "warm_up: 1 is not a fraction in [0, 1)"),
        (EXAMPLES[4], {"cool_down": -0.1}, "cool_down"),
        (EXAMPLES[4], {"tolerance": float("nan")}, "tolerance"),
        (EXAMPLES[4], {"batch_size": 0}, "batch_size"),
        (EXAMPLES[4], {"patience": 0}, "patience"),
        (EXAMPLES[4], {"max_steps": 0}, "max_steps"),
        (EXAMPLES[4], {"stride": 0}, "stride"),
        (EXAMPLES[4], {"learning_rate": 0.0}, "learning_rate"),
        (EXAMPLES[4], {"learning_rate": float("nan")}, "learning_rate"),
        (EXAMPLES[4], {"lambda_": -1.0}, "lambda"),
        (EXAMPLES[4], {"lambda_": float("inf")}, "lambda"),
        (EXAMPLES[4], {"seed": -1}, "seed"),
        (EXAMPLES[4], {"seed": 2**63}, "seed"),
        (EXAMPLES[4], {"strategy": "hope"}, "strategy"),
        (EXAMPLES[4], {"precision": "int3"}, "precision"),
    ],
)
def test_impossible_values_are_refused_by_name(config: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(config, **change)
    assert str(error.value).startswith(message)


def test_a_layer_that_does_not_exist_is_refused() -> None:
    DiscrepancyConfig(layer=2).check_layers(3)
    DiscrepancyConfig().check_layers(1)
    with pytest.raises(ConfigError, match="layer: 3 does not exist; the network has layers 0 to 2"):
        DiscrepancyConfig(layer=3).check_layers(3)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        EXAMPLES[0].window = 5  # type: ignore[attr-defined]


def test_settings_load_without_any_framework() -> None:
    program = "import at_infer.config, sys; print(sorted({'numpy', 'polars', 'torch', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
