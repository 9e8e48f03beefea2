"""Association discrepancy and anomaly criterion in numpy: from an engine's outputs to scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from at_infer.config import DiscrepancyConfig, Distance, ErrorKind, Prior, ScoreConfig
from at_infer.errors import ConfigError, EngineError
from at_infer.models.fusion import fuse_windows
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import Normal, Scaler, ViewStatistics

Floats = NDArray[np.float32]

NO_STATISTICS = "needs validation statistics, which this model does not have; train and export it again"

FLOOR = np.float32(1e-8)
PUBLISHED_EPSILON = np.float32(1e-4)
TINY = np.finfo(np.float32).tiny  # rule exact: a mean series association that underflows counts as this
ERROR_FLOOR = 1e-4  # in squared units of the scaler: a hundredth of a standard deviation


def score_outputs(windows: Floats, outputs: Mapping[str, Floats], metadata: Metadata) -> Floats:
    """Scores (B,N) from whatever the engine returned for raw `windows` (B,N,F)."""
    if "score" in outputs:
        return outputs["score"]
    return score_windows(windows, outputs, metadata, metadata.score)


def score_windows(windows: Floats, outputs: Mapping[str, Floats], metadata: Metadata, score: ScoreConfig) -> Floats:
    """Scores (B,N) formed as `score` says, which may be another way than the engine's own."""
    if score.mode == "fusion":  # each window as a series of its own
        return fuse_windows(fusion_rows(windows, outputs, metadata.scaler), view_statistics(metadata), score)
    if not score.uses_discrepancy:
        return _error(windows, outputs, metadata, score)
    error, discrepancy = error_and_discrepancy(windows, outputs, metadata, score)
    return anomaly_score(
        error,
        discrepancy,
        score,
        layers_summed=layers_summed(metadata),
        discrepancy_statistics=discrepancy_statistics(metadata),
    )


def error_and_discrepancy(
    windows: Floats, outputs: Mapping[str, Floats], metadata: Metadata, score: ScoreConfig | None = None
) -> tuple[Floats, Floats]:
    """The two vectors (B,N) that every score mode is a function of; the error is of the kind that `score` asks for."""
    error = _error(windows, outputs, metadata, score or metadata.score)
    if "discrepancy" in outputs:
        return error, outputs["discrepancy"]
    layers = range(metadata.model.layers)
    if metadata.discrepancy.head_rule == "exact":
        _require(outputs, [f"{part}_{i}" for i in layers for part in ("sigma", "series")])
        scales = [(outputs[f"sigma_{i}"], outputs[f"series_{i}"]) for i in layers]
        return error, exact_discrepancy(scales, metadata.discrepancy, metadata.model.prior)
    _require(outputs, [f"{part}_{i}" for i in layers for part in ("prior", "series")])
    associations = [(outputs[f"prior_{i}"], outputs[f"series_{i}"]) for i in layers]
    return error, association_discrepancy(associations, metadata.discrepancy)


def _error(windows: Floats, outputs: Mapping[str, Floats], metadata: Metadata, score: ScoreConfig) -> Floats:
    if "error" in outputs and score.error_kind == metadata.score.error_kind:
        return outputs["error"]
    error: Floats = feature_errors(windows, outputs, metadata, score.error_kind).mean(axis=-1)
    return error


def masked_scores(
    scores: Floats,
    missing: Floats,
    windows: Floats,
    outputs: Mapping[str, Floats],
    metadata: Metadata,
    score: ScoreConfig,
) -> Floats:
    """`scores` (B,N), but of windows with missing features (B,N,F) by the error of the others."""
    chosen = missing.any(axis=(1, 2))
    of_chosen = {name: values[chosen] for name, values in outputs.items() if name != "error"}
    errors, present = feature_errors(windows[chosen], of_chosen, metadata, score.error_kind), 1 - missing[chosen]
    of_chosen["error"] = (errors * present).sum(axis=-1) / np.maximum(present.sum(axis=-1), np.float32(1))
    found = scores.copy()
    same = replace(metadata, score=score)  # the error above is of the kind that the mode asks for
    found[chosen] = score_windows(windows[chosen], of_chosen, same, score)
    return found


def fusion_rows(windows: Floats, outputs: Mapping[str, Floats], scaler: Scaler) -> Floats:
    """Inputs of mode `fusion` (B,N,3F): scaled values, residuals, and residuals minus their local mean."""
    mean, scale = (np.asarray(v, np.float32) for v in (scaler.mean, scaler.scale))
    x = (windows - mean) / scale
    _require(outputs, ["reconstruction"])
    residual = x - outputs["reconstruction"]
    shape = outputs["shape"] if "shape" in outputs else residual - local_mean(residual)
    return np.concatenate([x, residual, shape], axis=-1)


def live_rows(windows: Floats, reconstruction: Floats, mean: Floats, scale: Floats, rows: int) -> Floats:
    """Of the last `rows` of each window (B,r,2F): scaled values and residuals; mean and scale (F,) are the scaler's."""
    features = windows.shape[-1]
    found = np.empty((len(windows), rows, 2 * features), np.float32)
    x = found[..., :features]
    np.subtract(windows[:, -rows:], mean, out=x)
    np.divide(x, scale, out=x)
    np.subtract(x, reconstruction[:, -rows:], out=found[..., features:])
    return found


def view_statistics(metadata: Metadata) -> ViewStatistics:
    """Of mode `fusion`."""
    if metadata.normal is None or metadata.normal.views is None:
        raise ConfigError(f"mode: fusion {NO_STATISTICS}")
    return metadata.normal.views


