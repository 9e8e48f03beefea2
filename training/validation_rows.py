"""Rows of the validation part as the network sees them: in whole windows, and each as the last of its window."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import WINDOW_MODES, DiscrepancyConfig, ScoreConfig, ScoreMode
from at_infer.models.statistics import Normal
from at_infer.scoring.windows import window_starts
from training.model import AnomalyTransformer
from training.views import local_mean
from training.window_scores import window_parts, window_scores

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


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


def live_spans(
    series: Sequence[Span], window: int, most_rows: int, rows_before: Sequence[int] | None = None
) -> list[Span]:
    """Rows that are scored as a live system scores them: all, or the last ones of each series, about `most_rows`.

    Live scores depend on rows before them, so they are looked at in a row, after a full window, to which rows of the
    same series before this part may belong.
    """
    each = -(-most_rows // len(series))
    found = []
    for (first, rows), before in zip(series, rows_before or [0] * len(series), strict=True):
        scored = min(rows - max(0, window - 1 - before), each)
        found.append(Span(first + rows - scored, scored))
    return found


def most_live_rows(trained_windows: int) -> int:
    """As many as cost less than a tenth of the training: a window forth and back takes three times a window forth."""
    return min(max(2_000, trained_windows // 4), 20_000)


class CoveredRows(NamedTuple):
    """Rows that windows cover."""

    values: Tensor
    """(rows, F), scaled, on the device of the network."""
    starts: Ints
    """Windows that do not overlap but for the last of each series."""
    series_rows: Sequence[int]
    """Rows of each series that the windows cover."""
    rows_before: Sequence[int] | None = None
    """Rows that each series has in front of these; None: none."""


def last_windows(
    values: Floats, series: Sequence[Span], window: int, most_rows: int, device: torch.device
) -> CoveredRows:
    """The last rows of series of at least a window, about so many."""
    count = min(len(series), -(-most_rows // window))
    chosen = [series[k * len(series) // count] for k in range(count)]
    each = max(window, -(-most_rows // count))
    rows = [min(span.rows, each) for span in chosen]
    starts = [
        window_starts(own, window, window, cover_tail=True) + span.first + span.rows - own
        for own, span in zip(rows, chosen, strict=True)
    ]
    return CoveredRows(torch.from_numpy(values).to(device), np.concatenate(starts), rows)


@dataclass(frozen=True, slots=True)
class ScoredNetwork:
    """A network, and how its windows are scored."""

    network: AnomalyTransformer
    discrepancy: DiscrepancyConfig
    score: ScoreConfig
    batch_size: int = 32


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


@dataclass(frozen=True, slots=True)
class RowsByNetwork:
    """Windows through the network."""

    scored: ScoredNetwork
    values: Tensor
    normal: Normal

    def whole(self, starts: Ints) -> Scored:
        """Every row from the first window that covers it."""
        return Scored.join(list(self._windows(starts))).take(lambda array: one_per_row(array, starts))

    def live(self, parts: Sequence[Span], positions: Iterable[int]) -> dict[int, Scored]:
        """The rows of the parts, each by the window that ends so many rows behind it; the last window for the last."""
        last = np.concatenate([np.arange(part.first, part.first + part.rows) for part in parts])
        found: dict[int, list[Scored]] = {position: [] for position in positions}
        for batch in self._windows(last - self.scored.network.config.window + 1):
            for position, taken in found.items():
                taken.append(batch.take(lambda array, at=-1 - position: array[:, at]))  # type: ignore[misc]
        return {position: Scored.join(taken) for position, taken in found.items()}

    def _windows(self, starts: Ints) -> Iterator[Scored]:
        """Batch by batch: arrays (B,N,F) and scores (B,N)."""
        network, discrepancy, batch_size = self.scored.network, self.scored.discrepancy, self.scored.batch_size
        steps = torch.arange(network.config.window, device=self.values.device)
        modes = [replace(self.scored.score, mode=mode, smooth=1) for mode in WINDOW_MODES]
        for batch in torch.from_numpy(starts).to(self.values.device).split(batch_size):
            x = self.values[batch[:, None] + steps]
            parts = window_parts(network, self.values, batch, discrepancy, self.normal, batch_size)
            residual = -parts.difference
            shape = residual - local_mean(residual)
            layers = network.config.layers
            scores = {one.mode: window_scores(parts, one, discrepancy, self.normal, layers) for one in modes}
            yield Scored(x.cpu().numpy(), residual.numpy(), shape.numpy(), scores)
