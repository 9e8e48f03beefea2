"""A progress bar for what goes through rows."""

import sys

from at_infer.api.progress import Bar
from at_infer.cli.terminal import logs_json


class RowsBar(Bar):
    """Rows done, of all, with an estimate of the time left; only on a terminal."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "rows", shown=sys.stderr.isatty() and not logs_json())
