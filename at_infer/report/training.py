"""A report on a training: the paper's convergence curves and the learned scales."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from at_infer.config import ModelConfig, ScoreConfig
from at_infer.errors import CheckpointError, ConfigError
from at_infer.models.signatures import identify
from at_infer.models.statistics import Threshold, ValidationRecord
from at_infer.report.payload import Arrays
from at_infer.untrusted import typed

SHOWN_QUANTILES = {"median": 0.5, "99 %": 0.99, "99.9 %": 0.999, "highest": 1.0}
LOSSES = {"step", "reconstruction", "discrepancy", "validation_reconstruction", "validation_discrepancy"}
"""Of an evaluation."""
SCALES = 5
"""Quantiles of sigma that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """Training history of a checkpoint."""

    source: str
    model: ModelConfig
    score_mode: str
    threshold: Threshold
    columns: list[str]
    quantile_levels: list[float]
    quantiles: dict[str, list[float]]
    """Per score mode, of the validation scores."""
    evaluations: list[dict[str, float]]
    """Losses of the training and the validation part, each with its step."""
    best_step: int
    """The step whose weights were kept."""
    ended: str
    """Why training ended: `plateau` or `budget`."""
    steps: dict[str, NDArray[np.float32]]
    """Losses per step, by name."""
    scales: list[list[list[float]]]
    """Layers x heads x quantiles (5, 25, 50, 75, 95 %) of sigma."""
    rows: dict[str, int]
    parameters: int
    config: dict[str, Any]

    @property
    def best(self) -> dict[str, float]:
        """The evaluation of the weights that were kept."""
        return next(one for one in self.evaluations if one["step"] == self.best_step)


class TrainedModel(Protocol):
    """What of a loaded checkpoint is reported."""

    @property
    def model(self) -> ModelConfig:
        """Shape of the network."""

    @property
    def score(self) -> ScoreConfig:
        """The recorded score."""

    @property
    def columns(self) -> list[str]:
        """Features, in order."""

    @property
    def quantile_levels(self) -> list[float]:
        """Of the validation scores."""

    @property
    def state_dict(self) -> Mapping[str, Any]:
        """Weights, by name."""

    @property
    def train(self) -> dict[str, Any]:
        """Configuration and history of the training."""

    def validation_of(self) -> ValidationRecord:
        """Threshold and quantiles of rows scored by whole windows."""


def is_checkpoint(source: str) -> bool:
    """Is it a checkpoint, not a file of scores? A model is neither, and an error."""
    path = Path(source)
    if not path.is_file() or path.suffix.lower() in (".parquet", ".csv"):
        return False
    kind = identify(path)
    if kind in ("onnx", "plan"):
        raise ConfigError(f"{source}: is a model; give its scores, or the checkpoint it was exported from")
    return kind == "checkpoint"


