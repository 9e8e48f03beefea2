"""A progress bar on a terminal or in a notebook."""

import sys
from html import escape
from importlib import import_module
from types import TracebackType
from typing import Any, Self


class Bar:
    """Steps done, of all: a bar on a terminal, an element of HTML in a notebook, and one line at the end elsewhere.

    >>> with Bar("fit", "steps", shown=False) as bar:
    ...     bar.show(1, 2)
    """

    def __init__(self, what: str, unit: str, *, shown: bool) -> None:
        self.what, self.unit, self.shown = what, unit, shown
        self.done: int | None = None
        self._live: Any = None
        self._element: Any = None

    def __enter__(self) -> Self:
        if self.shown and _in_notebook():
            shell: Any = import_module("IPython.display")  # rich would need ipywidgets for the same
            self._element = shell.display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)
        elif self.shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._live = Progress(
                TextColumn(self.what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self.unit),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._live.add_task("", total=None)
            self._live.start()
        return self

    def show(self, done: int, total: int) -> None:
        """Update the bar: how many are done, and the total."""
        self.done, self.total = done, total
        if self._live is not None:
            self._live.update(self._task, completed=done, total=total)
        elif self._element is not None:
            bar = f'<progress value="{done}" max="{total}"></progress>'
            said = f"{self.what}: {done} of {total} {self.unit}"
            self._element.update({"text/html": f"{bar} {escape(said)}", "text/plain": said}, raw=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        elif self.shown and self._element is None and self.done is not None:
            sys.stderr.write(f"{self.what}: {self.done} of {self.total} {self.unit}\n")


def _in_notebook() -> bool:
    """Is this the kernel of a notebook? IPython is not imported to find out."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and running.has_trait("kernel")
