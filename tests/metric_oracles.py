"""Metrics as their definitions read: row by row, threshold by threshold, slow. Nothing is shared with at_infer."""

from itertools import pairwise

import numpy as np


def segments(mask: np.ndarray) -> list[tuple[int, int]]:
    """First and last row of each run."""
    found: list[tuple[int, int]] = []
    for row in np.flatnonzero(mask).tolist():
        if found and found[-1][1] == row - 1:
            found[-1] = (found[-1][0], row)
        else:
            found.append((row, row))
    return found


def f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    hits = (predicted & labels).sum()
    return float(2 * hits / (predicted.sum() + labels.sum()))


def adjusted(predicted: np.ndarray, labels: np.ndarray, k: int = 0) -> np.ndarray:
    """PA%K; K = 0 is point adjustment."""
    result = predicted.copy()
    for first, last in segments(labels):
        if 100 * int(predicted[first : last + 1].sum()) > k * (last - first + 1):
            result[first : last + 1] = True
    return result


def soft_labels(labels: np.ndarray, width: int) -> np.ndarray:
    soft = labels.astype(float)
    if width < 2:
        return soft
    for first, last in segments(labels):
        for row in range(last, min(last + width // 2, len(labels))):
            soft[row] += np.sqrt(1 - (row - last) / width)
        for row in range(max(first - width // 2, 0), first):
            soft[row] += np.sqrt(1 - (first - row) / width)
    clipped: np.ndarray = np.clip(soft, 0, 1)
    return clipped


def range_areas(scores: np.ndarray, labels: np.ndarray, width: int) -> tuple[float, float]:
    """ROC and PR area for one buffer."""
    soft = soft_labels(labels, width)
    ranges = segments(soft > 0)
    positives = (labels.sum() + soft.sum()) / 2
    tpr, fpr, precision = [0.0], [0.0], [1.0]
    for threshold in np.sort(scores)[::-1][np.linspace(0, len(scores) - 1, 250).astype(int)]:
        predicted = scores >= threshold
        hits = (soft * predicted).sum()
        seen = np.mean([(soft * predicted)[first : last + 1].sum() > 0 for first, last in ranges])
        tpr.append(min(hits / positives, 1) * seen)
        fpr.append(min((predicted.sum() - hits) / (len(scores) - positives), 1))
        precision.append(hits / predicted.sum())
    if (scores == scores.max()).sum() > 1:
        precision[0] = precision[1]
    pr = sum((tpr[i] - tpr[i - 1]) * (precision[i] + precision[i - 1]) / 2 for i in range(1, len(tpr)))
    tpr.append(1.0)
    fpr.append(1.0)
    roc = sum((fpr[i] - fpr[i - 1]) * (tpr[i] + tpr[i - 1]) / 2 for i in range(1, len(tpr)))
    return roc, pr


def range_reward(of: np.ndarray, others: np.ndarray) -> float:
    rewards = []
    for first, last in segments(of):
        rows = set(range(first, last + 1))
        pieces = [rows & set(range(a, b + 1)) for a, b in segments(others)]
        pieces = [piece for piece in pieces if piece]
        rewards.append(len(set().union(*pieces)) / len(rows) / max(len(pieces), 1))
    return float(np.mean(rewards)) if rewards else 0.0


def affiliation(predicted: np.ndarray, labels: np.ndarray, grid: int = 32) -> tuple[float, float]:
    """Precision and recall by sampling time finely; chances by counting the samples of the zone."""
    times = (np.arange(len(labels) * grid) + 0.5) / grid
    flagged, anomalous = np.repeat(predicted, grid), np.repeat(labels, grid)
    events = [(first, last + 1) for first, last in segments(labels)]
    cuts = [0.0] + [(a[1] + b[0]) / 2 for a, b in pairwise(events)] + [float(len(labels))]
    precisions, recalls = [], []
    for (first, end), (low, high) in zip(events, pairwise(cuts), strict=True):
        zone = (times > low) & (times < high)
        x, y = times[zone & flagged], times[zone & anomalous & (times > first) & (times < end)]
        u = times[zone]
        to_event = np.maximum(np.maximum(first - u, u - end), 0)
        if len(x):
            at = np.maximum(np.maximum(first - x, x - end), 0)
            precisions.append(np.mean([(to_event >= d).mean() for d in at]))
            nearest = np.abs(y[:, None] - x[None, :]).min(axis=1)
            nearest[np.isin(y, x)] = 0
            recalls.append(np.mean([(np.abs(u - t) >= d).mean() for t, d in zip(y, nearest, strict=True)]))
        else:
            recalls.append(0.0)
    return float(np.mean(precisions)) if precisions else 0.0, float(np.mean(recalls))


def areas_of_tsb_ad(scores: np.ndarray, labels: np.ndarray, width: int) -> tuple[float, float]:
    """ROC and PR area for one buffer as TSB-AD 1.5 has it: not what the authors of VUS and aeon have.

    The edge behind an anomaly is a row longer, soft labels count as anomalous rows only where they are flagged, and the
    PR area is one of steps.
    """
    soft, half, ranges = labels.astype(float), width // 2, list[list[int]]()
    for first, last in segments(labels):
        before, behind = max(first - half, 0), min(last + half, len(labels) - 1)
        for row in [*range(before, first), *range(last + 1, behind + 1)]:
            soft[row] += np.sqrt(1 - max(first - row, row - last) / width)
        if ranges and ranges[-1][1] >= before:
            ranges[-1][1] = behind
        else:
            ranges.append([before, behind])
    soft = np.minimum(soft, 1)
    thresholds = np.sort(scores)[::-1][np.linspace(0, len(scores) - 1, 250).astype(int)]
    predicted = (scores >= thresholds[:, None]).astype(float)
    hits, of_edges = predicted @ soft, predicted @ np.where(labels, 0, soft)
    positives = labels.sum() + of_edges / 2
    seen = np.mean([predicted[:, first : last + 1].any(axis=1) for first, last in ranges], axis=0)
    tpr = np.concatenate([[0], np.minimum(hits / positives, 1) * seen, [1]])
    fpr = np.concatenate([[0], (predicted.sum(axis=1) - hits) / (len(labels) - positives), [1]])
    pr = np.diff(tpr)[:-1] @ (hits / predicted.sum(axis=1))
    return float(np.trapezoid(tpr, fpr)), float(pr)