def survey_training(source: str, known: TrainedModel) -> TrainingReport:
    """Training history of a loaded checkpoint."""
    train, validation = known.train, known.validation_of()
    evaluations = train.get("evaluations") or train.get("epochs")  # earlier versions had one an epoch
    if not evaluations:
        raise CheckpointError(f"{source}: has no training history; give a checkpoint written by at-infer train")
    try:
        report = TrainingReport(
            source=source,
            model=known.model,
            score_mode=known.score.mode,
            threshold=validation.threshold,
            columns=known.columns,
            quantile_levels=known.quantile_levels,
            quantiles=validation.quantiles,
            evaluations=typed(list[dict[str, float]], evaluations, "evaluations"),
            best_step=typed(int, train.get("best_step") or evaluations[train["best_epoch"] - 1]["step"], "best_step"),
            ended=typed(str, train.get("ended") or _ended_by_epoch(train, evaluations), "ended"),
            steps={name: np.asarray(values, np.float32) for name, values in train.get("steps", {}).items()},
            scales=typed(list[list[list[float]]], train.get("scales", []), "scales"),
            rows=typed(dict[str, int], train.get("rows", {}), "rows"),
            parameters=sum(math.prod(tensor.shape) for tensor in known.state_dict.values()),
            config=typed(dict[str, Any], train.get("config", {}), "config"),
        )
        _check(report)
    except (ConfigError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{source}: its training history is damaged ({error}); train the model again") from None
    return report


def _ended_by_epoch(train: dict[str, Any], evaluations: list[Any]) -> str:
    return "budget" if len(evaluations) - train["best_epoch"] < 2 else "plateau"


def _check(report: TrainingReport) -> None:
    """What describing it takes for granted."""
    if any(not one.keys() >= LOSSES for one in report.evaluations):
        raise ConfigError("evaluations: without a loss or step")
    if all(one["step"] != report.best_step for one in report.evaluations):
        raise ConfigError("best_step: there was no evaluation")
    if any(len(quantiles) != SCALES for heads in report.scales for quantiles in heads):
        raise ConfigError(f"scales: are not {SCALES} quantiles")
    if any(values.ndim != 1 for values in report.steps.values()):
        raise ConfigError("steps: are not one number each")
    if not set(SHOWN_QUANTILES.values()) <= set(report.quantile_levels):
        raise ConfigError("quantile_levels: without those that are shown")
    typed(float, report.config.get("learning_rate", 0.0), "learning_rate")


def describe_training(report: TrainingReport) -> tuple[dict[str, Any], Arrays]:
    """The report for a page."""
    arrays = Arrays()
    for name, values in report.steps.items():
        arrays.add(f"steps.{name}", values, "f4")
    shown = [report.quantile_levels.index(level) for level in SHOWN_QUANTILES.values()]
    first, best, last, model = report.evaluations[0], report.best, report.evaluations[-1], report.model
    description = {
        "kind": "training",
        "source": Path(report.source).name,
        "headline": [
            ("Validation loss ", False),
            (f"{best['validation_reconstruction']:.4g}", True),
            (f" after step {report.best_step} of {last['step']}", False),
        ],
        "subline": [(_verdict(report), False)],
        "tiles": [
            (f"{first['validation_reconstruction']:.4g}", f"validation loss after step {first['step']}"),
            (f"{last['discrepancy']:.4g}", "association discrepancy at the end"),
            (f"{report.threshold.value:.4g}", f"threshold of {report.score_mode} scores"),
            (f"{report.parameters:,}", f"weights: {model.width} wide, {model.heads} heads, {model.layers} layers"),
        ],
        "evaluations": report.evaluations,
        "bestStep": report.best_step,
        "mode": report.score_mode,
        "quantiles": list(SHOWN_QUANTILES),
        "modes": [(mode, [values[i] for i in shown]) for mode, values in report.quantiles.items()],
        "scales": report.scales,
        "facts": _facts(report),
        "notes": [] if report.scales else ["Learned scales are not in this checkpoint; train it again."],
    }
    return description, arrays


def _verdict(report: TrainingReport) -> str:
    """Whether to train longer, in one sentence."""
    if len(report.evaluations) == 1:
        return "One evaluation: too few to tell whether training was long enough."
    if report.ended == "budget":
        return "The validation loss was still falling when the budget ended: training longer may lower it further."
    return "Training ended because the validation loss had stopped falling."


def _facts(report: TrainingReport) -> list[tuple[str, str]]:
    model, config = report.model, report.config
    columns = ", ".join(report.columns[:12]) + (
        f" and {len(report.columns) - 12} more" if len(report.columns) > 12 else ""
    )
    facts = [
        ("checkpoint", report.source),
        ("columns", f"{len(report.columns)}: {columns}"),
        ("window", f"{model.window} rows"),
        ("rows", ", ".join(f"{count:,} {part}" for part, count in report.rows.items())),
        ("learning rate", f"{config['learning_rate']:g}" if "learning_rate" in config else ""),
        ("batch", str(config.get("batch_size", ""))),
        ("score", report.score_mode),
    ]
    return [(name, text) for name, text in facts if text]
