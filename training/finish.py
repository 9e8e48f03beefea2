"""The end of a training: from the best weights to a checkpoint, with a score, its threshold and what is usual."""

from typing import Any

import torch
from torch import Tensor

from at_infer import __version__
from at_infer.config import Fill, Normal, ScoreConfig, TrainConfig
from at_infer.thresholds.quantiles import QUANTILE_LEVELS
from training.checkpoint import Checkpoint
from training.data import TrainingData
from training.model import AnomalyTransformer
from training.resume import TrainingState
from training.scales import learned_scales
from training.selection import AutoScore, rate
from training.validation import first_rows, measure_validation, most_causal_windows, usual


def finish(
    state: TrainingState,
    data: TrainingData,
    validation_values: Tensor,
    config: TrainConfig,
    score: ScoreConfig | AutoScore,
    *,
    ratio: float,
    fill: Fill,
    device: torch.device,
    data_sha256: str,
    parent_sha256: str | None,
) -> Checkpoint:
    """Best weights, what is usual for them, the score if it is to be chosen, and its threshold.

    `validation_values` are the rows of the validation part on `device`.
    """
    network, position, validation = state.network, state.position, data.validation
    network.load_state_dict(state.best)
    network.eval()
    starts = torch.from_numpy(validation.starts).to(device)
    normal = usual(network, validation_values, starts, config.discrepancy, config.batch_size)
    selection = None
    if isinstance(score, AutoScore):
        selection = _rate(score, network, data, normal, config, device)
        score = score.chosen(selection)
    measured = measure_validation(
        network,
        validation_values,
        validation.starts,
        validation.series_rows,
        discrepancy=config.discrepancy,
        score=score,
        ratio=ratio,
        normal=normal,
        batch_size=config.batch_size,
        most_causal_windows=most_causal_windows(position.step * config.batch_size),
    )
    history = state.history[: position.step].cpu()
    return Checkpoint(
        model=network.config,
        state_dict={name: tensor.cpu() for name, tensor in state.best.items()},
        columns=data.columns,
        time_column=data.time_column,
        series_column=data.series_column,
        scaler=data.scaler,
        fill=fill,
        discrepancy=config.discrepancy,
        score=score,
        quantile_levels=list(QUANTILE_LEVELS),
        validation=measured.records,
        normal=measured.normal,
        train={
            "config": config.to_dict(),
            "seed": config.seed,
            "evaluations": position.evaluations,
            "best_step": position.best_step,
            "ended": position.ended,
            "parent_sha256": parent_sha256,
            "steps": {"reconstruction": history[:, 0].clone(), "discrepancy": history[:, 1].clone()},
            "rows": {"train": data.train.rows, "validation": validation.rows},
            "windows": {"train": len(data.train.starts), "validation": len(validation.starts)},
            "scales": learned_scales(network, validation_values, starts, config.batch_size),
            "data_sha256": data_sha256,
            "selection": selection,
            "device": str(device),
            "at_infer": __version__,
            "torch": str(torch.__version__),
        },
    )


def _rate(
    score: AutoScore,
    network: AnomalyTransformer,
    data: TrainingData,
    normal: Normal,
    config: TrainConfig,
    device: torch.device,
) -> list[dict[str, Any]]:
    part = data.validation
    firsts = first_rows(part.starts, part.series_rows, network.config.window).tolist()
    return rate(
        score.candidates(),
        network,
        [part.values[first : first + rows] for first, rows in zip(firsts, part.series_rows, strict=True)],
        discrepancy=config.discrepancy,
        normal=normal,
        seed=config.seed,
        device=device,
        batch_size=config.batch_size,
    )
