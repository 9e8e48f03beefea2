"""The one place that chooses a threshold: for scoring, for an evaluation, for a report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Align, ScoreConfig
from at_infer.errors import ConfigError, DataError
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import IncidentOptions, Threshold, ValidationRecord, check_finite, check_ratio
from at_infer.thresholds.false_alarms import IncidentRates, parse_rate, rates_of, rows_per_day_of
from at_infer.thresholds.quantiles import ValidationScores
from at_infer.thresholds.ratio import carried_threshold
from at_infer.thresholds.recorded import (
    Recorded,
    kept_scores,
    read_validation_scores,
    recorded_in_model,
    recorded_in_scores,
)

ProtocolName = Literal["paper", "published-leaking"]
USUAL_RATE = "1/day"
"""Default rate of false incidents, where incidents are made and no other threshold is requested."""
USUAL_RATIO = 0.01
"""Default ratio of the threshold of training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenThreshold:
    """A threshold and how it was found."""

    value: float
    how: str
    """In words."""
    ratio: float | None = None
    """Share of the validation scores above it; None: not known."""
    validation: ValidationScores | None = None
    """Scores of the validation rows that are formed as the scores in question, if they are known."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the verdicts."""
    asked_rate: str | None = None
    """Rate of false incidents that was asked for."""
    incidents_per_day: float | None = None
    """False incidents per day that the validation part lets expect; None: not known."""
    incidents: IncidentOptions = field(default_factory=IncidentOptions)
    """Rules for incidents: those asked for, and those that the model has counted with."""
    leaking: bool = False
    """The threshold has seen the scores it is judged on, as in the published code."""

    def at_ratios(self, ratios: Sequence[float]) -> Iterator[tuple[float, float]]:
        """Ratio and threshold, if validation scores are known."""
        if self.validation is not None:
            for ratio in ratios:
                yield ratio, self.validation.at_ratio(ratio)

    def to_properties(self) -> dict[str, Any] | None:
        """Stored validation scores of a scores file."""
        if self.validation is None:
            return None
        known = self.validation
        return {"levels": known.levels, "quantiles": known.values, "ratio": self.ratio, "rows": known.rows}

    def to_dict(self) -> dict[str, Any]:
        """For an evaluation, JSON values only."""
        known = self.validation
        return {
            "name": "published-leaking" if self.leaking else "paper",
            "threshold": self.value,
            "how": self.how,
            "ratio": self.ratio,
            "leaking": self.leaking,
            "levels": None if known is None else known.levels,
            "values": None if known is None else known.values,
        }


def check_threshold(threshold: object, ratio: float | None, false_alarms: str | None = None) -> None:
    """Of options for scoring: a finite number, `auto`, or a ratio or a rate of false incidents instead."""
    if false_alarms is not None:
        if threshold is not None or ratio is not None:
            raise ConfigError("threshold: false alarms, ratio and threshold cannot be combined; give one")
        parse_rate(false_alarms)
    if threshold is not None and threshold != "auto":
        if not isinstance(threshold, float | int):
            raise ConfigError(f"threshold: {threshold!r} is neither a finite number nor auto")
        check_finite("threshold", threshold)
    _check_ratio(ratio, threshold, "threshold")


def _check_ratio(ratio: float | None, other: object, name: str) -> None:
    if ratio is not None:
        if other is not None:
            raise ConfigError(f"threshold: {name} and ratio cannot be combined; give one")
        check_ratio(ratio)


# Scoring


def choose_for_scoring(
    metadata: Metadata,
    config: ScoreConfig,
    *,
    source: str,
    threshold: float | Literal["auto"] | None = None,
    ratio: float | None = None,
    false_alarms: str | None = None,
    align: Align = "window",
    delay: int = 0,
    stride: int | None = None,
    incidents: IncidentOptions | None = None,
) -> ChosenThreshold:
    """The one asked for, or the model's own; never one that belongs to another score than `config`.

    Where incidents are made and nobody has chosen one, it is that for the usual rate of false incidents, if there is.
    """
    wish, way = _Wish(threshold, ratio, false_alarms), _Way(align, delay, stride)
    record, per_day = metadata.validation_of(align, delay), rows_per_day_of(metadata)
    curve = record.incidents if (record.align, record.delay) == (align, delay) else None
    if incidents is not None and wish == _Wish() and _is_of_training(record.threshold):
        chosen = _for_incidents(metadata, config, source, way, is_counted=curve is not None)
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


