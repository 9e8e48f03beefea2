"""Every method for a threshold beside the others: what each would flag, and a model with the one that is chosen."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from at_infer.choices import ThresholdMethod
from at_infer.config import DEFAULT_RATIO, Align
from at_infer.errors import AtInferError, ConfigError, DataError
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import IncidentCurve, Threshold, ValidationRecord, check_finite, check_ratio
from at_infer.tables.labels import read_scores
from at_infer.thresholds.false_alarms import IncidentRates, parse_rate, rates_of, rows_per_day_of, usual_rate
from at_infer.thresholds.quantiles import ValidationScores, histogram
from at_infer.thresholds.rates import check_positive
from at_infer.thresholds.recorded import WHAT, check_written_by, kept_scores


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Input of the methods."""

    method: ThresholdMethod | None = None
    """The one to choose; None: only compare them."""
    ratio: float = DEFAULT_RATIO
    """Share of the validation scores above the threshold (the paper's r)."""
    delta: float | None = None
    """A fixed threshold."""
    false_alarms_per_day: float = 1.0
    """Target of spot."""
    false_alarms: str | None = None
    """Target of incidents: a rate of false ones."""
    rows_per_day: float | None = None

    def __post_init__(self) -> None:
        if self.method == "fixed" and self.delta is None:
            raise ConfigError("delta: method fixed needs one")
        check_ratio(self.ratio)
        if self.delta is not None:
            check_finite("delta", self.delta)
        check_positive("false_alarms_per_day", self.false_alarms_per_day)
        if self.false_alarms is not None:
            parse_rate(self.false_alarms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A threshold by one method, and what it would flag of the validation scores."""

    method: str
    what: str
    threshold: float | None
    """None: the method fails here, and `note` says why."""
    share: float | None = None
    rows: int | None = None
    rows_a_day: float | None = None
    incidents_a_day: float | None = None
    """False incidents that these scores let expect; None: not known."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Validation scores of one kind, and what each method finds in them."""

    align: Align
    delay: int
    """Rows that live rows are scored late."""
    scores: ValidationScores
    incidents: IncidentCurve | None
    """How many incidents they have at each threshold."""
    choices: list[Choice]
    chosen: Choice | None
    """By the method that was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "scores": self.scores.source,
            "rows": self.scores.rows,
            "choices": [asdict(choice) for choice in self.choices],
            "histogram": [asdict(one) for one in histogram(self.scores)],
        }


def compare_methods(
    model: Path,
    metadata: Metadata,
    options: MethodOptions,
    *,
    scores: str | None = None,
    curve: IncidentCurve | None = None,
    align: Align | None = None,
) -> list[Comparison]:
    """On scores of a file that this model wrote, or on the quantiles that it kept; `curve` is that of the file."""
    found = _kept(model, metadata, align) if scores is None else _written(model, metadata, scores, align)
    if options.rows_per_day is None:
        options = replace(options, rows_per_day=rows_per_day_of(metadata))
    compared = []
    for (kind, delay), known in found.items():
        record = metadata.validation_of(kind, delay)
        kept = record.incidents if (record.align, record.delay) == (kind, delay) else None
        counted = curve if scores is not None else kept
        compared.append(_compare(kind, delay, known, record.threshold, counted, options))
    return compared


def with_thresholds(metadata: Metadata, comparisons: list[Comparison], ratio: float) -> Metadata:
    """Metadata with the thresholds that were chosen."""
    for one in comparisons:
        if one.chosen is not None and one.chosen.threshold is not None:
            threshold = Threshold(
                value=one.chosen.threshold,
                method="peaks-over-threshold" if one.chosen.method == "spot" else one.chosen.method,
                ratio=ratio if one.chosen.method == "ratio" else None,
                validation_rows=one.scores.rows,
            )
            record = metadata.validation_of(one.align, one.delay)
            if (record.align, record.delay) != (one.align, one.delay):
                kept = {str(metadata.score.mode): one.scores.at_levels(metadata.quantile_levels)}
                record = ValidationRecord(align=one.align, delay=one.delay, threshold=threshold, quantiles=kept)
            record = replace(record, threshold=threshold, incidents=one.incidents or record.incidents)
            metadata = metadata.with_validation(record)
    return metadata


def _kept(model: Path, metadata: Metadata, align: Align | None) -> dict[tuple[Align, int], ValidationScores]:
    found: dict[tuple[Align, int], ValidationScores] = {}
    for record in metadata.validation:
        known = kept_scores(metadata, record, metadata.score, f"quantiles stored in {model}")
        if align in (None, record.align) and known is not None:
            found[record.align, record.delay] = known
    if not found:
        which = "" if align is None else f" of {WHAT[align]}"
        raise DataError(f"{model}: has no validation scores of mode {metadata.score.mode}{which}; give scores")
    return found


def _written(
    model: Path, metadata: Metadata, source: str, align: Align | None
) -> dict[tuple[Align, int], ValidationScores]:
    read = read_scores(source)
    kind, delay = check_written_by(read.properties, metadata, source, model).way()
    if align not in (None, kind):
        raise DataError(f"{source}: has scores of {WHAT[kind]}; leave align out, or score with align {align}")
    return {(kind, delay): ValidationScores.of_scores(source, read.scores)}


def _compare(
    align: Align,
    delay: int,
    known: ValidationScores,
    recorded: Threshold,
    curve: IncidentCurve | None,
    options: MethodOptions,
) -> Comparison:
    per_day, rates = options.rows_per_day, None if curve is None else IncidentRates(curve)
    of_model = _flagged(known, "recorded", f"in the model, by {recorded.method}", recorded.value, per_day)
    choices = [of_model, *_choices(known, options), _by_rate(known, curve, options)]
    if rates is not None and per_day is not None:
        choices = [
            choice
            if choice.threshold is None
            else replace(choice, incidents_a_day=per_day * rates.expected(choice.threshold))
            for choice in choices
        ]
    chosen = next((choice for choice in choices if choice.method == options.method), None)
    if chosen is not None and chosen.threshold is None:
        raise ConfigError(f"threshold: {chosen.note}; these are the scores of {WHAT[align]}")
    return Comparison(align=align, delay=delay, scores=known, incidents=curve, choices=choices, chosen=chosen)


def _choices(known: ValidationScores, options: MethodOptions) -> Iterator[Choice]:
    """One that fails says why, and the others follow."""
    per_day, alarms, delta = options.rows_per_day, options.false_alarms_per_day, options.delta
    yield _choice(known, "ratio", f"r = {options.ratio:g}", lambda: known.at_ratio(options.ratio), per_day)
    if delta is not None:
        yield _choice(known, "fixed", f"delta = {delta:g}", lambda: delta, per_day)
    yield _choice(known, "gap", "gap statistic, two clusters", known.by_gap, per_day)
    if options.method == "gap-log":  # only by name: its clusters are not the paper's
        of_logarithms = partial(known.by_gap, logarithmic=True)
        yield _choice(known, "gap-log", "gap statistic of logarithms, two clusters", of_logarithms, per_day)

    def spot() -> float:
        if per_day is None:
            raise ConfigError("threshold: a rate per day needs `rows_per_day`, or the `interval` of rows")
        return known.by_peaks(alarms / per_day)

    yield _choice(known, "spot", f"peaks over threshold, {alarms:g} rows a day", spot, per_day)


def _by_rate(known: ValidationScores, curve: IncidentCurve | None, options: MethodOptions) -> Choice:
    """A threshold for a rate of false incidents, and its basis."""
    asked, per_day = options.false_alarms, options.rows_per_day
    try:
        found = rates_of(curve, known.source).threshold_for(asked, per_day)
    except ConfigError as error:
        what, note = f"{asked or usual_rate(per_day)} false incidents", str(error).removeprefix("false_alarms: ")
        return Choice(method="incidents", what=what, threshold=None, note=note)
    return _flagged(known, "incidents", found.how, found.value, per_day)


def _choice(
    known: ValidationScores, method: str, what: str, find: Callable[[], float], rows_per_day: float | None
) -> Choice:
    try:
        threshold = find()
    except AtInferError as error:
        return Choice(method=method, what=what, threshold=None, note=str(error).removeprefix("threshold: "))
    return _flagged(known, method, what, threshold, rows_per_day)


def _flagged(known: ValidationScores, method: str, what: str, threshold: float, rows_per_day: float | None) -> Choice:
    share = known.share_above(threshold)
    a_day = None if rows_per_day is None else share * rows_per_day
    return Choice(
        method=method, what=what, threshold=threshold, share=share, rows=round(share * known.rows), rows_a_day=a_day
    )
