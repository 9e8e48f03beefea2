"""Result of scoring a table: rows with scores and verdicts, and incidents."""

from functools import cached_property
from typing import Any, Self

from at_infer.api.picture import Axis, Plot, describe, draw
from at_infer.incidents.incident import Incident
from at_infer.scoring.columns import scored_columns
from at_infer.scoring.scorer import Scorer, Scores
from at_infer.scoring.windows import Floats
from at_infer.tables.frames import Frame, give_back


class Result(Scores):
    """Scores of rows: unpacks to `score` and `is_anomaly`, one entry per row.

    >>> with Scorer("model.onnx") as scorer:
    ...     result = scorer.score(frame)
    >>> result.table.height == frame.height
    True
    >>> score, is_anomaly = result
    """

    columns: dict[str, Any]
    """Columns that `at-infer score` would write, as arrays: score, is_anomaly, top_feature, ..."""
    threshold: float
    """A row with a higher score is anomalous."""
    incidents: list[Incident]
    """Anomalous rows that belong together, in order of their ends."""
    _given: object
    _frame: Frame
    _axis: Axis

    @classmethod
    def of(
        cls, scorer: Scorer, channels: Floats, incidents: list[Incident], given: object, frame: Frame, axis: Axis
    ) -> Self:
        """From the output of the scoring core (n,C)."""
        columns = scored_columns(scorer, channels)
        result = cls(columns["score"], columns["is_anomaly"])
        result.columns, result.threshold, result.incidents = columns, scorer.threshold, incidents
        result._given, result._frame, result._axis = given, frame, axis
        return result

    @cached_property
    def table(self) -> Any:
        """The input with the score columns: pandas and pyarrow as such, anything else as polars."""
        return give_back(self._given, self._frame, self.columns)

    def plot(self, *, width: int = 720, height: int = 120) -> Plot:
        """Scores over time with threshold and incidents, of the series with the highest scores; sizes in pixels.

        >>> with Scorer("model.onnx") as scorer:
        ...     plot = scorer.score(frame).plot(height=80)
        """
        return draw(self.score, self.threshold, self.incidents, self._axis, width=width, height=height)

    def __repr__(self) -> str:
        rows, anomalies = len(self.score), int(self.is_anomaly.sum())
        found = f"{anomalies} anomalous, incidents: {len(self.incidents)}"
        return f"<Result: {rows} rows, {found}, threshold {self.threshold:.4g}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return describe(repr(self).strip("<>"), self.plot(), self.incidents)
