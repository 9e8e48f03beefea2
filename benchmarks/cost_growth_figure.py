"""The plot of docs/capacity.md: time per row over each size of the model, beside what the arithmetic predicts."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.scale_out_figure import INK, PALE

WIDTH, HEIGHT, LEFT, TOP, GAP = 220, 200, 52, 56, 20
MEASURED, PREDICTED = "#3b6ea5", "#b5651d"


def draw(report: dict[str, Any]) -> str:
    """One panel per size, side by side, with the same vertical axis, as SVG."""
    axes = report["axes"]
    micros = [value for entry in axes for value in entry["us_per_row"]]
    low, high = 10 ** math.floor(math.log10(min(micros))), 10 ** math.ceil(math.log10(max(micros)))
    width, height = LEFT + len(axes) * (WIDTH + GAP), TOP + HEIGHT + 52
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="18" fill="{INK}">microseconds of CPU time per row:</text>',
        f'<text x="{LEFT + 215}" y="18" fill="{MEASURED}">measured</text>',
        f'<text x="{LEFT + 280}" y="18" fill="{PREDICTED}">by arithmetic, from the paper\'s size</text>',
    ]
    for tick in (10**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)):
        y = vertical(tick, low, high)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{tick:g}</text>')
        parts.append(f'<path d="M{LEFT} {y:.1f}H{width - GAP}" stroke="{PALE}"/>')
    for number, entry in enumerate(axes):
        parts += panel(entry, LEFT + number * (WIDTH + GAP), low, high)
    return "\n".join([*parts, "</svg>"]) + "\n"


def vertical(value: float, low: float, high: float) -> float:
    """On the logarithmic axis that all panels share."""
    return TOP + HEIGHT - HEIGHT * math.log(value / low) / math.log(high / low)


def panel(entry: dict[str, Any], left: int, low: float, high: float) -> list[str]:
    """Measured times as a line with dots, the arithmetic as a dashed line through the paper's size."""
    sizes, micros, operations = entry["sizes"], entry["us_per_row"], entry["operations_per_row"]
    first, span = math.log(sizes[0]), math.log(sizes[-1] / sizes[0])
    across = [left + 14 + (WIDTH - 28) * (math.log(size) - first) / span for size in sizes]
    paper = {"window": 100, "width": 512, "features": 25, "layers": 3}[entry["axis"]]
    at = sizes.index(paper)
    predicted = [micros[at] * count / operations[at] for count in operations]
    bottom = TOP + HEIGHT
    slopes = f"exponent {entry['exponent']:.2f}, by arithmetic {entry['predicted_exponent']:.2f}"
    parts = [
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="{PALE}"/>',
        f'<text x="{left}" y="{TOP - 10}" fill="{INK}">{entry["axis"]}</text>',
        f'<text x="{left}" y="{bottom + 38}" fill="{INK}">{slopes}</text>',
    ]
    for x, size in zip(across, sizes, strict=True):
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="{INK}">{size}</text>')
    heights = [vertical(value, low, high) for value in micros]
    parts += curve(across, heights, MEASURED, "none")
    for x, y in zip(across, heights, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{MEASURED}"/>')
    parts += curve(across, [vertical(value, low, high) for value in predicted], PREDICTED, "4 4")
    return parts


def curve(across: Sequence[float], heights: Sequence[float], colour: str, dashes: str) -> list[str]:
    """A line through points."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, heights, strict=True))
    return [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>']
