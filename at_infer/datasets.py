"""Synthetic series with labelled anomalies: the five families of NeurIPS-TS.

The families are defined in Lai et al. 2021, "Revisiting Time Series Outlier Detection: Definitions and
Benchmarks"; the Anomaly Transformer paper evaluates on them. `generate` makes whole data sets, `inject` puts
the same anomalies into any other data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.errors import ConfigError, DataError

Family = Literal["point-global", "point-contextual", "pattern-shapelet", "pattern-seasonal", "pattern-trend"]
FAMILIES: tuple[Family, ...] = get_args(Family)

PERIOD_ROWS = 25
AMPLITUDE = 1.5
NOISE = 0.05
SEGMENT_ROWS = 25  # a pattern anomaly is about this long
POINT_RADIUS = 2  # rows on either side that make the context of a contextual point
PATTERN_RADIUS = 64  # rows on either side that show a pattern's usual waveform
_PADDING = 8  # zero padding of a spectrum: how much finer than one cycle per context a frequency is found

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A series with its labels, row by row."""

    values: NDArray[np.float32]
    """(rows, features)"""
    labels: NDArray[np.uint8]
    """(rows,): 1 where a row is part of an anomaly, else 0."""
    family: NDArray[np.uint8]
    """(rows,): 0 where a row is normal, i + 1 where it is part of an anomaly of family `FAMILIES[i]`."""


def generate(
    *,
    rows: tuple[int, int, int] = (20_000, 10_000, 20_000),
    features: int = 1,
    families: Sequence[Family] = FAMILIES,
    share: float = 0.018,
    contamination: float = 0.0,
    seed: int = 0,
) -> dict[str, Dataset]:
    """Three consecutive parts of one signal: train, validation and test.

    `share` of the rows of test, and `contamination` of those of train and validation, are anomalous. Each
    part has random numbers of its own, so it does not depend on how long or how anomalous the others are.
    """
    if len(rows) != 3 or min(rows) < 1:
        raise ConfigError(f"rows: {rows} is not possible; give three numbers above 0: train, validation, test")
    if not 0 <= contamination < 1:
        raise ConfigError(f"contamination: {contamination} is not possible; choose 0 or more and less than 1")
    if seed < 0:
        raise ConfigError(f"seed: {seed} is negative; give 0 or more")
    parts: dict[str, Dataset] = {}
    start = 0
    for i, (name, length) in enumerate(zip(("train", "validation", "test"), rows, strict=True)):
        signal = clean(length, features=features, rng=np.random.default_rng([seed, i, 0]), start=start)
        part_share = share if name == "test" else contamination
        anomalies_rng = np.random.default_rng([seed, i, 1])
        parts[name] = inject(signal, families=families, share=part_share, rng=anomalies_rng)
        start += length
    return parts


def as_columns(parts: Mapping[str, Dataset]) -> Iterator[dict[str, NDArray[Any]]]:
    """The table of each part: timestamp, continuous over the parts, f00, f01, ...; of test also label and family."""
    names = np.array(["normal", *FAMILIES])
    first = 0
    for name, data in parts.items():
        length, width = data.values.shape
        columns: dict[str, NDArray[Any]] = {"timestamp": np.arange(first, first + length)}
        columns |= {f"f{j:02}": data.values[:, j] for j in range(width)}
        yield columns | ({"label": data.labels, "family": names[data.family]} if name == "test" else {})
        first += length


def clean(rows: int, *, features: int = 1, rng: np.random.Generator, start: int = 0) -> Floats:
    """Rows `start` to `start + rows` of the signal without anomalies, (rows, features).

    The first column is a sine. Each further column is half that sine, which correlates them, and half a wave
    with a period, phase and form of its own. Only the noise is random: two calls continue each other.
    """
    if rows < 1:
        raise ConfigError(f"rows: {rows} is not possible; give 1 or more")
    if features < 1:
        raise ConfigError(f"features: {features} is not possible; give 1 or more")
    cycles = np.arange(start, start + rows) / PERIOD_ROWS
    shared = np.sin(2 * np.pi * cycles)
    columns = [shared]
    for j in range(1, features):
        slower = 1 + 2 * (j * 0.618 % 1)  # irrational steps: no two columns get the same period or phase
        angle = 2 * np.pi * (cycles / slower + j * 0.414)
        wave = (_triangle, _square, np.sin)[j % 3]
        columns.append((shared + wave(angle)) / 2)
    noise = rng.normal(0, NOISE, (rows, features))
    return AMPLITUDE * np.stack(columns, axis=1) + noise


