"""A progress bar for what goes through rows."""

import sys


class RowsBar:
    """Rows done, of all, with an estimate of the time left; only on a terminal."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> "RowsBar":
        self.live = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self.live = Progress(
                TextColumn(self.what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("rows"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.task = self.live.add_task("", total=None)
            self.live.start()
        return self

    def show(self, done: int, rows: int) -> None:
        """Rows done, of all rows."""
        if self.live is not None:
            self.live.update(self.task, completed=done, total=rows)

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
