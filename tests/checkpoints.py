"""Small checkpoints for tests of export and scoring: random weights, true validation scores."""

from typing import Any

import numpy as np

from at_infer.config import DiscrepancyConfig, Fill, ModelConfig, ScoreConfig
from at_infer.models.statistics import Scaler
from benchmarks.models import untrained
from training.checkpoint import Checkpoint

WINDOW, FEATURES = 20, 3
SHAPE = {"features": FEATURES, "window": WINDOW, "width": 16, "heads": 2, "layers": 2, "feed_forward": 16}
PLAIN = ScoreConfig(mode="reconstruction")
PAPER = ScoreConfig(mode="paper")
SCALER = Scaler(mean=[0.5, -2.0, 100.0], scale=[1.0, 0.25, 20.0])


def checkpoint(
    *,
    seed: int = 0,
    score: ScoreConfig | None = None,
    discrepancy: DiscrepancyConfig | None = None,
    fill: Fill = "error",
    windows: int = 40,
    scaler: Scaler = SCALER,
    **shape: Any,
) -> Checkpoint:
    """With the score that training chooses by default, unless another is given."""
    config = ModelConfig(**(SHAPE | shape))
    return untrained(
        config,
        score or ScoreConfig(),
        discrepancy or DiscrepancyConfig(),
        windows=windows,
        ratio=0.05,
        scaler=scaler if len(scaler.mean) == config.features else None,
        fill=fill,
        seed=seed,
    )


def raw_windows(count: int, of: Checkpoint, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, of.model.window, of.model.features))
    return (np.asarray(of.scaler.mean) + np.asarray(of.scaler.scale) * z).astype(np.float32)
