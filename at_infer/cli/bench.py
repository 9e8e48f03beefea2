"""`at-infer bench`: latency and throughput of engines."""

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from at_infer.cli.terminal import counted, say, show
from at_infer.config import Provider
from at_infer.errors import ConfigError
from at_infer.installed import load_extra
from at_infer.output import atomic_path, check_writable
from at_infer.threads import let_threads_sleep

if TYPE_CHECKING:
    from at_infer.measure.bench import Absent, Agreement, BenchProcess, Contestant, Figures

COLUMNS = {
    "contestant": "name",
    "batch": "batch",
    "min": "min_ms",
    "mean": "mean_ms",
    "median": "median_ms",
    "p90": "p90_ms",
    "p95": "p95_ms",
    "p99": "p99_ms",
    "max": "max_ms",
    "CoV": "variation",
    "windows/s": "windows_per_s",
    "points/s": "points_per_s",
}


def bench(
    engine: Annotated[list[Path], typer.Option(help="Engine to measure; repeat it for several.")],
    batch: Annotated[str, typer.Option(help="Batch sizes; 1 gives the latency.")] = "1,8,32",
    duration: Annotated[float, typer.Option(help="Seconds per engine and batch size.")] = 2.0,
    threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads; ONNX Runtime runs a small network on one. Default: all.", envvar="AT_INFER_THREADS"
        ),
    ] = None,
    provider: Annotated[Provider, typer.Option(help="Where ONNX Runtime runs.", envvar="AT_INFER_PROVIDER")] = "cpu",
    against: Annotated[
        Literal["none", "pytorch"], typer.Option(help="pytorch: the model itself too, eager and compiled.")
    ] = "none",
    checkpoint: Annotated[Path | None, typer.Option(help="Checkpoint for --against pytorch.")] = None,
    check: Annotated[
        str | None, typer.Option(help="Parquet with real rows, to compare the scores of all engines.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the latencies as an SVG figure.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line on stdout.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table on stdout.")] = False,
) -> None:
    """Measure latency and throughput of exported models, in turns, so that load affects all alike.

    Times are of whole batches, from host memory to host memory, after a warm-up. A plan is measured four times: with
    and without its CUDA graph, with and without transfers; clocks, power and memory of the GPU are shown if they can
    be read. A result that varies by more than 2.5 % is marked: the machine was busy.

    [bold]Example[/bold]: at-infer bench --engine model.onnx --engine int8/model.onnx --batch 1,16 --check data.parquet
    """
    sizes = _sizes(batch)
    if as_json and as_markdown:
        raise ConfigError("bench: --json and --markdown cannot be combined; give one")
    if not 0 < duration < float("inf"):
        raise ConfigError(f"--duration: {duration} is not a positive number of seconds")
    if plot is not None:
        check_writable(plot, overwrite=True, inputs=[*engine, check, checkpoint])
    let_threads_sleep()
    from at_infer.measure.bench import BenchProcess, compare_on, measure, open_contestants, random_windows
    from at_infer.measure.bench_plot import draw
    from at_infer.measure.gpu_sensors import GpuWatch

    contestants, absent, metadata = open_contestants(engine, provider=provider, threads=threads)
    if metadata is None:
        raise ConfigError(f"bench: no engine runs here; {absent[0].reason}")
    if against == "pytorch":
        model, missing = _pytorch(checkpoint, threads)
        contestants += model
        absent += missing
    windows = random_windows(max(sizes), metadata)
    agreements = [] if check is None else compare_on(contestants, check, metadata, max(sizes))

    def tell(size: int) -> None:
        about = duration * len(contestants)
        say(f"measuring {len(contestants)} contestants at batch {size}, about {about:.0f} s")

    on_gpu = provider != "cpu" or any(contestant.on_gpu for contestant in contestants)
    with GpuWatch() if on_gpu else nullcontext() as watch:
        found = measure(contestants, windows, sizes, seconds=duration, observe=tell)
    if plot is not None:
        with atomic_path(plot) as temporary:
            temporary.write_text(draw(found), encoding="utf-8")
    process = BenchProcess.now(threads, watch)
    if as_json:
        show(_as_json(contestants, absent, found, agreements, process))
    else:
        _print(contestants, absent, found, agreements, process, markdown=as_markdown)


def _sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ConfigError(f"--batch: {text!r} is not a list of numbers such as 1,8,32") from None
    if sizes[0] < 1:
        raise ConfigError(f"--batch: {sizes[0]} is too small; at least 1")
    return sizes


def _pytorch(checkpoint: Path | None, threads: int | None) -> "tuple[list[Contestant], list[Absent]]":
    import numpy as np

    from at_infer.measure.bench import resident_mb, try_scorers

    if checkpoint is None:
        raise ConfigError("--against: the PyTorch model comes from a checkpoint; pass --checkpoint ckpt.pt")
    before_mb = resident_mb()
    load_extra("train", "--against")
    import torch

    from export.reference import pytorch_scorers
    from training.checkpoint import Checkpoint

    source = Checkpoint.load(checkpoint)
    probe = np.zeros((1, source.model.window, source.model.features), np.float32)
    runs_on = f"PyTorch {torch.__version__}"
    return try_scorers(pytorch_scorers(source, threads), probe, runs_on=runs_on, before_mb=before_mb)


def _as_json(
    contestants: "list[Contestant]",
    absent: "list[Absent]",
    found: "list[Figures]",
    agreements: "list[Agreement]",
    process: "BenchProcess",
) -> str:
    return json.dumps(
        {
            "contestants": [
                {"name": c.name, "runs_on": c.runs_on, "memory_mb": round(c.memory_mb, 1)} for c in contestants
            ],
            "could_not_run": [asdict(entry) for entry in absent],
            "figures": [asdict(entry) for entry in found],
            "agreement": [asdict(entry) for entry in agreements],
            **asdict(process),
        }
    )


def _print(
    contestants: "list[Contestant]",
    absent: "list[Absent]",
    found: "list[Figures]",
    agreements: "list[Agreement]",
    process: "BenchProcess",
    *,
    markdown: bool,
) -> None:
    from at_infer.evaluation.table import grid

    rows = [[_cell(attribute, getattr(entry, attribute)) for attribute in COLUMNS.values()] for entry in found]
    for line in grid(list(COLUMNS), rows, markdown):
        show(line)
    show("times in ms per batch; CoV: coefficient of variation, standard deviation by mean")
    for entry in agreements[1:]:
        show(
            f"{entry.name}: scores within {entry.max_abs:.1e} of {agreements[0].name}, "
            f"{entry.verdicts_changed:.3%} of verdicts changed"
        )
    for contestant in contestants:
        show(f"{contestant.name}: {contestant.runs_on}, {contestant.memory_mb:.0f} MB of memory")
    peak = "" if process.peak_mb is None else f", peak memory {process.peak_mb:.0f} MB"
    show(f"all in one process: {counted(process.threads, 'thread')}{peak}")
    if process.gpu is not None or process.gpu_unknown is not None:
        show(f"GPU while measuring: {process.gpu or process.gpu_unknown}")
    for missing in absent:
        say(f"{missing.name}: could not run here: {missing.reason}")
    busy = [f"{entry.name} at {entry.batch}" for entry in found if not entry.steady]
    if busy:
        say(f"warning: runs vary by more than 2.5 %, the machine is busy: {', '.join(busy)}")


def _cell(attribute: str, value: object) -> str:
    if attribute == "variation":
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)
