"""A result in a notebook: scores over time as SVG, and the worst incidents. Small, and without network or scripts."""

from html import escape

import numpy as np

from at_infer.incidents.incident import Incident
from at_infer.scoring.windows import Floats

WIDTH, HEIGHT, MOST_INCIDENTS = 720, 120, 5


def picture(said: str, score: Floats, threshold: float, incidents: list[Incident]) -> str:
    """HTML with a line of words, the highest score of every few rows with the threshold, and a table."""
    worst = sorted(incidents, key=lambda one: -one.peak_score)[:MOST_INCIDENTS]
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in _cells(incident))}</tr>" for incident in worst
    )
    head = "<tr><th>series</th><th>begin</th><th>end</th><th>rows</th><th>peak score</th><th>cause</th></tr>"
    return (
        f"<div><p>{escape(said)}</p>{_drawing(score, threshold)}{f'<table>{head}{rows}</table>' if worst else ''}</div>"
    )


def _cells(incident: Incident) -> list[object]:
    cause = incident.causes[0].feature if incident.causes else ""
    return [incident.series, incident.begin, incident.end, incident.rows, f"{incident.peak_score:.4g}", cause]


def _drawing(score: Floats, threshold: float) -> str:
    """Rows without a score are at the bottom."""
    known = np.where(np.isfinite(score), score, 0.0).astype(np.float64)
    if not len(known):
        return ""
    firsts = np.linspace(0, len(known), min(len(known), WIDTH), endpoint=False).astype(np.int64)
    heights = np.maximum.reduceat(known, firsts)
    top = max(float(heights.max()), threshold, 1e-12) * 1.05
    x = firsts * (WIDTH / len(known))
    y = HEIGHT * (1 - np.clip(heights / top, 0, 1))
    points = " ".join(f"{left:.0f},{down:.0f}" for left, down in zip(x, y, strict=True))
    line = HEIGHT * (1 - threshold / top)
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="score of the rows, and the threshold">'
        f'<polyline points="{points}" fill="none" stroke="#1f77b4"/>'
        f'<line x1="0" x2="{WIDTH}" y1="{line:.1f}" y2="{line:.1f}" stroke="#d62728" stroke-dasharray="4"/></svg>'
    )
