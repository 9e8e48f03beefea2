"""Latency and throughput of engines side by side, in trtexec's vocabulary."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from at_infer.engines import Provider, open_engine
from at_infer.errors import AtInferError, ConfigError
from at_infer.metadata import Metadata

Floats = NDArray[np.float32]
Score = Callable[[Floats], Floats]

STEADY = 0.025  # a coefficient of variation above this makes a figure doubtful, as in trtexec
FEWEST_RUNS = 10


@dataclass(frozen=True, slots=True)
class Contestant:
    """Someone who scores windows."""

    name: str
    runs_on: str
    """Runtime, version and device."""
    score: Score
    memory_mb: float
    """Resident memory that opening it and a first run added."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Someone who was asked for but could not run here."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Figures:
    """One contestant at one batch size; times are of a whole batch, from host memory to host memory."""

    name: str
    batch: int
    runs: int
    min_ms: float
    mean_ms: float
    median_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    variation: float
    """Coefficient of variation: standard deviation by mean."""
    windows_per_s: float
    """By the median."""
    points_per_s: float

    @property
    def steady(self) -> bool:
        """Can the figures be relied on?"""
        return self.variation <= STEADY


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a contestant's scores are from the first one's."""

    name: str
    max_abs: float
    verdicts_changed: float


def open_contestants(
    paths: Sequence[Path], *, provider: Provider, threads: int | None
) -> tuple[list[Contestant], list[Absent], Metadata | None]:
    """Every engine that runs here; and why the others do not."""
    found: list[Contestant] = []
    absent: list[Absent] = []
    first: Metadata | None = None
    for path in paths:
        before = resident_mb()
        try:
            engine = open_engine(path, provider=provider, threads=threads)
            if engine.metadata is None:
                raise ConfigError(f"{path}: lacks {'; '.join(engine.missing)}")
        except AtInferError as error:
            absent.append(Absent(str(path), str(error)))
            continue
        model = engine.metadata.model
        if first is None:
            first = engine.metadata
        elif (model.window, engine.metadata.columns) != (first.model.window, first.columns):
            raise ConfigError(f"{path}: takes other windows than {paths[0]}; compare engines of one model")
        engine.score(np.zeros((1, model.window, model.features), np.float32))
        grown = resident_mb() - before
        found.append(Contestant(f"{path.name} {engine.metadata.precision}", engine.describe(), engine.score, grown))
    return found, absent, first


def measure(
    contestants: Sequence[Contestant], windows: Floats, batches: Sequence[int], *, seconds: float
) -> list[Figures]:
    """Time every contestant at every batch size; they take turns, so that a busy machine is busy for all.

    `windows` holds as many as the largest batch. Each contestant gets about `seconds` per batch size, warm-up apart.
    """
    found = []
    for batch in batches:
        part = np.ascontiguousarray(windows[:batch])
        times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
        for contestant in contestants:
            for _ in range(3):
                contestant.score(part)
        deadline = time.perf_counter() + seconds * len(contestants)
        while time.perf_counter() < deadline or min(map(len, times.values())) < FEWEST_RUNS:
            for contestant in contestants:
                begin = time.perf_counter()
                contestant.score(part)
                times[contestant.name].append(time.perf_counter() - begin)
        found += [figures(name, batch, windows.shape[1], taken) for name, taken in times.items()]
    return found


def figures(name: str, batch: int, window: int, seconds: Sequence[float]) -> Figures:
    """Summarise the times of the runs."""
    ms = np.asarray(seconds) * 1e3
    median = float(np.median(ms))
    p90, p95, p99 = (float(np.percentile(ms, q)) for q in (90, 95, 99))
    return Figures(
        name=name,
        batch=batch,
        runs=len(ms),
        min_ms=float(ms.min()),
        mean_ms=float(ms.mean()),
        median_ms=median,
        p90_ms=p90,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=float(ms.max()),
        variation=float(ms.std() / ms.mean()),
        windows_per_s=batch / median * 1e3,
        points_per_s=batch * window / median * 1e3,
    )


def compare(contestants: Sequence[Contestant], windows: Floats, threshold: float, batch: int) -> list[Agreement]:
    """Scores of all contestants on the same windows, against those of the first."""

    def scores(contestant: Contestant) -> Floats:
        parts = np.array_split(windows, max(1, math.ceil(len(windows) / batch)))
        return np.concatenate([contestant.score(np.ascontiguousarray(part)) for part in parts])

    expected = scores(contestants[0])
    found = []
    for contestant in contestants:
        answer = scores(contestant)
        changed = float(((answer > threshold) != (expected > threshold)).mean())
        found.append(Agreement(contestant.name, float(np.abs(answer - expected).max()), changed))
    return found


def resident_mb() -> float:
    """Resident memory of this process; NaN where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return math.nan
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def plot(found: Sequence[Figures], path: Path) -> None:
    """Median latency per window over the batch size, as an SVG file."""
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
        parts.append(f'<text x="{width - 210}" y="{40 + 18 * i}" fill="{colour}">{_escaped(name)}</text>')
    path.write_text("\n".join([*parts, "</svg>"]), encoding="utf-8")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
