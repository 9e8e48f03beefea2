"""`at-infer report`: scores, or a training, as one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from at_infer.cli import options as shared
from at_infer.cli.options import input_option, output_option, panel
from at_infer.cli.progress import RowsBar
from at_infer.cli.terminal import counted, say, show
from at_infer.errors import ConfigError
from at_infer.installed import load_extra

if TYPE_CHECKING:
    from collections.abc import Iterable

    from at_infer.report.scores import ScoresReport

shown_option = panel("What is shown")


def report(
    source: Annotated[str, typer.Argument(metavar="SCORES|CKPT", help="Output of at-infer score, or a checkpoint.")],
    data: Annotated[str | None, input_option(help="The data that were scored, to show features.")] = None,
    labels: Annotated[str | None, input_option(help="File with labels, one row per scored row.")] = None,
    engine: Annotated[
        Path | None,
        input_option(help="model.associations.onnx: reconstructions, associations, learned scales. Needs --data."),
    ] = None,
    label_column: shared.LabelColumn = "label",
    time_column: shared.TimeOfScores = None,
    series_column: shared.SeriesOfScores = None,
    threshold: Annotated[float | None, shown_option(help="Default: the one recorded with the scores.")] = None,
    rows_per_day: shared.RowsPerDay = None,
    interval: shared.RowInterval = None,
    details: Annotated[
        int | None, shown_option(min=0, help="Worst segments whose rows and features are kept. Default: up to 100.")
    ] = None,
    output: Annotated[Path, output_option("-o", "--output", help="HTML file to write.")] = Path("report.html"),
    png: Annotated[
        Path | None, output_option(metavar="DIR", help="Also write the figures as images into this folder.")
    ] = None,
    overwrite: Annotated[bool, output_option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Write an HTML report of scores: what happened, when, and which features caused it.

    The page needs no network. It has the score over time with zoom down to the row, the segments, the worst of them
    in detail, and the effect of other thresholds. Labels add hits, misses and false alarms. For a checkpoint it
    shows how training went, which needs at-infer\\[train]. Images (--png) need at-infer\\[report].

    [bold]Examples[/bold]

      at-infer report scores.parquet --data test.parquet --engine model.associations.onnx -o report.html

      at-infer report scores.parquet --labels test.parquet --interval 60 --png figures

      at-infer report ckpt.pt -o training.html
    """
    from at_infer.output import check_writable
    from at_infer.report.training import is_checkpoint
    from at_infer.thresholds.rates import rows_a_day

    check_writable(output, overwrite=overwrite, inputs=[source, data, labels, engine])
    if png is not None:
        from at_infer.report.images import check_images

        check_images(png)
    per_day = rows_a_day(rows_per_day, interval)
    if is_checkpoint(source):
        for name, value in (("data", data), ("labels", labels), ("engine", engine), ("threshold", threshold)):
            if value is not None:
                raise ConfigError(f"--{name}: is for scores, and {source} is a checkpoint; leave it out")
        _report_training(Path(source), output, png, overwrite=overwrite)
        return
    from at_infer.report.scores import survey_scores
    from at_infer.tables.scores import ScoredFile

    file = ScoredFile(source, labels, label_column=label_column, time_column=time_column, series_column=series_column)
    with RowsBar("reading") as bar:
        found = survey_scores(
            file,
            data=data,
            engine=engine,
            threshold=threshold,
            rows_per_day=per_day,
            details=details,
            observe=bar.show,
        )
    _write_scores(found, output, png, overwrite=overwrite)


def _write_scores(found: "ScoresReport", output: Path, png: Path | None, *, overwrite: bool) -> None:
    from at_infer.report.page import render, write_page
    from at_infer.report.scores_page import describe_scores

    overview = found.overview
    write_page(output, render(f"{Path(found.file.source).name}: anomalies", *describe_scores(found)))
    flagged = sum(series.flagged for series in overview.series)
    show(
        f"{output}: {counted(overview.rows, 'row')} of {len(overview.series)} series, {flagged} flagged in "
        f"{counted(overview.segment_count, 'segment')}, {counted(len(overview.incidents.spans), 'incident')}, "
        f"{output.stat().st_size / 1e6:.1f} MB"
    )
    for note in found.notes:
        say(f"note: {note}")
    if png is not None:
        from at_infer.report.images import draw_scores

        _list(draw_scores(found, png, overwrite=overwrite))


def _report_training(path: Path, output: Path, png: Path | None, *, overwrite: bool) -> None:
    """How a training went; only here torch is needed."""
    from at_infer.report.page import render, write_page
    from at_infer.report.training import describe_training, survey_training

    load_extra("train", str(path))
    from training.checkpoint import Checkpoint

    found = survey_training(str(path), Checkpoint.load(path))
    write_page(output, render(f"{path.name}: training", *describe_training(found)))
    show(
        f"{output}: best weights after step {found.best_step} of {found.evaluations[-1]['step']}, validation loss "
        f"{found.best['validation_reconstruction']:.4g}, {output.stat().st_size / 1e6:.1f} MB"
    )
    if png is not None:
        from at_infer.report.images import draw_training

        _list(draw_training(found, png, overwrite=overwrite))


def _list(paths: "Iterable[Path]") -> None:
    for path in paths:
        show(str(path))
