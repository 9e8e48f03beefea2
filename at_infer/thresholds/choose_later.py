"""The one place that chooses a threshold for scores that are there: for an evaluation, for a report."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from at_infer.choices import ProtocolName
from at_infer.config import DEFAULT_RATIO
from at_infer.errors import ConfigError, DataError
from at_infer.models.statistics import check_finite
from at_infer.thresholds.chosen import ChosenThreshold, by_ratio, check_lone_ratio
from at_infer.thresholds.recorded import Recorded, read_validation_scores, recorded_in_model, recorded_in_scores


def choose_for_evaluation(
    scores: NDArray[np.float32],
    properties: Mapping[str, str],
    *,
    source: str,
    ratio: float | None = None,
    delta: float | None = None,
    validation: str | None = None,
    engine: Path | None = None,
    protocol: ProtocolName = "paper",
    train_scores: str | None = None,
) -> ChosenThreshold:
    """The threshold asked for; without a wish, the one that the file of scores or the model has recorded."""
    check_lone_ratio(ratio, delta, "delta")
    if delta is not None:
        check_finite("delta", delta)
    if protocol == "published-leaking":
        return _leaking(scores, ratio, delta, train_scores)
    if train_scores is not None:
        raise ConfigError("train_scores: only protocol published-leaking uses them")
    recorded = _recorded(properties, source, validation, engine)
    known = recorded.scores
    if ratio is not None:
        if known is None:
            raise DataError(
                f"{source}: has no validation scores to take r = {ratio:g} from; give scores of validation rows, or "
                f"the engine"
            )
        return ChosenThreshold(value=known.at_ratio(ratio), how=by_ratio(ratio, known), ratio=ratio, validation=known)
    value, how = (delta, f"fixed delta {delta:g}") if delta is not None else (recorded.threshold, "")
    if value is None:
        raise DataError(
            f"{source}: has no threshold; give a delta, or a ratio with scores of validation rows or the engine"
        )
    share = None if delta is not None else recorded.ratio
    if share is None and known is not None:
        share = known.share_above(value)
    return ChosenThreshold(value=value, how=how or f"recorded in {recorded.source}", ratio=share, validation=known)


def _leaking(
    scores: NDArray[np.float32], ratio: float | None, delta: float | None, train_scores: str | None
) -> ChosenThreshold:
    """The published code: a percentile over the scores of the training and of the test rows together."""
    if train_scores is None or delta is not None:
        raise ConfigError("protocol: published-leaking needs `train_scores`, and `ratio` instead of `delta`")
    ratio = DEFAULT_RATIO if ratio is None else ratio
    train = read_validation_scores(train_scores).scores
    assert train is not None
    return ChosenThreshold(
        value=float(np.percentile(np.concatenate([train, scores]), 100 - 100 * ratio)),
        how=f"LEAKING: percentile {100 - 100 * ratio:g} over train and test scores together, as in the published code",
        ratio=ratio,
        leaking=True,
    )


def _recorded(properties: Mapping[str, str], source: str, validation: str | None, engine: Path | None) -> Recorded:
    """Scores: of the validation file, the engine, or the file itself. Threshold: of the file, or the engine."""
    found = recorded_in_scores(properties, source)
    if engine is not None:
        model = recorded_in_model(engine, properties, source)
        found = Recorded(
            model.source,
            found.threshold if found.threshold is not None else model.threshold,
            model.ratio if found.threshold in (None, model.threshold) else found.ratio,
            model.scores,
        )
    if validation is not None:
        found = Recorded(validation, found.threshold, None, read_validation_scores(validation))
    return found


def choose_for_report(properties: Mapping[str, str], *, source: str, threshold: float | None) -> float:
    """The threshold asked for, or the one that the file of scores has recorded."""
    if threshold is not None:
        check_finite("threshold", threshold)
        return threshold
    recorded = recorded_in_scores(properties, source).threshold
    if recorded is None:
        raise DataError(f"{source}: has no threshold; give one")
    return float(recorded)
