"""The plot of docs/scaling.md: how busy workers are, by their number and by the size of splits."""

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, GAP, RIGHT = 420, 260, 52, 40, 20, 20
INK, PALE = "#333", "#ddd"
COLOURS = ("#c0392b", "#b5651d", "#3b6ea5", "#5b8c5a")


def draw(report: dict[str, Any]) -> str:
    """Two panels side by side, as SVG."""
    simulated = report["simulated"]
    left: dict[str, list[tuple[float, float]]] = {}
    for entry in simulated["by_workers"]:
        name = "series never cut" if entry["split_s"] == "series" else f"splits of {entry['split_s']} s"
        left.setdefault(name, []).append((entry["workers"], entry["busy"]))
    right: dict[str, list[tuple[float, float]]] = {}
    for entry in simulated["by_split"]:
        right.setdefault(f"{entry['work_s']:.0f} s each", []).append((entry["split_s"], entry["busy"]))
    width, height = 2 * (WIDTH + LEFT) + GAP + RIGHT, TOP + HEIGHT + 60
    second = 2 * LEFT + WIDTH + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *panel(left, (1, 3, 10, 30, 100, 300, 1000), "workers", "600 s of work for each of 1000", LEFT, 10),
        *panel(
            right,
            (0.3, 1, 3, 10, 30, 100, 300),
            "seconds of work per split",
            "1000 workers, by their work",
            second,
            110,
        ),
    ]
    x = position(report["split_s"], 0.3, 300, second)
    parts.append(f'<path d="M{x:.1f} {TOP}V{TOP + HEIGHT}" stroke="{INK}" stroke-dasharray="2 3"/>')
    parts.append(f'<text x="{x + 4:.1f}" y="{TOP + HEIGHT - 6}" fill="{INK}">default</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def position(value: float, low: float, high: float, left: int) -> float:
    """On a logarithmic axis."""
    return left + WIDTH * math.log(value / low) / math.log(high / low)


def panel(
    lines: dict[str, list[tuple[float, float]]], ticks: Sequence[float], label: str, title: str, left: int, legend: int
) -> list[str]:
    """Busy share over a logarithmic axis; `legend`: where it is clear of the lines."""
    low, high = ticks[0], ticks[-1]
    bottom = TOP + HEIGHT
    parts = [f'<text x="{left}" y="{TOP - 16}" fill="{INK}">time that workers are busy, simulated: {title}</text>']
    for share in (0, 0.25, 0.5, 0.75, 0.9, 1):
        y = bottom - HEIGHT * share
        colour = INK if share == 0.9 else PALE
        parts.append(f'<path d="M{left} {y:.1f}H{left + WIDTH}" stroke="{colour}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{share:.0%}</text>')
    for tick in ticks:
        x = position(tick, low, high, left)
        parts.append(f'<path d="M{x:.1f} {bottom}v4" stroke="{INK}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="{INK}">{tick:g}</text>')
    parts.append(f'<text x="{left + WIDTH / 2:.1f}" y="{bottom + 38}" text-anchor="middle" fill="{INK}">{label}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{position(x, low, high, left):.1f},{bottom - HEIGHT * y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = TOP + HEIGHT / 2 + 18 * number
        parts.append(f'<path d="M{left + legend} {at:.1f}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + legend + 24}" y="{at + 4:.1f}" fill="{INK}">{name}</text>')
    return parts
