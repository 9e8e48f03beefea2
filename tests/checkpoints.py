"""Small checkpoints for tests of export and scoring: random weights, true validation scores."""

import pickle
from typing import Any

import numpy as np
import torch

from at_infer.config import DiscrepancyConfig, Fill, ModelConfig, ScoreConfig
from at_infer.models.statistics import Scaler
from benchmarks.models import untrained
from training.checkpoint import Checkpoint

WINDOW, FEATURES = 20, 3
SHAPE = {"features": FEATURES, "window": WINDOW, "width": 16, "heads": 2, "layers": 1, "feed_forward": 16}
PLAIN = ScoreConfig(mode="reconstruction")
PAPER = ScoreConfig(mode="paper")
SCALER = Scaler(mean=[0.5, -2.0, 100.0], scale=[1.0, 0.25, 20.0])
_made: dict[str, bytes] = {}


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
    """With the score that training chooses by default, unless another is given; a copy of one that was made once."""
    config = ModelConfig(**(SHAPE | shape))
    score, discrepancy = score or ScoreConfig(), discrepancy or DiscrepancyConfig()
    key = repr((config, score, discrepancy, windows, scaler, fill, seed))
    if key not in _made:
        own = scaler if len(scaler.mean) == config.features else None
        given = {"windows": windows, "ratio": 0.05, "scaler": own, "fill": fill, "seed": seed}
        _made[key] = pickle.dumps(untrained(config, score, discrepancy, **given))
    torch.manual_seed(seed)  # what follows is the same whether it was made now or before
    found: Checkpoint = pickle.loads(_made[key])
    return found


def raw_windows(count: int, of: Checkpoint, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, of.model.window, of.model.features))
    return (np.asarray(of.scaler.mean) + np.asarray(of.scaler.scale) * z).astype(np.float32)
