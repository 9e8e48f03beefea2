"""`at-infer watch`: score rows as they arrive."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from at_infer.choices import Explain, NoticeFormat, RowFormat, WatchOutput
from at_infer.cli import scoring_options as shared
from at_infer.cli.incident_options import CoolDownRows, MergeRows, MinRows, incident_options, incidents_option
from at_infer.cli.options import LogFormat, engine_option, input_option, run_option, score_option
from at_infer.cli.terminal import say, set_log_format
from at_infer.errors import ConfigError, OutputError
from at_infer.interrupt import Interrupt

if TYPE_CHECKING:
    from at_infer.live.delivery import Delivery
    from at_infer.live.lines import Lines, Position
    from at_infer.live.reload import Reloader
    from at_infer.live.scorer import StreamScorer
    from at_infer.live.tally import Tally


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
        int | None, engine_option(help="Maximum number of windows per batch.", show_default="8")
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
    if from_end and follow is None:
        raise ConfigError("--from-end: needs --follow; stdin is always read from its start")
    if not state_interval >= 0:
        raise ConfigError(f"--state-interval: {state_interval:g} s is negative or not a number; give 0 or more")
    told = only == "incidents" or on_incident is not None or webhook is not None
    with _Stop() as stop, ExitStack() as stack:
        from at_infer.incidents.defaults import rules_of_scorer
        from at_infer.live.grid import LiveGrid
        from at_infer.live.incidents import LiveIncidents
        from at_infer.live.kept import Kept
        from at_infer.live.metrics import Metrics
        from at_infer.live.metrics_server import MetricsServer
        from at_infer.live.reload import Reloader
        from at_infer.live.rows import RowReader
        from at_infer.live.scorer import StreamScorer
        from at_infer.live.state import values_of
        from at_infer.live.tally import Tally
        from at_infer.live.watch import Watch
        from at_infer.output import check_writable
        from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions

        options = ScoreOptions(
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
            explain=explain or ("top" if told else "none"),
            on_missing_feature=on_missing_feature,
            max_gap=shared.number_of_steps(max_gap),
            interval=interval,
            resample=resample,
            incidents=incident_options(
                min_rows,
                merge_rows,
                cool_down_rows,
                wanted=told or metrics is not None,
                way="add --only incidents, --on-incident, --webhook or --metrics",
            ),
        )
        input_options = InputOptions(
            time_column=time_column, no_time=no_time, series_column=series_column, one_series=one_series
        )
        engine_options = EngineOptions(provider=provider, threads=threads, batch_size=batch_size)
        open_stream = partial(
            StreamScorer,
            engine,
            options,
            engine_options,
            every=every,
            max_series=max_series,
            on_bad_time=on_bad_time,
            on_grid=True,
        )
        stream, loop = open_stream(), None
        stack.callback(lambda: (stream if loop is None else loop.stream).close())  # it may be another by then
        for note in stream.scorer.notes:
            say(f"note: {note}")
        columns = input_options.columns(stream.metadata, options.max_gap, on_grid=stream.scorer.on_grid)
        reader = RowReader(
            columns.features,
            time_column=columns.time_column,
            series_column=columns.series_column,
            format=format_,
            may_be_absent=stream.scorer.masks,
            header=None if header is None else [name.strip() for name in header.split(",")],
        )
        kept = Kept()
        if state is not None:
            check_writable(state, overwrite=True, inputs=[engine, follow])
            if state.exists():
                extra = stream.load(state)
                with values_of(state):
                    kept = Kept.from_dict(extra)
        tally = Tally()
        seen = Metrics(tally, stream)
        if metrics is not None:
            server = stack.enter_context(MetricsServer(seen, metrics))
            say(f"metrics: {server.url}")
        incidents = None
        if told or metrics is not None:
            deliveries = _deliveries(on_incident, webhook, webhook_format, tally)
            incidents = stack.enter_context(LiveIncidents(stream, rules_of_scorer(stream.scorer), tally, deliveries))
            with values_of(state or Path()):
                incidents.recall(kept.incidents)
            if kept.rules not in (None, incidents.rules.to_dict()):
                say(f"{state}: its incidents were made by other rules; from now on an incident {incidents.rules}")
        grid = None if stream.scorer.on_grid is None else LiveGrid(stream, tally)
        if grid is not None:
            with values_of(state or Path()):
                grid.recall(kept.grid)
        lines = stack.enter_context(_lines(follow, kept.position, from_end=from_end))
        reloader = Reloader(engine, open_stream, tally, say, input_options=input_options, follow_file=reload)
        stack.enter_context(_hangup(reloader))
        loop = Watch(
            lines,
            reader,
            stream,
            sys.stdout.buffer,
            say,
            max_delay_s=max_delay_ms / 1000,
            expected_share=stream.scorer.chosen.ratio,
            first_row=kept.row,
            state=state,
            state_interval_s=state_interval,
            tally=tally,
            metrics=None if metrics is None else seen,
            incidents=incidents,
            only=only,
            reloader=reloader,
            grid=grid,
        )
        try:
            loop.run(lambda: stop.requested)
        except BrokenPipeError:
            _forget_stdout()
            return
        except OutputError:
            _forget_stdout()
            raise
        summary = _text(tally, loop.stream, incidents is not None)
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
def _hangup(reloader: "Reloader") -> Iterator[None]:
    """SIGHUP asks for the engine to be opened again."""

    def request(_number: int, _frame: FrameType | None) -> None:
        reloader.requested = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGHUP, request)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, previous)


def _lines(follow: Path | None, position: "Position | None", *, from_end: bool) -> "Lines":
    from at_infer.live.lines import FollowedLines, PipedLines

    if follow is None:
        if sys.stdin is None:
            raise ConfigError("stdin: is closed; pipe rows into it, or pass --follow")
        return PipedLines(sys.stdin.fileno())
    return FollowedLines(follow, position=position, from_end=from_end, say=say)


def _deliveries(on_incident: str | None, webhook: str | None, form: NoticeFormat, tally: "Tally") -> list["Delivery"]:
    from at_infer.live.delivery import Delivery, Way
    from at_infer.live.ways import Command, Webhook

    ways: list[Way] = [] if on_incident is None else [Command(on_incident)]
    if webhook is not None:
        ways.append(Webhook(webhook, form))
    return [Delivery(way, tally, say) for way in ways]


def _forget_stdout() -> None:
    """The reader is gone; buffered output must not be flushed again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(tally: "Tally", stream: "StreamScorer", incidents: bool) -> str:
    dropped = f", {tally.dropped_series} dropped" if tally.dropped_series else ""
    late = f", {tally.dropped_rows} rows dropped whose time does not increase" if tally.dropped_rows else ""
    gaps = f", {stream.core.counts.gaps} gaps in time" if stream.core.counts.gaps else ""
    found = f", {tally.events['opened']} incidents ({tally.incidents_open} open)" if incidents else ""
    return (
        f"{tally.rows} rows of {len(stream.series)} series{dropped}: {tally.scored} scored, "
        f"{tally.anomalies} anomalous{found}, {tally.bad_lines} bad lines{late}{gaps}; threshold {stream.threshold:.4g}"
    )
