"""Where the threshold of an evaluation comes from: validation scores, a number, or, by name, the published leak."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Align, ScoreConfig
from at_infer.errors import ConfigError, DataError
from at_infer.models.metadata import PREFIX, Metadata
from at_infer.tables.labels import read_scores
from at_infer.thresholds.ratio import QUANTILE_LEVELS, quantile_threshold, quantiles, ratio_threshold

Name = Literal["paper", "published-leaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A threshold and how it was found."""

    name: Name
    threshold: float
    how: str
    """In words."""
    ratio: float | None
    """Share of the validation scores above the threshold; None: not known."""
    leaking: bool
    """The threshold has seen the scores it is judged on."""
    levels: list[float] | None = None
    values: list[float] | None = None
    """Quantiles of the validation scores, if they are known."""

    def roc_thresholds(self, ratios: Sequence[float]) -> Iterator[tuple[float, float]]:
        """Ratio and threshold, if validation scores are known."""
        if self.levels is not None and self.values is not None:
            for ratio in ratios:
                yield ratio, quantile_threshold(self.levels, self.values, ratio)


@dataclass(frozen=True, slots=True)
class Known:
    """What a file of scores or a model knows of thresholds."""

    source: str
    threshold: float | None = None
    ratio: float | None = None
    levels: list[float] | None = None
    values: list[float] | None = None


def choose_protocol(
    scores: NDArray[np.float32],
    properties: dict[str, str],
    *,
    source: str,
    ratio: float | None = None,
    delta: float | None = None,
    validation: str | None = None,
    engine: Path | None = None,
    name: Name = "paper",
    train_scores: str | None = None,
) -> Protocol:
    """The threshold asked for; without a wish, the one that the file of scores or the model has recorded."""
    if ratio is not None and delta is not None:
        raise ConfigError("threshold: --ratio and --delta exclude each other; give one")
    if ratio is not None and not 0 < ratio < 1:
        raise ConfigError(f"ratio: {ratio:g} is not a share in (0, 1); 0.01 means one percent")
    if delta is not None and not abs(delta) <= np.finfo(np.float32).max:
        raise ConfigError(f"delta: {delta} is not a finite number")
    if name == "published-leaking":
        return _leaking(scores, ratio, delta, train_scores)
    if train_scores is not None:
        raise ConfigError("train scores: only --protocol published-leaking uses them")
    known = _known(properties, source, validation, engine)
    if delta is not None:
        share = None if known.values is None else _share_above(known, delta)
        return _paper(known, delta, share, f"fixed delta {delta:g}")
    if ratio is not None:
        if known.levels is None or known.values is None:
            raise DataError(
                f"{source}: knows no validation scores to take r = {ratio:g} from; pass --validation or --engine"
            )
        exact = None if validation is None else ratio_threshold(_finite(validation), ratio)
        value = quantile_threshold(known.levels, known.values, ratio) if exact is None else exact
        return _paper(known, value, ratio, f"r = {ratio:.4g} of the validation scores of {known.source}")
    if known.threshold is None:
        raise DataError(f"{source}: knows no threshold; pass --delta, or --ratio with --validation or --engine")
    share = known.ratio if known.ratio is not None or known.values is None else _share_above(known, known.threshold)
    return _paper(known, known.threshold, share, f"recorded in {known.source}")


def _paper(known: Known, threshold: float, ratio: float | None, how: str) -> Protocol:
    return Protocol(
        name="paper",
        threshold=threshold,
        how=how,
        ratio=ratio,
        leaking=False,
        levels=known.levels,
        values=known.values,
    )


