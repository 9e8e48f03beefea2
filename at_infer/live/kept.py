"""What the loop of `at-infer watch` keeps in a state file, beside the series of its stream."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from at_infer.live.incidents import KeptTracker
from at_infer.live.lines import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """JSON values with names."""

    row: int = 0
    """Number of the next row."""
    position: Position | None = None
    """Of a file that is followed."""
    incidents: tuple[KeptTracker, ...] = ()
    """Of each series, if incidents are tracked."""
    rules: dict[str, Any] | None = None
    """`IncidentRules` by which these were made."""

    grid: tuple[dict[str, Any], ...] = ()
    """Of each series, if rows are put on a grid: as `LiveGrid.remember` gives it."""

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The reverse of `to_dict`; what earlier versions of at-infer did not keep has its default."""
        place = values.get("position")
        return cls(
            row=values.get("row", 0),
            position=None if place is None else Position(**place | {"head": tuple(place["head"])}),
            incidents=tuple(KeptTracker(**one) for one in values.get("incidents", ())),
            rules=values.get("rules"),
            grid=tuple(values.get("grid", ())),
        )
