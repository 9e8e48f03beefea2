"""The rules that fit a score: from how it was formed, and from its validation scores."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from at_infer.config import ScoreConfig
from at_infer.incidents.outages import outage_rows
from at_infer.incidents.rules import IncidentRules
from at_infer.models.scored_by import ScoredBy
from at_infer.models.spacing import Spacing
from at_infer.models.statistics import IncidentOptions
from at_infer.scoring.columns import scored_properties
from at_infer.scoring.scorer import Scorer
from at_infer.thresholds.choose import choose_for_report
from at_infer.thresholds.recorded import recorded_in_scores

CLOSE = 0.5
"""An incident closes at this fraction of the way from the median of the validation scores to the threshold."""
CLOSE_UNKNOWN = 0.8
"""The same as a share of the threshold, if no validation scores are known."""
MERGE_ROWS = 10
"""Rows bridged at least; as many as the smoothing has, if these are more."""
FUSED_MERGE_ROWS = 50
"""Where each view is smoothed over several widths."""


def default_rules(
    open_at: float,
    score: ScoreConfig,
    *,
    median: float | None,
    look_ahead_rows: int = 0,
    spacing: Spacing | None = None,
    options: IncidentOptions | None = None,
) -> IncidentRules:
    """`median` is that of the validation scores; `options` are requested rules."""
    fused = score.mode == "fusion"
    median = 1.0 if median is None and fused else median
    close_at = CLOSE_UNKNOWN * open_at if median is None else open_at - CLOSE * (open_at - median)
    rules = IncidentRules(
        open_at=open_at,
        close_at=min(open_at, close_at),
        merge_rows=FUSED_MERGE_ROWS if fused else max(MERGE_ROWS, score.smooth),
        look_ahead_rows=look_ahead_rows,
        outage_rows=outage_rows(spacing),
    )
    return rules if options is None else IncidentRules(**rules.to_dict() | options.given)


def rules_of_scores(properties: Mapping[str, str], *, source: str, threshold: float | None = None) -> IncidentRules:
    """For a file of scores, by what it has recorded; with another threshold if one is given."""
    open_at = choose_for_report(properties, source=source, threshold=threshold)
    written, known = ScoredBy.of(properties, source), recorded_in_scores(properties, source).scores
    rules = default_rules(
        open_at,
        written.score or ScoreConfig(),
        median=None if known is None else known.at_levels([0.5])[0],
        look_ahead_rows=max(0, written.look_ahead or 0),
        spacing=written.spacing,
        options=written.incident_options,
    )
    rate = written.false_alarms
    if rate is None or threshold is not None:
        return rules
    return replace(
        rules, asked=rate.asked, expected_per_day=rate.expected_per_day, how=f"recorded in {Path(source).name}"
    )


def rules_of_scorer(scorer: Scorer) -> IncidentRules:
    """For scores that come from this engine with these options: the same as for a file of them."""
    return rules_of_scores(scored_properties(scorer), source=str(scorer.engine.path))
