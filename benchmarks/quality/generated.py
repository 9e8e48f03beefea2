"""Generated data with a daily cycle: minutes, five sensors, 18 days to learn from, 8 days with a fault of each kind."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import accumulate

import numpy as np
import polars as pl
from numpy.typing import NDArray

DAY = 1440
TRAIN_DAYS, TEST_DAYS, SENSORS, SERIES = 18, 8, 5, 3
FAULTS = ("spike", "step", "stuck", "noise", "other shape")
LENGTHS = (8, 240, 180, 90, 360)
FIRST_ROWS = (400, 1900, 4300, 6700, 9300)
"""Of the faults in the test part; each begins up to 900 rows later."""


def cyclic() -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame, NDArray[np.bool_]]]:
    """Name, training part, test part and labels."""
    learn = TRAIN_DAYS * DAY
    for seed in range(SERIES):
        rng = np.random.default_rng(200 + seed)
        values = _normal(rng)
        labels = np.zeros(len(values), np.bool_)
        for first, kind in zip(FIRST_ROWS, rng.permutation(len(FAULTS)), strict=True):
            begin = learn + first + int(rng.integers(0, 900))
            rows = slice(begin, begin + LENGTHS[kind])
            sensors = rng.choice(SENSORS, 2, replace=False)
            values[rows, sensors] = _faulty(values[rows, sensors], FAULTS[kind], rng)
            labels[rows] = True
        start = datetime(2026, 1, 5)
        times = pl.datetime_range(start, start + timedelta(minutes=len(values) - 1), "1m", eager=True)
        table = pl.DataFrame(values.astype(np.float32), schema=[f"f{i:02}" for i in range(SENSORS)])
        table = table.select(times.alias("timestamp"), pl.all())
        yield f"cyclic-{seed}", table[:learn], table[learn:], labels[learn:]


def _normal(rng: np.random.Generator) -> NDArray[np.float64]:
    """Two harmonics of a day, a daily step in one sensor, noise that remembers, days of unequal height."""
    days = TRAIN_DAYS + TEST_DAYS
    minute = np.arange(days * DAY)
    angle = 2 * np.pi * minute / DAY
    values = np.empty((len(minute), SENSORS))
    for i in range(SENSORS):
        phase, phase2 = rng.uniform(0, 2 * np.pi, 2)
        value = rng.uniform(1, 3) * np.sin(angle + phase) + rng.uniform(0.3, 1) * np.sin(2 * angle + phase2)
        if i == 2:
            value += rng.uniform(0.5, 1.5) * (minute % DAY > rng.integers(400, 900))
        value += list(accumulate(rng.normal(0, 0.05, len(minute)).tolist(), lambda old, new: 0.97 * old + new))
        value += rng.normal(0, 0.06, len(minute))
        values[:, i] = value * np.repeat(1 + rng.normal(0, 0.06, days), DAY)
    return values


def _faulty(rows: NDArray[np.float64], kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    sign = float(rng.choice([-1, 1]))
    if kind == "spike":
        return rows + sign * rng.uniform(1.5, 3)
    if kind == "step":
        return rows + sign * 1.2
    if kind == "stuck":
        return np.repeat(rows[:1], len(rows), axis=0)
    if kind == "noise":
        return rows + rng.normal(0, 0.5, rows.shape)
    wave = 0.4 * np.sin(2 * np.pi * np.arange(len(rows)) / 60)[:, None]
    return rows[:1] + 0.35 * (rows - rows[:1]) + wave
