"""Messages of the library on the command line: parameters become options."""

import re
from functools import cache

from at_infer.errors import AtInferError, ClusterError, ConfigError, ExportError, MissingExtraError

RENAMED = {
    "mode": "--score-mode",
    "compile": "--compile",
    "families": "--family",
    "compute_capabilities": "--compute-capability",
    "max_delay_s": "--max-delay-ms",
    "state_interval_s": "--state-interval",
}
"""Parameters that have another name here."""
OF_PARAMETERS = (ConfigError, ExportError, ClusterError, MissingExtraError)
"""Errors that may begin with a parameter; what others begin with is a file, a column or the rows."""


def in_options(message: str) -> str:
    """`on_bad_rows='null'`, `overwrite=True` and names in backquotes, as options; other words stay as they are."""

    def option(match: re.Match[str]) -> str:
        name, value = match[1] or match[3], (match[2] or "...").strip("'")
        if name not in _options():
            return match[0]
        return _options()[name] if value in ("True", "...") else f"{_options()[name]} {value}"

    return re.sub(r"\b([a-z_]+)=('[^']*'|\.\.\.|[\w.:-]*\w)|`([a-z_]+)`", option, message)


def on_command_line(error: AtInferError, command: str | None) -> str:
    """What the error says; it begins with the option if it began with a parameter that this command has."""
    label, colon, rest = str(error).partition(": ")
    if not isinstance(error, OF_PARAMETERS) or command is None:
        return str(error)
    return _options_of(command).get(label, label) + colon + rest


@cache
def _options() -> dict[str, str]:
    """The option of each parameter that some command has."""
    from at_infer.cli import COMMANDS

    return RENAMED | {name: option for command in COMMANDS for name, option in _options_of(command).items()}


@cache
def _options_of(command: str) -> dict[str, str]:
    """The option of each parameter that this command has."""
    from typer.main import get_command

    from at_infer.cli import app

    given = get_command(app).commands[command].params  # type: ignore[attr-defined]
    own = {one.name: max(one.opts, key=len) for one in given if one.opts[0].startswith("-")}
    return own | {name: option for name, option in RENAMED.items() if option in own.values()}
