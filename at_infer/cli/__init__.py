"""The command line: parse, call, print. Heavy packages load inside a command's body, never here."""

import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from at_infer import __version__
from at_infer.cli.completion import answer_shells
from at_infer.cli.messages import on_command_line
from at_infer.cli.terminal import say, set_log_format
from at_infer.errors import AtInferError, OutputError
from at_infer.interrupt import signals_as_ctrl_c
from at_infer.memory import own_memory
from at_infer.native_stderr import speak_past_native_code
from at_infer.output import notes_to

COMMANDS = (
    "demo",
    "generate",
    "train",
    "distil",
    "export",
    "score",
    "watch",
    "evaluate",
    "threshold",
    "drift",
    "report",
    "bench",
    "inspect",
    "doctor",
    "completion",
)
"""In the order of `--help`; each is a function in the module of its name."""


class _Loaded(dict[str, Any]):
    """Commands by name, each loaded when it is asked for."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
            alone.command()(getattr(import_module(f"at_infer.cli.{name}"), name))
            self[name] = typer.main.get_command(alone)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The command, or a default."""
        return self[name] if name in self else default  # noqa: SIM401 - that is this function

    def values(self) -> Any:
        """All of them."""
        return [self[name] for name in self]

    def items(self) -> Any:
        """All of them with their names."""
        return [(name, self[name]) for name in self]


_COMMANDS = _Loaded()


class _Commands(TyperGroup):
    """Loads the command that is asked for, and is the one place that turns errors into exit codes.

    Code 1 is for what the user can fix, 130 for Ctrl-C. Code 3 is no error: `at-infer drift` has found some.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _COMMANDS

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        set_log_format("text")  # until the command has read its options
        try:
            with signals_as_ctrl_c(), notes_to(say):
                return super().invoke(ctx)
        except AtInferError as error:
            say(f"error: {_one_line(on_command_line(error, ctx.invoked_subcommand))}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interrupt:
            say(f"interrupted: {interrupt}" if interrupt.args else "interrupted")
            raise typer.Exit(130) from None


def _one_line(text: str) -> str:
    """Messages may quote the content of a damaged file."""
    return " ".join(text.split())


app = typer.Typer(
    name="at-infer",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,  # its options would load pydantic for every --help
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        print(f"at-infer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Anomaly detection in time series with the Anomaly Transformer, from a Parquet file to production.

    [bold]Example[/bold]: at-infer generate -o data && at-infer train data/train.parquet -o ckpt.pt
    """


class _Stdout(io.FileIO):
    """A standard output that cannot be written, such as one on a full disk, is for the user to fix."""

    def write(self, data: Any) -> int:
        """As a file does, or one line."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"stdout: could not be written ({error.strerror or error})") from None


def main() -> None:
    """The command line on a standard output whose errors are one line."""
    speak_past_native_code()
    own_memory()
    try:
        raw = _Stdout(os.dup(1), "w")
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=sys.stdout.isatty()
        )
    except (OSError, AttributeError):  # it is closed
        pass
    code: Any = 0
    answer_shells()
    try:
        try:
            app()
        except SystemExit as end:
            code = end.code
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OutputError, BrokenPipeError) as error:
        if isinstance(error, OutputError) and not code:  # else it was said
            say(f"error: {error}")
        code = 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not tried again
    sys.exit(code)
