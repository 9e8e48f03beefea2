"""After training: what normal scores look like, on the validation part, in every score mode."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import (
    LIVE_DELAYS,
    WINDOW_MODES,
    Align,
    DiscrepancyConfig,
    ErrorKind,
    HeadRule,
    ScoreConfig,
    ScoreMode,
    head_rule,
    head_rules,
    split_delay,
)
from at_infer.incidents.curve import incident_curve
from at_infer.models.criterion import anomaly_score, error_weights
from at_infer.models.fusion import Fusion, measure_views
from at_infer.models.statistics import Normal, Threshold, ValidationRecord, ViewStatistics
from at_infer.models.views import AHEAD, NEXT, LinearPrediction, SeriesViews
from at_infer.scoring.windows import MovingMean
from at_infer.thresholds.quantiles import quantiles
from at_infer.thresholds.ratio import ratio_threshold
from training.discrepancy import association_discrepancy
from training.linear import fit_linear
from training.model import AnomalyTransformer
from training.views import feature_errors, local_mean

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

STD_FLOOR = 1e-6  # of AssDis: a network without layers to disagree has none


class Parts(NamedTuple):
    """What every score mode is a function of, one row per window (B,N)."""

    error: dict[ErrorKind, NDArray[np.float32]]
    discrepancy: dict[HeadRule, NDArray[np.float32]]
    """Per head rule."""
    difference: Tensor
    """Reconstruction minus window (B,N,F)."""


def usual(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, discrepancy: DiscrepancyConfig, batch_size: int
) -> Normal:
    """What the network does on windows without anomalies, or nearly so."""
    plain, centred = (ErrorKind(centred=centred, normalised=False) for centred in (False, True))
    ones = torch.ones(network.config.features, device=values.device)
    squares = {kind: torch.zeros_like(ones, dtype=torch.float64) for kind in (plain, centred)}
    kept: dict[HeadRule, list[Tensor]] = {rule: [] for rule in head_rules(discrepancy)}
    for difference, found in _run(network, values, starts, discrepancy, batch_size):
        for kind, total in squares.items():
            total += feature_errors(difference, kind, ones).double().sum((0, 1))
        for rule, of_batch in found.items():
            kept[rule].append(of_batch.cpu())
    points = len(starts) * network.config.window
    moments = {rule: torch.cat(parts).double() for rule, parts in kept.items()}
    return Normal(
        error=(squares[plain] / points).tolist(),
        centred_error=(squares[centred] / points).tolist(),
        discrepancy={
            rule: [d.mean().item(), max(d.std(correction=0).item(), STD_FLOOR)] for rule, d in moments.items()
        },
    )


def window_parts(
    network: AnomalyTransformer,
    values: Tensor,
    starts: Tensor,
    discrepancy: DiscrepancyConfig,
    normal: Normal,
    batch_size: int,
) -> Parts:
    """Run the network over windows and keep error and discrepancy of each point."""
    kinds = [ErrorKind(centred, normalised) for centred in (False, True) for normalised in (False, True)]
    weights = {kind: torch.from_numpy(error_weights(normal, kind)).to(values.device) for kind in kinds}
    error: dict[ErrorKind, list[Tensor]] = {kind: [] for kind in kinds}
    kept: dict[HeadRule, list[Tensor]] = {rule: [] for rule in head_rules(discrepancy)}
    differences = []
    for difference, found in _run(network, values, starts, discrepancy, batch_size):
        differences.append(difference.cpu())
        for kind, of_kind in error.items():
            of_kind.append(feature_errors(difference, kind, weights[kind]).mean(-1).cpu())
        for rule, of_batch in found.items():
            kept[rule].append(of_batch.cpu())
    return Parts(
        {kind: torch.cat(parts).numpy() for kind, parts in error.items()},
        {rule: torch.cat(parts).numpy() for rule, parts in kept.items()},
        torch.cat(differences),
    )


def _run(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, discrepancy: DiscrepancyConfig, batch_size: int
) -> Iterator[tuple[Tensor, dict[HeadRule, Tensor]]]:
    """Batch by batch, x_hat - x (B,N,F) and AssDis (B,N) by either head rule."""
    steps, prior = torch.arange(network.config.window, device=values.device), network.config.prior
    for batch in starts.split(batch_size):
        with torch.inference_mode():
            x = values[batch[:, None] + steps]
            x_hat, associations = network(x)
            yield (
                x_hat - x,
                {
                    rule: association_discrepancy(associations, replace(discrepancy, head_rule=rule), prior)
                    for rule in head_rules(discrepancy)
                },
            )


def window_scores(
    parts: Parts, score: ScoreConfig, discrepancy: DiscrepancyConfig, normal: Normal, layers: int
) -> NDArray[np.float32]:
    """Scores (B,N), formed as `score` says."""
    rule = head_rule(score.mode, discrepancy)
    return anomaly_score(
        parts.error[score.error_kind],
        parts.discrepancy[rule],
        score,
        layers_summed=1 if discrepancy.layer is not None else layers,
        usual_discrepancy=normal.discrepancy[rule],
    )


def one_per_row(scores: NDArray[np.float32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Scores of the rows that windows (in order) cover, each row once: from its first window."""
    window = scores.shape[1]
    overlap = np.zeros(len(starts), np.int64)
    overlap[1:] = np.clip(starts[:-1] + window - starts[1:], 0, window)
    return scores[np.arange(window)[None, :] >= overlap[:, None]]


