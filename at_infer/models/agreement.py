"""Checks that the metadata of a model are consistent, and match its graph."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from operator import le, lt
from typing import Any

from at_infer.config import ModelConfig
from at_infer.errors import ConfigError
from at_infer.models.knowledge import Knowledge
from at_infer.models.pattern_distances import known_patterns
from at_infer.models.patterns import LIVE_ROWS, WHOLE_ROWS, PatternView
from at_infer.models.statistics import Normal, ValidationRecord, ViewStatistics
from at_infer.models.views import AHEAD, NEXT, VIEWS

ROUNDING = 1e-6  # relative: interpolated quantiles may fall by a rounding error
CENTRED = ("activity next", "activity ahead")


def check_knowledge(known: Knowledge) -> None:
    """Raise `ConfigError` for parts of other sizes than the network's, and for numbers that cannot be."""
    features = known.model.features
    if len(known.columns) != features:
        raise ConfigError(f"columns: there are {len(known.columns)}, the network has {features} features")
    if len(set(known.columns)) < len(known.columns):
        raise ConfigError("columns: a name is there twice")
    _sizes("scaler", [known.scaler.mean, known.scaler.scale], features)
    _positive("scaler", known.scaler.scale)
    known.discrepancy.check_layers(known.model.layers)
    _check_validation(known.quantile_levels, known.validation)
    if known.normal is not None:
        _check_normal(known.normal, features, known.discrepancy.head_rule)
    if known.season is not None and len(known.season.profile) != features:
        raise ConfigError(f"season: has {len(known.season.profile)} profiles, the network has {features} features")


def check_quantiles(levels: Sequence[float], quantiles: Iterable[Sequence[float]]) -> None:
    """Levels rise from 0 to 1, and quantiles do not fall."""
    rising = all(map(lt, levels, islice(levels, 1, None)))
    if not levels or not rising or levels[0] < 0 or levels[-1] > 1:
        raise ConfigError("quantile_levels: do not increase between 0 and 1")
    for values in quantiles:
        if len(values) != len(levels):
            raise ConfigError(f"quantiles: there are {len(values)} at {len(levels)} levels")
        rising = all(map(le, values, islice(values, 1, None)))
        if not rising and any(high < low - ROUNDING * abs(low) for low, high in pairwise(values)):
            raise ConfigError("quantiles: decrease")


def _check_validation(levels: list[float], records: list[ValidationRecord]) -> None:
    ways = [(record.align, record.delay) for record in records]
    if not any(record.align == "window" for record in records):
        raise ConfigError("validation: no record of whole windows")
    if len(set(ways)) < len(ways):
        raise ConfigError("validation: two records of the same way to score")
    check_quantiles(levels, (values for record in records for values in record.quantiles.values()))


def _check_normal(normal: Normal, features: int, rule: str) -> None:
    _sizes("normal.error", [normal.error], features)
    _sizes("normal.centred_error", [normal.centred_error], features)
    if rule not in normal.discrepancy:
        raise ConfigError(f"normal.discrepancy: has no mean and standard deviation by the {rule} rule")
    _sizes("normal.discrepancy", normal.discrepancy.values(), 2)
    if normal.views is not None:
        _check_views(normal.views, features)


def _check_views(views: ViewStatistics, features: int) -> None:
    for name, coefficients, lags in (("next", views.next, NEXT), ("ahead", views.ahead, AHEAD)):
        _sizes(f"views.{name}", [coefficients], features)
        _sizes(f"views.{name}", coefficients, len(lags) + 1)
    if bool(views.patterns) != bool(views.live_patterns):
        raise ConfigError("views: has patterns in whole windows or live, not both")
    of_patterns: tuple[PatternView, ...] = ()
    if views.patterns:
        of_patterns = known_patterns(views.patterns, features, WHOLE_ROWS).views
        known_patterns(views.live_patterns, features, LIVE_ROWS)
    for scale in (views.whole, views.live):
        needed = (*VIEWS, "fixed level", *of_patterns)
        absent = [name for name in needed if name not in scale.spread]
        absent += [name for name in CENTRED if name not in scale.centre]
        if absent:
            raise ConfigError(f"views: no statistics of {absent[0]!r}")
        _sizes("views", [*scale.centre.values(), *scale.spread.values()], features)
        for spread in scale.spread.values():
            _positive("views", spread)
        _positive("views.unit", [scale.unit])


def _sizes(what: str, parts: Iterable[Sequence[Any]], size: int) -> None:
    for part in parts:
        if len(part) != size:
            raise ConfigError(f"{what}: there are {len(part)} entries instead of {size}")


def _positive(what: str, values: Sequence[float]) -> None:
    if not all(value > 0 for value in values):
        raise ConfigError(f"{what}: {min(values):g} is not positive")


def check_shapes(model: ModelConfig, inputs: Mapping[str, Sequence[Any]], outputs: Mapping[str, Sequence[Any]]) -> None:
    """Raise if a graph takes or returns other shapes than a network of this size; a size may be a name, or -1."""
    rows, features, heads = model.window, model.features, model.heads
    for name, shape in inputs.items():
        _same(name, shape, (rows, features))
    for name, shape in outputs.items():
        if name in ("score", "error", "discrepancy"):
            _same(name, shape, (rows,))
        elif name in ("reconstruction", "shape"):
            _same(name, shape, (rows, features))
        elif name == "last":
            _same(name, shape, (features,))
        elif re.fullmatch(r"(prior|series)_\d+", name):
            _same(name, shape, (heads, rows, rows))


def _same(name: str, shape: Sequence[Any], expected: tuple[int, ...]) -> None:
    """Behind the batch dimension."""
    sizes = [size if isinstance(size, int) and size >= 0 else None for size in shape[1:]]
    if len(shape) != len(expected) + 1 or any(
        found is not None and found != size for found, size in zip(sizes, expected, strict=True)
    ):
        raise ConfigError(f"graph: {name!r} has shape {list(shape)}, the metadata have {['batch', *expected]}")
