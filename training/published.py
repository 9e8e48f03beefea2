"""Checkpoints of the published implementation (thuml/Anomaly-Transformer): a bare state_dict."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from at_infer.config import DEFAULT_RATIO, DiscrepancyConfig, ModelConfig, ScoreConfig
from at_infer.errors import CheckpointError, ConfigError
from at_infer.thresholds.quantiles import QUANTILE_LEVELS
from training.checkpoint import Checkpoint, read_tensors
from training.data import DataConfig, load
from training.model import AnomalyTransformer, sinusoids
from training.validation import measure_validation
from training.validation_rows import CoveredRows, ScoredNetwork


def load_published(path: Path, *, window: int, heads: int | None = None) -> AnomalyTransformer:
    """The network of a published `*_checkpoint.pth`, ready to score.

    The tensors tell features, width, heads, layers and feed-forward width, but not the window. `heads` is only
    compared with what they tell.
    """
    source = read_tensors(path)
    tensors = isinstance(source, dict) and all(isinstance(value, Tensor) for value in source.values())
    if not tensors or not all(isinstance(name, str) for name in source):
        raise CheckpointError(f"{path}: is not a state_dict of the published implementation")
    source = {name.removeprefix("module."): tensor for name, tensor in source.items()}
    try:
        config = _infer_config(source, window)
        state = _translate(source, config)
    except KeyError as error:
        raise CheckpointError(
            f"{path}: is not a state_dict of the published implementation, it has no {error.args[0]}"
        ) from None
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    if heads is not None and heads != config.heads:
        raise CheckpointError(f"{path}: has {config.heads} heads, not {heads}; leave `heads` out")
    _check_position_table(path, source, config)
    network = AnomalyTransformer(config)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: its tensors do not fit each other ({reason})") from None
    return network.eval()


def published_checkpoint(
    path: Path,
    config: DataConfig,
    *,
    window: int,
    heads: int | None = None,
    score: ScoreConfig,
    ratio: float = DEFAULT_RATIO,
) -> Checkpoint:
    """A full checkpoint from a published one and the data it was trained on.

    The published code scales by all rows of its training file, so mean and scale come from all rows of the source,
    and so do the scores that give the threshold: never from a test set.
    """
    network = load_published(path, window=window, heads=heads)
    data = load(replace(config, validation=config.source), window=window)
    if len(data.columns) != network.config.features:
        raise CheckpointError(
            f"{path}: was trained on {network.config.features} columns, {config.source} has {len(data.columns)}; "
            f"choose them with `columns` or `exclude`"
        )
    discrepancy = DiscrepancyConfig(head_rule="published")
    part = data.validation
    rows = CoveredRows(torch.from_numpy(part.values), part.starts, part.series_rows)
    measured = measure_validation(ScoredNetwork(network, discrepancy, score), rows, ratio=ratio)
    return Checkpoint(
        model=network.config,
        state_dict=network.state_dict(),
        columns=data.columns,
        time_column=None,
        series_column=data.series_column,
        scaler=data.scaler,
        fill=data.fill,
        discrepancy=discrepancy,
        score=score,
        quantile_levels=list(QUANTILE_LEVELS),
        validation=measured.records,
        normal=measured.normal,
        train={"published": True},
    )


def _infer_config(source: dict[str, Tensor], window: int) -> ModelConfig:
    width, features, _ = source["embedding.value_embedding.tokenConv.weight"].shape
    layers = 0
    while f"encoder.attn_layers.{layers}.conv1.weight" in source:
        layers += 1
    return ModelConfig(
        features=features,
        window=window,
        width=width,
        heads=source["encoder.attn_layers.0.attention.sigma_projection.weight"].shape[0],
        layers=layers,
        feed_forward=source["encoder.attn_layers.0.conv1.weight"].shape[0],
        padding="circular",
    )


def _translate(source: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Their names and shapes to ours; `attention.norm` exists there and is never used."""
    token = source["embedding.value_embedding.tokenConv.weight"]  # (D,F,3)
    state = {"embedding.token.weight": token.permute(0, 2, 1).reshape(config.width, -1)}
    for i in range(config.layers):
        theirs, ours = f"encoder.attn_layers.{i}", f"layers.{i}"
        for kind in ("weight", "bias"):
            parts = [source[f"{theirs}.attention.{p}_projection.{kind}"] for p in ("query", "key", "value", "sigma")]
            state[f"{ours}.attention.project.{kind}"] = torch.cat(parts)
            state[f"{ours}.attention.out.{kind}"] = source[f"{theirs}.attention.out_projection.{kind}"]
            for conv, linear in (("conv1", 0), ("conv2", 2)):
                state[f"{ours}.feed_forward.{linear}.{kind}"] = source[f"{theirs}.{conv}.{kind}"].squeeze(-1)
            for norm in ("norm1", "norm2"):
                state[f"{ours}.{norm}.{kind}"] = source[f"{theirs}.{norm}.{kind}"]
    for kind in ("weight", "bias"):
        state[f"norm.{kind}"] = source[f"encoder.norm.{kind}"]
        state[f"projection.{kind}"] = source[f"projection.{kind}"]
    return state


def _check_position_table(path: Path, source: dict[str, Tensor], config: ModelConfig) -> None:
    """The table is a constant there too; one that differs means another network."""
    table = source.get("embedding.position_embedding.pe")
    if table is None:
        return
    if table.shape[1] < config.window:
        raise CheckpointError(
            f"{path}: its position table ends at {table.shape[1]}, below the window of {config.window}"
        )
    if not torch.allclose(table[0, : config.window], sinusoids(config.window, config.width), atol=1e-4):
        raise CheckpointError(f"{path}: its position table is not the published one")
