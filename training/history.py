"""What a new checkpoint tells of its training: how long it took, why it ended, and how a student compares."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from at_infer.config import TrainConfig
from training.checkpoint import Checkpoint
from training.schedule import Ended
from training.student_agreement import StudentAgreement

ENOUGH = 0.95
"""Rank correlation from which on a student counts as one that gives the scores of its teacher."""


@dataclass(frozen=True, slots=True)
class History:
    """A training that is done."""

    config: TrainConfig
    steps: int
    best_step: int
    """Whose weights the checkpoint has."""
    ended: Ended | None
    agreement: StudentAgreement | None
    """Of a student with its teacher."""
    times_as_fast: float | None
    """A student as its teacher, in PyTorch."""
    width: int
    uses_discrepancy: bool
    """Of the score."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """As `fit` and `Distillation` record it."""
        known = checkpoint.train
        return cls(
            config=TrainConfig.from_dict(known["config"]),
            steps=known["evaluations"][-1]["step"],
            best_step=known["best_step"],
            ended=known["ended"],
            agreement=StudentAgreement(**known["agreement"]) if "agreement" in known else None,
            times_as_fast=known.get("times_as_fast"),
            width=checkpoint.model.width,
            uses_discrepancy=checkpoint.score.uses_discrepancy,
        )

    @property
    def advice(self) -> str | None:
        """What to do about a training that was not done when its budget was."""
        if self.ended != "budget":
            return None
        epochs = self.config.epochs
        longer = f"max_steps={2 * self.steps}" if epochs is None else f"epochs={2 * epochs}"
        spent = f"the budget of {self.steps} step{'' if self.steps == 1 else 's'} ended"
        return f"the validation loss was still falling when {spent}; {longer} trains longer"

    @property
    def compared(self) -> Iterator[str]:
        """A student with its teacher, and what to do if they differ."""
        found = self.agreement
        if found is None:
            return
        yield (
            f"agreement with the teacher on {found.rows} validation rows: rank correlation {found.spearman:.3f}, "
            f"{found.same_verdicts:.2%} of verdicts equal, {found.shared_alarms:.0%} of its alarms shared; with "
            f"made-up faults {found.disturbed_spearman:.3f}, {found.disturbed_same_verdicts:.2%}, "
            f"{found.disturbed_shared_alarms:.0%}; {self.times_as_fast:.1f} times as fast (measured in PyTorch)"
        )
        if found.spearman < ENOUGH:
            other = ", or score_mode='fusion', which needs no associations" if self.uses_discrepancy else ""
            yield (
                f"a rank correlation of {ENOUGH} was not reached; try max_steps={2 * self.steps} or "
                f"width={2 * self.width}{other}"
            )
