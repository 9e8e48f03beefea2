"""The plot of docs/performance.md: VUS-PR over rows per second, one dot per detector."""

import math
from html import escape
from typing import Any

from benchmarks.scale_out_figure import INK, PALE

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 620, 360, 52, 44, 30, 48
OURS, OTHERS, BETTER = "#c0392b", "#3b6ea5", "#f6eeee"
OF_US = ("default", "distilled", "paper's size")
LINE = 15


def draw(report: dict[str, Any]) -> str:
    """As SVG; in the tinted corner would be what finds more than the default, and is faster."""
    found = report["contestants"]
    low, high = 1e3, 10 ** math.ceil(math.log10(max(one["rows_per_s"] for one in found)))

    def across(rows_per_s: float) -> float:
        return LEFT + WIDTH * math.log(max(rows_per_s, low) / low) / math.log(high / low)

    def up(vus_pr: float) -> float:
        return TOP + HEIGHT - HEIGHT * vus_pr / 100

    width, height = LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM
    default = next(one for one in found if one["name"] == "default")
    x, y = across(default["rows_per_s"]), up(default["vus_pr"])
    title = f"VUS-PR in % ({report['data']}, {report['series']} series) over rows per second of one thread"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" fill="{INK}">{escape(title)}</text>',
        f'<rect x="{x:.1f}" y="{TOP}" width="{LEFT + WIDTH - x:.1f}" height="{y - TOP:.1f}" fill="{BETTER}"/>',
    ]
    for share in range(0, 101, 20):
        parts.append(f'<path d="M{LEFT} {up(share):.1f}h{WIDTH}" stroke="{PALE}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{up(share) + 4:.1f}" text-anchor="end" fill="{INK}">{share}</text>')
    for power in range(3, round(math.log10(high)) + 1):
        at = across(10**power)
        parts.append(f'<path d="M{at:.1f} {TOP}v{HEIGHT}" stroke="{PALE}"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle" fill="{INK}">{10**power:,}</text>'
        )
    return "\n".join([*parts, *_dots(found, across, up), "</svg>"]) + "\n"


def _dots(found: list[dict[str, Any]], across: Any, up: Any) -> list[str]:
    """Dots with names; a name that would cover another one moves down."""
    parts: list[str] = []
    taken: list[tuple[float, float]] = []
    for one in sorted(found, key=lambda one: -float(one["vus_pr"])):
        x, y = across(one["rows_per_s"]), up(one["vus_pr"])
        colour = OURS if one["name"].startswith(OF_US) else OTHERS
        left = x > LEFT + WIDTH * 0.7
        label = y + 4
        while any(abs(label - other) < LINE and abs(x - at) < WIDTH / 3 for at, other in taken):
            label += LINE
        taken.append((x, label))
        name = f"{one['name']}: {one['vus_pr']:.0f}"
        where = f'x="{x - 9 if left else x + 9:.1f}" y="{label:.1f}" text-anchor="{"end" if left else "start"}"'
        bold = ' font-weight="bold"' if one["name"] == "default" else ""
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>')
        parts.append(f'<text {where} fill="{colour}"{bold}>{escape(name)}</text>')
    return parts
