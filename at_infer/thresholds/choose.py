"""The one place that chooses a threshold for scoring."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from at_infer.config import DEFAULT_RATIO, Align, ScoreConfig
from at_infer.errors import ConfigError
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import IncidentCurve, IncidentOptions, Threshold, ValidationRecord
from at_infer.thresholds.chosen import ChosenThreshold, by_ratio
from at_infer.thresholds.false_alarms import (
    IncidentRates,
    parse_rate,
    rates_of,
    rows_per_day_of,
    usual_rate,
)
from at_infer.thresholds.ratio import carried_threshold
from at_infer.thresholds.recorded import kept_scores


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
    fits = config.is_formed_like(metadata.score) and config.mode == metadata.score.mode
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
        if curve is None:
            raise ConfigError(f"false_alarms: {source} has no incident counts for rows scored in this way")
        rate = IncidentRates(curve).default_rate(per_day)
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
    known = kept if config.is_formed_like(recorded) else None
    if isinstance(threshold, float | int):
        return ChosenThreshold(value=float(threshold), how="given", validation=known)
    _check_same_score(recorded, config)
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
        rate = parse_rate(false_alarms)
        found = rates_of(record, source).threshold(rate, rows_per_day_of(metadata))
        return ChosenThreshold(
            value=found.value,
            how=f"{rate.text} false incidents; {found.note}",
            ratio=None if kept is None else kept.share_above(found.value),
            validation=known,
            notes=(*notes, f"threshold {found.value:.4g} for {rate.text}: {found.note}"),
            asked_rate=rate.text,
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


def _check_same_score(recorded: ScoreConfig, config: ScoreConfig) -> None:
    changed = {
        "smooth": config.smooth != recorded.smooth,
        "temperature": config.mode == "published" and config.temperature != recorded.temperature,
        "level": config.mode == "fusion" and config.level != recorded.level,
        "normalise_errors": config.error_kind != replace(config, normalise_errors=recorded.normalise_errors).error_kind,
    }
    for name in (name for name, is_changed in changed.items() if is_changed):
        was = getattr(recorded, name)
        shown = was if isinstance(was, bool | str) else f"{was:g}"
        raise ConfigError(
            f"threshold: the model's belongs to `{name}` {shown}; with another one give a number as `threshold`"
        )


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
