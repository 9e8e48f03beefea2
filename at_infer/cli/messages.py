"""Messages of the library on the command line: parameters become options."""

import re
from functools import cache

RENAMED = {"mode": "--score-mode", "compile": "--compile"}
"""Parameters that have another name here."""


def in_options(message: str) -> str:
    """`on_bad_rows='null'`, `overwrite=True` and names in backquotes, as options; other words stay as they are."""

    def option(match: re.Match[str]) -> str:
        name, value = match[1] or match[3], (match[2] or "...").strip("'")
        if name not in _options():
            return match[0]
        return _options()[name] if value in ("True", "...") else f"{_options()[name]} {value}"

    return re.sub(r"\b([a-z_]+)=('[^']*'|\.\.\.|[\w.:-]*\w)|`([a-z_]+)`", option, message)


@cache
def _options() -> dict[str, str]:
    """The option of each parameter that some command has."""
    from typer.main import get_command

    from at_infer.cli import app

    commands = get_command(app).commands.values()  # type: ignore[attr-defined]
    named = ((one.name, max(one.opts, key=len)) for command in commands for one in command.params)
    return RENAMED | {name: option for name, option in named if option.startswith("--")}
