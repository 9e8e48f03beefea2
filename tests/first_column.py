"""An engine whose scores can be told in advance, for tests of what is around an engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from at_infer.engines import Scoring
from tests.exported import WINDOW as N
from tests.exported import metadata

__all__ = ["FirstColumn", "N", "rows_of"]


class FirstColumn(Scoring):
    """Scores a row by its first value, and notes which windows it got at once."""

    def __init__(self, **changes: Any) -> None:
        self.path = Path("first.column")
        self.metadata = metadata(**{"columns": ["a", "b", "c"], **changes})
        self.missing: list[str] = []
        self.outputs: tuple[str, ...] = ("score",)
        self.windows: list[np.ndarray] = []

    @property
    def batches(self) -> list[int]:
        return [len(windows) for windows in self.windows]

    def run(self, windows: np.ndarray) -> dict[str, np.ndarray]:
        self.windows.append(windows.copy())
        return {"score": windows[:, :, 0].copy()}

    def describe(self) -> str:
        return "the first column"


def rows_of(firsts: Sequence[float]) -> np.ndarray:
    """Rows of three values, the first ones given."""
    rows = np.zeros((len(firsts), 3), np.float32)
    rows[:, 0] = firsts
    return rows
