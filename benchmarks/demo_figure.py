"""The picture at the top of the README: what `make demo` found, drawn from its files.

make demo && python -m benchmarks.demo_figure build/demo docs/img/demo.svg
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.parquet import read_metadata

WIDTH, PANEL, LEFT = 900, 120, 64
INK, SERIES, SCORE, LABEL, ALARM = "#333", "#3b6ea5", "#b5651d", "#f3c9c9", "#c0392b"


def main() -> None:
    """Draw two features, the score and the threshold over the rows with most different kinds of anomalies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="folder that `make demo` filled")
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=int, default=700)
    args = parser.parse_args()
    test = pl.read_parquet(args.demo / "data" / "test.parquet")
    scores = pl.read_parquet(args.demo / "scores.parquet")
    threshold = float(read_metadata(args.demo / "scores.parquet").properties["at_infer.threshold"])
    assert test["timestamp"].equals(scores["timestamp"])
    first = busiest(test["family"].to_numpy(), args.rows)
    part = slice(first, first + args.rows)
    families, alarms = test["family"].to_numpy()[part], scores["is_anomaly"].to_numpy()[part]
    panels = [
        ("f00", test["f00"].to_numpy()[part], SERIES, None),
        ("f01", test["f01"].to_numpy()[part], SERIES, None),
        ("score", np.log10(np.maximum(scores["score"].to_numpy()[part], 1e-4)), SCORE, np.log10(threshold)),
    ]
    height = 40 + len(panels) * PANEL + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    parts += shade(families, height)
    for i, (name, values, colour, line) in enumerate(panels):
        parts += panel(name, values, colour, line, 40 + i * PANEL)
    x = positions(len(alarms))
    parts += [f'<circle cx="{x[i]:.1f}" cy="{height - 24}" r="2" fill="{ALARM}"/>' for i in np.flatnonzero(alarms)]
    parts.append(f'<text x="4" y="{height - 20}" fill="{ALARM}">alarms</text>')
    parts.append("</svg>")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("\n".join(parts), encoding="utf-8")
    print(f"{args.output}: rows {first} to {first + args.rows} of {args.demo}")


def busiest(families: NDArray[np.object_], rows: int) -> int:
    """First row of the stretch with most kinds of anomalies."""
    starts = range(0, len(families) - rows, 50)
    return max(starts, key=lambda start: len(set(families[start : start + rows])))


def positions(count: int) -> NDArray[np.float64]:
    """Where rows are drawn."""
    return np.linspace(LEFT, WIDTH - 10, count)


def shade(families: NDArray[np.object_], height: int) -> list[str]:
    """A band with its name behind every labelled anomaly."""
    x, parts = positions(len(families)), []
    change = np.flatnonzero(families[1:] != families[:-1]) + 1
    edges = [0, *change.tolist(), len(families)]
    for level, (a, b) in enumerate(pairwise(edges)):
        if families[a] != "normal":
            width = max(2.0, float(x[b - 1] - x[a]))
            parts.append(f'<rect x="{x[a]:.1f}" y="34" width="{width:.1f}" height="{height - 70}" fill="{LABEL}"/>')
            name = families[a].replace("pattern-", "").replace("point-", "")
            parts.append(
                f'<text x="{x[a]:.1f}" y="{14 + 14 * (level // 2 % 2)}" font-size="10" fill="{INK}">{name}</text>'
            )
    return parts


def panel(name: str, values: NDArray[np.float64], colour: str, line: float | None, top: int) -> list[str]:
    """One curve, and a horizontal line if wanted."""
    low, high = float(values.min()), float(values.max())
    low, high = (min(low, line), max(high, line)) if line is not None else (low, high)
    y = top + PANEL - 14 - (values - low) / ((high - low) or 1.0) * (PANEL - 20)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(positions(len(values)), y, strict=True))
    title = f"{name} (log)" if line is not None else name
    parts = [
        f'<text x="4" y="{top + 24}" fill="{INK}">{title}</text>',
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1"/>',
    ]
    if line is not None:
        at = top + PANEL - 14 - (line - low) / ((high - low) or 1.0) * (PANEL - 20)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - 10}" stroke="{ALARM}" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="4" y="{at:.1f}" font-size="10" fill="{ALARM}">threshold</text>')
    return parts


if __name__ == "__main__":
    main()
