"""The loop of `at-infer watch`: lines in, batches to the engine in time, one JSON line out per row."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring
from typing import Any, BinaryIO

import numpy as np

from at_infer.errors import ConfigError, DataError, OutputError
from at_infer.incidents.defaults import rules_of_scorer
from at_infer.incidents.incident import plain_time
from at_infer.incidents.tracker import Event
from at_infer.live.bad_lines import BadLines
from at_infer.live.grid import LiveGrid
from at_infer.live.incidents import LiveIncidents
from at_infer.live.kept import Kept
from at_infer.live.lines import Block, Lines, Say
from at_infer.live.metrics import Metrics
from at_infer.live.notices import notice_line
from at_infer.live.options import WatchOptions
from at_infer.live.pending import Pending
from at_infer.live.pushed import FeatureChange, Pushed
from at_infer.live.reasons import reasons
from at_infer.live.reload import Reloader, hand_over
from at_infer.live.rows import MissingColumnError, Row, RowReader
from at_infer.live.scorer import StreamScorer
from at_infer.live.tally import Tally
from at_infer.scoring.columns import added_columns

IDLE_S = 0.1  # how long a signal may have to wait when nothing comes in
ROWS_TO_COMPARE, TOO_MANY = 1000, 5
INFINITE = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """What a loop has besides its stream; None: not requested."""

    tally: Tally = field(default_factory=Tally)
    metrics: Metrics | None = None
    incidents: LiveIncidents | None = None
    reloader: Reloader | None = None
    grid: LiveGrid | None = None
    first_row: int = 0
    """Number of the first row: those before it went through an earlier loop."""
    expected_share: float | None = None
    """Of anomalous rows; that there are many more is said once."""


class Watch:
    """Joins a source of lines, a `StreamScorer` and an output; one call of `run` is one process's life."""

    def __init__(
        self,
        lines: Lines,
        reader: RowReader,
        stream: StreamScorer,
        out: BinaryIO,
        say: Say,
        options: WatchOptions | None = None,
        parts: LoopParts | None = None,
    ) -> None:
        parts = parts or LoopParts()
        added = ("row", *added_columns(stream.scorer))
        for name in (reader.time_column, reader.series_column):
            if name in added:
                raise ConfigError(f"column {name!r}: is the time or series column and a field of the output; rename it")
        self.lines, self.reader, self.stream, self.out, self.say = lines, reader, stream, out, say
        self.options, self.expected_share = options or WatchOptions(), parts.expected_share
        self.tally, self.metrics, self.incidents = parts.tally, parts.metrics, parts.incidents
        self.reloader, self.grid = parts.reloader, parts.grid
        self.row = parts.first_row
        """Number of the next row; bad ones count, so that it finds its line again."""
        self.lines_read = 0
        """Number of the last line that was a row."""
        self.pending = Pending.of(stream)
        self.bad_lines = BadLines(lines.name, say)
        self._saved_at = time.monotonic()
        names = [key for key in (reader.series_column, reader.time_column) if key is not None]
        self._head = '{"row":%d' + "".join(f",{_json(name).replace('%', '%%')}:%s" for name in names)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Run until the lines end, or `stopped`; then score pending rows. A closed output is a `BrokenPipeError`."""
        state, ended = self.options.state, False
        try:
            while not stopped():
                block = self.lines.read(self._wait_s())
                if block is None:
                    ended = True
                    break
                self._take(block)
                self.bad_lines.report()
                if self.pending.rows and time.monotonic() >= self.pending.since + self.options.max_delay_s:
                    self._score()
                if self.reloader is not None and self.reloader.is_due():
                    self._reload(self.reloader)
                if state is not None and time.monotonic() >= self._saved_at + self.options.state_interval_s:
                    self._score()
                    try:
                        self.save()
                    except OutputError as error:
                        self.say(f"{error}; going on without")
            self._score()
            if ended and state is None:
                for row in self.grid.end() if self.grid is not None else ():
                    self._add(row, self.lines_read, self.row)
                self._score()
                self._finish(self.stream.drain())
            if self.incidents is not None and state is None:
                self._write_events(self.incidents.end())
        except BrokenPipeError:
            self.save()
            raise
        finally:
            self.bad_lines.report(now=True)
        self.save()

    def save(self) -> None:
        """Keep the state, if asked to; nothing may be pending."""
        self._saved_at = time.monotonic()
        if self.options.state is not None:
            grid = () if self.grid is None else tuple(self.grid.remember())
            kept = Kept(row=self.row, position=self.lines.position(), grid=grid)
            if self.incidents is not None:
                rules = self.incidents.rules.to_dict()
                kept = replace(kept, incidents=tuple(self.incidents.remember()), rules=rules)
            self.stream.save(self.options.state, kept.to_dict())

    def request_reload(self) -> None:
        """Open the engine again soon; for a signal handler."""
        if self.reloader is not None:
            self.reloader.requested = True

    def _reload(self, reloader: Reloader) -> None:
        """Continue with another engine."""
        self._score()
        old, new = self.stream, reloader.replacement(self.stream)
        if new is None:
            return
        final, what = hand_over(old, new)
        self._finish(final)
        old.close()
        self.stream, self.pending = new, Pending.of(new)
        if self.metrics is not None:
            self.metrics.use(new)
        if self.incidents is not None:
            self.incidents.use(new, rules_of_scorer(new.scorer))
        self.say(
            f"reload: {new.scorer.engine.path}: goes on with {len(new.series)} series, threshold {old.threshold:.4g} "
            f"-> {new.threshold:.4g}; handed over: {what}"
        )

    def _wait_s(self) -> float:
        if not self.pending.rows:
            return IDLE_S
        return min(IDLE_S, max(0.0, self.pending.since + self.options.max_delay_s - time.monotonic()))

    def _take(self, block: Block) -> None:
        if block.first == 1 and block.lines:
            self.reader.start()
        elif block.header is not None:
            self.reader.start()
            with suppress(DataError):
                self.reader.read(block.header)
        with np.errstate(over="ignore"):
            for number, line in enumerate(block.lines, start=block.first):
                self._take_line(number, line)

    def _take_line(self, number: int, line: bytes | None) -> None:
        try:
            row = self.reader.read(line)
            if row is None:
                return
            if isinstance(row, str):
                self.say(f"{self.lines.name}: line {number}: {row}")
                return
            for one in [row] if self.grid is None else self.grid.add(row):
                self._add(one, number, self.row)
        except MissingColumnError as error:
            self._bad(number, self._changed(error))
        except DataError as error:
            self._bad(number, str(error))
        self.row += 1
        self.lines_read = number

    def _add(self, row: Row, line: int, number: int) -> None:
        self.pending.add(row, line, number)
        if self.pending.is_full:
            self._score()

    def _score(self) -> None:
        """Everything that is pending goes through the engine and out."""
        pending, reader = self.pending, self.reader
        if not pending.rows:
            return
        pushed = self.stream.push_many(
            pending.values[: len(pending.rows)],
            [""] * len(pending.rows) if reader.series_column is None else pending.series,
            None if reader.time_column is None else pending.times,
            pending.tags(reader),
        )
        self.tally.dropped_rows += pushed.dropped_rows
        for change in pushed.features:
            self._say_feature(change)
        for note in pushed.notes:
            self.say(f"note: {note}")
        for i, what in sorted(pushed.refused.items()):
            series = "" if reader.series_column is None else f"series {pending.series[i]!r}: "
            self._bad(pending.lines[i], series + what)
        if pushed.dropped:
            self._say_dropped(pushed)
        pending.clear()
        self._finish(pushed)
        self._compare_share()
        if self.metrics is not None:
            latency_s = time.monotonic() - pending.since
            by_series = reader.series_column is not None
            self.metrics.answer(self.stream, pushed, by_series=by_series, latency_s=latency_s)

    def _finish(self, pushed: Pushed) -> None:
        """Rows that are final: their lines, then what they say of incidents."""
        answer = self._answer(pushed)
        if self.options.only == "rows":
            self._write(answer)
        if self.incidents is not None:
            by_series, by_time = self.reader.series_column is not None, self.reader.time_column is not None
            self._write_events(self.incidents.add(pushed, by_series=by_series, by_time=by_time))

    def _write_events(self, events: list[Event]) -> None:
        if self.options.only == "incidents":
            self._write(b"".join(map(notice_line, events)))

    def _write(self, answer: bytes) -> None:
        if not answer:
            return
        try:
            self.out.write(answer)
            self.out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"stdout: cannot be written ({error.strerror})") from None

    def _answer(self, pushed: Pushed) -> bytes:
        """A line for each row that is final; with a delay these came earlier."""
        tally = self.tally
        texts = []
        why = reasons(self.stream.scorer, pushed)
        scores, verdicts = pushed.score.tolist(), pushed.is_anomaly.tolist()
        for i in pushed.in_order():
            tag, score, is_anomaly = pushed.tags[i], scores[i], verdicts[i]
            if tag is None:
                continue
            tally.rows += 1
            tally.anomalies += is_anomaly
            head = self._head % (tag[0], *[_json(value) for value in tag[1:]])
            if score != score:
                texts.append(f'{head},"score":null,"is_anomaly":false}}\n')
                continue
            tally.scored += 1
            text = f"{score:.9g}" if abs(score) != INFINITE else "1e999"  # JSON has no name for infinity
            reason = f",{json.dumps(why[i], separators=(',', ':'))[1:-1]}" if i in why else ""
            texts.append(f'{head},"score":{text},"is_anomaly":{"true" if is_anomaly else "false"}{reason}}}\n')
        return "".join(texts).encode()

    def _compare_share(self) -> None:
        """Rows unlike the validation rows, or a threshold that was made from whole windows."""
        tally = self.tally
        if not self.expected_share or tally.scored < ROWS_TO_COMPARE:
            return
        if tally.anomalies > TOO_MANY * self.expected_share * tally.scored:
            self.say(
                f"note: {tally.anomalies / tally.scored:.1%} of the first {tally.scored} scored rows are anomalous, "
                f"the threshold was made for {self.expected_share:.2g} of them; if they are normal, make it anew from "
                f"their scores (docs/live.md, threshold)"
            )
        self.expected_share = None

    def _say_feature(self, change: FeatureChange) -> None:
        pending, reader = self.pending, self.reader
        series = "" if reader.series_column is None else f"series {pending.series[change.row]!r}: "
        at = "" if reader.time_column is None else f" at {plain_time(pending.times[change.row])}"
        what = (
            f"is back after {change.rows} rows without a value"
            if change.is_back
            else f"has no value for {change.rows} rows now; it is masked in the score"
        )
        self.say(f"{series}row {pending.rows[change.row]}{at}: column {change.feature!r} {what}")

    def _bad(self, line: int, what: str) -> None:
        self.tally.bad_lines += 1
        self.bad_lines.add(line, what)

    def _changed(self, error: MissingColumnError) -> str:
        """A column that is missing was there before, if the series is known."""
        with suppress(TypeError):  # a series that is no name at all
            series = "" if self.reader.series_column is None else error.series
            if series in self.stream.series or error.series in self.pending.series:
                of = "" if self.reader.series_column is None else f" of series {error.series!r}"
                return f"the columns{of} have changed: {error}"
        return str(error)

    def _say_dropped(self, pushed: Pushed) -> None:
        self.tally.dropped_series += len(pushed.dropped)
        more = f" and {len(pushed.dropped) - 1} more" if len(pushed.dropped) > 1 else ""
        self.say(
            f"series {pushed.dropped[0]!r}{more}: dropped, least recently seen of more than "
            f"{self.stream.max_series}; it begins again if it comes back; raise `max_series` to keep more"
        )


def _json(value: Any) -> str:
    if type(value) is int:
        return str(value)
    text = encode_basestring(value) if type(value) is str else json.dumps(value)
    return text if text.isprintable() else json.dumps(value)  # half of a surrogate pair cannot be written as UTF-8
