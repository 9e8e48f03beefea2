"""`at-infer demo`: from generated data to a report, command by command."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from at_infer.cli.terminal import say, show
from at_infer.errors import MissingExtraError, OutputError
from at_infer.installed import LEARNING, install_extra

MOST_SHOWN = 10


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for all files; created if absent.")] = Path(
        "demo"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Little data and a tiny model, to check the installation in seconds.")
    ] = False,
    engine: Annotated[
        Path | None,
        typer.Option("--engine", help="Use the model of an earlier demo instead of training; needs no PyTorch."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files of an earlier demo.")] = False,
) -> None:
    """Run every step on generated data: generate, train, export, score, evaluate, report.

    Each command is shown before it runs, so that it can be repeated by hand. It takes a minute or two. Training and
    export need at-infer\\[export].

    [bold]Example[/bold]: at-infer demo -o demo
    """
    import importlib.util

    for module in () if engine is not None else LEARNING["export"]:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(f"demo: needs {module}, which is not installed; {install_extra('export')}")
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output}: is a file; give a folder")
    from typer.main import get_command

    from at_infer.cli import app

    command = get_command(app)
    for words in steps(output, quick=quick, engine=engine):
        words += ["--overwrite"] if overwrite and words[0] != "evaluate" else []
        say(f"\n$ at-infer {shlex.join(words)}")
        code = command.main(words, prog_name="at-infer", standalone_mode=False)
        if code:  # the command has said why
            raise typer.Exit(code)
    show("\n".join(["", *incident_lines(output / "incidents.parquet")]))
    show(f"\n{(output / 'report.html').resolve()}: open it in a browser. Then try:")
    folder = shlex.quote(str(output))
    if engine is None:
        show(f"  at-infer report {folder}/ckpt.pt -o {folder}/training.html")
    model = shlex.quote(str(engine or output / "model.onnx"))
    show(f"  at-infer threshold {model} --rows-per-day 1440")
    show("  at-infer train your.parquet -o ckpt.pt --time-column time")


def incident_lines(path: Path) -> Iterator[str]:
    """The worst incidents of a file of them, one line each."""
    from at_infer.incidents.incident import plain_time
    from at_infer.tables.incident_file import read_incident_file

    found = sorted(read_incident_file(path), key=lambda one: -one["peak_score"])
    yield f"{path}: {len(found)} incidents" + (f", the worst {MOST_SHOWN}:" if len(found) > MOST_SHOWN else ":")
    for one in found[:MOST_SHOWN]:
        causes = ", ".join(f"{cause['feature']} {cause['share']:.0%} ({cause['view']})" for cause in one["causes"][:2])
        yield (
            f"  {one['id']}  {plain_time(one['begin'])} to {plain_time(one['end'])}, {one['rows']} rows, "
            f"{one['ratio']:.1f} times the threshold, {f'of the error {causes}' if causes else 'no cause known'}"
        )


def steps(folder: Path, *, quick: bool, engine: Path | None = None) -> Iterator[list[str]]:
    """The commands, word by word; with an engine, training and export are left out."""
    data, scores, incidents = (folder / name for name in ("data", "scores.parquet", "incidents.parquet"))
    model = engine or folder / "model.onnx"
    rows = ["--rows", "600", "300", "600"] if quick else []
    size = ["--width", "8", "--heads", "2", "--layers", "1", "--max-steps", "20"] if quick else []
    test = str(data / "test.parquet")
    yield ["generate", "-o", str(data), "--kind", "multivariate", "--share", "0.003", *rows]
    if engine is None:
        yield from _training(folder, data, size)
    yield ["score", test, "--engine", str(model), "-o", str(scores), "--incidents", str(incidents)]
    yield ["evaluate", str(scores), "--labels", test]
    associations = model.with_suffix(".associations.onnx")
    yield [
        *("report", str(scores), "--data", test, "--labels", test),
        *(("--engine", str(associations)) if engine is None or associations.exists() else ()),
        *("--interval", "60", "-o", str(folder / "report.html")),
    ]


def _training(folder: Path, data: Path, size: list[str]) -> Iterator[list[str]]:
    yield [
        *("train", str(data / "train.parquet"), "-o", str(folder / "ckpt.pt")),
        *("--validation", str(data / "validation.parquet"), "--time-column", "timestamp"),
        *size,
    ]
    yield ["export", str(folder / "ckpt.pt"), "--check-data", str(data / "validation.parquet")]
