"""What a new checkpoint tells of its training: how long it took, why it ended, and how a student compares."""

from dataclasses import dataclass
from typing import Self

from at_infer.config import TrainConfig
from training.checkpoint import Checkpoint
from training.schedule import Ended
from training.student_agreement import Agreement


@dataclass(frozen=True, slots=True)
class History:
    """A training that is done."""

    config: TrainConfig
    steps: int
    best_step: int
    """Whose weights the checkpoint has."""
    ended: Ended | None
    agreement: Agreement | None
    """Of a student with its teacher."""
    times_as_fast: float | None
    """A student as its teacher, in PyTorch."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """As `fit` and `Distillation` record it."""
        known = checkpoint.train
        return cls(
            config=TrainConfig.from_dict(known["config"]),
            steps=known["evaluations"][-1]["step"],
            best_step=known["best_step"],
            ended=known["ended"],
            agreement=Agreement(**known["agreement"]) if "agreement" in known else None,
            times_as_fast=known.get("times_as_fast"),
        )
