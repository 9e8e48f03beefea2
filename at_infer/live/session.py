"""Everything that `at-infer watch` runs on, opened in order: engine, state, metrics, incidents, lines, loop."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from at_infer.errors import ConfigError
from at_infer.incidents.defaults import rules_of_scorer
from at_infer.live.delivery import Delivery, Way
from at_infer.live.grid import LiveGrid
from at_infer.live.incidents import LiveIncidents
from at_infer.live.kept import Kept
from at_infer.live.lines import FollowedLines, Lines, PipedLines, Position, Say
from at_infer.live.metrics import Metrics
from at_infer.live.metrics_server import MetricsServer
from at_infer.live.options import WatchOptions
from at_infer.live.reload import Reloader
from at_infer.live.rows import RowReader
from at_infer.live.scorer import StreamScorer
from at_infer.live.state import values_of
from at_infer.live.tally import Tally
from at_infer.live.watch import LoopParts, Watch
from at_infer.live.ways import Command, Webhook
from at_infer.output import check_writable
from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions


@contextmanager
def open_watch(
    engine: Path,
    options: WatchOptions,
    score_options: ScoreOptions,
    input_options: InputOptions,
    engine_options: EngineOptions,
    *,
    stdin: TextIO | None,
    stdout: TextIO,
    say: Say,
) -> Iterator[Watch]:
    """A loop that is ready to run; at the end everything is closed, pending notifications are waited for briefly."""
    open_stream = partial(
        StreamScorer,
        engine,
        score_options,
        engine_options,
        every=options.every,
        max_series=options.max_series,
        on_bad_time=input_options.on_bad_time,
        on_grid=True,
    )
    with ExitStack() as stack:
        stream, loop = open_stream(), None
        stack.callback(lambda: (stream if loop is None else loop.stream).close())  # it may be another by then
        for note in stream.scorer.notes:
            say(f"note: {note}")
        reader = _reader(stream, options, input_options, score_options.max_gap)
        kept = _load(stream, options, engine)
        tally = Tally()
        metrics = None
        if options.metrics is not None:
            metrics = Metrics(tally, stream)
            server = stack.enter_context(MetricsServer(metrics, options.metrics))
            say(f"metrics: {server.url}")
        incidents = None
        if options.tracks_incidents:
            deliveries = [Delivery(way, tally, say) for way in _ways(options)]
            incidents = stack.enter_context(LiveIncidents(stream, rules_of_scorer(stream.scorer), tally, deliveries))
            _recall_incidents(incidents, kept, options.state, say)
        grid = None if stream.scorer.on_grid is None else LiveGrid(stream, tally)
        if grid is not None:
            with values_of(options.state or Path()):
                grid.recall(kept.grid)
        lines = stack.enter_context(_lines(options, kept.position, stdin, say))
        reloader = Reloader(engine, open_stream, tally, say, input_options=input_options, follow_file=options.reload)
        parts = LoopParts(
            tally=tally,
            metrics=metrics,
            incidents=incidents,
            reloader=reloader,
            grid=grid,
            first_row=kept.row,
            expected_share=stream.scorer.chosen.ratio,
        )
        loop = Watch(lines, reader, stream, stdout.buffer, say, options, parts)
        yield loop


def _reader(stream: StreamScorer, options: WatchOptions, input_options: InputOptions, max_gap: int | None) -> RowReader:
    columns = input_options.columns(stream.metadata, max_gap, on_grid=stream.scorer.on_grid)
    return RowReader(
        columns.features,
        time_column=columns.time_column,
        series_column=columns.series_column,
        format=options.format,
        may_be_absent=stream.scorer.masks,
        header=options.header,
    )


def _load(stream: StreamScorer, options: WatchOptions, engine: Path) -> Kept:
    """Give the stream its stored series; returns the rest of the state."""
    state, kept = options.state, Kept()
    if state is not None:
        check_writable(state, overwrite=True, inputs=[engine, options.follow])
        if state.exists():
            extra = stream.load(state)
            with values_of(state):
                kept = Kept.from_dict(extra)
    return kept


def _ways(options: WatchOptions) -> list[Way]:
    ways: list[Way] = [] if options.on_incident is None else [Command(options.on_incident)]
    if options.webhook is not None:
        ways.append(Webhook(options.webhook, options.webhook_format))
    return ways


def _recall_incidents(incidents: LiveIncidents, kept: Kept, state: Path | None, say: Say) -> None:
    with values_of(state or Path()):
        incidents.recall(kept.incidents)
    if kept.rules not in (None, incidents.rules.to_dict()):
        say(f"{state}: its incidents were made by other rules; from now on an incident {incidents.rules}")


def _lines(options: WatchOptions, position: Position | None, stdin: TextIO | None, say: Say) -> Lines:
    if options.follow is not None:
        return FollowedLines(options.follow, position=position, from_end=options.from_end, say=say)
    if stdin is None:
        raise ConfigError("stdin: is closed; pipe rows into it, or pass `follow`")
    return PipedLines(stdin.fileno())
