"""Units of views: their mean squares on validation rows, and views divided by them. Pure numpy."""

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Level
from at_infer.models.parts import LINEAR_VIEWS
from at_infer.models.statistics import ViewScale
from at_infer.models.views import FLOOR, VIEWS, View

Floats = NDArray[np.float32]

STD_FLOOR = 0.1


def views_of(level: Level) -> tuple[View, ...]:
    """The views that count."""
    return tuple(view for view in VIEWS if view != "level" or level != "ignore")


class Normalised:
    """Signed views (...,F,V,n) -> deviations in units of validation statistics (...,F,V,n)."""

    def __init__(self, known: ViewScale, level: Level) -> None:
        names = ["fixed level" if view == "level" and level == "fixed" else view for view in views_of(level)]
        zeros = [0.0] * len(known.spread["shape"])
        centre = np.stack([known.centre.get(name, zeros) for name in names], axis=1)
        spread = np.stack([known.spread[name] for name in names], axis=1)
        self.centre: Floats = centre.astype(np.float32)[..., None]
        self.weight: Floats = (1 / spread).astype(np.float32)[..., None]

    def __call__(self, views: Floats) -> Floats:
        """Each has a mean square of about 1 on validation rows."""
        found: Floats = views[..., : self.centre.shape[1], :] - self.centre
        found *= self.weight
        return found


def measure_views(views: Floats, residuals: Floats, learnt_views: Floats | None = None) -> ViewScale:
    """Statistics of views (F,V,n) of validation rows, the level against its recent past, and of residuals (F,n).

    Those that need no network are measured on views of rows learnt (F,V,m) as well: 21 numbers do not learn these by
    heart.
    """
    found: dict[str, Floats] = dict(zip([*VIEWS, "fixed level"], [*views.swapaxes(0, 1), residuals], strict=True))
    if learnt_views is not None:
        found |= {v: np.concatenate([found[v], learnt_views[:, VIEWS.index(v)]], axis=1) for v in LINEAR_VIEWS}
    activities = [name for name in found if name.startswith("activity")]
    centre = {name: found[name].mean(axis=1, dtype=np.float64).tolist() for name in activities}
    squares = {name: np.square(part).mean(axis=1, dtype=np.float64) for name, part in found.items()}
    spread = {name: np.sqrt(square + FLOOR).tolist() for name, square in squares.items()}
    for name in activities:
        spread[name] = np.maximum(found[name].std(axis=1, dtype=np.float64), STD_FLOOR).tolist()
    return ViewScale(centre=centre, spread=spread)
