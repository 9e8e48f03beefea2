"""Incident options of score, watch and threshold."""

from typing import TYPE_CHECKING, Annotated

from at_infer.cli.options import panel
from at_infer.errors import ConfigError

if TYPE_CHECKING:
    from at_infer.models.statistics import IncidentOptions

incidents_option = panel("Incidents")

MinRows = Annotated[
    int | None,
    incidents_option(
        metavar="ROWS", help="Minimum length of an incident: rows above the lower limit.", show_default="1"
    ),
]
MergeRows = Annotated[
    int | None,
    incidents_option(
        metavar="ROWS",
        help="Bridge up to this many rows below the lower limit.",
        show_default="by the smoothing: 50 in mode fusion, at least 10",
    ),
]
CoolDownRows = Annotated[
    int | None,
    incidents_option(metavar="ROWS", help="No incident opens for this many rows after another.", show_default="0"),
]


def incident_options(
    min_rows: int | None, merge_rows: int | None, cool_down_rows: int | None, *, wanted: bool, way: str
) -> "IncidentOptions | None":
    """Rules for incidents; None if none are requested. `way` names the options that request them."""
    from at_infer.models.statistics import IncidentOptions

    options = IncidentOptions(min_rows=min_rows, merge_rows=merge_rows, cool_down_rows=cool_down_rows)
    if options.given and not wanted:
        name = next(iter(options.given))
        raise ConfigError(f"{name}: is a rule for incidents, which are off; {way}")
    return options if wanted else None
