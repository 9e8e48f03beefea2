"""Trainings that the tables share: each is made once, kept in a work folder, and continued where it was stopped."""

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from at_infer.config import (
    PRESETS,
    DiscrepancyConfig,
    Distance,
    HeadRule,
    ModelConfig,
    Prior,
    ScoreConfig,
    Strategy,
)
from benchmarks.reproduce.sources import KEYS
from training.checkpoint import Checkpoint
from training.data import DataConfig, TrainingData, load
from training.loop import Progress, fit
from training.resume import StateFile
from training.task import TrainingTask

SIZES: dict[str, dict[str, Any]] = {
    "full": {"width": 512, "heads": 8, "layers": 3, "learning_rate": 1e-4, "epochs": 10},
    "short": {"width": 512, "heads": 8, "layers": 3, "learning_rate": 1e-4, "epochs": 2},
    "reduced": {"width": 64, "heads": 8, "layers": 3, "learning_rate": 1e-3, "epochs": 10},
    "tiny": {"width": 32, "heads": 4, "layers": 2, "learning_rate": 1e-3, "epochs": 5},
}
"""`full` is the paper's; `short` is the same network, trained for less long; `tiny` is for hundreds of series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One network to be trained; the defaults are the paper's."""

    dataset: str
    width: int = 512
    heads: int = 8
    layers: int = 3
    window: int = 100
    prior: Prior = "gaussian"
    strategy: Strategy = "minimax"
    distance: Distance = "kl"
    lambda_: float = 3.0
    learning_rate: float = 1e-4
    epochs: int = 10
    seed: int = 0
    head_rule: HeadRule = "paper"
    stride: int | None = None
    """Rows from one training window to the next; None: side by side."""
    early_stopping: Literal["test"] | None = None
    """`test`: by the loss of the test rows, after learning from all training rows, as in the published code. A leak."""

    @property
    def discrepancy(self) -> DiscrepancyConfig:
        """How associations are compared while training."""
        return DiscrepancyConfig(head_rule=self.head_rule, distance=self.distance)

    def path(self, work: Path) -> Path:
        """Where the checkpoint is kept; the name says all that matters."""
        known = [value for value in asdict(self).values() if value is not None]
        values = "_".join(f"{value:g}" if isinstance(value, float) else str(value) for value in known)
        return work / "trainings" / f"{values.replace('/', '-')}.pt"


def features(
    folder: Path, window: int, stride: int | None = None, early_stopping: Literal["test"] | None = None
) -> TrainingData:
    """Windows of the training and validation rows, all channels as one long series.

    The paper's are side by side, the published code's of MSL and SMAP overlap. A data set without a validation part of
    its own gives the last fifth of its training rows, which are the numbers of rows in the paper's appendix.
    """
    own = folder / ("validation.parquet" if early_stopping is None else "test.parquet")
    validation: float | str = str(own) if own.exists() else 0.2
    source = DataConfig(source=str(folder / "train.parquet"), exclude=KEYS, validation=validation)
    return load(source, window=window, stride=stride)


def network_config(training: Training, count: int) -> ModelConfig:
    """For so many features."""
    return ModelConfig(
        features=count,
        window=training.window,
        width=training.width,
        heads=training.heads,
        layers=training.layers,
        feed_forward=training.width,
        prior=training.prior,
        padding="circular",
    )


def trained(training: Training, folder: Path, work: Path) -> Checkpoint:
    """The checkpoint from the work folder; if it is not there, train, continuing what was interrupted."""
    path = training.path(work)
    if path.exists():
        return Checkpoint.load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = features(folder, training.window, training.stride, training.early_stopping)
    resume_path = path.with_suffix(".resume.pt")
    print(f"training {path.stem}: {len(data.train.starts)} windows", file=sys.stderr, flush=True)
    task = TrainingTask(
        data=data,
        model=network_config(training, len(data.columns)),
        train=replace(
            PRESETS["paper"].train,
            strategy=training.strategy,
            discrepancy=training.discrepancy,
            lambda_=training.lambda_,
            learning_rate=training.learning_rate,
            epochs=training.epochs,
            stride=training.stride,
            seed=training.seed,
        ),
    )
    kept = StateFile(resume_path, resume=True)
    checkpoint = fit(task, ScoreConfig(mode="published"), kept=kept, observe=_show)
    checkpoint.save(path)
    resume_path.unlink(missing_ok=True)
    return checkpoint


def split_of(training: Training, folder: Path, work: Path) -> dict[str, int]:
    """Rows of the training and of the validation part, as the checkpoint has them."""
    rows = trained(training, folder, work).train["rows"]
    return {part: int(rows[part]) for part in ("train", "validation")}


def _show(progress: Progress) -> None:
    if progress.validation is not None:
        print(
            f"  epoch {progress.epoch} of {progress.epochs}: reconstruction {progress.reconstruction:.4f}, "
            f"on validation {progress.validation['reconstruction']:.4f}, discrepancy {progress.discrepancy:.3f}, "
            f"{progress.windows_per_s:.1f} windows/s",
            file=sys.stderr,
            flush=True,
        )