def inject(
    values: ArrayLike, *, families: Sequence[Family] = FAMILIES, share: float, rng: np.random.Generator
) -> Dataset:
    """Put anomalies into a copy of `values` (rows, features), which may be any series.

    Exactly `round(share * rows)` rows become anomalous, the same number for each family (the first ones get
    one more if it does not divide), in points and segments with at least one normal row between them. An
    anomaly hits a random subset of the columns that vary, and changes each of them visibly; constant columns
    are hit only if no column varies. Rows outside the anomalies stay as they are.
    """
    series = _checked(values)
    anomalies = _place_anomalies(len(series), families, share, rng)
    columns = [_Column.of(column) for column in series.T.astype(np.float64)]
    targets = [j for j, column in enumerate(columns) if column.varies] or list(range(len(columns)))

    result = Dataset(series.copy(), np.zeros(len(series), np.uint8), np.zeros(len(series), np.uint8))
    for family, span in anomalies:
        result.labels[span] = 1
        result.family[span] = FAMILIES.index(family) + 1
        for j in rng.choice(targets, size=rng.integers(1, len(targets) + 1), replace=False):
            changed = _CHANGES[family](columns[j], span, rng)
            result.values[span, j] = _visible(columns[j], span, changed)
    return result


@dataclass(frozen=True, slots=True)
class _Column:
    """One feature before any change, and what its values usually do."""

    values: Floats
    mean: float
    std: float
    """Standard deviation; of a constant column, a step that float32 can hold."""
    low: float
    high: float
    noise: float
    varies: bool

    @classmethod
    def of(cls, values: Floats) -> "_Column":
        mean, std, peak = float(values.mean()), float(values.std()), float(np.abs(values).max())
        varies = std > 1e-6 * peak + 1e-30  # anything less drowns in the rounding of float32
        # Third differences cancel what is smooth; of white noise they have 20 times its variance.
        rough = np.diff(values, n=3)
        noise = 1.48 * float(np.median(np.abs(rough))) / 20**0.5 if len(rough) else 0.0
        usable_std = std if varies else max(1.0, peak)
        return cls(values, mean, usable_std, float(values.min()), float(values.max()), noise, varies)


def _point_global(column: _Column, span: slice, rng: np.random.Generator) -> Floats:
    """A value beyond everything seen in the column and beyond three standard deviations."""
    beyond = rng.uniform(0.5, 2) * column.std
    if rng.random() < 0.5:
        value = min(column.low, column.mean - 3 * column.std) - beyond
    else:
        value = max(column.high, column.mean + 3 * column.std) + beyond
    return np.full(span.stop - span.start, value)


def _point_contextual(column: _Column, span: slice, rng: np.random.Generator) -> Floats:
    """A value three or more standard deviations of its neighbours away from their mean.

    It stays within the column's range if either side of the mean has room for that.
    """
    near = column.values[max(0, span.start - POINT_RADIUS) : span.stop + POINT_RADIUS]
    mean, std = float(near.mean()), max(float(near.std()), column.std / 4)
    above, below = column.high - mean, mean - column.low
    up = rng.random() < 0.5
    if (above if up else below) < 3 * std:
        up = above > below
    room = above if up else below
    distance = max(3 * std, min(rng.uniform(3, 4) * std, room))
    return np.full(span.stop - span.start, mean + distance if up else mean - distance)


def _pattern_shapelet(column: _Column, span: slice, rng: np.random.Generator) -> Floats:
    """Another waveform with the period, phase and range that the column has around here."""
    first = max(0, span.start - PATTERN_RADIUS)
    around = column.values[first : span.stop + PATTERN_RADIUS]
    middle, half_range = (around.max() + around.min()) / 2, (around.max() - around.min()) / 2
    if half_range < column.std / 4:
        half_range = column.std
    padded = _PADDING * max(2, len(around))
    spectrum = np.fft.rfft(around - around.mean(), padded)
    strongest = _PADDING + int(np.argmax(np.abs(spectrum[_PADDING:])))  # one cycle per context or faster
    time = np.arange(span.start - first, span.stop - first)
    angle = 2 * np.pi * strongest / padded * time + np.angle(spectrum[strongest]) + np.pi / 2

    shapes: list[Floats] = [middle + half_range * wave(angle) for wave in (_square, _sawtooth)]
    shape, other = shapes if rng.random() < 0.5 else shapes[::-1]
    if np.abs(shape - column.values[span]).mean() < 0.2 * half_range:  # the column has this form already
        shape = other
    return shape + rng.normal(0, column.noise, len(shape))


