"""When to evaluate, how fast to learn and when to stop: functions of the step and of the evaluations so far."""

from dataclasses import dataclass, field
from typing import Literal

from at_infer.config import TrainConfig

Ended = Literal["plateau", "budget"]


@dataclass(slots=True)
class TrainingPosition:
    """How far a training is."""

    step: int = 0
    """Steps done."""
    evaluations: list[dict[str, float]] = field(default_factory=list)
    best_loss: float = float("inf")
    best_step: int = 0
    to_beat: float = float("inf")
    """Loss of the last evaluation that was better by more than the tolerance."""
    evaluations_without: int = 0
    """Evaluations since then."""
    ended: Ended | None = None
    """Why the cool-down began: the validation loss had stopped falling, or the budget was nearly spent."""
    cool_down_from: int | None = None
    finished: bool = False

    @property
    def evaluated(self) -> int:
        """The step of the last evaluation."""
        return int(self.evaluations[-1]["step"]) if self.evaluations else 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Warm-up, learning, and a cool-down that begins when the validation loss has stopped falling."""

    config: TrainConfig
    steps_per_epoch: int

    @property
    def budget(self) -> int:
        """Steps to do if the validation loss never stops falling."""
        limits = (self.config.max_steps, self.config.epochs and self.config.epochs * self.steps_per_epoch)
        return min(limit for limit in limits if limit is not None)

    @property
    def cool_down(self) -> int:
        """Steps of the cool-down."""
        return int(self.budget * self.config.cool_down)

    def end(self, position: TrainingPosition) -> int:
        """The last step, as far as is known."""
        begin = self.budget - self.cool_down if position.cool_down_from is None else position.cool_down_from
        return begin + self.cool_down

    def next_evaluation(self, position: TrainingPosition) -> int:
        """The step after which to evaluate: at regular intervals, before the cool-down and at its end."""
        every = self.config.evaluate_every or self.steps_per_epoch
        due = [(position.evaluated // every + 1) * every, self.end(position)]
        if position.cool_down_from is None:
            due.append(self.budget - self.cool_down)
        return min(due)

    def learning_rate(self, position: TrainingPosition) -> float:
        """Of the next step: rises linearly to the configured one, stays, and falls linearly to nearly zero."""
        factor = 1.0
        warm_up = int(self.budget * self.config.warm_up)
        if position.step < warm_up:
            factor = (position.step + 1) / (warm_up + 1)
        if position.cool_down_from is not None:
            factor *= 1 - (position.step - position.cool_down_from) / self.cool_down
        return self.config.learning_rate * factor

    def evaluated(self, position: TrainingPosition, loss: float) -> bool:
        """Record a validation loss and update the schedule; returns whether it is the lowest so far."""
        best = loss < position.best_loss
        if best:
            position.best_loss, position.best_step = loss, position.step
        position.evaluations_without += 1
        if loss < position.to_beat * (1 - self.config.tolerance):
            position.to_beat, position.evaluations_without = loss, 0
        plateau = position.evaluations_without >= self.config.patience
        if position.cool_down_from is None and (plateau or position.step >= self.budget - self.cool_down):
            position.cool_down_from, position.ended = position.step, "plateau" if plateau else "budget"
        position.finished = position.cool_down_from is not None and position.step >= self.end(position)
        return best
