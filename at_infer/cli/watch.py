"""`at-infer watch`: score rows as they arrive."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from at_infer.choices import Explain, NoticeFormat, RowFormat, WatchOutput
from at_infer.cli import scoring_options as shared
from at_infer.cli.incident_options import CoolDownRows, MergeRows, MinRows, incident_options, incidents_option
from at_infer.cli.options import LogFormat, engine_option, input_option, run_option, score_option
from at_infer.cli.terminal import counted, say, set_log_format
from at_infer.errors import OutputError
from at_infer.interrupt import Interrupt

if TYPE_CHECKING:
    from at_infer.live.watch import Watch


def watch(
    engine: shared.EnginePath,
    follow: Annotated[
        Path | None, input_option(help="Follow this file, also through rotation, instead of stdin.", metavar="FILE")
    ] = None,
    from_end: Annotated[bool, input_option("--from-end", help="With --follow: only new lines.")] = False,
    format_: Annotated[
        RowFormat,
        input_option("--format", help="JSON lines or CSV; auto detects it from the first line."),
    ] = "auto",
    header: Annotated[
        str | None, input_option(help="Columns of CSV without a header line, comma separated.", metavar="NAMES")
    ] = None,
    time_column: shared.TimeColumn = None,
    no_time: shared.NoTime = False,
    on_bad_time: shared.OnBadTime = "error",
    series_column: shared.SeriesColumn = None,
    one_series: shared.OneSeries = False,
    on_missing_feature: shared.OnMissingFeature = "error",
    max_gap: shared.MaxGap = None,
    interval: shared.Interval = None,
    resample: shared.Resample = None,
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
            help="Explain flagged rows and incidents. top: the feature with the largest error; all: every error.",
            show_default="top if incidents are reported, else none",
        ),
    ] = None,
    every: Annotated[int, score_option(help="Score every K-th row of a series.", metavar="K")] = 1,
    provider: shared.Provider = "cpu",
    batch_size: Annotated[
        int | None, engine_option(help="Maximum number of windows per batch.", show_default="by the model")
    ] = None,
    threads: shared.Threads = None,
    max_delay_ms: Annotated[float, run_option(help="Maximum time a row waits for a batch.", metavar="MS")] = 10.0,
    max_series: Annotated[
        int, run_option(help="Maximum number of series in memory; the least recently seen is dropped.")
    ] = 10_000,
    state: Annotated[
        Path | None,
        run_option(help="Store the state of all series in this file, and continue from it.", metavar="FILE"),
    ] = None,
    state_interval: Annotated[
        float, run_option(help="Seconds between writes of the state; it is also written at the end.")
    ] = 60.0,
    reload: Annotated[
        bool,
        run_option(
            "--reload",
            help="Reload the engine when its file changes, as SIGHUP does; series and incidents continue.",
        ),
    ] = False,
    log_format: LogFormat = "text",
    only: Annotated[
        WatchOutput,
        incidents_option(help="incidents: a JSON line only when an incident opens, gets worse or closes."),
    ] = "rows",
    min_rows: MinRows = None,
    merge_rows: MergeRows = None,
    cool_down_rows: CoolDownRows = None,
    on_incident: Annotated[
        str | None,
        incidents_option(
            help="Run this command for each incident event, with the event as a JSON line on stdin.",
            metavar="COMMAND",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        incidents_option(
            help="Post each incident event to this URL, with retries.",
            metavar="URL",
            envvar="AT_INFER_WEBHOOK",
        ),
    ] = None,
    webhook_format: Annotated[NoticeFormat, incidents_option(help="Payload format of the webhook.")] = "json",
    metrics: Annotated[
        str | None,
        incidents_option(
            help="Serve OpenMetrics text (Prometheus) over HTTP at /metrics; without HOST on localhost only.",
            metavar="[HOST]:PORT",
        ),
    ] = None,
) -> None:
    """Score rows as they arrive, from stdin or from a growing file.

    Rows are JSON lines or CSV, columns are found by name. Each row gets a JSON line on stdout: its number, time and
    series, score and is_anomaly. A row is scored as the last of its window; the score is null until its series has a
    full one. Invalid lines are reported on stderr and skipped.

    [bold]Examples[/bold]

      tail -F sensors.jsonl | at-infer watch --engine model.onnx --state watch.state

      at-infer watch --engine model.onnx --follow sensors.csv --series-column machine --max-delay-ms 50

      at-infer watch --engine model.onnx --follow sensors.jsonl --only incidents --metrics :9464 --state watch.state
    """
    set_log_format(log_format)
    with _Stop() as stop:
        from at_infer.live.options import WatchOptions
        from at_infer.live.session import open_watch
        from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions

        options = WatchOptions(
            follow=follow,
            from_end=from_end,
            format=format_,
            header=None if header is None else tuple(name.strip() for name in header.split(",")),
            every=every,
            max_series=max_series,
            max_delay_s=max_delay_ms / 1000,
            state=state,
            state_interval_s=state_interval,
            reload=reload,
            only=only,
            on_incident=on_incident,
            webhook=webhook,
            webhook_format=webhook_format,
            metrics=metrics,
        )
        score_options = ScoreOptions(
            mode=score_mode,
            temperature=temperature,
            smooth=smooth,
            normalise_errors=normalise_errors,
            level=level,
            delay=delay,
            threshold=shared.number_or_auto(threshold),
            ratio=ratio,
            false_alarms=false_alarms,
            align="last",
            explain=explain or ("top" if options.reports_incidents else "none"),
            on_missing_feature=on_missing_feature,
            max_gap=shared.number_of_steps(max_gap),
            interval=interval,
            resample=resample,
            incidents=incident_options(
                min_rows,
                merge_rows,
                cool_down_rows,
                wanted=options.tracks_incidents,
                way="add --only incidents, --on-incident, --webhook or --metrics",
            ),
        )
        input_options = InputOptions(
            time_column=time_column,
            no_time=no_time,
            series_column=series_column,
            one_series=one_series,
            on_bad_time=on_bad_time,
        )
        engine_options = EngineOptions(provider=provider, threads=threads, batch_size=batch_size)
        opened = open_watch(
            engine, options, score_options, input_options, engine_options, stdin=sys.stdin, stdout=sys.stdout, say=say
        )
        with opened as loop, _hangup(loop):
            try:
                loop.run(lambda: stop.requested)
            except BrokenPipeError:
                _forget_stdout()
                return
            except OutputError:
                _forget_stdout()
                raise
            summary = _text(loop)
    if stop.number == signal.SIGINT:
        raise KeyboardInterrupt(summary)
    say(summary)


class _Stop(Interrupt):
    """The signal decides the exit code."""

    number: int | None = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        super()._handle(number, frame)


@contextmanager
def _hangup(loop: "Watch") -> Iterator[None]:
    """SIGHUP asks for the engine to be opened again."""

    def request(_number: int, _frame: FrameType | None) -> None:
        loop.request_reload()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGHUP, request)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, previous)


def _forget_stdout() -> None:
    """The reader is gone; buffered output must not be flushed again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(loop: "Watch") -> str:
    tally, stream = loop.tally, loop.stream
    dropped = f", {tally.dropped_series} dropped" if tally.dropped_series else ""
    late = f", {counted(tally.dropped_rows, 'row')} dropped whose time does not increase" if tally.dropped_rows else ""
    gaps = f", {counted(stream.core.counts.gaps, 'gap')} in time" if stream.core.counts.gaps else ""
    found = f", {counted(tally.events['opened'], 'incident')} ({tally.incidents_open} open)" if loop.incidents else ""
    return (
        f"{counted(tally.rows, 'row')} of {len(stream.series)} series{dropped}: {tally.scored} scored, "
        f"{tally.anomalies} anomalous{found}, {counted(tally.bad_lines, 'bad line')}{late}{gaps}; "
        f"threshold {stream.threshold:.4g}"
    )
