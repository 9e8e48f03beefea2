"""Small checkpoints for tests of export and scoring: random weights, honest calibration."""

from typing import Any

import numpy as np
import torch

from at_infer.config import DiscrepancyConfig, ModelConfig, Scaler, ScoreConfig
from at_infer.threshold import QUANTILE_LEVELS
from training.calibration import calibrate
from training.checkpoint import Checkpoint
from training.model import AnomalyTransformer

WINDOW, FEATURES = 20, 3
SHAPE = {"features": FEATURES, "window": WINDOW, "width": 16, "heads": 2, "layers": 2, "feed_forward": 16}
SCALER = Scaler(mean=[0.5, -2.0, 100.0], scale=[1.0, 0.25, 20.0])


def checkpoint(
    *,
    seed: int = 0,
    score: ScoreConfig | None = None,
    discrepancy: DiscrepancyConfig | None = None,
    fill: str = "error",
    scaler: Scaler = SCALER,
    **shape: Any,
) -> Checkpoint:
    torch.manual_seed(seed)
    network = AnomalyTransformer(ModelConfig(**(SHAPE | shape))).eval()
    features, window = network.config.features, network.config.window
    score, discrepancy = score or ScoreConfig(), discrepancy or DiscrepancyConfig()
    calibration = calibrate(
        network,
        torch.randn(40 * window, features),
        np.arange(0, 40 * window, window),
        [40 * window],
        discrepancy=discrepancy,
        score=score,
        ratio=0.05,
    )
    if features != len(scaler.mean):
        scaler = Scaler(mean=[0.0] * features, scale=[1.0] * features)
    return Checkpoint(
        model=network.config,
        state_dict=network.state_dict(),
        columns=[f"f{i:02}" for i in range(features)],
        time_column=None,
        series_column=None,
        scaler=scaler,
        fill=fill,  # type: ignore[arg-type]
        discrepancy=discrepancy,
        score=score,
        threshold=calibration.threshold,
        quantile_levels=list(QUANTILE_LEVELS),
        quantiles=calibration.quantiles,
        causal=calibration.causal,
        normal=calibration.normal,
        train={},
    )


def raw_windows(count: int, of: Checkpoint, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, of.model.window, of.model.features))
    return (np.asarray(of.scaler.mean) + np.asarray(of.scaler.scale) * z).astype(np.float32)