def _leaking(
    scores: NDArray[np.float32], ratio: float | None, delta: float | None, train_scores: str | None
) -> Protocol:
    """The published code: a percentile over the scores of the training and of the test rows together."""
    if train_scores is None or delta is not None:
        raise ConfigError("protocol: published-leaking needs --train-scores, and a --ratio instead of --delta")
    ratio = 0.01 if ratio is None else ratio
    together = np.concatenate([_finite(train_scores), scores])
    return Protocol(
        name="published-leaking",
        threshold=float(np.percentile(together, 100 - 100 * ratio)),
        how=f"LEAKING: percentile {100 - 100 * ratio:g} over train and test scores together, as in the published code",
        ratio=ratio,
        leaking=True,
    )


def _known(properties: dict[str, str], source: str, validation: str | None, engine: Path | None) -> Known:
    """Quantiles of --validation, else of --engine, else of the file; threshold of the file, else of --engine."""
    found = from_properties(properties, source)
    if engine is not None:
        of_model = from_engine(engine, properties)
        found = Known(
            of_model.source,
            found.threshold if found.threshold is not None else of_model.threshold,
            of_model.ratio if found.threshold in (None, of_model.threshold) else found.ratio,
            of_model.levels,
            of_model.values,
        )
    if validation is not None:
        found = Known(validation, found.threshold, None, list(QUANTILE_LEVELS), quantiles(_finite(validation)))
    return found


def from_properties(properties: dict[str, str], source: str) -> Known:
    """What `at-infer score` wrote down."""
    facts: dict[str, Any] = {}
    for name in ("threshold", "validation"):
        try:
            facts[name] = json.loads(properties.get(PREFIX + name, "null"))
        except json.JSONDecodeError:
            raise DataError(f"{source}: its metadata are damaged ({PREFIX}{name}); score again") from None
    kept = facts["validation"] or {}
    return Known(source, facts["threshold"], kept.get("ratio"), kept.get("levels"), kept.get("quantiles"))


def from_engine(path: Path, properties: dict[str, str]) -> Known:
    """What an exported model knows of the score mode that the file of scores has; needs no GPU."""
    metadata = read_model_metadata(path)
    written = properties.get(PREFIX + "score")
    config = metadata.score if written is None else ScoreConfig.from_dict(json.loads(written))
    if replace(config, mode=metadata.score.mode) != metadata.score:
        raise DataError(
            f"{path}: its validation scores have another smoothing, temperature or normalisation; pass --validation "
            f"or --delta"
        )
    known = metadata.calibrated(written_align(properties))
    levels, values = metadata.quantile_levels, known.quantiles.get(config.mode)
    if values is None:
        raise DataError(f"{path}: knows no validation scores of mode {config.mode}; pass --validation or --delta")
    if config.mode != metadata.score.mode:
        return Known(str(path), None, None, levels, values)
    return Known(str(path), known.threshold.value, known.threshold.ratio, levels, values)


def written_align(properties: dict[str, str]) -> Align:
    """How the rows of a file of scores were scored; whole windows, if it does not say."""
    layout = properties.get(f"{PREFIX}layout")
    return "window" if layout is None else json.loads(layout)["align"]


def read_model_metadata(path: Path) -> Metadata:
    """Of an ONNX file or a plan, without running it."""
    from at_infer.errors import EngineError
    from at_infer.models.kinds import is_plan
    from at_infer.models.sidecar import load_sidecar

    if is_plan(path):
        metadata = load_sidecar(path)
    else:
        from at_infer.engines import open_engine

        with open_engine(path, threads=1) as engine:
            metadata = engine.metadata
    if metadata is None:
        raise EngineError(f"{path}: is no export of at-infer, it knows no threshold; use at-infer export")
    return metadata


def _share_above(known: Known, threshold: float) -> float:
    levels, values = np.asarray(known.levels), np.asarray(known.values)
    return float(1 - np.interp(threshold, values, levels))


def _finite(source: str) -> NDArray[np.float32]:
    scores = read_scores(source).scores
    known: NDArray[np.float32] = scores[~np.isnan(scores)]
    if not len(known):
        raise DataError(f"{source}: no row has a score")
    return known
