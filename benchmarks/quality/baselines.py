"""Scores that take no network: single views, the fusion without a network, and simple detectors of others."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest

from at_infer.config import ScoreConfig
from at_infer.models.fusion import Fusion
from at_infer.models.statistics import ViewStatistics
from at_infer.models.view_units import Normalised, measure_views
from at_infer.models.views import AHEAD, NEXT, VIEWS, LinearPrediction, MovingMeans, SeriesViews
from benchmarks.quality.series import GROUPS, Series
from training.linear import fit_linear
from training.patterns import with_patterns
from training.view_statistics import part_floor_for, widths_for

Floats = NDArray[np.float32]

SMOOTH = 50
MOVING_AVERAGES = (11, 51, 101)
LOCAL = 101
"""Rows of the moving average that stands for the reconstruction in the fusion without a network."""
VALIDATION = 0.2
PCA_VARIANCE = 0.9
PCA_ROWS = 20
"""Consecutive rows that make up a point where there is one feature only."""
PROFILE_ROWS = 15
FLOOR = 1e-4
LINEAR_VIEWS = {
    "next": "AR, next row",
    "ahead": "AR, 5 rows ahead",
    "activity next": "activity of AR, next row",
    "activity ahead": "activity of AR, 5 rows ahead",
}
PATTERN_BASELINES = ("nearest pattern", "nearest pattern, any height")
"""Views of patterns; several features have the first."""
WITHOUT_NETWORK = "fusion without a network"


def baselines(series: Series, seed: int = 0) -> Iterator[tuple[str, Floats]]:
    """Name and one score per row of the test part; all but the fusion and chance are means over 50 rows."""
    train, test = scaled(*series.rows())
    yield "random", np.random.default_rng(seed).random(len(test)).astype(np.float32)
    yield from view_scores(train, test)
    for width in MOVING_AVERAGES:
        residuals = [x - moving_mean(x, width) for x in (train, test)]
        yield f"moving average {width}", _errors(*residuals)
    group = GROUPS[series.group]
    if group.clock and len(train) >= group.rows_a_day:
        yield "seasonal profile", _errors(*seasonal(train, test, group.rows_a_day))
    points = [as_points(x) for x in scaled(*series.rows(learnt=False))]
    yield "PCA", _errors(*pca(*points))
    forest = IsolationForest(random_state=seed).fit(points[0])
    yield "IsolationForest", moving_mean(-forest.score_samples(points[1])[:, None].astype(np.float32), SMOOTH)[:, 0]


def without_network(series: Series) -> dict[str, Floats]:
    """The fusion, which changes with the formula of the score, and the views of patterns."""
    found = dict(view_scores(*scaled(*series.rows())))
    return {name: score for name, score in found.items() if name in (WITHOUT_NETWORK, *PATTERN_BASELINES)}


def view_scores(train: Floats, test: Floats) -> Iterator[tuple[str, Floats]]:
    """The product's views and fusion, with a moving average in place of a reconstruction and the raw level."""
    cut = len(train) - max(int(VALIDATION * len(train)), min(110, len(train) - 101))
    predictions = []
    for lags in (NEXT, AHEAD):
        fitted = fit_linear([train[:cut]], lags)
        errors = LinearPrediction(lags, fitted, np.zeros(train.shape[1], np.float32)).errors(train[cut:].T)
        predictions.append((fitted, np.sqrt(np.square(errors[:, max(lags) :]).mean(axis=1))))
    parts = []
    for x in (train[:cut], train[cut:], test):
        views = SeriesViews(predictions, causal=False, level="recent", number=0)
        parts.append(views.add(x.T, x.T, (x - moving_mean(x, LOCAL)).T, end=True))
    learnt, validation, views_of_test = parts
    scale = measure_views(validation, train[cut:].T, learnt if train.shape[1] > 1 else None)
    deviations = np.square(Normalised(scale, "recent")(views_of_test)).transpose(2, 1, 0)  # (n,6,F)
    for view, name in LINEAR_VIEWS.items():
        yield name, np.sqrt(moving_mean(deviations[:, VIEWS.index(view)], SMOOTH)).mean(axis=1)
    next_, ahead = (fitted.tolist() for fitted, _ in predictions)
    whole, widths = replace(scale, unit=1.0), widths_for(len(next_))
    floor = part_floor_for(len(next_))
    known = ViewStatistics(next=next_, ahead=ahead, whole=whole, live=scale, widths=widths, part_floor=floor)
    known = with_patterns(known, [train[:cut]], [train[cut:]])
    fusion = Fusion(known, ScoreConfig(), causal=False)
    if fusion.patterns is not None:
        distances = fusion.patterns.add(test.T, end=True).transpose(1, 2, 0)  # (V,n,F)
        for name, squares in zip(PATTERN_BASELINES, distances, strict=False):
            yield name, np.sqrt(moving_mean(np.ascontiguousarray(squares), SMOOTH)).mean(axis=1)
        fusion = Fusion(known, ScoreConfig(), causal=False)
    rows = np.concatenate([test, test, test - moving_mean(test, LOCAL)], axis=1)
    yield WITHOUT_NETWORK, np.concatenate([fusion.add(rows), fusion.end()])[:, 0]


def scaled(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """In standard deviations of the training part."""
    mean, std = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64)
    std = np.where(np.ptp(train, axis=0) == 0, 1.0, std)
    return ((train - mean) / std).astype(np.float32), ((test - mean) / std).astype(np.float32)


def moving_mean(x: Floats, width: int) -> Floats:
    """Centred; at the ends, of the rows that exist."""
    return MovingMeans([(width // 2, (width - 1) // 2)]).add(x.T, end=True)[0].T


def pca(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Residuals of the components that hold 90 % of the variance."""
    _, s, v = np.linalg.svd(train[:: max(1, len(train) // 20_000)], full_matrices=False)
    share = np.cumsum(np.square(s)) / max(float(np.square(s).sum()), 1e-30)
    kept = v[: int(np.searchsorted(share, PCA_VARIANCE)) + 1]
    return train - train @ kept.T @ kept, test - test @ kept.T @ kept


def as_points(x: Floats) -> Floats:
    """Rows; where there is one feature only, each row with those before it."""
    if x.shape[1] > 1:
        return x
    padded = np.concatenate([np.repeat(x[:1, 0], PCA_ROWS - 1), x[:, 0]])
    return np.ascontiguousarray(sliding_window_view(padded, PCA_ROWS))


def seasonal(train: Floats, test: Floats, day: int) -> tuple[Floats, Floats]:
    """Rows minus the median of the training days at this time of day."""
    days = len(train) // day
    profile = np.median(train[len(train) - days * day :].reshape(days, day, -1), axis=0)
    around = np.concatenate([profile[-PROFILE_ROWS:], profile, profile[:PROFILE_ROWS]]).astype(np.float32)
    profile = moving_mean(around, PROFILE_ROWS)[PROFILE_ROWS:-PROFILE_ROWS]
    train_time = (np.arange(len(train)) - len(train)) % day
    return train - profile[train_time], test - profile[np.arange(len(test)) % day]


def _errors(train: Floats, test: Floats) -> Floats:
    """Squared residuals of features in multiples of their mean on the training part, their mean, smoothed."""
    usual, errors = (np.square(x.astype(np.float64)) for x in (train, test))
    mean = (errors / (usual.mean(axis=0) + FLOOR)).mean(axis=1)
    return moving_mean(mean[:, None].astype(np.float32), SMOOTH)[:, 0]
