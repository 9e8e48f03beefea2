"""`at-infer inspect`: type and metadata of a file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from at_infer.cli.messages import in_options
from at_infer.cli.terminal import printable, show
from at_infer.installed import load_extra

if TYPE_CHECKING:
    from at_infer.measure.inspection import Inspection


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Checkpoint, ONNX model, plan, or Parquet file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON document; the table shortens long lists.")
    ] = False,
) -> None:
    """Print type, shapes and metadata of a file.

    The type is detected from the content, not from the name. A TensorRT plan is described by its JSON sidecar, after a
    check that the two belong together; this needs no GPU. A checkpoint needs at-infer\\[train]. A file that cannot be
    used as it is has a problem, and the exit code is 1.

    [bold]Example[/bold]: at-infer inspect model.onnx
    """
    from at_infer.measure import inspection
    from at_infer.models.signatures import identify

    describe = {
        "checkpoint": _inspect_checkpoint,
        "onnx": inspection.inspect_onnx,
        "plan": inspection.inspect_plan,
        "parquet": inspection.inspect_parquet,
    }
    report = describe[identify(file)](file)
    if as_json:
        show(report.to_json())
    else:
        _print(report)
    if report.problems:
        raise typer.Exit(1)


def _inspect_checkpoint(path: Path) -> "Inspection":
    """Load what only PyTorch can read; what it says of itself is for `inspection` to tell."""
    from at_infer.measure import inspection

    load_extra("train", str(path))
    from training.checkpoint import Checkpoint, read_tensors
    from training.published import load_published

    content = read_tensors(path)
    kind = inspection.checkpoint_kind(path, content)
    if kind == "checkpoint":
        checkpoint = Checkpoint.load(path)
        content["model"] = checkpoint.model.to_dict()  # as it is read: earlier versions knew no padding
        return inspection.inspect_checkpoint(path, content, checkpoint.state_dict)
    if kind == "published-checkpoint":
        network = load_published(path, window=2)  # any will do: the tensors do not depend on it
        return inspection.inspect_published(path, network.config, network.state_dict())
    return inspection.inspect_resume(path, content)


def _print(report: "Inspection") -> None:
    from rich.console import Console
    from rich.table import Table

    from at_infer.measure.inspection import rows

    console = Console(file=sys.stdout, highlight=False, markup=False)
    console.print(printable(f"{report.file}: {report.what}"), style="bold", soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    previous = None
    for name, text in rows(report):
        table.add_row("" if name == previous else printable(name), printable(text))
        previous = name
    console.print(table)
    for note in report.notes:
        console.print(printable(f"note: {in_options(note)}"), soft_wrap=True)
    for problem in report.problems:
        console.print(printable(f"problem: {problem}"), style="red", soft_wrap=True)
