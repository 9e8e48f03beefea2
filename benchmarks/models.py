"""Untrained models and generated files that benchmarks of scoring share; tests make their models here, too."""

from pathlib import Path

import numpy as np
import polars as pl
import torch

from at_infer.config import DiscrepancyConfig, Fill, ModelConfig, ScoreConfig
from at_infer.models.statistics import Scaler
from at_infer.thresholds.quantiles import QUANTILE_LEVELS
from export.config import ExportConfig
from export.pipeline import export_model
from training.checkpoint import Checkpoint
from training.model import AnomalyTransformer
from training.validation import measure_validation
from training.validation_rows import CoveredRows, ScoredNetwork

FEATURES = 25


def untrained(
    config: ModelConfig,
    score: ScoreConfig,
    discrepancy: DiscrepancyConfig,
    *,
    windows: int,
    ratio: float,
    scaler: Scaler | None = None,
    time_column: str | None = None,
    fill: Fill = "error",
    seed: int = 0,
    patterns: bool = False,
) -> Checkpoint:
    """Random weights, with the true validation scores of so many windows of noise, and patterns of more noise."""
    torch.manual_seed(seed)
    network = AnomalyTransformer(config).eval()
    features, rows = config.features, windows * config.window
    noise = CoveredRows(torch.randn(rows, features), np.arange(0, rows, config.window), [rows])
    learnt = [torch.randn(rows, features).numpy()] if patterns else None
    measured = measure_validation(ScoredNetwork(network, discrepancy, score), noise, ratio=ratio, learnt=learnt)
    return Checkpoint(
        model=config,
        state_dict=network.state_dict(),
        columns=[f"f{i:02}" for i in range(features)],
        time_column=time_column,
        series_column=None,
        scaler=scaler or Scaler(mean=[0.0] * features, scale=[1.0] * features),
        fill=fill,
        discrepancy=discrepancy,
        score=score,
        quantile_levels=list(QUANTILE_LEVELS),
        validation=measured.records,
        normal=measured.normal,
        train={},
    )


def checkpoint(width: int, score: ScoreConfig, layers: int = 3, heads: int = 8) -> Checkpoint:
    """Window 100, 25 features, circular: some are compared with the published implementation."""
    config = ModelConfig(
        features=FEATURES, width=width, feed_forward=width, layers=layers, heads=heads, padding="circular"
    )
    published = DiscrepancyConfig(head_rule="published")
    return untrained(config, score, published, windows=4, ratio=0.01, time_column="timestamp")


def export(folder: Path, width: int, score: ScoreConfig, layers: int = 3, heads: int = 8) -> Path:
    """The score graph of such a model."""
    export_model(checkpoint(width, score, layers, heads), "0" * 64, folder, ExportConfig(engine="none"))
    return folder / "model.onnx"


def export_default(folder: Path) -> Path:
    """The graph of the default network with random weights, times in column timestamp; its path."""
    model = untrained(
        ModelConfig(features=FEATURES),
        ScoreConfig(),
        DiscrepancyConfig(),
        windows=100,
        ratio=0.01,
        time_column="timestamp",
        patterns=True,
    )
    export_model(model, "0" * 64, folder, ExportConfig(engine="none"))
    return folder / "model.onnx"


def write_rows(path: Path, rows: int) -> None:
    """Noise, appended in pieces so that the benchmark itself needs little memory."""
    piece = 1 << 18
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(piece, FEATURES)).astype(np.float32)
    parts = []
    for first in range(0, rows, piece):
        count = min(piece, rows - first)
        columns = {f"f{i:02}": noise[:count, i] for i in range(FEATURES)}
        part = path.with_name(f"{path.stem}.{first:012}.part")
        pl.DataFrame({"timestamp": np.arange(first, first + count), **columns}).write_parquet(part)
        parts.append(part)
    pl.scan_parquet(parts).sink_parquet(path, row_group_size=piece)
    for part in parts:
        part.unlink()
