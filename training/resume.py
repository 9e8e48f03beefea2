"""The state of a training: kept in a file while it runs, and continued from there by the very same run."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from at_infer.errors import CheckpointError
from at_infer.untrusted import typed
from training.checkpoint import read_tensors, write_tensors
from training.model import AnomalyTransformer
from training.schedule import Ended, TrainingPosition


class StateFile(NamedTuple):
    """Where the state is kept while a training runs."""

    path: Path
    resume: bool = False
    """Continue from what is there."""


@dataclass(slots=True)
class TrainingState:
    """All that changes while a training runs."""

    network: AnomalyTransformer
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    history: Tensor
    """Losses of every step, done or to do: (steps,2), reconstruction and discrepancy."""
    best: dict[str, Tensor]
    """Weights of the best evaluation so far."""
    position: TrainingPosition = field(default_factory=TrainingPosition)

    def save(self, path: Path, identity: dict[str, Any]) -> None:
        """Keep everything, atomically; `identity` is what must be the same for a resumed run to end like this one."""
        write_tensors(
            path,
            {
                "identity": identity,
                "state": asdict(self.position),
                "network": self.network.state_dict(),
                "best": self.best,
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "history": self.history[: self.position.step].clone(),
            },
        )

    def restore(self, path: Path, identity: dict[str, Any]) -> None:
        """Continue from what `save` wrote, if it belongs to a run of this identity."""
        saved = read_tensors(path)
        if not isinstance(saved, dict) or not isinstance(saved.get("identity"), dict):
            raise CheckpointError(f"{path}: is not the state of an interrupted training; delete it and start again")
        for name, value in identity.items():
            if not _is_same(saved["identity"].get(name), value):
                raise CheckpointError(
                    f"{path}: belongs to a run with other {name} settings; resume with the same options and data, "
                    f"or delete it and start again"
                )
        try:
            self.position = _position(saved["state"], len(self.history))
            if saved["history"].shape != (self.position.step, 2):
                raise ValueError("history")
            self.best = saved["best"]
            for weights in (self.best, saved["network"]):  # both must fit
                self.network.load_state_dict(weights)
            _load_optimizer(self.optimizer, saved["optimizer"])
            self.scaler.load_state_dict(saved["scaler"])
            self.history[: self.position.step] = saved["history"].to(self.history.device)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError):
            raise CheckpointError(f"{path}: is damaged or of another version; delete it and start again") from None


def _is_same(one: Any, other: Any) -> bool:
    """Plain values: a tensor, which would answer with a tensor, is none."""
    try:
        return bool(one == other)
    except RuntimeError:
        return False


def _position(values: dict[str, Any], most: int) -> TrainingPosition:
    """How far the training was, of at most so many steps; losses may be infinite."""
    position = TrainingPosition(**values)
    counts = [position.step, position.best_step, position.evaluations_without, position.cool_down_from or 0]
    losses = [position.best_loss, position.to_beat]
    for one in position.evaluations:
        losses += typed(dict[str, Any], one, "evaluations").values()
        counts.append(int(one["step"]))
    typed(Ended | None, position.ended, "ended")
    typed(bool, position.finished, "finished")
    if not all(type(count) is int and 0 <= count <= most for count in counts):
        raise ValueError("a step that is none")
    if not all(type(loss) in (int, float) for loss in losses):
        raise ValueError("a loss that is no number")
    return position


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Settings are those of this run, and what is known of a weight has its shape."""
    fresh = optimizer.state_dict()["param_groups"]
    for ours, theirs in zip(fresh, saved["param_groups"], strict=True):
        if not _is_same(theirs | {"lr": ours["lr"]}, ours) or type(theirs["lr"]) is not float:
            raise ValueError("settings of another optimizer")
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if saved["state"] and saved["state"].keys() != set(range(len(weights))):
        raise ValueError("state of other weights")
    for number, kept in saved["state"].items():
        shapes = {name: tuple(tensor.shape) for name, tensor in kept.items()}
        shape = tuple(weights[number].shape)
        if shapes != {"step": (), "exp_avg": shape, "exp_avg_sq": shape}:
            raise ValueError("state of other weights")
    optimizer.load_state_dict(saved)
