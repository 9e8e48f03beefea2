"""After training: what normal scores look like, on the validation part, in every score mode."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from at_infer.config import (
    LIVE_DELAYS,
    WINDOW_MODES,
    Align,
    ScoreConfig,
    ScoreMode,
    split_delay,
)
from at_infer.incidents.curve import incident_curve
from at_infer.models.fusion import Fusion
from at_infer.models.statistics import Normal, Threshold, ValidationRecord, ViewStatistics
from at_infer.models.view_units import measure_views
from at_infer.models.views import AHEAD, NEXT, LinearPrediction, SeriesViews
from at_infer.scoring.windows import MovingMean
from at_infer.thresholds.quantiles import quantiles
from at_infer.thresholds.ratio import ratio_threshold
from training.linear import fit_linear, last_rows
from training.patterns import with_patterns
from training.validation_rows import CoveredRows, Floats, RowsByNetwork, Scored, ScoredNetwork, live_spans, spans
from training.window_scores import measure_normal

MOST_NETWORK_WEIGHT = 2.0
"""The network relates features to each other, which linear views do not. So its two views count by half the number of
features, at least once, and from four features on as much as the four linear views together."""
PART_FLOOR, PART_FLOOR_OF_ONE = 1e-3, 0.1
"""Of a column that stands still, parts are exactly 0 on normal rows, and would decide the geometric mean alone. Of
several, one or the other nearly always moves."""
MOST_LEARNT_NUMBERS = 1_500_000
"""Of learnt rows that units are measured on: six views of each are in memory at once."""
WIDTHS, WIDTHS_OF_ONE = (5, 10, 25, 50), (10, 25, 50, 100, 150)
"""The mean over several features is less noisy than one alone, which needs longer means over rows."""


class MeasuredValidation(NamedTuple):
    """Recorded statistics of the validation scores."""

    records: list[ValidationRecord]
    """Of whole windows, and of rows that are each the last of their window."""
    normal: Normal


def measure_validation(
    scored: ScoredNetwork,
    rows: CoveredRows,
    *,
    ratio: float,
    learnt: Sequence[Floats] | None = None,
    before: CoveredRows | None = None,
    live_rows: int = 2_000,
) -> MeasuredValidation:
    """Score the windows of the validation part in every mode; the chosen one gives the threshold.

    Then the same for `live_rows` that are each the last of their window, which reconstruction finds harder. Linear
    predictions and patterns are fitted to the series `learnt`; without them the former to the validation rows, to which
    patterns made of them would be too near: there are none. Of rows `before` the validation part only the units of
    views are measured, where that part has too few rows for these.
    """
    network, score, (values, starts, series_rows) = scored.network, scored.score, rows
    series = spans(starts, series_rows, network.config.window)
    windows = torch.from_numpy(starts).to(values.device)
    normal = measure_normal(network, values, windows, scored.discrepancy, scored.batch_size)
    run = RowsByNetwork(scored, values, normal)
    whole = run.whole(starts).split(series_rows)
    delays = [delay for delay in LIVE_DELAYS if delay < network.config.window // 2]
    ways = {delay: split_delay(network.config, score.mode, delay) for delay in delays}
    live_parts = live_spans(series, network.config.window, live_rows)
    positions = {beyond for beyond, _ in ways.values()}
    numbers = [part.first - span.first for part, span in zip(live_parts, series, strict=True)]
    lengths = [part.rows for part in live_parts]
    live = {at: found.split(lengths, numbers) for at, found in run.live(live_parts, positions).items()}
    given = learnt or [values[span.first : span.first + span.rows].cpu().numpy() for span in series]
    weighed = learnt is not None and values.shape[1] > 1  # units weigh features against each other
    position = ways[delays[min(1, len(delays) - 1)]][0]
    more_whole, more_live = _unit_rows(scored, before, normal, position)
    views = _measure_views(given, [*more_whole, *whole], [*more_live, *live[position]], weighed=weighed)
    if learnt is not None:
        views = with_patterns(views, learnt, [part.x for part in whole])
    fusion = replace(score, mode="fusion", smooth=1, normalise_errors=False)
    views = replace(
        views,
        whole=replace(views.whole, unit=float(np.median(_fused(whole, views, fusion, causal=False)))),
        live=replace(views.live, unit=float(np.median(_fused(live[0], views, fusion, causal=True)))),
    )
    scores: dict[ScoreMode, Floats] = {
        mode: _smoothed(whole, mode, score.smooth, causal=False) for mode in WINDOW_MODES
    }
    scores["fusion"] = _fused(whole, views, fusion, causal=False)
    records = [_record("window", 0, scores, score, ratio, series_rows)]
    for delay, (beyond, ahead) in ways.items():
        modes = WINDOW_MODES if delay == 0 else [score.mode]  # another mode is rarely asked for, and late even more so
        scores = {mode: _smoothed(live[beyond], mode, score.smooth, causal=True) for mode in modes if mode != "fusion"}
        if delay == 0 or score.mode == "fusion":
            scores["fusion"] = _fused(live[beyond], views, fusion, causal=True, delay=ahead)
        records.append(_record("last", delay, scores, score, ratio, lengths))
    return MeasuredValidation(records, replace(normal, views=views))


def whole_scores(scored: ScoredNetwork, rows: CoveredRows, normal: Normal) -> Floats:
    """Scores of the rows that windows cover, series after series, by a model whose statistics are known."""
    score = scored.score
    whole = RowsByNetwork(scored, rows.values, normal).whole(rows.starts).split(rows.series_rows)
    if score.mode != "fusion":
        return _smoothed(whole, score.mode, score.smooth, causal=False)
    assert normal.views is not None
    return _fused(whole, normal.views, score, causal=False)


def _unit_rows(
    scored: ScoredNetwork, before: CoveredRows | None, normal: Normal, position: int
) -> tuple[list[Scored], list[Scored]]:
    """Rows before the validation part, in whole windows and as live rows."""
    if before is None:
        return [], []
    run, window = RowsByNetwork(scored, before.values, normal), scored.network.config.window
    parts = live_spans(spans(before.starts, before.series_rows, window), window, sum(before.series_rows))
    live = run.live(parts, [position])[position]
    return run.whole(before.starts).split(before.series_rows), live.split([part.rows for part in parts])


def _measure_views(
    learnt: Sequence[Floats], whole: Sequence[Scored], live: Sequence[Scored], *, weighed: bool
) -> ViewStatistics:
    """Linear predictions, and statistics of each view; of linear ones on the rows learnt as well if `weighed`."""
    predictions = [(fitted := fit_linear(learnt, lags), _usual_error(fitted, lags, whole)) for lags in (NEXT, AHEAD)]
    scales = []
    for parts, causal in ((whole, False), (live, True)):
        views = [
            SeriesViews(predictions, causal=causal, level="recent", number=part.number, past_shape=causal).add(
                part.x.T, part.residual.T, part.shape.T, end=True
            )
            for part in parts
        ]
        of_learnt = [
            SeriesViews(predictions, causal=causal, level="ignore", number=0).add(x.T, x.T, x.T, end=True)
            for x in (last_rows(learnt, MOST_LEARNT_NUMBERS // len(predictions[0][0])) if weighed else [])
        ]
        scales.append(
            measure_views(
                np.concatenate(views, axis=2),
                np.concatenate([p.residual.T for p in parts], axis=1),
                np.concatenate(of_learnt, axis=2) if of_learnt else None,
            )
        )
    (next_, _), (ahead, _) = predictions
    return ViewStatistics(
        next=next_.tolist(),
        ahead=ahead.tolist(),
        whole=scales[0],
        live=scales[1],
        network_weight=min(max(1.0, len(next_) / 2), MOST_NETWORK_WEIGHT),
        widths=widths_for(len(next_)),
        part_floor=part_floor_for(len(next_)),
    )


def widths_for(features: int) -> list[int]:
    """Rows that the views of a model are averaged over."""
    return list(WIDTHS if features > 1 else WIDTHS_OF_ONE)


def part_floor_for(features: int) -> float:
    """What is added to each part of a score."""
    return PART_FLOOR if features > 1 else PART_FLOOR_OF_ONE


def _usual_error(coefficients: Floats, lags: range, parts: Sequence[Scored]) -> Floats:
    """Root of the mean square of a prediction's errors on rows that have enough rows before them, per feature."""
    nothing = np.zeros(len(coefficients), np.float32)
    errors = [LinearPrediction(lags, coefficients, nothing).errors(part.x.T)[:, max(lags) :] for part in parts]
    known = np.concatenate([nothing[:, None], *errors], axis=1)
    usual: Floats = np.sqrt(np.square(known).sum(axis=1) / np.float32(max(1, known.shape[1] - 1)))
    return usual


