"""State of the `at-infer watch` loop in a state file, besides the series of its stream."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from at_infer.errors import ConfigError
from at_infer.live.incidents import KeptTracker
from at_infer.live.lines import Position
from at_infer.untrusted import shown, typed, typed_fields


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
        known: dict[str, Any] = {"row": 0, "position": None, "incidents": [], "rules": None, "grid": []}
        known |= {name: value for name, value in values.items() if name in known}
        known["incidents"] = [{"outages": None} | one for one in typed(list[Any], known["incidents"], "incidents")]
        kept = cls(**typed_fields(cls, known))
        place = kept.position
        if kept.row < 0 or (place is not None and min(place.offset, place.lines, place.inode, *place.head) < 0):
            raise ConfigError(f"position: row {kept.row} of {shown(place)} is before the start")
        return kept
