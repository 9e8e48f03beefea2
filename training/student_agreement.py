"""How far a student agrees with its teacher: ranks of scores, verdicts, and the time of a window."""

import time
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.evaluation.metrics.ranking import spearman
from at_infer.scoring.windows import window_starts
from at_infer.thresholds.ratio import ratio_threshold
from training.checkpoint import Checkpoint
from training.data import PartWindows
from training.disturbed import disturb
from training.model import AnomalyTransformer
from training.validation import whole_scores
from training.validation_rows import CoveredRows, ScoredNetwork

Floats = NDArray[np.float32]

MOST_ROWS = 50_000
"""Validation rows whose scores are compared, the last ones of each series."""
TIMED_WINDOWS, ROUNDS = 32, 3


class StudentAgreement(NamedTuple):
    """Scores of the student against those of the teacher, on rows that the student was not trained on."""

    rows: int
    spearman: float
    """Rank correlation."""
    same_verdicts: float
    """Share of the rows that both flag or both do not, each by the score that the ratio of these rows exceeds."""
    shared_alarms: float
    """Share of the rows that the teacher flags which the student flags, too."""
    disturbed_spearman: float
    disturbed_same_verdicts: float
    disturbed_shared_alarms: float
    """The same on these rows with made-up faults, by the same thresholds."""


def compare(
    teacher: Checkpoint, student: Checkpoint, part: PartWindows, *, ratio: float, device: torch.device, seed: int
) -> StudentAgreement:
    """Both score the same rows, as they are and disturbed."""
    window = teacher.model.window
    each = max(window, MOST_ROWS // len(part.series_rows))
    series = [rows[-each:] for rows in part.series()]
    lengths = [len(rows) for rows in series]
    firsts = np.cumsum([0, *lengths[:-1]]).tolist()
    places = [
        first + window_starts(rows, window, window, cover_tail=True)
        for first, rows in zip(firsts, lengths, strict=True)
    ]
    starts, clean = np.concatenate(places), np.concatenate(series)

    def scores(model: Checkpoint, values: Floats) -> Floats:
        assert model.normal is not None
        scored = ScoredNetwork(model.network().to(device), model.discrepancy, model.score)
        return whole_scores(scored, CoveredRows(torch.from_numpy(values).to(device), starts, lengths), model.normal)

    faulty = disturb(clean, np.random.default_rng([seed, 2]))
    theirs, ours = ([scores(model, rows) for rows in (clean, faulty)] for model in (teacher, student))
    limits = (ratio_threshold(theirs[0], ratio), ratio_threshold(ours[0], ratio))
    return StudentAgreement(len(clean), *_agree(theirs[0], ours[0], limits), *_agree(theirs[1], ours[1], limits))


def _agree(theirs: Floats, ours: Floats, limits: tuple[float, float]) -> tuple[float, float, float]:
    flagged, also = theirs > limits[0], ours > limits[1]
    shared = float(also[flagged].mean()) if flagged.any() else 1.0
    return spearman(ours, theirs), float((flagged == also).mean()), shared


@torch.inference_mode()
def time_ratio(teacher: AnomalyTransformer, student: AnomalyTransformer, values: Tensor) -> float:
    """How many times as fast the student is in PyTorch, on windows of some rows; in turns, the least time counts."""
    x = values[: len(values) // teacher.config.window * teacher.config.window]
    x = x.unflatten(0, (-1, teacher.config.window))[:TIMED_WINDOWS]
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for k, network in enumerate((teacher, student)):
            began = time.perf_counter()
            network(x)[0].sum().item()
            least[k] = min(least[k], time.perf_counter() - began)
    return least[0] / least[1]