def _fused(
    parts: Sequence[Scored], views: ViewStatistics, score: ScoreConfig, *, causal: bool, delay: int = 0
) -> Floats:
    """Scores of mode `fusion`, series after series."""
    found = []
    for part in parts:
        fusion = Fusion(views, score, causal=causal, delay=delay, number=part.number)
        rows = np.concatenate([part.x, part.residual, *([] if causal else [part.shape])], axis=1)
        found += [fusion.add(rows), fusion.end()]
    return np.concatenate(found)[:, 0]


def _smoothed(parts: Sequence[Scored], mode: ScoreMode, width: int, *, causal: bool) -> Floats:
    """Moving mean of the rows of each series."""
    found = []
    for part in parts:
        mean = MovingMean(width, causal=causal)
        found += [mean.add(part.scores[mode][:, None]), mean.end()]
    return np.concatenate(found)[:, 0]


def _record(
    align: Align,
    delay: int,
    scores: dict[ScoreMode, Floats],
    score: ScoreConfig,
    ratio: float,
    series_rows: Sequence[int],
) -> ValidationRecord:
    chosen = scores[score.mode]
    curve = incident_curve(np.split(chosen, np.cumsum(series_rows)[:-1]), score)
    threshold = Threshold(
        value=ratio_threshold(chosen, ratio), method="ratio", ratio=ratio, validation_rows=chosen.size
    )
    kept: dict[str, list[float]] = {name: quantiles(of_rows) for name, of_rows in scores.items()}
    return ValidationRecord(align=align, delay=delay, threshold=threshold, quantiles=kept, incidents=curve)
