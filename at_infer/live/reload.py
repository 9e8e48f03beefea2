"""Another engine for a running stream: when it may take over, and what it takes over."""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from at_infer.errors import AtInferError, ConfigError
from at_infer.live.lines import Say
from at_infer.live.pushed import LiveSeries, Pushed
from at_infer.live.scorer import StreamScorer
from at_infer.live.state import memory_of
from at_infer.live.tally import Tally
from at_infer.models.sidecar import sidecar_path
from at_infer.scoring.options import InputOptions

LOOK_S = 1.0
"""Between two looks at the file; it must be the same at two of them, so that it is not read half written."""

Signature = tuple[tuple[int, int, int] | None, ...]


class Reloader:
    """Opens the engine again when asked to, or when its file has changed."""

    def __init__(
        self,
        path: Path,
        open_stream: Callable[[], StreamScorer],
        tally: Tally,
        say: Say,
        *,
        input_options: InputOptions | None = None,
        follow_file: bool = False,
    ) -> None:
        self.path, self.open_stream, self.tally, self.say = path, open_stream, tally, say
        self.input_options, self.follow_file = input_options or InputOptions(), follow_file
        self.requested = False
        """Set by a signal."""
        self._known = self._seen = _signature(path)
        self._looked_at = time.monotonic()

    def is_due(self) -> bool:
        """Once for each request and each change."""
        if self.requested:
            self.requested, self._known = False, _signature(self.path)
            return True
        if not self.follow_file or time.monotonic() < self._looked_at + LOOK_S:
            return False
        before, self._seen, self._looked_at = self._seen, _signature(self.path), time.monotonic()
        if self._seen == self._known or self._seen != before:
            return False
        self._known = self._seen
        return True

    def replacement(self, old: StreamScorer) -> StreamScorer | None:
        """The new stream, still without series; None, with a line that says why, if it cannot take over."""
        try:
            new = self.open_stream()
            try:
                check_replacement(old, new, self.input_options)
            except AtInferError:
                new.close()
                raise
        except AtInferError as error:
            self.tally.reloads["refused"] += 1
            self.say(f"reload: refused, the old engine stays in use ({error})")
            return None
        self.tally.reloads["done"] += 1
        return new


def check_replacement(old: StreamScorer, new: StreamScorer, input_options: InputOptions) -> None:
    """Rows must mean the same to both, and rows that wait must wait for as many others."""
    before, after = input_options.columns(old.metadata), input_options.columns(new.metadata)
    for what, was, found in (
        ("columns", before.features, after.features),
        ("a time column", before.time_column, after.time_column),
        ("a series column", before.series_column, after.series_column),
        ("a window", old.metadata.model.window, new.metadata.model.window),
        ("a grid", old.scorer.grid, new.scorer.grid),
        ("a delay", old.scorer.delay, new.scorer.delay),
    ):
        if was != found:
            raise ConfigError(
                f"{new.scorer.engine.path}: has {what} of {_listed(found)}, the old engine {_listed(was)}; to use it, "
                f"restart with another `state`"
            )


def hand_over(old: StreamScorer, new: StreamScorer) -> tuple[Pushed, str]:
    """Give all series to the new stream; returns the rows that the old one must answer, and what was handed over.

    An engine of the same checkpoint continues exactly. Another one gets the last rows, so that
    the next row of each series has a score, but smoothing begins anew. If the daily seasons differ, it gets none:
    the rows are kept without their season.
    """
    nothing = np.empty((0, new.core.settings.channels), np.float32)
    if memory_of(old) == memory_of(new):
        for name, known in old.series.items():
            state = new.core.start(known.state.name)
            state.recall(known.state.remember())
            new.series[name] = LiveSeries(state, known.time, known.waiting)
        return Pushed(nothing[:, 0], np.zeros(0, np.bool_), [], nothing), "everything"
    same_season = old.metadata.season == new.metadata.season
    kept = {name: known.state.remember() for name, known in old.series.items()}
    final = old.drain()
    for name, known in old.series.items():
        state = new.core.start(known.state.name)
        again = state.go_on_behind(kept[name], new.metadata.model.window - 1) if same_season else 0
        new.series[name] = LiveSeries(state, known.time, deque([None] * again))
    return final, "the last rows, smoothing restarts" if same_season else "no rows, as the daily seasons differ"


def _signature(path: Path) -> Signature:
    """Identifies a file and its sidecar, to detect a replacement."""
    found: list[tuple[int, int, int] | None] = []
    for one in (path, sidecar_path(path)):
        try:
            stat = one.stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def _listed(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
