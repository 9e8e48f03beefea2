"""The end of a training: from the best weights to a checkpoint, with validation statistics and a threshold."""

import torch
from torch import Tensor

from at_infer import __version__
from at_infer.config import ScoreConfig
from at_infer.thresholds.quantiles import QUANTILE_LEVELS
from training.checkpoint import Checkpoint
from training.data import TrainingData
from training.resume import TrainingState
from training.scales import learned_scales
from training.task import TrainingTask
from training.validation import measure_validation
from training.validation_rows import CoveredRows, ScoredNetwork, Span, last_windows, most_live_rows

LEAST_UNIT_ROWS = 500
"""That units of views are measured on: with fewer validation rows, rows before them count as well. Units weigh features
against each other, so a single one has no use for more."""


def finish(
    state: TrainingState,
    task: TrainingTask,
    validation_values: Tensor,
    score: ScoreConfig,
    *,
    ratio: float,
    device: torch.device,
    data_sha256: str,
) -> Checkpoint:
    """Best weights, validation statistics of them, and the threshold of the score.

    `validation_values` are the rows of the validation part on `device`.
    """
    network, position, data, config = state.network, state.position, task.data, task.train
    validation = data.validation
    network.load_state_dict(state.best)
    network.eval()
    starts = torch.from_numpy(validation.starts).to(device)
    train = [Span(*one) for one in zip(data.train.series_first, data.train.series_rows, strict=True)]
    missing = LEAST_UNIT_ROWS - sum(validation.series_rows) if len(data.columns) > 1 else 0
    window = network.config.window
    measured = measure_validation(
        ScoredNetwork(network, config.discrepancy, score, config.batch_size),
        CoveredRows(validation_values, validation.starts, validation.series_rows, rows_before(data)),
        ratio=ratio,
        learnt=data.train.series(),
        before=last_windows(data.train.values, train, window, missing + window - 1, device) if missing > 0 else None,
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
        fill=data.fill,
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
            "parent_sha256": task.parent_sha256,
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


def rows_before(data: TrainingData) -> list[int]:
    """Training rows right before the validation rows of each series: first live rows have their windows from there."""
    train, validation = data.train, data.validation
    if validation.values is not train.values:
        return [0] * len(validation.series_rows)
    ends = {first + rows: rows for first, rows in zip(train.series_first, train.series_rows, strict=True)}
    return [ends.get(first, 0) for first in validation.series_first]