class _Wish(NamedTuple):
    """What was asked for."""

    threshold: float | Literal["auto"] | None = None
    ratio: float | None = None
    false_alarms: str | None = None


class _Way(NamedTuple):
    """How rows are scored."""

    align: Align
    delay: int
    stride: int | None


def _is_of_training(threshold: Threshold) -> bool:
    """Is it what training makes unless told otherwise? Any other one was chosen by someone."""
    return threshold.method == "ratio" and threshold.ratio == USUAL_RATIO


def _for_incidents(
    metadata: Metadata, config: ScoreConfig, source: str, way: _Way, *, is_counted: bool
) -> ChosenThreshold:
    """By the usual rate of false incidents; the recorded one if the model cannot tell that, and a note says so."""
    try:
        if not is_counted:
            raise ConfigError(f"false alarms: {source} has no incident counts for rows scored in this way")
        chosen = _for_scoring(metadata, config, source, _Wish(false_alarms=USUAL_RATE), way)
        *notes, found = chosen.notes
        note = f"incidents: {found}; pass false_alarms=..., ratio=... or threshold=... for another"
    except ConfigError as error:
        chosen = _for_scoring(metadata, config, source, _Wish(), way)
        notes, why = [*chosen.notes], str(error).removeprefix("false alarms: ")
        note = f"incidents: the recorded threshold {chosen.value:.4g} is used instead of {USUAL_RATE}: {why}"
    return replace(chosen, notes=(*notes, note))


def _for_scoring(metadata: Metadata, config: ScoreConfig, source: str, wish: _Wish, way: _Way) -> ChosenThreshold:
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
            f"give a number as threshold"
        )
    notes = tuple(_notes(metadata, record, source, align, delay, stride))
    if false_alarms is not None:
        if config.mode != recorded.mode:
            raise ConfigError(
                f"false alarms: {source} has incident counts of mode {recorded.mode} only; leave score mode out, or "
                f"give a number as threshold"
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
            f"as threshold"
        )
    elif threshold == "auto":
        return ChosenThreshold(value=kept.by_gap(), how="gap statistic", validation=known, notes=notes)
    elif ratio is not None:
        value, how = kept.at_ratio(ratio), _by_ratio(ratio, kept)
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
        "normalise errors": config.error_kind != replace(config, normalise_errors=recorded.normalise_errors).error_kind,
    }
    for name in (name for name, is_changed in changed.items() if is_changed):
        was = getattr(recorded, name.replace(" ", "_"))
        shown = was if isinstance(was, bool | str) else f"{was:g}"
        raise ConfigError(
            f"threshold: the model's belongs to {name} {shown}; with another {name} give a number as threshold"
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


def _by_ratio(ratio: float, known: ValidationScores) -> str:
    return f"r = {ratio:.4g} of the validation scores of {known.source}"


# Evaluation and report


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
    _check_ratio(ratio, delta, "delta")
    if delta is not None:
        check_finite("delta", delta)
    if protocol == "published-leaking":
        return _leaking(scores, ratio, delta, train_scores)
    if train_scores is not None:
        raise ConfigError("train scores: only protocol published-leaking uses them")
    recorded = _recorded(properties, source, validation, engine)
    known = recorded.scores
    if ratio is not None:
        if known is None:
            raise DataError(
                f"{source}: has no validation scores to take r = {ratio:g} from; give scores of validation rows, or "
                f"the engine"
            )
        return ChosenThreshold(value=known.at_ratio(ratio), how=_by_ratio(ratio, known), ratio=ratio, validation=known)
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
        raise ConfigError("protocol: published-leaking needs train scores, and a ratio instead of a delta")
    ratio = 0.01 if ratio is None else ratio
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
