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
from at_infer.scoring.windows import MovingMean
from at_infer.thresholds.quantiles import quantiles
from at_infer.thresholds.ratio import ratio_threshold
from training.patterns import with_patterns
from training.validation_rows import CoveredRows, Floats, RowsByNetwork, Scored, ScoredNetwork, live_spans, spans
from training.view_statistics import learn_views
from training.window_scores import measure_normal


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
    network, score, (values, starts, series_rows, rows_before) = scored.network, scored.score, rows
    series = spans(starts, series_rows, network.config.window)
    windows = torch.from_numpy(starts).to(values.device)
    normal = measure_normal(network, values, windows, scored.discrepancy, scored.batch_size)
    run = RowsByNetwork(scored, values, normal)
    whole = run.whole(starts).split(series_rows)
    delays = [delay for delay in LIVE_DELAYS if delay < network.config.window // 2]
    ways = {delay: split_delay(network.config, score.mode, delay) for delay in delays}
    live_parts = live_spans(series, network.config.window, live_rows, rows_before)
    positions = {beyond for beyond, _ in ways.values()}
    numbers = [part.first - span.first for part, span in zip(live_parts, series, strict=True)]
    lengths = [part.rows for part in live_parts]
    live = {at: found.split(lengths, numbers) for at, found in run.live(live_parts, positions).items()}
    position = ways[delays[min(1, len(delays) - 1)]][0]
    more_whole, more_live = _rows_before(scored, before, normal, position)
    views = learn_views(learnt, [*more_whole, *whole], [*more_live, *live[position]])
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


def _rows_before(
    scored: ScoredNetwork, before: CoveredRows | None, normal: Normal, position: int
) -> tuple[list[Scored], list[Scored]]:
    """Rows before the validation part, in whole windows and as live rows."""
    if before is None:
        return [], []
    run, window = RowsByNetwork(scored, before.values, normal), scored.network.config.window
    parts = live_spans(spans(before.starts, before.series_rows, window), window, sum(before.series_rows))
    live = run.live(parts, [position])[position]
    return run.whole(before.starts).split(before.series_rows), live.split([part.rows for part in parts])


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
