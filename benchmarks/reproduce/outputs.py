"""What a trained network says about validation and test rows, kept so that every table can be made of it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import HeadRule, ScoreConfig, ScoreMode, head_rule, head_rules
from at_infer.models.criterion import anomaly_score
from at_infer.output import atomic_path
from at_infer.scoring.windows import window_starts
from benchmarks.reproduce.sources import KEYS
from benchmarks.reproduce.trainings import Training, features, trained
from training.discrepancy import association_discrepancy
from training.model import AnomalyTransformer
from training.validation_rows import one_per_row

Floats = NDArray[np.float32]
BATCH = 32


@dataclass(frozen=True, slots=True)
class Outputs:
    """Of the windows (B,N) of some rows."""

    starts: NDArray[np.int64]
    error: Floats
    """Mean squared error."""
    discrepancy: dict[HeadRule, Floats]
    """AssDis of each layer, (L,B,N)."""
    adjacent: Floats
    """Mean weight of the series association between a point and its neighbours."""

    def scores(self, mode: ScoreMode, training: Training, layer: int | None = None) -> Floats:
        """One score per row, by all layers or by one."""
        discrepancy = self.discrepancy[head_rule(mode, training.discrepancy)]
        chosen = discrepancy.mean(axis=0) if layer is None else discrepancy[layer]
        layers = training.layers if layer is None else 1
        of_windows = anomaly_score(self.error, chosen, ScoreConfig(mode=mode), layers_summed=layers)
        return one_per_row(of_windows, self.starts)

    def adjacent_weights(self) -> Floats:
        """One per row."""
        return one_per_row(self.adjacent, self.starts)


@dataclass(frozen=True, slots=True)
class Scored:
    """A training, and its outputs for rows with and without labels."""

    training: Training
    validation: Outputs
    """Of the training rows, if early stopping used the test rows: the published code has no others."""
    test: Outputs


def scored(training: Training, folder: Path, work: Path) -> Scored:
    """From the work folder; what is not there is made."""
    path = training.path(work).with_suffix(".npz")
    if not path.exists():
        checkpoint = trained(training, folder, work)
        network = checkpoint.network()
        leaks = training.early_stopping is not None
        data = features(folder, training.window, early_stopping=training.early_stopping)
        part = data.train if leaks else data.validation
        validation = window_outputs(network, part.values, part.starts, training)
        rows = pl.read_parquet(folder / "test.parquet").drop(*KEYS, "label").to_numpy().astype(np.float32)
        mean, scale = (np.asarray(v, np.float32) for v in (checkpoint.scaler.mean, checkpoint.scaler.scale))
        starts = window_starts(len(rows), training.window, training.window, cover_tail=True)
        test = window_outputs(network, (rows - mean) / scale, starts, training)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **_arrays("validation", validation), **_arrays("test", test))
    with np.load(path) as kept:
        rules = head_rules(training.discrepancy)
        return Scored(training, _of_arrays(kept, "validation", rules), _of_arrays(kept, "test", rules))


@torch.inference_mode()
def window_outputs(network: AnomalyTransformer, values: Floats, starts: NDArray[np.int64], by: Training) -> Outputs:
    """Run the network over windows of scaled rows."""
    rows, steps = torch.from_numpy(values), torch.arange(network.config.window)
    error: list[Tensor] = []
    adjacent: list[Tensor] = []
    discrepancy: dict[HeadRule, list[Tensor]] = {rule: [] for rule in head_rules(by.discrepancy)}
    for batch in torch.from_numpy(starts).split(BATCH):
        x = rows[batch[:, None] + steps]
        x_hat, associations = network(x)
        error.append((x_hat - x).square().mean(-1))
        adjacent.append(torch.stack([adjacent_weight(a.series) for a in associations]).mean(0))
        for rule, kept in discrepancy.items():
            config = replace(by.discrepancy, head_rule=rule)
            of_layers = [association_discrepancy([a], config, network.config.prior) for a in associations]
            kept.append(torch.stack(of_layers))
    return Outputs(
        starts,
        torch.cat(error).numpy(),
        {rule: torch.cat(kept, dim=1).numpy() for rule, kept in discrepancy.items()},
        torch.cat(adjacent).numpy(),
    )


def adjacent_weight(series: Tensor) -> Tensor:
    """S (B,H,N,N) -> (B,N): mean over the heads and the one or two neighbours; even attention gives 1/N."""
    before = F.pad(series.diagonal(-1, -2, -1), (1, 0))  # S[i, i-1]
    after = F.pad(series.diagonal(1, -2, -1), (0, 1))  # S[i, i+1]
    neighbours = torch.full(series.shape[-1:], 2.0)
    neighbours[[0, -1]] = 1.0
    return ((before + after) / neighbours).mean(1)


def _arrays(part: str, outputs: Outputs) -> dict[str, Any]:
    named: dict[str, Any] = {"starts": outputs.starts, "error": outputs.error, "adjacent": outputs.adjacent}
    named.update(outputs.discrepancy.items())
    return {f"{part}_{name}": array for name, array in named.items()}


def _of_arrays(kept: "np.lib.npyio.NpzFile", part: str, rules: tuple[HeadRule, ...]) -> Outputs:
    return Outputs(
        kept[f"{part}_starts"],
        kept[f"{part}_error"],
        {rule: kept[f"{part}_{rule}"] for rule in rules},
        kept[f"{part}_adjacent"],
    )
