"""What is trained: a network on rows, from known weights or new ones, on its own or as the student of another."""

from dataclasses import dataclass

from at_infer.config import ModelConfig, TrainConfig
from training.data import TrainingData
from training.lesson import Lesson
from training.parent import Parent


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTask:
    """Everything that decides which weights come of a training."""

    data: TrainingData
    model: ModelConfig
    train: TrainConfig
    device: str = "cpu"
    parent: Parent | None = None
    """Whose weights it starts from; it sees the rows as `data` scaled them."""
    lesson: Lesson | None = None
    """What a teacher makes of windows, to be learnt instead of the windows."""

    @property
    def parent_sha256(self) -> str | None:
        """Of the checkpoint that it starts from, if any."""
        return None if self.parent is None else self.parent.sha256
