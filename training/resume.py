"""The state of a training: kept in a file while it runs, and continued from there by the very same run."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from at_infer.errors import CheckpointError
from training.checkpoint import read_tensors, write_tensors
from training.model import AnomalyTransformer
from training.schedule import Position


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
    position: Position = field(default_factory=Position)

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
            if saved["identity"].get(name) != value:
                raise CheckpointError(
                    f"{path}: belongs to a run with other {name} settings; resume with the same options and data, "
                    f"or delete it and start again"
                )
        try:
            self.position = Position(**saved["state"])
            self.best = saved["best"]
            for weights in (self.best, saved["network"]):  # both must fit
                self.network.load_state_dict(weights)
            self.optimizer.load_state_dict(saved["optimizer"])
            self.scaler.load_state_dict(saved["scaler"])
            self.history[: self.position.step] = saved["history"].to(self.history.device)
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError):
            raise CheckpointError(f"{path}: is damaged or of another version; delete it and start again") from None
