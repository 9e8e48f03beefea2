"""Metrics of a stream as OpenMetrics text: counted by the loop in plain numbers, formatted on request."""

import math
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from at_infer import __version__
from at_infer.live.pushed import Pushed
from at_infer.live.scorer import StreamScorer
from at_infer.live.tally import Tally

MOST_LABELS = 1000
"""Series that have a line of their own; more would burden whoever stores them."""
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram's buckets."""
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = Mapping[str, str]


class Metrics:
    """Written by the loop, read by another thread at any moment: each value is replaced in one step, none is locked."""

    def __init__(self, tally: Tally, stream: StreamScorer) -> None:
        self.tally = tally
        self.series = 0
        self.score_over_threshold: dict[str, float] = {}
        """Of the last scored row of each series, at most `MOST_LABELS` of them, first come, first served."""
        self.latency_counts = [0] * (len(LATENCY_S) + 1)
        self.latency_sum_s = 0.0
        self.last_row_at = time.monotonic()
        """When the last row came; before the first one, when watching began."""
        self.use(stream)

    def use(self, stream: StreamScorer) -> None:
        """The model that scores from now on."""
        known = stream.metadata
        self.threshold = stream.threshold
        self.model: Labels = {
            "version": __version__,
            "engine_file": stream.scorer.engine.path.name,
            "checkpoint_sha256": known.checkpoint_sha256,
            "precision": known.precision,
            "score_mode": stream.scorer.config.mode,
            "window": str(known.model.window),
        }

    def answer(self, stream: StreamScorer, pushed: Pushed, *, by_series: bool, latency_s: float) -> None:
        """Rows have come out; the latency is that of the oldest of a batch."""
        self.last_row_at, self.series = time.monotonic(), len(stream.series)
        self.latency_counts[bisect_left(LATENCY_S, latency_s)] += 1
        self.latency_sum_s += latency_s
        for name in pushed.dropped:
            self.score_over_threshold.pop(str(name), None)
        kept, limit = self.score_over_threshold, float(np.float32(self.threshold))  # as verdicts have it
        scores = pushed.score.tolist()
        for i in pushed.in_order():
            tag, score = pushed.tags[i], scores[i]
            if tag is None or score != score:
                continue
            name = str(tag[1]) if by_series else ""
            if name in kept or len(kept) < MOST_LABELS:
                kept[name] = over_threshold(score, limit)

    def text(self) -> str:
        """All of it, for one scrape."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        tally, kept = self.tally, self.score_over_threshold.copy()  # in one step: the loop goes on meanwhile
        yield from _counter("rows", "Valid rows read", tally.rows)
        yield from _counter("scored_rows", "Rows that have a score", tally.scored)
        yield from _counter("anomalous_rows", "Rows with a score above the threshold", tally.anomalies)
        yield from _counter("bad_lines", "Invalid lines", tally.bad_lines)
        yield from _counter("dropped_series", "Series dropped to make room for others", tally.dropped_series)
        yield from _gauge("series", "Series in memory", [({}, self.series)])
        left_out = max(0, self.series - len(kept)) if len(kept) == MOST_LABELS else 0
        yield from _gauge("series_without_label", "Series that have no line of their own below", [({}, left_out)])
        yield from _gauge(
            "score_over_threshold",
            "Last score of a series over the threshold; above 1 is anomalous",
            [({"series": name}, value) for name, value in kept.items()],
        )
        yield from _gauge("threshold", "A row with a score above this is anomalous", [({}, self.threshold)])
        yield from _gauge("incidents_open", "Incidents that are open", [({}, tally.incidents_open)])
        yield from _head("incident_events", "counter", "Events of incidents by kind")
        for kind, count in tally.events.items():
            yield _sample("incident_events_total", {"kind": kind}, count)
        yield from _head("notifications", "counter", "Events of incidents by way and result")
        for (way, result), count in tally.notifications.items():
            yield _sample("notifications_total", {"way": way, "result": result}, count)
        yield from _head("reloads", "counter", "Attempts to replace the engine")
        for result, count in tally.reloads.items():
            yield _sample("reloads_total", {"result": result}, count)
        yield from self._latency()
        yield from _gauge(
            "last_row_age_seconds",
            "Seconds since the last row was read; since the start if there was none",
            [({}, time.monotonic() - self.last_row_at)],
            unit="seconds",
        )
        yield from _head("model", "info", "The engine that scores")
        yield _sample("model_info", self.model, 1)
        yield "# EOF"

    def _latency(self) -> Iterator[str]:
        name = "latency_seconds"
        counts, total = self.latency_counts.copy(), self.latency_sum_s
        yield from _head(name, "histogram", "From reading the oldest row of a batch to writing it", unit="seconds")
        below = 0
        for end, count in zip((*LATENCY_S, math.inf), counts, strict=True):
            below += count
            yield _sample(f"{name}_bucket", {"le": _number(end)}, below)
        yield _sample(f"{name}_sum", {}, total)
        yield _sample(f"{name}_count", {}, below)


def over_threshold(score: float, threshold: float) -> float:
    """Above 1 for an anomalous row, whatever the model; a threshold of 0 or less cannot be divided by."""
    if threshold > 0:
        return score / threshold
    return math.inf if score > threshold else 0.0


def _counter(name: str, what: str, value: int) -> Iterator[str]:
    yield from _head(name, "counter", what)
    yield _sample(f"{name}_total", {}, value)


def _gauge(name: str, what: str, samples: list[tuple[Labels, float]], *, unit: str | None = None) -> Iterator[str]:
    yield from _head(name, "gauge", what, unit=unit)
    for labels, value in samples:
        yield _sample(name, labels, value)


def _head(name: str, kind: str, what: str, *, unit: str | None = None) -> Iterator[str]:
    yield f"# TYPE at_infer_{name} {kind}"
    if unit is not None:
        yield f"# UNIT at_infer_{name} {unit}"
    yield f"# HELP at_infer_{name} {what}."


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"at_infer_{name}{{{pairs}}} {_number(value)}" if pairs else f"at_infer_{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: Any) -> str:
    if value != value:
        return "NaN"
    return str(value) if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"
