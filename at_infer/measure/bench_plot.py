"""The picture of `at-infer bench`: latency over the batch size."""

import math
from collections.abc import Sequence
from html import escape

from at_infer.measure.bench import Figures


def draw(found: Sequence[Figures]) -> str:
    """Median latency per window over the batch size, as SVG."""
    names = list(dict.fromkeys(entry.name for entry in found))
    batches = sorted({entry.batch for entry in found})
    per_window = {(entry.name, entry.batch): entry.median_ms / entry.batch for entry in found}
    width, height, left, bottom = 720, 400, 70, 60
    top_ms = 1.1 * max(per_window.values())

    def x(batch: int) -> float:
        span = math.log2(batches[-1] / batches[0]) or 1.0
        return left + (width - left - 220) * math.log2(batch / batches[0]) / span

    def y(ms: float) -> float:
        return height - bottom - (height - bottom - 20) * ms / top_ms

    colours = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{left} 20V{height - bottom}H{width - 220}" fill="none" stroke="#888"/>',
        f'<text x="{left}" y="{height - 12}">batch size; median milliseconds per window</text>',
    ]
    parts += [f'<text x="{x(b):.0f}" y="{height - bottom + 18}" text-anchor="middle">{b}</text>' for b in batches]
    for i in range(5):
        ms = top_ms * i / 4
        parts.append(f'<text x="{left - 8}" y="{y(ms):.0f}" text-anchor="end">{ms:.3g}</text>')
    for i, name in enumerate(names):
        colour = colours[i % len(colours)]
        points = " ".join(f"{x(b):.1f},{y(per_window[name, b]):.1f}" for b in batches if (name, b) in per_window)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 210}" y="{40 + 18 * i}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
