"""Checkpoints: tensors and plain values only, written atomically, loaded without running any code."""

import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from at_infer.config import DiscrepancyConfig, Fill, ModelConfig, Scaler, ScoreConfig, Threshold
from at_infer.errors import AtInferError, CheckpointError
from at_infer.output import atomic_path
from training.model import AnomalyTransformer

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A trained model and all that scoring with it needs."""

    model: ModelConfig
    state_dict: dict[str, Tensor]
    columns: list[str]
    scaler: Scaler
    fill: Fill
    """What to do with missing values, in training and again when scoring."""
    discrepancy: DiscrepancyConfig
    score: ScoreConfig
    threshold: Threshold
    quantile_levels: list[float]
    quantiles: dict[str, list[float]]
    """Per score mode, quantiles of the validation scores at `quantile_levels`."""
    train: dict[str, Any]
    """TrainConfig, data, versions, and the history per step and per epoch."""

    def network(self) -> AnomalyTransformer:
        """The network with its weights, ready to score."""
        network = AnomalyTransformer(self.model)
        network.load_state_dict(self.state_dict)
        return network.eval()

    def save(self, path: Path) -> None:
        """Write the checkpoint, or nothing."""
        write_tensors(
            path,
            {
                "format": FORMAT,
                "model": self.model.to_dict(),
                "state_dict": self.state_dict,
                "columns": self.columns,
                "scaler": self.scaler.to_dict(),
                "fill": self.fill,
                "discrepancy": self.discrepancy.to_dict(),
                "score": self.score.to_dict(),
                "threshold": self.threshold.to_dict(),
                "quantile_levels": self.quantile_levels,
                "quantiles": self.quantiles,
                "train": self.train,
            },
        )

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Read a checkpoint written by `at-infer train`."""
        content = read_tensors(path)
        if not isinstance(content, dict) or "format" not in content:
            hint = ""
            if isinstance(content, dict) and any(key.startswith("encoder.attn_layers") for key in content):
                hint = "; it looks like one of the published implementation, load it with --published"
            raise CheckpointError(f"{path}: is not a checkpoint of at-infer{hint}")
        if content["format"] != FORMAT:
            raise CheckpointError(
                f"{path}: has checkpoint format {content['format']}, this version reads {FORMAT}; upgrade at-infer"
            )
        try:
            checkpoint = cls(
                model=ModelConfig.from_dict(content["model"]),
                state_dict=content["state_dict"],
                columns=content["columns"],
                scaler=Scaler.from_dict(content["scaler"]),
                fill=content["fill"],
                discrepancy=DiscrepancyConfig.from_dict(content["discrepancy"]),
                score=ScoreConfig.from_dict(content["score"]),
                threshold=Threshold.from_dict(content["threshold"]),
                quantile_levels=content["quantile_levels"],
                quantiles=content["quantiles"],
                train=content["train"],
            )
            checkpoint.network()
        except (KeyError, TypeError, AtInferError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise CheckpointError(f"{path}: is damaged or was edited ({reason})") from None
        return checkpoint


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Save tensors and plain values atomically."""
    with atomic_path(path) as temporary:
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # torch's file writer reports a full disk this way
            raise OSError(str(error).strip().splitlines()[0]) from error


def read_tensors(path: Path) -> Any:
    """Load tensors and plain values; anything that would execute code is refused."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise CheckpointError(f"{path}: is a folder, not a checkpoint") from None
    except pickle.UnpicklingError as error:
        if "Unsupported" in str(error):
            raise CheckpointError(f"{path}: holds objects that could run code; refused") from None
        raise CheckpointError(f"{path}: is not a checkpoint") from None
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path}: is damaged or not a checkpoint ({reason})") from None
