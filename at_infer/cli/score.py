"""`at-infer score`: Parquet in, scores and verdicts out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from at_infer.choices import BadRows, Explain, ShortSeries
from at_infer.cli import scoring_options as shared
from at_infer.cli.incident_options import CoolDownRows, MergeRows, MinRows, incident_options, incidents_option
from at_infer.cli.options import LogFormat, engine_option, input_option, panel, run_option, score_option
from at_infer.cli.progress import RowsBar
from at_infer.cli.terminal import counted, say, set_log_format, show
from at_infer.config import Align
from at_infer.errors import ConfigError

if TYPE_CHECKING:
    from at_infer.cluster.summary import ClusterSummary
    from at_infer.scoring.score_file import Summary

windows_option, cluster_option = panel("Windows"), panel("Cluster")


def score(
    data: Annotated[
        str, typer.Argument(help="Parquet or CSV file, folder, Hive tree, quoted glob, or URL.", metavar="DATA")
    ],
    engine: shared.EnginePath,
    output: Annotated[
        Path | None,
        run_option(
            "-o", "--output", help="Parquet file to write, with --ray a folder. Default: scores.parquet or scores."
        ),
    ] = None,
    time_column: shared.TimeColumn = None,
    no_time: shared.NoTime = False,
    on_bad_time: shared.OnBadTime = "error",
    series_column: shared.SeriesColumn = None,
    one_series: shared.OneSeries = False,
    series_per_file: shared.SeriesPerFile = False,
    short_series: Annotated[
        ShortSeries,
        input_option(help="Series shorter than a window: error, no score, or pad with the first row."),
    ] = "error",
    on_bad_rows: Annotated[
        BadRows, input_option(help="Infinite or missing values: error, or no score for their windows.")
    ] = "error",
    on_missing_feature: shared.OnMissingFeature = "error",
    max_gap: shared.MaxGap = None,
    interval: shared.Interval = None,
    resample: shared.Resample = None,
    stride: Annotated[
        int | None,
        windows_option(help="Rows from one window to the next; scores are averaged. Default: no overlap."),
    ] = None,
    align: Annotated[
        Align, windows_option(help="last: score each row as the last of its window, as watch does.")
    ] = "window",
    threshold: shared.Threshold = None,
    ratio: shared.Ratio = None,
    false_alarms: shared.FalseAlarms = None,
    score_mode: shared.Mode = None,
    temperature: shared.Temperature = None,
    smooth: shared.Smooth = None,
    normalise_errors: shared.NormaliseErrors = None,
    level: shared.LevelOption = None,
    delay: shared.Delay = None,
    explain: Annotated[
        Explain | None,
        score_option(
            help="top: the feature with the largest error; all: every error.",
            show_default="top with --incidents, else none",
        ),
    ] = None,
    incidents: Annotated[
        Path | None,
        incidents_option(
            help="Also write incidents, .parquet or .jsonl: begin, end, peak, causes.",
            metavar="FILE",
        ),
    ] = None,
    min_rows: MinRows = None,
    merge_rows: MergeRows = None,
    cool_down_rows: CoolDownRows = None,
    provider: shared.Provider = "cpu",
    batch_size: Annotated[int | None, engine_option(help="Windows per batch. Default: measured at the start.")] = None,
    threads: shared.Threads = None,
    resume: Annotated[bool, run_option("--resume", help="Continue a stopped run.")] = False,
    overwrite: Annotated[bool, run_option("--overwrite", help="Replace an existing output.")] = False,
    as_json: Annotated[bool, run_option("--json", help="The summary as one JSON line on stdout.")] = False,
    log_format: LogFormat = "text",
    ray: Annotated[
        str | None,
        cluster_option(
            help="Ray cluster: local (this machine), auto (a running cluster, else local) or ray://host:port.",
            metavar="CLUSTER",
        ),
    ] = None,
    workers: Annotated[
        int | None, cluster_option(help="Maximum number of workers. Default: one per GPU or CPU.")
    ] = None,
    split_rows: Annotated[int | None, cluster_option(help="Rows per split. Default: about 10 s of work.")] = None,
) -> None:
    """Score every row of a Parquet file with an exported model.

    The output has one row per input row, in the same order: time and series columns (or the row number), score and
    is_anomaly; with --interval, one row per interval. Columns are found by name. Memory does not grow with the input.

    [bold]Examples[/bold]

      at-infer score data.parquet --engine model.onnx -o scores.parquet

      at-infer score "logs/*.parquet" --engine model.onnx --series-per-file --explain top --ratio 0.001

      at-infer score logs --engine model.onnx --ray ray://head:10001 -o scores
    """
    set_log_format(log_format)
    if ray is None and (workers is not None or split_rows is not None):
        raise ConfigError("score: --workers and --split-rows need --ray; add it, or leave them out")
    if ray is not None and resume:
        raise ConfigError("--resume: a run with --ray always continues from its output folder; leave it out")
    from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions
    from at_infer.scoring.score_file import score_file

    options = ScoreOptions(
        mode=score_mode,
        temperature=temperature,
        smooth=smooth,
        normalise_errors=normalise_errors,
        level=level,
        threshold=shared.number_or_auto(threshold),
        ratio=ratio,
        false_alarms=false_alarms,
        stride=stride,
        align=align,
        delay=delay,
        short_series=short_series,
        on_bad_rows=on_bad_rows,
        on_missing_feature=on_missing_feature,
        max_gap=shared.number_of_steps(max_gap),
        interval=interval,
        resample=resample,
        explain=explain,
        incidents=incident_options(
            min_rows, merge_rows, cool_down_rows, wanted=incidents is not None, way="add --incidents FILE"
        ),
    )
    scores = output or Path("scores.parquet" if ray is None else "scores")
    if incidents is not None:
        from at_infer.incidents.written import check_incidents_path

        check_incidents_path(incidents, scores, overwrite=overwrite)
    input_options = InputOptions(
        time_column=time_column,
        no_time=no_time,
        on_bad_time=on_bad_time,
        series_column=series_column,
        one_series=one_series,
        series_per_file=series_per_file,
    )
    engine_options = EngineOptions(provider=provider, threads=threads, batch_size=batch_size)
    if ray is not None:
        from functools import partial

        from at_infer.cluster.actors import ray_workers
        from at_infer.cluster.connect import load_ray
        from at_infer.cluster.run import score_on_workers

        load_ray()  # its absence is said first
        with RowsBar("scoring") as bar:
            on_cluster = score_on_workers(
                data,
                engine,
                scores,
                options,
                input_options,
                engine_options,
                open_workers=partial(ray_workers, address=ray, most=workers, say=say),
                split_rows=split_rows,
                overwrite=overwrite,
                observe=bar.show,
                say=say,
            )
        _show(on_cluster, _text_of_cluster(on_cluster), incidents, as_json=as_json)
        return
    with RowsBar("scoring") as bar:
        summary = score_file(
            data,
            engine,
            scores,
            options,
            input_options,
            engine_options,
            overwrite=overwrite,
            resume=resume,
            observe=bar.show,
            say=say,
        )
    _show(summary, None, incidents, as_json=as_json)


def _show(
    summary: "Summary | ClusterSummary", of_cluster: str | None, incidents: Path | None, *, as_json: bool
) -> None:
    """Print the summary and the incidents."""
    lines, facts = [_text(summary), *([] if of_cluster is None else [of_cluster])], json.loads(summary.to_json())
    if incidents is not None:
        from at_infer.incidents.written import write_incidents

        found = write_incidents(summary.output, incidents)
        facts |= {"incidents": found.incidents, "incidents_file": found.path}
        still_open = f"{found.open} of them open at the end"
        lines.append(f"{found.path}: {counted(found.incidents, 'incident')}, {still_open}; an incident {found.rules}")
    show(json.dumps(facts) if as_json else "\n".join(lines))


def _text(summary: "Summary") -> str:
    share = summary.anomalies / summary.rows
    lines = [
        f"{summary.output}: {counted(summary.rows, 'row')} of {summary.series} series, "
        f"{counted(summary.anomalies, 'anomalous row')} ({share:.2%}) in {counted(summary.segments, 'segment')}, "
        f"score {summary.score_mode} above {summary.threshold:.4g}",
        f"{counted(summary.windows, 'window')} in {summary.seconds:.1f} s, {summary.rows_per_s:.0f} rows/s by "
        f"{summary.engine}, batch {summary.batch_size}; busy: reading {summary.read_s:.1f} s, "
        f"engine {summary.engine_s:.1f} s, writing {summary.write_s:.1f} s",
    ]
    if summary.unscored_rows:
        lines.append(
            f"{summary.unscored_rows} rows have no score: {summary.bad_windows} windows with bad rows, "
            f"{summary.short_series} short series, {summary.short_stretches} short stretches between gaps, or no full "
            f"window yet"
        )
    if summary.interval_s is not None:
        lines.append(f"{summary.input_rows} input rows, put on a grid: one row every {summary.interval_s:g} s")
    if summary.dropped_rows:
        lines.append(f"{summary.dropped_rows} rows were dropped: their times do not increase")
    if summary.missing_features:
        told = ", ".join(f"{name} ({rows} rows)" for name, rows in list(summary.missing_features.items())[:8])
        more = len(summary.missing_features) - 8
        lines.append(f"missing and masked in the score: {told}{f' and {more} more' if more > 0 else ''}")
    if summary.gaps:
        lines.append(f"{counted(summary.gaps, 'gap')} in time: no window spans one, and the series restarts after it")
    if summary.resumed_rows:
        lines.append(f"{summary.resumed_rows} rows were scored by an earlier run")
    return "\n".join(lines)


def _text_of_cluster(summary: "ClusterSummary") -> str:
    done = f", {summary.skipped_splits} of them done before" if summary.skipped_splits else ""
    lost = f"; replaced {counted(summary.lost_workers, 'worker')} that died" if summary.lost_workers else ""
    by = counted(summary.workers, "worker")
    return f"{counted(summary.splits, 'split')} of about {summary.split_rows} rows{done}, by {by}{lost}"
