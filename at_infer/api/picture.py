"""A result as a picture: scores over time with their threshold and incidents, as SVG. Small; no network, no scripts."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from at_infer.incidents.incident import Incident, plain_time
from at_infer.output import atomic_path, check_writable
from at_infer.scoring.windows import Floats

MOST_SERIES, MOST_INCIDENTS = 4, 5
TEXT, GAP = 13, 8  # height of a line of text, and space between series, in pixels


class SeriesRows(NamedTuple):
    """Rows of a result that belong to one series."""

    series: str
    first: int
    end: int
    row: int
    """Number of the first of them within the series."""


class Axis(NamedTuple):
    """Where the rows of a result are."""

    times: Any
    """One per row; None: rows are counted."""
    spans: Sequence[SeriesRows]


class Plot:
    """Scores over time, with the threshold and the incidents of the worst series; a notebook shows it.

    >>> from at_infer import Scorer
    >>> with Scorer("model.onnx") as scorer:
    ...     plot = scorer.score(frame).plot()
    >>> plot.save("scores.svg")
    """

    def __init__(self, svg: str) -> None:
        """`svg` is the whole picture."""
        self.svg = svg

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write it as an SVG file.

        >>> plot = Plot("<svg/>")
        >>> plot.save("empty.svg")
        """
        path = Path(path)
        check_writable(path, overwrite=overwrite)
        with atomic_path(path) as temporary:
            temporary.write_text(self.svg, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Plot: SVG of {len(self.svg)} characters; save(path) writes it, a notebook shows it>"

    def _repr_html_(self) -> str:
        return self.svg


def draw(
    score: Floats, threshold: float, incidents: Sequence[Incident], axis: Axis, *, width: int, height: int
) -> Plot:
    """The series with the highest scores, one below the other; rows are equally far apart."""
    spans = sorted(axis.spans, key=lambda span: -_highest(score[span.first : span.end]))
    shown = spans[:MOST_SERIES]
    strips = [
        _strip(
            score[span.first : span.end],
            threshold,
            [one for one in incidents if one.series == span.series],
            span,
            None if axis.times is None else (axis.times[span.first], axis.times[span.end - 1]),
            place=(width, height, number * (height + 2 * TEXT + GAP)),
        )
        for number, span in enumerate(shown)
    ]
    more = len(spans) - len(shown)
    tall = len(shown) * (height + 2 * TEXT + GAP) + (TEXT if more else 0)
    rest = _text(0, tall - 3, f"and {more} more series with lower scores") if more else ""
    return Plot(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {max(tall, 1)}" width="{width}" '
        f'style="max-width:100%" role="img" aria-label="score of the rows, threshold and incidents" '
        f'font-family="sans-serif" font-size="11" fill="currentColor">{"".join(strips)}{rest}</svg>'
    )


def _strip(
    score: Floats,
    threshold: float,
    incidents: Sequence[Incident],
    span: SeriesRows,
    ends: tuple[Any, Any] | None,
    *,
    place: tuple[int, int, int],
) -> str:
    """One series: name and scale above, the curve, and the times of its first and last row below."""
    width, height, above = place
    top = max(_highest(score), threshold, 1e-12) * 1.05
    up, down = above + TEXT, above + TEXT + height
    per_row = width / len(score)
    boxes = []
    for one in incidents:
        left = max(0.0, (one.begin_row - span.row) * per_row)
        wide = max(2.0, (one.end_row + 1 - span.row) * per_row - left)
        boxes.append(
            f'<rect x="{left:.1f}" y="{up}" width="{wide:.1f}" height="{height}" fill="#d62728" fill-opacity="0.18">'
            f"<title>{escape(_said(one))}</title></rect>"
        )
    line = down - height * threshold / top
    begin, end = (0, len(score) - 1) if ends is None else (plain_time(ends[0]), plain_time(ends[1]))
    peak = f"highest score {_highest(score):.4g}, threshold {threshold:.4g}"
    return (
        f"{_text(0, up - 3, span.series)}{_text(width, up - 3, peak, 'end')}{''.join(boxes)}"
        f'<path d="{_curve(score, width, down, height / top)}" fill="none" stroke="#1f77b4"/>'
        f'<line x1="0" x2="{width}" y1="{line:.1f}" y2="{line:.1f}" stroke="#d62728" stroke-dasharray="4"/>'
        f'<line x1="0" x2="{width}" y1="{down}" y2="{down}" stroke="currentColor" stroke-opacity="0.4"/>'
        f"{_text(0, down + TEXT - 1, str(begin))}{_text(width, down + TEXT - 1, str(end), 'end')}"
    )


def _curve(score: Floats, width: int, down: int, scale: float) -> str:
    """The highest score of every few rows; broken where there is none."""
    firsts = np.linspace(0, len(score), min(len(score), width), endpoint=False).astype(np.int64)
    finite = np.where(np.isfinite(score), score, np.nan).astype(np.float64)
    heights = np.fmax.reduceat(finite, firsts)
    x, y = (firsts + 0.5) * (width / len(score)), down - np.maximum(heights, 0) * scale
    words, pen = [], "M"
    for left, at in zip(x.tolist(), y.tolist(), strict=True):
        if at != at:
            pen = "M"
        else:
            words.append(f"{pen}{left:.0f},{at:.1f}")
            pen = "L"
    return "".join(words)


def describe(said: str, plot: Plot, incidents: Sequence[Incident]) -> str:
    """HTML with a line of words, the picture, and a table of the worst incidents."""
    worst = sorted(incidents, key=lambda one: -np.nan_to_num(one.peak_score))[:MOST_INCIDENTS]
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in _cells(incident))}</tr>" for incident in worst
    )
    head = "<tr><th>series</th><th>begin</th><th>end</th><th>rows</th><th>peak score</th><th>cause</th></tr>"
    return f"<div><p>{escape(said)}</p>{plot.svg}{f'<table>{head}{rows}</table>' if worst else ''}</div>"


def _cells(incident: Incident) -> list[object]:
    cause = incident.causes[0].feature if incident.causes else ""
    peak = f"{incident.peak_score:.4g}" if incident.kind == "anomaly" else incident.kind
    return [incident.series, incident.begin, incident.end, incident.rows, peak, cause]


def _said(one: Incident) -> str:
    cause = f", {one.causes[0].feature}" if one.causes else ""
    what = f"peak score {one.peak_score:.4g}" if one.kind == "anomaly" else one.kind
    return f"{one.begin} to {one.end}: {one.rows} rows, {what}{cause}"


def _highest(score: Floats) -> float:
    known = score[np.isfinite(score)]
    return float(known.max()) if len(known) else 0.0


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""
