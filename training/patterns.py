"""Normal patterns of a feature: means of similar stretches of the training part, by k-means."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from at_infer.models.patterns import LEAST_HEIGHT, LIVE_ROWS, WHOLE_ROWS, NearestPattern, encode, measure_patterns
from at_infer.models.statistics import ViewStatistics

Floats = NDArray[np.float32]

PATTERN_WEIGHT = 3.0
"""Of one feature the network knows no more than the linear views, but patterns know what it looks like."""
PATTERNS = 256
MOST_STRETCHES = 6_000
"""Spread evenly over the training part; more would move the means little."""
ROUNDS = 8
"""Of k-means; most of what it gains comes in the first few."""


def with_patterns(known: ViewStatistics, learnt: Sequence[Floats], validation: Sequence[Floats]) -> ViewStatistics:
    """What a model knows of a single feature, and its normal patterns; none of several features, or of few rows."""
    if len(known.next) > 1 or not any(len(part) >= WHOLE_ROWS for part in validation):
        return known
    both = [fit_patterns(learnt, rows) for rows in (WHOLE_ROWS, LIVE_ROWS)]
    texts, scales = [], []
    for patterns, scale in zip(both, (known.whole, known.live), strict=True):
        if patterns is None:
            return known
        spread = measure_patterns(NearestPattern(patterns), [part.T for part in validation])
        texts.append(encode(patterns))
        scales.append(replace(scale, spread=scale.spread | spread))
    return replace(
        known,
        whole=scales[0],
        live=scales[1],
        patterns=texts[0],
        live_patterns=texts[1],
        pattern_weight=PATTERN_WEIGHT,
    )


def fit_patterns(series: Sequence[Floats], rows: int, seed: int = 0) -> Floats | None:
    """Series of scaled rows (n,F) -> patterns without their level, and without level and height (F,2,K,R).

    None if there are fewer stretches than patterns.
    """
    counts = [max(0, len(one) - rows + 1) for one in series]
    if sum(counts) < PATTERNS:
        return None
    step = -(-sum(counts) // MOST_STRETCHES)
    parts = [sliding_window_view(one, rows, axis=0)[::step] for one, count in zip(series, counts, strict=True) if count]
    stretches = torch.from_numpy(np.concatenate(parts).swapaxes(0, 1).copy())  # (F,n,R)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for of_feature in stretches - stretches.mean(dim=-1, keepdim=True):
        height = of_feature.std(dim=-1, keepdim=True, correction=0).clamp_min(float(LEAST_HEIGHT))
        found.append(torch.stack([centres(part, generator) for part in (of_feature, of_feature / height)]))
    return torch.stack(found).numpy()


def centres(points: Tensor, generator: torch.Generator) -> Tensor:
    """Means (K,R) of groups of similar points (n,R): k-means from points drawn at random; a group may be empty."""
    found = points[torch.randperm(len(points), generator=generator)[:PATTERNS]]
    for _ in range(ROUNDS):
        nearest = torch.addmm(found.square().sum(1), points, found.T, alpha=-2).argmin(dim=1)
        counts = torch.bincount(nearest, minlength=PATTERNS)[:, None]
        sums = torch.zeros_like(found).index_add_(0, nearest, points)
        found = torch.where(counts > 0, sums / counts.clamp_min(1), found)
    return found
