"""Rates of false incidents to thresholds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from at_infer.config import ScoreConfig
from at_infer.errors import ConfigError
from at_infer.incidents.curve import incident_curve
from at_infer.incidents.defaults import default_rules
from at_infer.incidents.tracker import IncidentTracker
from at_infer.models.metadata import Metadata
from at_infer.models.spacing import Spacing
from at_infer.models.statistics import IncidentCurve, IncidentOptions, ValidationRecord
from at_infer.scoring.options import ScoreOptions
from at_infer.thresholds.choose import ThresholdWish, choose_for_scoring
from at_infer.thresholds.chosen import ChosenThreshold
from at_infer.thresholds.false_alarms import IncidentRates, parse_rate
from tests.exported import metadata

SCORE = ScoreConfig()
RNG = np.random.default_rng(0)
NORMAL = np.exp(0.1 * np.convolve(RNG.normal(size=20_049), np.ones(50) / 7, "valid")).astype(np.float32)
"""Rows that are smooth over 50, as those of mode fusion are."""
CURVE = incident_curve([NORMAL[:12_000], NORMAL[12_000:]], SCORE)


@pytest.mark.parametrize(
    ("text", "per_day", "per_row"),
    [("1/day", 1, None), ("2/week", 2 / 7, None), ("0.5 / hour", 12, None), ("3/2days", 1.5, None)],
)
def test_rates_per_time(text: str, per_day: float, per_row: float | None) -> None:
    assert parse_rate(text).per_row(1440) == pytest.approx(per_day / 1440)
    assert per_row is None


def test_a_rate_per_rows_needs_no_clock() -> None:
    assert parse_rate("1/10000 rows").per_row(None) == pytest.approx(1e-4)
    with pytest.raises(ConfigError, match="1/day needs the time between rows"):
        parse_rate("1/day").per_row(None)


@pytest.mark.parametrize("text", ["", "daily", "1", "1/fortnight", "0/day", "-1/day", "1/0 rows", "1//day", "x/day"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a rate; write 1/day"):
        parse_rate(text)
    with pytest.raises(ConfigError, match="is not a rate"):
        ScoreOptions(false_alarms=text)


@pytest.mark.parametrize("allowed", [1, 3, 10, 30])
def test_the_threshold_yields_about_the_rate_on_the_rows_it_was_counted_on(allowed: int) -> None:
    found = IncidentRates(CURVE).threshold(parse_rate(f"{allowed}/{CURVE.rows} rows"), None)
    median = float(np.median(NORMAL))
    rules = default_rules(found.value, SCORE, median=median, look_ahead_rows=0)
    told = 0
    for part in (NORMAL[:12_000], NORMAL[12_000:]):
        tracker = IncidentTracker(rules, model="")
        told += sum(event.kind == "opened" for event in [*tracker.add(part), *tracker.end()])
    assert allowed / 2 <= told <= allowed
    assert f"{told} incident{'s' if told > 1 else ''} in 20000 validation rows" in found.note


def test_what_the_validation_part_cannot_show_is_extrapolated_and_said_so() -> None:
    rates = IncidentRates(CURVE)
    rare = rates.threshold(parse_rate("1/month"), 1440)
    assert rare.value > NORMAL.max()
    assert rare.note == "extrapolated: 20000 validation rows (14 days) are less than it takes to see 1/month"
    assert rates.expected(rare.value) * 1440 * 30.4375 == pytest.approx(1, rel=0.01)
    assert rates.threshold(parse_rate("1/year"), 1440).value > rare.value


def test_too_little_to_extrapolate_from_is_refused() -> None:
    few = IncidentCurve(levels=[1.0, 2.0, 3.0], counts=[1, 1, 0], rows=500)
    with pytest.raises(ConfigError, match=r"500 validation rows \(0.35 days\) have too few incidents"):
        IncidentRates(few).threshold(parse_rate("1/week"), 1440)


def test_merged_incidents_at_a_low_threshold_do_not_count_as_few() -> None:
    curve = IncidentCurve(levels=[1.0, 2.0, 3.0, 4.0], counts=[1, 9, 3, 0], rows=1000)
    assert IncidentRates(curve).threshold(parse_rate("3/1000 rows"), None).value == 3.0
    assert IncidentRates(curve).expected(1.0) == pytest.approx(9 / 1000)


def test_a_model_that_counted_no_incidents_says_what_to_do() -> None:
    known, rare = metadata(), ThresholdWish(false_alarms="1/10000 rows")
    with pytest.raises(ConfigError, match=r"no incidents were counted in old[.]onnx for .*; train again"):
        choose_for_scoring(known, known.score, source="old.onnx", wish=rare)
    record = replace(known.validation_of(), incidents=CURVE)
    chosen = choose_for_scoring(known.with_validation(record), known.score, source="m.onnx", wish=rare)
    assert chosen.asked_rate == "1/10000 rows"
    assert chosen.value == IncidentRates(CURVE).threshold(parse_rate("1/10000 rows"), None).value


MINUTE = Spacing(step=60.0, clock="date")
FEW = IncidentCurve(levels=[1.0, 2.0], counts=[1, 0], rows=500)


def chosen_for(known: Metadata, incidents: IncidentOptions | None = IncidentOptions(), **given: Any) -> ChosenThreshold:  # noqa: B008 - frozen
    return choose_for_scoring(known, known.score, source="m.onnx", wish=ThresholdWish(**given), incidents=incidents)


def test_where_incidents_are_made_the_threshold_is_one_for_a_rate_of_false_ones() -> None:
    plain = metadata(spacing=MINUTE)
    counted = plain.with_validation(replace(plain.validation_of(), incidents=CURVE))
    found = chosen_for(counted)
    assert found.value == IncidentRates(CURVE).threshold(parse_rate("1/day"), 1440).value
    assert found.asked_rate == "1/day"
    assert found.incidents_per_day == pytest.approx(1, abs=0.3)
    (note,) = found.notes
    assert note.startswith(f"incidents: threshold {found.value:.4g} for 1/day: 13 incidents in 20000 validation rows")
    assert note.endswith("; pass false_alarms=..., ratio=... or threshold=... for another")
    assert chosen_for(counted, None).value == 0.25  # nobody asks for incidents
    assert chosen_for(counted, threshold=7.0).value == 7.0
    assert chosen_for(counted, ratio=0.0).asked_rate is None
    assert chosen_for(counted, false_alarms="1/week").asked_rate == "1/week"


@pytest.mark.parametrize("spacing", [None, Spacing(step=1.0, clock="number")])
def test_the_rate_is_one_per_rows_where_times_are_not_dates(spacing: Spacing | None) -> None:
    plain = metadata(spacing=spacing)
    found = chosen_for(plain.with_validation(replace(plain.validation_of(), incidents=CURVE)))
    assert found.value == IncidentRates(CURVE).threshold(parse_rate("1/1440 rows"), None).value
    assert found.asked_rate == "1/1440 rows"
    (note,) = found.notes
    assert note.startswith(f"incidents: threshold {found.value:.4g} for 1/1440 rows: 13 incidents in 20000 validation")


@pytest.mark.parametrize(("per_day", "rate"), [(1440, "1/day"), (60_000, "1/day"), (86_400, "1/60000 rows")])
def test_the_default_rate_is_one_that_the_validation_part_tells_something_about(per_day: int, rate: str) -> None:
    """With a row per second a day is more than four times these rows; a threshold for it would hide most faults."""
    plain = metadata(spacing=Spacing(step=86_400 / per_day, clock="date"))
    found = chosen_for(plain.with_validation(replace(plain.validation_of(), incidents=CURVE)))
    assert found.asked_rate == rate
    assert found.value == IncidentRates(CURVE).threshold(parse_rate(rate), per_day).value
    assert (", too few for 1/day; pass" in found.notes[0]) == (rate != "1/day")
    asked = chosen_for(plain.with_validation(replace(plain.validation_of(), incidents=CURVE)), false_alarms="1/day")
    assert asked.value >= found.value
    assert asked.asked_rate == "1/day"


@pytest.mark.parametrize("spacing", [MINUTE, None])
def test_rows_too_few_for_a_tail_give_the_rate_that_they_show(spacing: Spacing | None) -> None:
    plain = metadata(spacing=spacing)
    found = chosen_for(plain.with_validation(replace(plain.validation_of(), incidents=FEW)))
    assert (found.value, found.asked_rate) == (1.0, "1/500 rows")
    assert "for 1/500 rows: 1 incident in 500 validation rows" in found.notes[0]


@pytest.mark.parametrize("changes", [{"method": "fixed", "ratio": None}, {"ratio": 0.005}])
def test_a_threshold_that_someone_has_chosen_for_the_model_stays(changes: dict[str, Any]) -> None:
    record = metadata().validation_of()
    record = replace(record, incidents=CURVE, threshold=replace(record.threshold, **changes))
    found = chosen_for(metadata(spacing=MINUTE).with_validation(record))
    assert (found.value, found.notes) == (0.25, ())


@pytest.mark.parametrize(
    ("curve", "spacing", "rate", "why"),
    [
        (None, MINUTE, "1/day", "no incidents were counted in m.onnx for rows scored in this way"),
        (None, None, "1/1440 rows", "no incidents were counted in m.onnx for rows scored in this way"),
    ],
)
def test_if_no_rate_can_be_had_the_recorded_threshold_is_used_and_said_so(
    curve: IncidentCurve | None, spacing: Spacing | None, rate: str, why: str
) -> None:
    record = replace(metadata().validation_of(), incidents=curve)
    found = chosen_for(metadata(spacing=spacing).with_validation(record))
    assert (found.value, found.asked_rate) == (0.25, None)
    (note,) = found.notes
    assert note.startswith(f"incidents: the recorded threshold 0.25 is used instead of {rate}: {why}")


def test_rules_that_false_incidents_were_not_counted_with_are_said() -> None:
    options = IncidentOptions(min_rows=5)
    counted = incident_curve([NORMAL], SCORE, options)
    assert sum(counted.counts) < sum(incident_curve([NORMAL], SCORE).counts)
    record = replace(metadata().validation_of(), incidents=counted)
    known = metadata(spacing=MINUTE).with_validation(record)
    assert chosen_for(known).incidents == options  # as they were counted
    assert chosen_for(known).incidents_per_day is not None
    other = chosen_for(known, IncidentOptions(cool_down_rows=60))
    assert other.incidents == IncidentOptions(min_rows=5, cool_down_rows=60)
    assert "has counted false ones without cool_down_rows=60" in other.notes[-1]
    assert other.incidents_per_day is None
    old = counted.to_dict()
    del old["options"]
    assert IncidentCurve.from_dict(old).options == IncidentOptions()


def test_records_of_earlier_versions_are_read() -> None:
    record = metadata().validation_of()
    values = replace(record, incidents=CURVE).to_dict()
    assert ValidationRecord.from_dict(values).incidents == CURVE
    del values["incidents"]
    assert ValidationRecord.from_dict(values) == replace(record, incidents=None)


def test_ways_to_a_threshold_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        ScoreOptions(false_alarms="1/day", ratio=0.01)
