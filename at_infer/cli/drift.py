"""`at-infer drift`: have recent rows or their scores left the validation range?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from at_infer.cli.options import LogFormat, input_option, panel
from at_infer.cli.progress import RowsBar
from at_infer.cli.scoring_options import OneSeries, Provider, SeriesColumn, SeriesPerFile, Threads
from at_infer.cli.terminal import say, set_log_format, show

if TYPE_CHECKING:
    from at_infer.measure.drift import Drift
    from at_infer.measure.drift_blocks import Finding

FOUND = 3
"""Exit code: 1 and 2 are errors, which a cron job should tell from drift."""
MOST_LINES = 30
comparison_option = panel("Comparison")


def drift(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="model.onnx, or model.trt with its sidecar.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Recent rows, as for at-infer score.")],
    scores: Annotated[
        str | None, input_option(help="Parquet of at-infer score for these rows. Default: score them.")
    ] = None,
    time_column: Annotated[str | None, input_option(help="Tells since when. Default: the model's.")] = None,
    series_column: SeriesColumn = None,
    one_series: OneSeries = False,
    series_per_file: SeriesPerFile = False,
    limit: Annotated[
        float,
        comparison_option(
            help="Training standard deviations of a level, and factor of everything else, that are still normal."
        ),
    ] = 3.0,
    block_rows: Annotated[
        int | None,
        comparison_option(help="Rows that are summarised together. Default: a twentieth of a series, 1000 to 100000."),
    ] = None,
    provider: Provider = "cpu",
    threads: Threads = None,
    log_format: LogFormat = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON document.")] = False,
) -> None:
    """Detect drift of recent rows or of their scores: which features, and since when.

    Rows are summarised in blocks. Drift is a deviation that lasts for at least the last two blocks of a series. No
    labels are used. Exit code 0: no drift, 3: drift, 1: an error.

    [bold]Examples[/bold]

      at-infer drift model.onnx recent.parquet

      at-infer drift model.onnx recent.parquet --scores scores.parquet --json
    """
    set_log_format(log_format)
    from at_infer.measure.drift import DriftOptions, find_drift
    from at_infer.scoring.options import EngineOptions, InputOptions

    with RowsBar("comparing") as bar:
        found = find_drift(
            model,
            data,
            DriftOptions(limit=limit, block_rows=block_rows),
            InputOptions(
                time_column=time_column,
                series_column=series_column,
                one_series=one_series,
                series_per_file=series_per_file,
            ),
            EngineOptions(provider=provider, threads=threads),
            scores=scores,
            observe=bar.show,
        )
    for note in found.notes:
        say(f"note: {note}")
    show(json.dumps(found.to_dict(), allow_nan=False) if as_json else "\n".join(_lines(found)))
    if found.found:
        raise typer.Exit(FOUND)


def _lines(found: "Drift") -> list[str]:
    of = f"{found.rows} rows of {found.series} series in blocks of {found.block_rows}"
    if not found.found:
        return [f"{found.data}: no drift ({of})"]
    features = len({one.feature for one in found.findings if one.feature is not None})
    parts = [f"{features} feature{'s' if features > 1 else ''}"] if features else []
    parts += ["the score"] if any(one.feature is None for one in found.findings) else []
    series = f" in {len({one.series for one in found.findings})} of {found.series} series" if found.series > 1 else ""
    shown = [f"{found.data}: drift of {' and of '.join(parts)}{series} ({of})", ""]
    shown += [_line(one) for one in found.findings[:MOST_LINES]]
    if len(found.findings) > MOST_LINES:
        shown.append(f"and {len(found.findings) - MOST_LINES} more; --json has all of them")
    return [*shown, "", "to follow new normal data: at-infer train new.parquet --from ckpt.pt"]


def _line(one: "Finding") -> str:
    who = "score" if one.feature is None else one.feature
    where = f"{one.series}: " if one.series else ""
    since = f"row {one.since_row}" if one.since_time is None else f"{one.since_time} (row {one.since_row})"
    return f"{where}{who}: {_what(one)}, since {since}"


def _what(one: "Finding") -> str:
    value, normal = f"{one.value:.4g}", f"{one.normal:.4g}"
    match one.kind:
        case "missing":
            return f"{one.value:.0%} of the values are missing"
        case "level" if one.constant:
            return f"level {value}, constant {normal} in training"
        case "level":
            return f"level {value}, {one.size:+.1f} standard deviations from the training mean {normal}"
        case "spread" if one.constant:
            return f"spread {value}, constant in training"
        case "spread":
            return f"spread {value}, {one.size:.1f} times the training's {normal}"
        case "activity":
            calm = "stuck or calmer" if one.size < 1 else "noisier"
            return f"{calm}: variation from row to row {value}, validation {normal}"
        case "error":
            return f"reconstruction error {value}, {one.size:.1f} times the validation's {normal}"
        case "flagged":
            return f"{one.value:.1%} of the rows are above the threshold, {one.normal:.1%} of the validation rows"
        case "score":
            return f"median {value}, {one.size:.1f} times the validation's {normal}"