def _pattern_seasonal(column: _Column, span: slice, rng: np.random.Generator) -> Floats:
    """The column from here on, played two to three times faster or slower, and backwards past its end."""
    speed = rng.uniform(2, 3)
    if rng.random() < 0.5:
        speed = 1 / speed
    last = len(column.values) - 1
    time = span.start - 1 + speed * np.arange(1, span.stop - span.start + 1)  # on from the row before
    time = last - np.abs(last - time % (2 * last)) if last else 0 * time
    before = time.astype(np.intp)
    after = np.minimum(before + 1, last)
    weight = time - before
    played: Floats = (1 - weight) * column.values[before] + weight * column.values[after]
    return played


def _pattern_trend(column: _Column, span: slice, rng: np.random.Generator) -> Floats:
    """The column with a slope on top, about two standard deviations high; after it the level returns.

    Were the shift to persist, every later row would differ from normal ones without being labelled.
    """
    length = span.stop - span.start
    height = rng.uniform(1.5, 2.5) * column.std
    slope: Floats = np.arange(1, length + 1) / length * height
    return column.values[span] + (slope if rng.random() < 0.5 else -slope)


_CHANGES: dict[Family, Callable[[_Column, slice, np.random.Generator], Floats]] = {
    "point-global": _point_global,
    "point-contextual": _point_contextual,
    "pattern-shapelet": _pattern_shapelet,
    "pattern-seasonal": _pattern_seasonal,
    "pattern-trend": _pattern_trend,
}


def _visible(column: _Column, span: slice, changed: Floats) -> Floats:
    """`changed`, or a ripple if that hardly differs: a flat stretch has no rhythm or form to change."""
    given = column.values[span]
    if np.abs(changed - given).max() >= column.std / 4:
        return changed
    ripple: Floats = column.std * np.cos(2 * np.pi / 5 * np.arange(len(given)))
    return given + ripple


def _square(angle: Floats) -> Floats:
    """Five odd harmonics of a square wave, within -1 and 1."""
    odd = np.arange(1, 10, 2)
    wave: Floats = (np.sin(np.multiply.outer(angle, odd)) / odd).sum(axis=-1) / 0.93
    return wave


def _sawtooth(angle: Floats) -> Floats:
    wave: Floats = (angle / np.pi + 1) % 2 - 1
    return wave


def _triangle(angle: Floats) -> Floats:
    wave: Floats = 2 / np.pi * np.arcsin(np.sin(angle))
    return wave


def _place_anomalies(
    rows: int, families: Sequence[Family], share: float, rng: np.random.Generator
) -> list[tuple[Family, slice]]:
    """Which rows become anomalous, and how."""
    unknown = [family for family in families if family not in FAMILIES]
    if unknown:
        raise ConfigError(f"families: {unknown[0]!r} is not known; choose from {', '.join(FAMILIES)}")
    if not families or len(set(families)) < len(families):
        raise ConfigError("families: none given, or one of them twice; name each wanted family once")
    if not 0 <= share < 1:
        raise ConfigError(f"share: {share} of the rows cannot be anomalous; choose 0 or more and less than 1")

    total = round(share * rows)
    each, left = divmod(total, len(families))
    pieces = [
        (family, length) for i, family in enumerate(families) for length in _lengths(family, each + (i < left), rng)
    ]
    normal = rows - total
    if len(pieces) > normal + 1:
        raise ConfigError(
            f"share: {share} makes {len(pieces)} anomalies, too many to keep apart by {normal} normal rows; "
            f"choose a smaller share"
        )
    # An anomaly goes in front of a normal row, or after the last; never two into the same place.
    places = np.sort(rng.choice(normal + 1, size=len(pieces), replace=False))
    anomalies: list[tuple[Family, slice]] = []
    done = 0
    for place, i in zip(places.tolist(), rng.permutation(len(pieces)).tolist(), strict=True):
        family, length = pieces[i]
        anomalies.append((family, slice(place + done, place + done + length)))
        done += length
    return anomalies


def _lengths(family: Family, rows: int, rng: np.random.Generator) -> list[int]:
    """Divide the rows of a family among its anomalies."""
    if family.startswith("point"):
        return [1] * rows
    if rows == 0:
        return []
    segments = max(1, round(rows / SEGMENT_ROWS))
    least = rows // (2 * segments)
    extra = rng.multinomial(rows - least * segments, [1 / segments] * segments)
    return [least + n for n in extra.tolist()]


def _checked(values: ArrayLike) -> NDArray[np.float32]:
    """The values as (rows, features) of float32, if they can be that."""
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 2 or 0 in series.shape:
        raise DataError(f"values: shape {series.shape} is not (rows, features); give a table with both")
    unusable = np.argwhere(~(np.abs(series) < 1e30))  # NaN too; more would overflow float32
    if len(unusable):
        row, j = unusable[0]
        raise DataError(f"values: {series[row, j]} in row {row}, column {j}; fill, clip or drop it")
    return series.astype(np.float32)
