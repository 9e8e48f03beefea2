"""Association discrepancy and anomaly criterion in numpy: from an engine's outputs to scores."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from at_infer.config import DiscrepancyConfig, Distance, ScoreConfig
from at_infer.errors import EngineError
from at_infer.metadata import Metadata

Floats = NDArray[np.float32]

FLOOR = np.float32(1e-8)
PUBLISHED_EPSILON = np.float32(1e-4)


def score_outputs(windows: Floats, outputs: Mapping[str, Floats], metadata: Metadata) -> Floats:
    """Scores (B,N) from whatever the engine returned for raw `windows` (B,N,F)."""
    if "score" in outputs:
        return outputs["score"]
    error, discrepancy = error_and_discrepancy(windows, outputs, metadata)
    return anomaly_score(error, discrepancy, metadata.score, layers_summed=layers_summed(metadata))


def error_and_discrepancy(windows: Floats, outputs: Mapping[str, Floats], metadata: Metadata) -> tuple[Floats, Floats]:
    """The two vectors (B,N) that every score mode is a function of."""
    if "error" in outputs and "discrepancy" in outputs:
        return outputs["error"], outputs["discrepancy"]
    layers = range(metadata.model.layers)
    needed = ["reconstruction", *(f"{part}_{i}" for i in layers for part in ("prior", "series"))]
    absent = [name for name in needed if name not in outputs]
    if absent:
        raise EngineError(
            f"engine: has no output {absent[0]!r}; export it again without --outputs, or use the associations graph"
        )
    mean, scale = (np.asarray(v, np.float32) for v in (metadata.scaler.mean, metadata.scaler.scale))
    error: Floats = np.square(outputs["reconstruction"] - (windows - mean) / scale).mean(axis=-1)
    associations = [(outputs[f"prior_{i}"], outputs[f"series_{i}"]) for i in layers]
    return error, association_discrepancy(associations, metadata.discrepancy)


def layers_summed(metadata: Metadata) -> int:
    """How many layers mode `published` sums over."""
    return metadata.model.layers if metadata.discrepancy.layer is None else 1


def anomaly_score(error: Floats, discrepancy: Floats, score: ScoreConfig, *, layers_summed: int) -> Floats:
    """Equation 6, Algorithm 3 and its ablations: (B,N) error and AssDis in, (B,N) out.

    `error` is the mean squared error over the features; `discrepancy` is AssDis averaged over the layers.
    Mode `published` sums over the `layers_summed` layers instead, as the published code does.
    """
    match score.mode:
        case "paper":
            return softmax(-discrepancy) * error
        case "published":
            return softmax(-score.temperature * layers_summed * discrepancy) * error
        case "reconstruction":
            return error
        case "discrepancy":
            return softmax(-discrepancy)
        case "addition":
            return softmax(-discrepancy) + error


def softmax(x: Floats) -> Floats:
    """Softmax over the last axis, the steps of a window."""
    e: Floats = np.exp(x - x.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e


def association_discrepancy(associations: list[tuple[Floats, Floats]], config: DiscrepancyConfig) -> Floats:
    """AssDis (B,N) of (prior, series) pairs (B,H,N,N): the numpy twin of training/discrepancy.py."""
    distance = DISTANCES[config.distance]
    chosen = associations if config.layer is None else [associations[config.layer]]
    if config.head_rule == "paper":
        found = [distance(p.mean(axis=1), s.mean(axis=1), log) for p, s in chosen]
    else:
        found = [distance(p, s, published_log).mean(axis=1) for p, s in chosen]
    mean: Floats = np.mean(found, axis=0)
    return mean


Log = Callable[[Floats], Floats]


def log(p: Floats) -> Floats:
    """Logarithm of a probability that may have underflowed."""
    value: Floats = np.log(np.maximum(p, FLOOR))
    return value


def published_log(p: Floats) -> Floats:
    """Logarithm as in the published code."""
    value: Floats = np.log(p + PUBLISHED_EPSILON)
    return value


def _kl(p: Floats, s: Floats, log: Log) -> Floats:
    value: Floats = ((p - s) * (log(p) - log(s))).sum(axis=-1)
    return value


def _js(p: Floats, s: Floats, log: Log) -> Floats:
    middle: Floats = (p + s) / np.float32(2)
    log_m = log(middle)
    value: Floats = (p * (log(p) - log_m) + s * (log(s) - log_m)).sum(axis=-1) / 2
    return value


def _wasserstein(p: Floats, s: Floats, _: Log) -> Floats:
    value: Floats = np.abs(np.cumsum(p - s, axis=-1)).sum(axis=-1)
    return value


def _cross_entropy(p: Floats, s: Floats, log: Log) -> Floats:
    value: Floats = -(p * log(s) + s * log(p)).sum(axis=-1)
    return value


def _l2(p: Floats, s: Floats, _: Log) -> Floats:
    value: Floats = np.sqrt(np.maximum(np.square(p - s).sum(axis=-1), np.float32(1e-12)))
    return value


DISTANCES: dict[Distance, Callable[[Floats, Floats, Log], Floats]] = {
    "kl": _kl,
    "js": _js,
    "wasserstein": _wasserstein,
    "cross-entropy": _cross_entropy,
    "l2": _l2,
}