def feature_errors(windows: Floats, outputs: Mapping[str, Floats], metadata: Metadata, kind: ErrorKind) -> Floats:
    """Squared errors (B,N,F) of the reconstruction of raw `windows`; their mean over the features is the error."""
    _require(outputs, ["reconstruction"])
    mean, scale = (np.asarray(v, np.float32) for v in (metadata.scaler.mean, metadata.scaler.scale))
    difference = outputs["reconstruction"] - (windows - mean) / scale
    if kind.centred:
        difference = difference - local_mean(difference)
    errors: Floats = np.square(difference)
    if kind.normalised:
        errors *= error_weights(metadata.normal, kind)
    return errors


def local_mean(x: Floats) -> Floats:
    """Mean over the steps of the window that are up to half of it away: (B,N,F) -> (B,N,F)."""
    n = x.shape[-2]
    reach, step = n // 2, np.arange(n)
    first, end = np.maximum(step - reach, 0), np.minimum(step + reach + 1, n)
    sums = np.zeros((*x.shape[:-2], n + 1, x.shape[-1]))
    np.cumsum(x, axis=-2, dtype=np.float64, out=sums[..., 1:, :])
    mean: Floats = ((sums[..., end, :] - sums[..., first, :]) / (end - first)[:, None]).astype(np.float32)
    return mean


def error_weights(normal: Normal | None, kind: ErrorKind) -> Floats:
    """One over the mean validation error of each feature (F,), which is floored."""
    if normal is None:
        raise ConfigError(f"normalise_errors: {NO_STATISTICS}")
    usual = np.asarray(normal.centred_error if kind.centred else normal.error, np.float64)
    weights: Floats = (1 / (usual + ERROR_FLOOR)).astype(np.float32)
    return weights


def _require(outputs: Mapping[str, Floats], names: list[str]) -> None:
    absent = [name for name in names if name not in outputs]
    if absent:
        raise EngineError(
            f"engine: has no output {absent[0]!r}; export it again with all outputs, or use the associations graph"
        )


def layers_summed(metadata: Metadata) -> int:
    """How many layers mode `published` sums over."""
    return metadata.model.layers if metadata.discrepancy.layer is None else 1


def discrepancy_statistics(metadata: Metadata) -> Sequence[float] | None:
    """Mean and standard deviation of AssDis on the validation part, by the rule that the engine compares heads by."""
    return None if metadata.normal is None else metadata.normal.discrepancy[metadata.discrepancy.head_rule]


def anomaly_score(
    error: Floats,
    discrepancy: Floats,
    score: ScoreConfig,
    *,
    layers_summed: int,
    discrepancy_statistics: Sequence[float] | None = None,
) -> Floats:
    """Equation 6, Algorithm 3, its ablations and further modes: (B,N) error and AssDis in, (B,N) out.

    `error` is of the kind that the mode asks for; `discrepancy` is AssDis averaged over the layers. Mode `published`
    sums over the `layers_summed` layers instead, as the published code does. Mode `calibrated` measures AssDis
    against its mean and standard deviation on the validation part.
    """
    match score.mode:
        case "paper":
            return softmax(-discrepancy) * error
        case "published":
            return softmax(-score.temperature * layers_summed * discrepancy) * error
        case "reconstruction" | "centred":
            return error
        case "calibrated":
            if discrepancy_statistics is None:
                raise ConfigError(f"mode: {score.mode} {NO_STATISTICS}")
            return calibrated_weight(discrepancy, *discrepancy_statistics) * error
        case "discrepancy":
            return softmax(-discrepancy)
        case "addition":
            return softmax(-discrepancy) + error
        case "fusion":
            raise ConfigError("mode: fusion is made of rows, not of error and discrepancy")


def calibrated_weight(discrepancy: Floats, mean: float, std: float) -> Floats:
    """Between 0 and 2, and 1 at the validation mean of AssDis; decreases with AssDis; comparable across windows."""
    z = (discrepancy - np.float32(mean)) / np.float32(std)
    weight: Floats = 1 - np.tanh(z / 2)  # twice a logistic curve of -z
    return weight


def softmax(x: Floats) -> Floats:
    """Softmax over the last axis, the steps of a window."""
    e: Floats = np.exp(x - x.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e


def association_discrepancy(associations: list[tuple[Floats, Floats]], config: DiscrepancyConfig) -> Floats:
    """AssDis (B,N) of (prior, series) pairs (B,H,N,N): the numpy version of training/discrepancy.py."""
    distance = DISTANCES[config.distance]
    chosen = associations if config.layer is None else [associations[config.layer]]
    if config.head_rule == "paper":
        found = [distance(p.mean(axis=1), s.mean(axis=1), log) for p, s in chosen]
    else:
        found = [distance(p, s, published_log).mean(axis=1) for p, s in chosen]
    mean: Floats = np.mean(found, axis=0)
    return mean


def exact_discrepancy(scales: list[tuple[Floats, Floats]], config: DiscrepancyConfig, prior: Prior) -> Floats:
    """AssDis (B,N) by rule `exact`, of sigma (B,H,N) and series (B,H,N,N): log P is known also where P underflows."""
    found = []
    for sigma, series in scales if config.layer is None else [scales[config.layer]]:
        step = np.arange(sigma.shape[-1], dtype=np.float32)
        distance = np.abs(step[:, None] - step)
        if prior == "power-law":
            x = -np.log(distance + 1) * sigma[..., None]
        else:
            x = -np.square(distance) / 2 / np.square(sigma[..., None])
        x -= x.max(axis=-1, keepdims=True)
        log_p = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
        most = log_p.max(axis=1)
        log_p = np.log(np.exp(log_p - most[:, None]).mean(axis=1)) + most  # of the mean over the heads
        s = series.mean(axis=1)
        found.append(((np.exp(log_p) - s) * (log_p - np.log(np.maximum(s, TINY)))).sum(axis=-1))
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
