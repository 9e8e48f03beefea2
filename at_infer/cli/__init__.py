"""The command line: parse, call, print. Heavy packages load inside a command's body, never here."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from at_infer import __version__
from at_infer.cli.bench import bench
from at_infer.cli.demo import demo
from at_infer.cli.doctor import doctor
from at_infer.cli.drift import drift
from at_infer.cli.evaluate import evaluate
from at_infer.cli.export import export
from at_infer.cli.generate import generate
from at_infer.cli.inspect import inspect
from at_infer.cli.report import report
from at_infer.cli.score import score
from at_infer.cli.terminal import say
from at_infer.cli.threshold import threshold
from at_infer.cli.train import train
from at_infer.cli.watch import watch
from at_infer.errors import AtInferError
from at_infer.interrupt import sigterm_as_ctrl_c


class _ErrorsToExitCodes(TyperGroup):
    """The one place that turns errors into exit codes: 1 for what the user can fix, 130 for Ctrl-C.

    Code 3 is no error: `at-infer drift` has found some.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            with sigterm_as_ctrl_c():
                return super().invoke(ctx)
        except AtInferError as error:
            say(f"error: {_one_line(str(error))}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interrupt:
            say(f"interrupted: {interrupt}" if interrupt.args else "interrupted")
            raise typer.Exit(130) from None


def _one_line(text: str) -> str:
    """Messages may quote what a damaged file holds."""
    return " ".join(text.split())


app = typer.Typer(
    name="at-infer",
    cls=_ErrorsToExitCodes,
    no_args_is_help=True,
    add_completion=False,  # its options would load pydantic for every --help
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(generate)
app.command()(train)
app.command()(export)
app.command()(score)
app.command()(watch)
app.command()(evaluate)
app.command()(threshold)
app.command()(drift)
app.command()(report)
app.command()(bench)
app.command()(inspect)
app.command()(doctor)


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
