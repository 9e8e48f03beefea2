"""`at-infer inspect`: what a file is, and what it knows about itself."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from at_infer.errors import CheckpointError, MissingExtraError

if TYPE_CHECKING:
    from at_infer.measure.inspection import Report


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Checkpoint, ONNX model, plan, or Parquet file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON document; the table shortens long lists.")
    ] = False,
) -> None:
    """Tell what a file is and what it knows about itself.

    The content decides, not the name. A TensorRT plan is described by the JSON file beside it, after a check that
    the two belong together; this needs no GPU. A checkpoint needs at-infer\\[train].

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
        print(report.to_json())
    else:
        _print(report)


def _inspect_checkpoint(path: Path) -> "Report":
    """A checkpoint of at-infer or of the published implementation, or the state of an interrupted training."""
    from at_infer.measure.inspection import Report, file_facts

    try:
        from torch import Tensor
    except ImportError:
        raise MissingExtraError(
            f"{path}: is a PyTorch checkpoint, and PyTorch is not installed; pip install 'at-infer[train]'"
        ) from None
    from training.checkpoint import Checkpoint, read_tensors
    from training.published import load_published

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(entry) for name, entry in value.items()}
        return value.tolist() if isinstance(value, Tensor) else value

    content = read_tensors(path)
    if not isinstance(content, dict) or not ("format" in content or "identity" in content or _is_published(content)):
        raise CheckpointError(
            f"{path}: is a PyTorch file, but no checkpoint of at-infer or of the published implementation"
        )
    facts: dict[str, Any] = file_facts(path)
    if "identity" in content:
        metadata = {name: content.get(name) for name in ("identity", "state")}
        what = "state of an interrupted training; the same at-infer train command with --resume continues it"
        return Report(file=str(path), kind="resume", what=what, facts=facts, metadata=metadata)
    if "format" in content:
        weights = Checkpoint.load(path).state_dict
        metadata = plain({name: value for name, value in content.items() if name != "state_dict"})
        kind, what, notes = "checkpoint", "checkpoint of at-infer train", []
    else:
        network = load_published(path, window=2)  # any will do: the tensors do not depend on it
        weights = network.state_dict()
        metadata = {"model": {name: value for name, value in network.config.to_dict().items() if name != "window"}}
        kind, what = "published-checkpoint", "checkpoint of the published implementation"
        notes = ["it knows no window, columns, scaler or threshold; load it with --published"]
    facts["parameters"] = sum(tensor.numel() for tensor in weights.values())
    return Report(file=str(path), kind=kind, what=what, facts=facts, metadata=metadata, notes=notes)


def _is_published(content: dict[Any, Any]) -> bool:
    return any("encoder.attn_layers." in str(name) for name in content)


def _print(report: "Report") -> None:
    from rich.console import Console
    from rich.table import Table

    from at_infer.measure.inspection import rows

    console = Console(file=sys.stdout, highlight=False, markup=False)
    console.print(f"{report.file}: {report.what}", style="bold", soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    previous = None
    for name, text in rows(report):
        table.add_row("" if name == previous else name, text)
        previous = name
    console.print(table)
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)
    for problem in report.problems:
        console.print(f"problem: {problem}", style="red", soft_wrap=True)
