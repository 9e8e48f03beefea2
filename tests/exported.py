"""Metadata of a small exported model, for tests that need no real one."""

from typing import Any

from at_infer.config import DiscrepancyConfig, ModelConfig, ScoreConfig
from at_infer.models.metadata import FORMAT, Metadata
from at_infer.models.statistics import Normal, Scaler, Threshold, ValidationRecord

WINDOW, FEATURES = 8, 3
MODEL = ModelConfig(features=FEATURES, window=WINDOW, width=8, heads=2, layers=1, feed_forward=8)


def metadata(**changes: Any) -> Metadata:
    values: dict[str, Any] = {
        "format": FORMAT,
        "at_infer": "0.1.0",
        "checkpoint_sha256": "0" * 64,
        "parent_sha256": None,
        "graph": "score",
        "model": MODEL,
        "columns": ["plain", 'quo"ted\\', "zwölf\n"],
        "time_column": None,
        "series_column": None,
        "scaler": Scaler(mean=[0.0] * FEATURES, scale=[1.0] * FEATURES),
        "fill": "error",
        "discrepancy": DiscrepancyConfig(),
        "score": ScoreConfig(mode="paper"),
        "alignment": "tail",
        "quantile_levels": [0.5, 1.0],
        "validation": [
            ValidationRecord(
                threshold=Threshold(value=0.25, method="ratio", ratio=0.01, validation_rows=100),
                quantiles={"paper": [0.1, 0.3]},
            )
        ],
        "normal": Normal(
            error=[0.5] * FEATURES,
            centred_error=[0.25] * FEATURES,
            discrepancy={"paper": [20.0, 2.0], "published": [30.0, 3.0], "exact": [200.0, 50.0]},
        ),
        "precision": "fp32",
        "fp32_ops": "all",
        "batch": None,
        "parity": {},
        "engine": None,
    }
    return Metadata(**values | changes)
