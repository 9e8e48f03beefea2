"""Mode `fusion` of many live series at once: one row of each is one step of arrays, not one per series."""

from collections.abc import Sequence
from copy import copy

import numpy as np

from at_infer.models.fusion import Floats, Fusion, walking_rows

TOGETHER = 64
"""Series whose next rows are worked on at once."""


def add_together(fusions: Sequence[Fusion], parts: Sequence[Floats]) -> list[Floats]:
    """The next rows (n,3F) of several series -> rows (m,C) of each that are final, as `add` gives them one by one."""
    found: list[Floats] = [np.empty(0, np.float32)] * len(fusions)
    alike = []
    if len(set(map(id, fusions))) == len(fusions) > 1:
        steady = [i for i, part in enumerate(parts) if len(part) == 1 and fusions[i].is_steady]
        alike = [i for i in steady if not np.isnan(parts[i].min())]
    for first in range(0, len(alike), TOGETHER):
        some = alike[first : first + TOGETHER]
        scores = _step_together([fusions[i] for i in some], np.concatenate([parts[i] for i in some]))
        for i, score in zip(some, scores, strict=True):
            found[i] = score
    for i in sorted(set(range(len(fusions))).difference(alike)):  # one series may come twice, in order
        found[i] = fusions[i].add(parts[i])
    return found


def _step_together(fusions: Sequence[Fusion], rows: Floats) -> Floats:
    """One row (S,3F) of each of some steady series -> (S,1,1): their memories side by side, and one step for all."""
    many = copy(fusions[0])
    many.views, many.means = copy(many.views), copy(many.means)
    many.views.means, many.views.residuals = copy(many.views.means), copy(many.views.residuals)
    many.views.past = np.stack([one.views.past for one in fusions])
    means, of_each = many.all_means, list(zip(*(one.all_means for one in fusions), strict=True))
    for mean, each in zip(means, of_each, strict=True):
        mean.context = np.stack([one.context for one in each if one.context is not None])
    if many.views.level is not None:
        many.views.levels = [one.views.level for one in fusions if one.views.level is not None]
    x, residual, *shape = np.ascontiguousarray(rows.reshape(len(rows), -1, many.features).swapaxes(0, 1))[..., None]
    with walking_rows():
        scores = many.score_views(many.views.add(x, residual, shape[0] if shape else None), end=False)
    for mean, each in zip(means, of_each, strict=True):
        assert mean.context is not None
        for i, one in enumerate(each):
            one.context, one.seen = mean.context[i].copy(), one.seen + 1  # a view would keep the memory of all of them
    for i, fusion in enumerate(fusions):
        fusion.views.past, fusion.number = many.views.past[i].copy(), fusion.number + 1
    return scores