class Span(NamedTuple):
    """Consecutive rows of one series."""

    first: int
    rows: int


def spans(starts: Ints, series_rows: Sequence[int], window: int) -> list[Span]:
    """The series, of which `starts` are windows that do not overlap but for the last of each."""
    counts = -(-np.asarray(series_rows) // window)
    firsts = starts[np.cumsum(counts) - counts].tolist()
    return [Span(first, rows) for first, rows in zip(firsts, series_rows, strict=True)]


def live_spans(series: Sequence[Span], window: int, most_rows: int) -> list[Span]:
    """Rows that are scored as a live system scores them: all, or the last ones of each series, about `most_rows`.

    Live scores depend on rows before them, so they are looked at in a row, after a full window.
    """
    each = -(-most_rows // len(series))
    found = []
    for first, rows in series:
        scored = min(rows - window + 1, each)
        found.append(Span(first + rows - scored, scored))
    return found


def most_live_rows(trained_windows: int) -> int:
    """As many as cost less than a tenth of the training: a window forth and back takes three times a window forth."""
    return min(max(2_000, trained_windows // 4), 20_000)


class Scored(NamedTuple):
    """Some rows in order, as the network and every mode but `fusion` see them."""

    x: Floats
    residual: Floats
    shape: Floats
    """(rows, F), scaled."""
    scores: dict[ScoreMode, Floats]
    """(rows,), not smoothed."""
    number: int = 0
    """Of the first row in its series."""

    def take(self, chosen: Callable[[Floats], Floats]) -> "Scored":
        """Some of the rows, the same of each array."""
        scores = {mode: chosen(score) for mode, score in self.scores.items()}
        return Scored(chosen(self.x), chosen(self.residual), chosen(self.shape), scores)

    @staticmethod
    def join(parts: Sequence["Scored"]) -> "Scored":
        """One after the other."""
        scores = {mode: np.concatenate([part.scores[mode] for part in parts]) for mode in parts[0].scores}
        x, residual, shape = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return Scored(x, residual, shape, scores)

    def split(self, lengths: Sequence[int], numbers: Sequence[int] | None = None) -> list["Scored"]:
        """Rows of one series each, and what number in it the first of them has."""
        ends = np.cumsum(lengths).tolist()
        return [
            self.take(lambda array, first=end - length, end=end: array[first:end])._replace(number=number)  # type: ignore[misc]
            for length, end, number in zip(lengths, ends, numbers or [0] * len(lengths), strict=True)
        ]


class MeasuredValidation(NamedTuple):
    """What is recorded of the validation scores."""

    records: list[ValidationRecord]
    """Of whole windows, and of rows that are each the last of their window."""
    normal: Normal


def measure_validation(
    network: AnomalyTransformer,
    values: Tensor,
    starts: Ints,
    series_rows: Sequence[int],
    *,
    discrepancy: DiscrepancyConfig,
    score: ScoreConfig,
    ratio: float,
    learnt: Sequence[Floats] | None = None,
    batch_size: int = 32,
    live_rows: int = 2_000,
) -> MeasuredValidation:
    """Score the windows of the validation part in every mode; the chosen one gives the threshold.

    `series_rows` are the rows of each series that the windows cover. Then the same for `live_rows` that are each the
    last of their window, which reconstruction finds harder. Linear predictions are fitted to the series `learnt`, or to
    the validation rows if there are none.
    """
    series = spans(starts, series_rows, network.config.window)
    normal = usual(network, values, torch.from_numpy(starts).to(values.device), discrepancy, batch_size)
    run = _Run(network, values, discrepancy, normal, score, batch_size)
    whole = run.whole(starts).split(series_rows)
    delays = [delay for delay in LIVE_DELAYS if delay < network.config.window // 2]
    ways = {delay: split_delay(network.config, score.mode, delay) for delay in delays}
    live_parts = live_spans(series, network.config.window, live_rows)
    positions = {beyond for beyond, _ in ways.values()}
    numbers = [part.first - span.first for part, span in zip(live_parts, series, strict=True)]
    lengths = [part.rows for part in live_parts]
    live = {at: rows.split(lengths, numbers) for at, rows in run.live(live_parts, positions).items()}
    given = learnt or [values[span.first : span.first + span.rows].cpu().numpy() for span in series]
    views = _measure_views(given, whole, live[ways[delays[min(1, len(delays) - 1)]][0]])
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


def _measure_views(learnt: Sequence[Floats], whole: Sequence[Scored], live: Sequence[Scored]) -> ViewStatistics:
    """Linear predictions and what is normal for each view."""
    predictions = [(fitted := fit_linear(learnt, lags), _usual_error(fitted, lags, whole)) for lags in (NEXT, AHEAD)]
    scales = []
    for parts, causal in ((whole, False), (live, True)):
        views = [
            SeriesViews(predictions, causal=causal, level="recent", number=part.number).add(
                part.x.T, part.residual.T, part.shape.T, end=True
            )
            for part in parts
        ]
        scales.append(
            measure_views(np.concatenate(views, axis=2), np.concatenate([p.residual.T for p in parts], axis=1))
        )
    (next_, _), (ahead, _) = predictions
    return ViewStatistics(next=next_.tolist(), ahead=ahead.tolist(), whole=scales[0], live=scales[1])


def _usual_error(coefficients: Floats, lags: range, parts: Sequence[Scored]) -> Floats:
    """Root of the mean square of a prediction's errors on rows that have enough rows before them, per feature."""
    nothing = np.zeros(len(coefficients), np.float32)
    errors = [LinearPrediction(lags, coefficients, nothing).errors(part.x.T)[:, max(lags) :] for part in parts]
    known = np.concatenate([nothing[:, None], *errors], axis=1)
    usual: Floats = np.sqrt(np.square(known).sum(axis=1) / np.float32(max(1, known.shape[1] - 1)))
    return usual


@dataclass(frozen=True, slots=True)
class _Run:
    """Windows through the network."""

    network: AnomalyTransformer
    values: Tensor
    discrepancy: DiscrepancyConfig
    normal: Normal
    score: ScoreConfig
    batch_size: int

    def whole(self, starts: Ints) -> Scored:
        """Every row from the first window that covers it."""
        return Scored.join(list(self._windows(starts))).take(lambda array: one_per_row(array, starts))

    def live(self, parts: Sequence[Span], positions: Iterable[int]) -> dict[int, Scored]:
        """The rows of the parts, each by the window that ends so many rows behind it; the last window for the last."""
        last = np.concatenate([np.arange(part.first, part.first + part.rows) for part in parts])
        found: dict[int, list[Scored]] = {position: [] for position in positions}
        for batch in self._windows(last - self.network.config.window + 1):
            for position, taken in found.items():
                taken.append(batch.take(lambda array, at=-1 - position: array[:, at]))  # type: ignore[misc]
        return {position: Scored.join(taken) for position, taken in found.items()}

    def _windows(self, starts: Ints) -> Iterator[Scored]:
        """Batch by batch: arrays (B,N,F) and scores (B,N)."""
        steps = torch.arange(self.network.config.window, device=self.values.device)
        modes = [replace(self.score, mode=mode, smooth=1) for mode in WINDOW_MODES]
        for batch in torch.from_numpy(starts).to(self.values.device).split(self.batch_size):
            x = self.values[batch[:, None] + steps]
            parts = window_parts(self.network, self.values, batch, self.discrepancy, self.normal, self.batch_size)
            residual = -parts.difference
            shape = residual - local_mean(residual)
            layers = self.network.config.layers
            scores = {one.mode: window_scores(parts, one, self.discrepancy, self.normal, layers) for one in modes}
            yield Scored(x.cpu().numpy(), residual.numpy(), shape.numpy(), scores)


def _fused(
    parts: Sequence[Scored], views: ViewStatistics, score: ScoreConfig, *, causal: bool, delay: int = 0
) -> Floats:
    """Scores of mode `fusion`, series after series."""
    found = []
    for part in parts:
        fusion = Fusion(views, score, causal=causal, delay=delay, number=part.number)
        found += [fusion.add(np.concatenate(part[:3], axis=1)), fusion.end()]
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
