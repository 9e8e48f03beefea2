"""Options of several commands, and the panels that `--help` groups options in."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import typer


def panel(title: str) -> Callable[..., Any]:
    """`typer.Option` for the options of one panel."""
    return partial(typer.Option, rich_help_panel=title)


def split_names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


input_option, score_option, run_option = panel("Input"), panel("Score and threshold"), panel("Run")
engine_option, output_option = panel("Engine"), panel("Output")
rate_option = panel("Rates")

LogFormat = Annotated[
    Literal["text", "json"],
    run_option(help="Messages on stderr: text, or JSON lines with time and level.", envvar="AT_INFER_LOG_FORMAT"),
]
LabelColumn = Annotated[str, input_option(help="1 or true for an anomaly, otherwise 0 or false.")]
TimeOfScores = Annotated[str | None, input_option(help="Default: as at-infer score wrote it.")]
SeriesOfScores = Annotated[str | None, input_option(help="Default: as at-infer score wrote it.")]
RowsPerDay = Annotated[float | None, rate_option(help="For alarms per day. Default: from dates in the time column.")]
RowInterval = Annotated[float | None, rate_option(help="Seconds between rows, instead of --rows-per-day.")]
