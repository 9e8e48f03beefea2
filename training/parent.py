"""Weights to start from: those of an earlier checkpoint, for the same columns and other rows."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from at_infer.config import ModelConfig, TrainConfig
from at_infer.errors import CheckpointError, ConfigError
from at_infer.models.kinds import file_sha256
from at_infer.untrusted import typed
from training.checkpoint import Checkpoint

BUDGET_SHARE = 5  # known weights need a fifth of the steps
KEPT = ("strategy", "lambda_", "batch_size")  # settings that are those of the checkpoint
RATE_SHARE = 3  # and a third of the learning rate: the first steps must not undo what is known


@dataclass(frozen=True, slots=True)
class Parent:
    """The checkpoint that a training starts from."""

    source: str
    sha256: str
    checkpoint: Checkpoint

    @classmethod
    def load(cls, path: Path) -> "Parent":
        """Read it; weights, columns and settings are then those of the file at this moment."""
        checkpoint = Checkpoint.load(path)
        return cls(str(path), file_sha256(path), checkpoint)

    def train_config(self) -> TrainConfig:
        """Settings for fine-tuning: the same loss and batch size, fewer steps, a lower learning rate."""
        default = TrainConfig()
        assert default.max_steps is not None
        hints = get_type_hints(TrainConfig)
        try:
            config = typed(dict[str, Any], self.checkpoint.train.get("config", {}), "config")
            known = {name: typed(hints[name], config.get(name, getattr(default, name)), name) for name in KEPT}
            rate = typed(float, config.get("learning_rate", 1.0), "learning_rate")
            return replace(
                default,
                discrepancy=self.checkpoint.discrepancy,
                max_steps=default.max_steps // BUDGET_SHARE,
                learning_rate=min(default.learning_rate / RATE_SHARE, rate),
                noise=typed(float, config.get("noise", 0.0), "noise"),
                **known,
            )
        except ConfigError as error:
            raise CheckpointError(f"{self.source}: is damaged or was edited ({error})") from None

    def check(self, model: ModelConfig, columns: list[str]) -> None:
        """Raise if its weights are not those of such a network and such columns."""
        if columns != self.checkpoint.columns:
            raise ConfigError(
                f"{self.source}: was trained on the columns {', '.join(self.checkpoint.columns)}, not on "
                f"{', '.join(columns)}; weights belong to the columns that they were trained on"
            )
        if model != self.checkpoint.model:
            raise ConfigError(f"{self.source}: has another network; start from it with its own model settings")
