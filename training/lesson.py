"""What a student learns from: windows, and what a teacher makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from at_infer.config import DiscrepancyConfig, Prior
from at_infer.models.views import FLOOR
from training.discrepancy import association_discrepancy
from training.model import AnomalyTransformer, Association
from training.objective import Objective
from training.window_scores import run_windows

BATCH = 32
TINY = 1e-9  # a teacher whose AssDis does not vary


class Taught(NamedTuple):
    """Windows one after the other, none overlaps another."""

    values: Tensor
    """(P*N,F), scaled."""
    starts: Tensor
    """First row of each window (P,)."""
    reconstruction: Tensor
    """Of the teacher (P*N,F)."""
    discrepancy: Tensor
    """AssDis of the teacher (P*N,)."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to learn, what to be judged by, and how far a student is from its teacher."""

    train: Taught
    validation: Taught
    usual_error: Tensor
    """Mean squared error of the teacher on undisturbed windows, per feature (F,)."""
    discrepancy: DiscrepancyConfig | None
    """How associations are compared, if the score looks at them."""
    across_windows: bool
    """Does the score compare AssDis of different windows? A softmax compares the rows of one."""

    def objective(
        self, of: Taught, places: Tensor, x: Tensor, x_hat: Tensor, associations: Sequence[Association], prior: Prior
    ) -> Objective:
        """Of windows `x`, at rows `places` (B,N): squared differences, as shares of what the teacher's score has."""
        theirs = of.reconstruction[places]
        reconstruction = ((x_hat.to(x.dtype) - theirs).square() / self.usual_error).mean()
        if self.discrepancy is None:
            return Objective(reconstruction, reconstruction.detach(), torch.zeros_like(reconstruction).detach())
        found = self._centred(association_discrepancy(associations, self.discrepancy, prior))
        wanted = self._centred(of.discrepancy[places])
        discrepancy = (found - wanted).square().mean() / (wanted.square().mean() + TINY)
        return Objective(reconstruction + discrepancy, reconstruction.detach(), discrepancy.detach())

    def _centred(self, discrepancy: Tensor) -> Tensor:
        """AssDis (B,N) without its mean, which no score depends on."""
        return discrepancy - discrepancy.mean((0, 1) if self.across_windows else 1, keepdim=True)


def teach(teacher: AnomalyTransformer, windows: Tensor, discrepancy: DiscrepancyConfig) -> Taught:
    """Windows (P,N,F) through the teacher; `discrepancy` has the head rule of its score."""
    count, length, _ = windows.shape
    values, starts = windows.flatten(0, 1), torch.arange(count, device=windows.device) * length
    differences, found = [], []
    for difference, by_rule in run_windows(teacher, values, starts, discrepancy, BATCH):
        differences.append(difference)
        found.append(by_rule[discrepancy.head_rule])
    reconstruction = values + torch.cat(differences).flatten(0, 1)
    return Taught(values, starts, reconstruction, torch.cat(found).flatten().clone())


def usual_error(values: Tensor, reconstruction: Tensor) -> Tensor:
    """Mean square per feature (F,), with the floor that views have."""
    return (values - reconstruction).square().mean(0) + float(FLOOR)
