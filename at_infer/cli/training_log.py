"""What `at-infer train` says while it works: a live line, plain lines, or JSON lines."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from at_infer.cli.messages import in_options
from at_infer.cli.terminal import logs_json, printable, say
from at_infer.config import ScoreMode

if TYPE_CHECKING:
    from training.checkpoint import Checkpoint
    from training.loop import Progress as TrainingProgress
    from training.request import Start


class Log(Protocol):
    """Observer of a training run."""

    def start(self, at: "Start") -> None:
        """The data are read."""

    def progress(self, at: "TrainingProgress") -> None:
        """A step, or with validation losses an evaluation, is done."""

    def done(self, checkpoint: "Checkpoint", path: Path) -> None:
        """The checkpoint is written."""


@contextmanager
def open_log(*, as_json: bool) -> Iterator[Log]:
    """The log that suits stdout and stderr."""
    if as_json:
        yield _JsonLog()
        return
    log = _TextLog(Console(stderr=True, highlight=False, emoji=False, soft_wrap=True))
    try:
        yield log
    finally:
        log.bar.stop()


class _TextLog:
    """Messages and progress on stderr (a live bar only on a terminal), the result on stdout."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[losses]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or logs_json(),
        )
        self.task: TaskID | None = None

    def _say(self, text: str) -> None:
        """A line above the bar."""
        if logs_json():
            say(text)
        else:
            self.console.print(printable(in_options(text)), markup=False)

    def start(self, at: "Start") -> None:
        train, validation, model = at.data.train, at.data.validation, at.model
        self._say(
            f"{train.rows} training and {validation.rows} validation rows of {len(at.data.columns)} columns: "
            f"{len(train.starts)} and {len(validation.starts)} windows of {model.window} rows"
        )
        self._say(f"season: {at.data.season_found}")
        for note in at.data.notes:
            self._say(f"note: {note}")
        where = f"{at.device}, {_count(at.threads, 'thread')}" if at.device == "cpu" else at.device
        self._say(
            f"network: {model.width} wide, {_count(model.heads, 'head')}, {_count(model.layers, 'layer')}, on {where}"
        )
        if at.parent is not None:
            self._say(
                f"starting from the weights of {at.parent.source}; scaler, validation statistics and thresholds are "
                "those of the new rows"
            )
        if at.teacher is not None:
            theirs = at.teacher.checkpoint.model
            self._say(
                f"learning the scores of {at.teacher.source}: {theirs.width} wide, {_count(theirs.heads, 'head')}, "
                f"{_count(theirs.layers, 'layer')}; losses are differences from what it makes of windows of these rows"
            )
        if at.resumed:
            self._say("continuing where the last run was stopped")
        self.bar.start()

    def progress(self, at: "TrainingProgress") -> None:
        losses = f"reconstruction {at.reconstruction:.4f}  discrepancy {at.discrepancy:.3f}"
        speed = f"{at.windows_per_s:.0f} windows/s"
        place = "" if at.epochs is None else f"epoch {at.epoch}/{at.epochs}"
        if self.task is None:
            self.task = self.bar.add_task("", total=at.steps, losses="")
        self.bar.update(
            self.task, description=place or "step", completed=at.step, total=at.steps, losses=f"{losses}  {speed}"
        )
        if at.validation is not None:
            mark = "  best so far" if at.best else ""
            place = f"{place}  step {at.step}" if place else f"step {at.step:>{len(str(at.steps))}}/{at.steps}"
            self._say(f"{place}  {losses}  validation {at.validation['reconstruction']:.4f}  {speed}{mark}")

    def done(self, checkpoint: "Checkpoint", path: Path) -> None:
        from training.history import History

        self.bar.stop()
        summary = _summary(checkpoint)
        if summary["advice"]:
            self._say(f"note: {summary['advice']}")
        table = Table(title="Scores of the validation part", title_justify="left", box=None)
        table.add_column("mode")
        for name in summary["validation_scores"][checkpoint.score.mode]:
            table.add_column(name, justify="right")
        for mode, row in summary["validation_scores"].items():
            mark = " *" if mode == checkpoint.score.mode else ""
            table.add_row(mode + mark, *(f"{value:.4g}" for value in row.values()))
        out = Console(file=sys.stdout, highlight=False, emoji=False, soft_wrap=True)
        out.print(table)
        threshold, score = checkpoint.validation_of().threshold, checkpoint.score
        if score.error_kind.normalised:
            out.print("  errors of each feature are divided by their mean on the validation part", markup=False)
        if score.smooth > 1:
            out.print(f"  scores are means over {score.smooth} rows", markup=False)
        out.print(
            f"* recorded mode; threshold {threshold.value:.4g}, exceeded by {threshold.ratio:.3g} of "
            f"{threshold.validation_rows} validation rows",
            markup=False,
        )
        live = checkpoint.validation_of("last")
        if live.align == "last":
            out.print(
                f"  last rows of windows (watch, score --align last): threshold "
                f"{live.threshold.value:.4g}, from {live.threshold.validation_rows} rows",
                markup=False,
            )
        out.print(
            f"{printable(str(path))}: best weights after step {summary['best_step']} of {summary['steps']}",
            markup=False,
        )
        for line in History.of(checkpoint).compared:
            out.print(in_options(line), markup=False)


