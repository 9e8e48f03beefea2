"""The command line: parse, call, print. Heavy packages load inside a command's body, never here."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from at_infer import __version__
from at_infer.cli.generate import generate
from at_infer.cli.train import train
from at_infer.errors import AtInferError


class _ErrorsToExitCodes(TyperGroup):
    """The one place that turns errors into exit codes: 1 for what the user can fix, 130 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except AtInferError as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interrupt:
            print(f"interrupted: {interrupt}" if interrupt.args else "interrupted", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="at-infer",
    cls=_ErrorsToExitCodes,
    no_args_is_help=True,
    add_completion=False,  # its options would load pydantic for every --help
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(generate)
app.command()(train)


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


def main() -> None:
    """Entry point of the console script."""
    app()
