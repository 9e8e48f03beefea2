"""Normal patterns of the training part: means of similar stretches, by k-means."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from at_infer.models.pattern_distances import known_patterns, measure_patterns
from at_infer.models.patterns import LIVE_ROWS, WHOLE_ROWS, encode
from at_infer.models.patterns_of_one import LEAST_HEIGHT
from at_infer.models.patterns_of_several import MEAN_ROWS
from at_infer.models.statistics import ViewStatistics

Floats = NDArray[np.float32]

PATTERNS_OF_ONE, PATTERNS_OF_SEVERAL = 256, 64
MOST_PATTERN_FEATURES = 4096
"""Patterns times features: beyond 64 features there are fewer, and neither metadata nor the time of a row grow."""
WEIGHT_OF_ONE, WEIGHT_OF_SEVERAL = 3.0, 1.0
"""Of one feature the network knows no more than the linear views, but patterns know what it looks like."""
MOST_FEATURES = 256
"""Of more there would be hardly any patterns."""
MOST_STRETCHES, MOST_NUMBERS = 6_000, 12_000_000
"""Spread evenly over the training part; more would move the means little."""
ROUNDS = 8
"""Of k-means; most of what it gains comes in the first few."""


def with_patterns(known: ViewStatistics, learnt: Sequence[Floats], validation: Sequence[Floats]) -> ViewStatistics:
    """What a model knows of its features, and their normal patterns; none of very many features, or of few rows."""
    features = len(known.next)
    if features > MOST_FEATURES or not any(len(part) >= WHOLE_ROWS for part in validation):
        return known
    fit, weight = (fit_one, WEIGHT_OF_ONE) if features == 1 else (fit_several, WEIGHT_OF_SEVERAL)
    texts, scales = [], []
    for rows, scale in ((WHOLE_ROWS, known.whole), (LIVE_ROWS, known.live)):
        patterns = fit(learnt, rows)
        if patterns is None:
            return known
        texts.append(encode(patterns))
        spread = measure_patterns(known_patterns(texts[-1], features, rows), [part.T for part in validation])
        scales.append(replace(scale, spread=scale.spread | spread))
    whole, live = scales
    return replace(known, whole=whole, live=live, patterns=texts[0], live_patterns=texts[1], pattern_weight=weight)


def fit_one(series: Sequence[Floats], rows: int, seed: int = 0) -> Floats | None:
    """Series of scaled rows (n,1) -> patterns without their level, and without level and height (1,2,K,R).

    None if there are fewer stretches than patterns.
    """
    stretches = _stretches(series, rows, PATTERNS_OF_ONE)
    if stretches is None:
        return None
    centred = torch.from_numpy(stretches[:, 0]).clone()  # (n,R)
    centred -= centred.mean(dim=-1, keepdim=True)
    height = centred.std(dim=-1, keepdim=True, correction=0).clamp_min(float(LEAST_HEIGHT))
    generator = torch.Generator().manual_seed(seed)
    both = [centres(part, PATTERNS_OF_ONE, generator) for part in (centred, centred / height)]
    return torch.stack(both)[None].numpy()


def fit_several(series: Sequence[Floats], rows: int, seed: int = 0) -> Floats | None:
    """Series of scaled rows (n,F) -> patterns of all features together, without their levels (K,S,F).

    None if there are fewer stretches than patterns.
    """
    wanted = min(PATTERNS_OF_SEVERAL, MOST_PATTERN_FEATURES // series[0].shape[1])
    stretches = _stretches(series, rows, wanted)
    if stretches is None:
        return None
    count, features, _ = stretches.shape
    means = torch.from_numpy(stretches).unflatten(-1, (-1, MEAN_ROWS)).mean(dim=-1)  # (n,F,S)
    means -= means.mean(dim=-1, keepdim=True)
    points = means.transpose(1, 2).reshape(count, -1)
    found = centres(points, wanted, torch.Generator().manual_seed(seed))
    patterns: Floats = found.reshape(len(found), -1, features).numpy()
    return patterns


def _stretches(series: Sequence[Floats], rows: int, least: int) -> Floats | None:
    """Some stretches (n,F,R), spread evenly over the series; None if there are fewer than `least`."""
    counts = [max(0, len(one) - rows + 1) for one in series]
    most = max(least, min(MOST_STRETCHES, MOST_NUMBERS // (rows * series[0].shape[1])))
    if sum(counts) < least:
        return None
    step, before, parts = -(-sum(counts) // most), 0, []
    for one, count in zip(series, counts, strict=True):
        if count:
            parts.append(sliding_window_view(one, rows, axis=0)[-before % step :: step])
        before += count
    return np.concatenate(parts)


def centres(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Means (K,D) of groups of similar points (n,D): k-means from points drawn at random; a group may be empty."""
    found = points[torch.randperm(len(points), generator=generator)[:count]]
    for _ in range(ROUNDS):
        nearest = torch.addmm(found.square().sum(1), points, found.T, alpha=-2).argmin(dim=1)
        counts = torch.bincount(nearest, minlength=count)[:, None]
        sums = torch.zeros_like(found).index_add_(0, nearest, points)
        found = torch.where(counts > 0, sums / counts.clamp_min(1), found)
    return found
