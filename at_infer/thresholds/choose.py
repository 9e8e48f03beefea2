"""The one place that chooses a threshold: for scoring, for an evaluation, for a report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.choices import ProtocolName
from at_infer.config import DEFAULT_RATIO, Align, Config, ScoreConfig
from at_infer.errors import ConfigError, DataError
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import IncidentCurve, IncidentOptions, Threshold, ValidationRecord, check_finite
from at_infer.thresholds.chosen import ChosenThreshold, by_ratio, check_lone_ratio
from at_infer.thresholds.false_alarms import (
    IncidentRates,
    rates_of,
    rows_per_day_of,
    usual_rate,
)
from at_infer.thresholds.ratio import carried_threshold
from at_infer.thresholds.recorded import (
    Recorded,
    kept_scores,
    other_setting,
    read_validation_scores,
    recorded_in_model,
    recorded_in_scores,
)


class ThresholdWish(NamedTuple):
    """What was asked for."""

    threshold: float | Literal["auto"] | None = None
    ratio: float | None = None
    false_alarms: str | None = None


class ScoringWay(NamedTuple):
    """How rows are scored."""

    align: Align = "window"
    delay: int = 0
    stride: int | None = None


def choose_for_scoring(
    metadata: Metadata,
    config: ScoreConfig,
    *,
    source: str,
    wish: ThresholdWish = ThresholdWish(),  # noqa: B008 - immutable
    way: ScoringWay = ScoringWay(),  # noqa: B008
    incidents: IncidentOptions | None = None,
) -> ChosenThreshold:
    """The one asked for, or the model's own; never one that belongs to another score than `config`.

    Where incidents are made and nobody has chosen one, it is that for the default rate of false incidents, if there is.
    """
    record, per_day = metadata.validation_of(way.align, way.delay), rows_per_day_of(metadata)
    curve = record.incidents if (record.align, record.delay) == (way.align, way.delay) else None
    if incidents is not None and wish == ThresholdWish() and _is_of_training(record.threshold):
        chosen = _for_incidents(metadata, config, source, way, curve)
    else:
        chosen = _for_scoring(metadata, config, source, wish, way)
    counted = IncidentOptions() if curve is None else curve.options
    rules = counted if incidents is None else incidents.over(counted)
    chosen = replace(chosen, incidents=rules)
    fits = other_setting(metadata.score, config) is None and config.mode == metadata.score.mode
    if curve is None or per_day is None or not fits:
        return chosen
    if rules != counted:
        other = ", ".join(f"{name}={value}" for name, value in rules.given.items() if counted.given.get(name) != value)
        note = (
            f"incidents: {source} has counted false ones without {other}; to know their rate, give scores of normal "
            f"rows to at-infer threshold --scores"
        )
        return replace(chosen, notes=(*chosen.notes, note))
    return replace(chosen, incidents_per_day=per_day * IncidentRates(curve).expected(chosen.value))


def _is_of_training(threshold: Threshold) -> bool:
    """Is it what training makes unless told otherwise? Any other one was chosen by someone."""
    return threshold.method == "ratio" and threshold.ratio == DEFAULT_RATIO


def _for_incidents(
    metadata: Metadata, config: ScoreConfig, source: str, way: ScoringWay, curve: IncidentCurve | None
) -> ChosenThreshold:
    """By the default rate of false incidents; the recorded one if the model cannot tell that, and a note says so."""
    per_day = rows_per_day_of(metadata)
    usual = usual_rate(per_day)
    try:
        rate = rates_of(curve, source).default_rate(per_day)
        chosen = _for_scoring(metadata, config, source, ThresholdWish(false_alarms=rate), way)
        *notes, found = chosen.notes
        why = "" if rate == usual else f", too few for {usual}"
        note = f"incidents: {found}{why}; pass false_alarms=..., ratio=... or threshold=... for another"
    except ConfigError as error:
        chosen = _for_scoring(metadata, config, source, ThresholdWish(), way)
        notes, why = [*chosen.notes], str(error).removeprefix("false_alarms: ")
        note = f"incidents: the recorded threshold {chosen.value:.4g} is used instead of {usual}: {why}"
    return replace(chosen, notes=(*notes, note))


def _for_scoring(
    metadata: Metadata, config: ScoreConfig, source: str, wish: ThresholdWish, way: ScoringWay
) -> ChosenThreshold:
    threshold, ratio, false_alarms = wish
    align, delay, stride = way
    recorded, record = metadata.score, metadata.validation_of(align, delay)
    kept = kept_scores(metadata, record, config, source)
    other = other_setting(recorded, config)
    known = kept if other is None else None
    if isinstance(threshold, float | int):
        return ChosenThreshold(value=float(threshold), how="given", validation=known)
    if other is not None:
        raise ConfigError(f"threshold: the model's belongs to {other}; with another one give a number as `threshold`")
    delays = [one.delay for one in metadata.validation if one.align == "last"]
    if align == "last" and delays and delay not in delays:
        raise ConfigError(
            f"delay: {source} has thresholds for delays of {', '.join(map(str, delays))} rows; choose one of them, or "
            f"give a number as `threshold`"
        )
    notes = tuple(_notes(metadata, record, source, align, delay, stride))
    if false_alarms is not None:
        if config.mode != recorded.mode:
            raise ConfigError(
                f"false_alarms: {source} has incident counts of mode {recorded.mode} only; leave `mode` out, or "
                f"give a number as `threshold`"
            )
        found = rates_of(record.incidents, source).threshold_for(false_alarms, rows_per_day_of(metadata))
        return ChosenThreshold(
            value=found.value,
            how=found.how,
            ratio=None if kept is None else kept.share_above(found.value),
            validation=known,
            notes=(*notes, f"threshold {found.value:.4g} for {found.rate}: {found.note}"),
            asked_rate=found.rate,
        )
    if threshold is None and ratio is None and config.mode == recorded.mode:
        value, how = record.threshold.value, f"recorded in {source}"
    elif kept is None:
        raise ConfigError(
            f"threshold: {source} has no validation scores of mode {config.mode} with align {align}; give a number "
            f"as `threshold`"
        )
    elif threshold == "auto":
        return ChosenThreshold(value=kept.by_gap(), how="gap statistic", validation=known, notes=notes)
    elif ratio is not None:
        value, how = kept.at_ratio(ratio), by_ratio(ratio, kept)
    else:
        value = carried_threshold(record.threshold, kept.levels, kept.values).value
        how = f"of the same ratio as the one recorded in {source}"
    ratio = ratio if ratio is not None else record.threshold.ratio
    return ChosenThreshold(value=value, how=how, ratio=ratio, validation=known, notes=notes)


def _notes(
    metadata: Metadata, record: ValidationRecord, source: str, align: Align, delay: int, stride: int | None
) -> Iterator[str]:
    if (record.align, record.delay) != (align, delay):
        yield (
            f"{source}: has no threshold for last rows of windows, and that of whole windows flags more of them than "
            f"it should; score normal rows with align='last' and let at-infer threshold --scores write one, or train "
            f"anew (docs/live.md, threshold)"
        )
    if align == "window" and stride is not None and stride < metadata.model.window:
        yield (
            f"{source}: with `stride` a row gets the mean of several windows, which has lower peaks; a threshold of "
            f"single windows, as training makes it, flags fewer rows than it should (docs/scoring.md, threshold and "
            f"verdict)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationThreshold(Config):
    """What an evaluation asks for; without a wish, the threshold that the file of scores or the model has recorded."""

    ratio: float | None = None
    delta: float | None = None
    validation: str | None = None
    """Scores of validation rows."""
    engine: Path | None = None
    """A model that has kept its validation scores."""
    protocol: ProtocolName = "paper"
    train_scores: str | None = None

    def __post_init__(self) -> None:
        check_lone_ratio(self.ratio, self.delta, "delta")
        if self.delta is not None:
            check_finite("delta", self.delta)
        self._choice("protocol", ProtocolName)
        leaks = self.protocol == "published-leaking"
        if leaks and (self.train_scores is None or self.delta is not None):
            raise ConfigError("protocol: published-leaking needs `train_scores`, and `ratio` instead of `delta`")
        if not leaks and self.train_scores is not None:
            raise ConfigError("train_scores: only protocol published-leaking uses them")


def choose_for_evaluation(
    scores: NDArray[np.float32], properties: Mapping[str, str], asked: EvaluationThreshold, *, source: str
) -> ChosenThreshold:
    """The threshold asked for, or the recorded one."""
    ratio, delta = asked.ratio, asked.delta
    if asked.train_scores is not None:
        return _leaking(scores, DEFAULT_RATIO if ratio is None else ratio, asked.train_scores)
    recorded = _recorded(properties, source, asked.validation, asked.engine)
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


def _leaking(scores: NDArray[np.float32], ratio: float, train_scores: str) -> ChosenThreshold:
    """The published code: a percentile over the scores of the training and of the test rows together."""
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
