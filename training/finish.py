"""The end of a training: from the best weights to a checkpoint, with validation statistics and a threshold."""

import torch
from torch import Tensor

from at_infer import __version__
from at_infer.config import Fill, ScoreConfig, TrainConfig
from at_infer.thresholds.quantiles import QUANTILE_LEVELS
from training.checkpoint import Checkpoint
from training.data import TrainingData
from training.resume import TrainingState
from training.scales import learned_scales
from training.validation import measure_validation
from training.validation_rows import most_live_rows


def finish(
    state: TrainingState,
    data: TrainingData,
    validation_values: Tensor,
    config: TrainConfig,
    score: ScoreConfig,
    *,
    ratio: float,
    fill: Fill,
    device: torch.device,
    data_sha256: str,
    parent_sha256: str | None,
) -> Checkpoint:
    """Best weights, validation statistics of them, and the threshold of the score.

    `validation_values` are the rows of the validation part on `device`.
    """
    network, position, validation = state.network, state.position, data.validation
    network.load_state_dict(state.best)
    network.eval()
    starts = torch.from_numpy(validation.starts).to(device)
    measured = measure_validation(
        network,
        validation_values,
        validation.starts,
        validation.series_rows,
        discrepancy=config.discrepancy,
        score=score,
        ratio=ratio,
        learnt=data.train.series(),
        batch_size=config.batch_size,
        live_rows=most_live_rows(position.step * config.batch_size),
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
        season=data.season,
        spacing=data.spacing,
        grid=data.grid,
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
            "device": str(device),
            "at_infer": __version__,
            "torch": str(torch.__version__),
        },
    )
