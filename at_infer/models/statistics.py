"""Scaler, error statistics, thresholds and validation quantiles of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from at_infer.config import Align, Config
from at_infer.errors import ConfigError
from at_infer.untrusted import shown

LiveShape = Literal["window", "past"]
"""Mean that live residuals lose: of the residuals in the row's window, or of those that rows before it had live."""
MOST_WEIGHT = 100.0
"""Of views in the score: beyond it the others count for nothing."""
MOST_FLOOR = 1.0
MOST_WIDTHS, WIDEST = 8, 256
"""Of smoothing, whose widest fits into the rings of live rows."""
LARGEST = 3.4028234663852886e38
"""Of float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler(Config):
    """Standard scaling by statistics of the training part: (x - mean) / scale per column."""

    mean: list[float]
    scale: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewScale(Config):
    """Units of the views of mode `fusion`, as they are on normal rows; each a list with an entry per feature."""

    centre: dict[str, list[float]]
    """Mean of the activities; the other views are zero where all is normal."""
    spread: dict[str, list[float]]
    """Standard deviation of the activities, root of the mean square of the other views."""
    unit: float = 1.0
    """Median of the score on the validation part, in which it is measured: 1 is normal, for every model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStatistics(Config):
    """What mode `fusion` knows of the data beside the network."""

    _earlier: ClassVar[Mapping[str, Any]] = {
        "live_shape": "window",
        "network_weight": 1.0,
        "widths": [25, 50],
        "patterns": "",
        "live_patterns": "",
        "pattern_weight": 1.0,
        "part_floor": 1e-8,
    }

    next: list[list[float]]
    """Linear prediction of a row from the 20 before it, per feature: a coefficient per lag, and the intercept."""
    ahead: list[list[float]]
    """The same from the rows 5 to 24 before it."""
    whole: ViewScale
    """Of rows scored in whole windows."""
    live: ViewScale
    """Of rows scored as the last of their window."""
    live_shape: LiveShape = "past"
    """`past` needs no more of the network than the row itself."""

    network_weight: float = 1.0
    """Of the views that need the network, in the geometric mean; the others count once."""
    widths: list[int] = field(default_factory=lambda: [25, 50])
    """Rows that each view is averaged over."""
    patterns: str = ""
    """Normal patterns, as text of float32 (`at_infer/models/patterns.py`); empty if there are none."""
    live_patterns: str = ""
    """The same of fewer rows, for live rows; there are both or none."""
    pattern_weight: float = 1.0
    """Of each view of patterns in the geometric mean."""
    part_floor: float = 1e-8
    """Added to each part before its logarithm; a part of normal rows is 1."""

    def __post_init__(self) -> None:
        self._choice("live_shape", LiveShape)
        for name in ("network_weight", "pattern_weight"):
            if not 0 < getattr(self, name) <= MOST_WEIGHT:
                raise ConfigError(f"{name}: {getattr(self, name)} is not a number in (0, {MOST_WEIGHT:g}]")
        if not 0 < self.part_floor <= MOST_FLOOR:
            raise ConfigError(f"part_floor: {self.part_floor} is not a number in (0, {MOST_FLOOR:g}]")
        if not 1 <= len(self.widths) <= MOST_WIDTHS or not all(0 < width <= WIDEST for width in self.widths):
            raise ConfigError(f"widths: {shown(self.widths)} are not up to {MOST_WIDTHS} numbers of 1 to {WIDEST} rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal(Config):
    """Validation statistics that scores are compared with."""

    _earlier: ClassVar[Mapping[str, Any]] = {"views": None}

    error: list[float]
    """Mean squared error of each feature."""
    centred_error: list[float]
    """The same, centred."""
    discrepancy: dict[str, list[float]]
    """Mean and standard deviation of AssDis, per head rule."""
    views: ViewStatistics | None = None
    """For mode `fusion`; None if not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold(Config):
    """Score above which a point is an anomaly, and where the value came from."""

    value: float
    method: str
    ratio: float | None
    """Share of the validation rows above it, where the method asks for one."""
    validation_rows: int

    def __post_init__(self) -> None:
        check_finite("threshold", self.value)
        if self.ratio is not None:
            check_ratio(self.ratio)
        self._at_least("validation_rows", 0)


def check_ratio(ratio: float) -> None:
    """Share of the validation rows that shall be above a threshold; not all, since no quantile is below all of them."""
    if not 0 <= ratio < 1:
        raise ConfigError(f"ratio: {ratio:g} is not a fraction in [0, 1); 0.01 means one percent")


def check_share(ratio: float) -> None:
    """Share of the validation rows that are above a threshold; all, if it was given and is low."""
    if not 0 <= ratio <= 1:
        raise ConfigError(f"ratio: {ratio:g} is not a fraction in [0, 1]")


def check_finite(name: str, value: float) -> None:
    """Of a threshold: scores are float32."""
    if not abs(value) <= LARGEST:
        raise ConfigError(f"{name}: {value} is not a finite number")


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentOptions(Config):
    """Rules for incidents; None: what fits the score, or what the model has counted false incidents with.

    >>> from at_infer import IncidentOptions, ScoreOptions
    >>> ScoreOptions(incidents=IncidentOptions(min_rows=3)).incidents.given
    {'min_rows': 3}
    """

    min_rows: int | None = None
    """Rows above the lower limit that it takes to be an incident."""
    merge_rows: int | None = None
    """Rows below that an incident bridges, if one above the threshold follows."""
    cool_down_rows: int | None = None
    """Rows after the end of an incident in which none other opens."""

    def __post_init__(self) -> None:
        for name, low in (("min_rows", 1), ("merge_rows", 0), ("cool_down_rows", 0)):
            if getattr(self, name) is not None:
                self._at_least(name, low)

    @property
    def given(self) -> dict[str, int]:
        """Those that are not None, by name."""
        return {name: value for name, value in self.to_dict().items() if value is not None}

    def over(self, other: "IncidentOptions") -> "IncidentOptions":
        """These, and those of another where there are none."""
        return IncidentOptions(**other.given | self.given)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentCurve(Config):
    """How many incidents the validation part has at each threshold."""

    _earlier: ClassVar[Mapping[str, Any]] = {"options": IncidentOptions()}

    levels: list[float]
    """Thresholds, rising; the last one is the highest score."""
    counts: list[int]
    rows: int
    """With a score, that were counted in."""
    options: IncidentOptions = IncidentOptions()
    """Rules that they were counted with."""

    def __post_init__(self) -> None:
        if not self.levels or len(self.levels) != len(self.counts) or self.rows < 1:
            raise ConfigError("IncidentCurve: levels and counts do not fit each other")
        for level in self.levels:
            check_finite("level", level)
        if sorted(self.levels) != self.levels or min(self.counts) < 0:
            raise ConfigError("IncidentCurve: levels do not increase, or a count is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRecord(Config):
    """Threshold and quantiles of validation scores, for one way to score a row."""

    _earlier: ClassVar[Mapping[str, Any]] = {"incidents": None}

    align: Align = "window"
    """`window`: whole windows, side by side. `last`: each row as the last of its window, as live rows are."""
    delay: int = 0
    """Rows that a live row is scored late."""
    threshold: Threshold
    """For the recorded score mode."""
    quantiles: dict[str, list[float]]
    """Per score mode, at the recorded levels."""
    incidents: IncidentCurve | None = None
    """Of the recorded score mode; None if not counted."""

    def __post_init__(self) -> None:
        self._choice("align", Align)
        self._at_least("delay", 0)


def find_validation(records: Sequence[ValidationRecord], align: Align, delay: int) -> ValidationRecord:
    """The record of rows that are scored like this; of whole windows, if there is none."""
    whole = next(record for record in records if record.align == "window")
    return next((record for record in records if (record.align, record.delay) == (align, delay)), whole)


def upgrade_validation(values: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata or a checkpoint of format 1, whose fields threshold, quantiles and causal become records."""
    causal = values.get("causal")
    whole = {"align": "window", "delay": 0, "threshold": values["threshold"], "quantiles": values["quantiles"]}
    last = [] if causal is None else [{"align": "last", "delay": 0, **causal}]
    rest = {name: value for name, value in values.items() if name not in ("threshold", "quantiles", "causal")}
    return {**rest, "format": 2, "validation": [whole, *last]}
