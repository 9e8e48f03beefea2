"""What mode `fusion` knows of normal rows: linear predictions, and the units in which each view is measured."""

from collections.abc import Sequence

import numpy as np

from at_infer.models.statistics import ViewScale, ViewStatistics
from at_infer.models.view_units import measure_views
from at_infer.models.views import ACTIVITY, AHEAD, NEXT, LinearPrediction, Prediction, SeriesViews
from training.linear import fit_linear, last_rows
from training.validation_rows import Floats, Scored

MOST_NETWORK_WEIGHT = 2.0
"""The network relates features to each other, which linear views do not. So its two views count by half the number of
features, at least once, and from four features on as much as the four linear views together."""
PART_FLOOR, PART_FLOOR_OF_ONE = 1e-3, 0.1
"""Of a column that stands still, parts are exactly 0 on normal rows, and would decide the geometric mean alone. Of
several, one or the other nearly always moves."""
MOST_LEARNT_NUMBERS = 600_000
"""Of learnt rows that units are measured on: six views of each are in memory at once."""
WIDTHS, WIDTHS_OF_ONE = (5, 10, 25, 50), (10, 25, 50, 100, 150)
"""The mean over several features is less noisy than one alone, which needs longer means over rows."""
LEAST_LIVE_ROWS = 50
"""With fewer, units of live views are those of whole windows."""


def learn_views(learnt: Sequence[Floats] | None, whole: Sequence[Scored], live: Sequence[Scored]) -> ViewStatistics:
    """From rows of the training part, if they are known, and validation rows in whole windows and as live rows.

    Units weigh features against each other. So of several features those of linear views are measured on the rows
    learnt as well.
    """
    given = learnt or [part.x for part in whole]
    predictions = [(fitted := fit_linear(given, lags), _usual_error(fitted, lags, whole)) for lags in (NEXT, AHEAD)]
    features = given[0].shape[1]
    more = last_rows(learnt, MOST_LEARNT_NUMBERS // features) if learnt and features > 1 else []
    last = live if sum(len(part.x) for part in live) >= LEAST_LIVE_ROWS else whole
    (next_, _), (ahead, _) = predictions
    return ViewStatistics(
        next=next_.tolist(),
        ahead=ahead.tolist(),
        whole=_scale(predictions, whole, more, causal=False),
        live=_scale(predictions, last, more, causal=True),
        network_weight=min(max(1.0, features / 2), MOST_NETWORK_WEIGHT),
        widths=widths_for(features),
        part_floor=part_floor_for(features),
    )


def _scale(
    predictions: Sequence[Prediction], parts: Sequence[Scored], learnt: Sequence[Floats], *, causal: bool
) -> ViewScale:
    """Units of all views on some parts, and of those without a network on rows learnt as well."""
    views = [
        SeriesViews(predictions, causal=causal, level="recent", number=part.number, past_shape=causal).add(
            part.x.T, part.residual.T, part.shape.T, end=True
        )
        for part in parts
    ]
    young = max(AHEAD) + ACTIVITY // 2  # rows whose views have too few rows before them
    of_learnt = [
        SeriesViews(predictions, causal=causal, level="ignore", number=0).add(x.T, x.T, x.T, end=True)[..., young:]
        for x in learnt
    ]
    return measure_views(
        np.concatenate(views, axis=2),
        np.concatenate([part.residual.T for part in parts], axis=1),
        np.concatenate(of_learnt, axis=2) if of_learnt else None,
    )


def widths_for(features: int) -> list[int]:
    """Rows that the views of a model are averaged over."""
    return list(WIDTHS if features > 1 else WIDTHS_OF_ONE)


def part_floor_for(features: int) -> float:
    """What is added to each part of a score."""
    return PART_FLOOR if features > 1 else PART_FLOOR_OF_ONE


def _usual_error(coefficients: Floats, lags: range, parts: Sequence[Scored]) -> Floats:
    """Root of the mean square of a prediction's errors on rows that have enough rows before them, per feature."""
    nothing = np.zeros(len(coefficients), np.float32)
    errors = [LinearPrediction(lags, coefficients, nothing).errors(part.x.T)[:, max(lags) :] for part in parts]
    known = np.concatenate([nothing[:, None], *errors], axis=1)
    usual: Floats = np.sqrt(np.square(known).sum(axis=1) / np.float32(max(1, known.shape[1] - 1)))
    return usual