class _JsonLog:
    """One JSON object a line on stdout."""

    def start(self, at: "Start") -> None:
        train, validation = at.data.train, at.data.validation
        self._print(
            "start",
            columns=at.data.columns,
            rows={"train": train.rows, "validation": validation.rows},
            windows={"train": len(train.starts), "validation": len(validation.starts)},
            notes=at.data.notes,
            season=at.data.season_found,
            model=at.model.to_dict(),
            train=at.train.to_dict(),
            device=at.device,
            threads=at.threads,
            parent_sha256=None if at.parent is None else at.parent.sha256,
            teacher_sha256=None if at.teacher is None else at.teacher.sha256,
            resumed=at.resumed,
        )

    def progress(self, at: "TrainingProgress") -> None:
        event = "step" if at.validation is None else "evaluation"
        self._print(event, **{name: getattr(at, name) for name in at.__slots__})

    def done(self, checkpoint: "Checkpoint", path: Path) -> None:
        self._print("done", checkpoint=str(path), **_summary(checkpoint))

    def _print(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}), flush=True)


class _Summary(TypedDict):
    """What was learnt, in a few numbers."""

    steps: int
    best_step: int
    ended: str | None
    advice: str | None
    validation_scores: dict[str, dict[str, float]]
    """A few quantiles, by their names."""
    score_mode: ScoreMode
    score: dict[str, object]
    threshold: float
    causal_threshold: float | None
    ratio: float | None
    agreement: NotRequired[dict[str, float]]
    """Of a student with its teacher."""
    times_as_fast: NotRequired[float]


def _summary(checkpoint: "Checkpoint") -> _Summary:
    """As JSON has it."""
    from training.history import History

    history = History.of(checkpoint)
    shown = {"median": 0.5, "99 %": 0.99, "99.9 %": 0.999, "max": 1.0}
    index = {name: checkpoint.quantile_levels.index(level) for name, level in shown.items()}
    whole, live = checkpoint.validation_of(), checkpoint.validation_of("last")
    summary: _Summary = {
        "steps": history.steps,
        "best_step": history.best_step,
        "ended": history.ended,
        "advice": None if history.advice is None else in_options(history.advice),
        "validation_scores": {
            mode: {name: values[i] for name, i in index.items()} for mode, values in whole.quantiles.items()
        },
        "score_mode": checkpoint.score.mode,
        "score": checkpoint.score.to_dict(),
        "threshold": whole.threshold.value,
        "causal_threshold": live.threshold.value if live.align == "last" else None,
        "ratio": whole.threshold.ratio,
    }
    if history.agreement is not None and history.times_as_fast is not None:
        summary["agreement"], summary["times_as_fast"] = history.agreement._asdict(), history.times_as_fast
    return summary


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
