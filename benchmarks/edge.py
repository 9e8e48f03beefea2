"""Everything that can be measured on an edge GPU, in one run and one JSON file; `benchmarks/edge.sh` calls it.

    python -m benchmarks.edge [--quick] [-o edge.json]

What the machine is (doctor), a model of the paper's size with random weights, plans in each precision, `at-infer
bench` on all of them (with and without transfers and CUDA graph, sensors of the GPU), `at-infer score` from file to
file with its peak memory, and `at-infer watch`. Where there is no GPU the ONNX files are measured on the CPU, and
what was skipped is named. A step that fails is named too, and the others go on. `--quick` takes a small model and a
second per measurement.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from at_infer.config import ScoreConfig
from at_infer.engines import open_engine
from at_infer.errors import AtInferError
from at_infer.output import atomic_path, check_writable
from benchmarks.live import Feed, paced, side_by_side
from benchmarks.memory import score_apart
from benchmarks.models import checkpoint, write_rows

FULL = {"width": 512, "layers": 3, "rows": 100_000, "seconds": 5.0, "batch": "1,8,32,256", "live_rows": 300}
QUICK = {"width": 16, "layers": 1, "rows": 2_000, "seconds": 0.1, "batch": "1,8", "live_rows": 40}
PRECISIONS = ("fp32", "fp16", "bf16", "int8", "int8-dynamic")
FOR_CPUS = ("fp32", "int8-dynamic")


@dataclass
class Run:
    """The report as it grows, and where its files are."""

    folder: Path
    settings: dict[str, Any]
    quick: bool
    report: dict[str, Any] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def step(self, name: str, work: Callable[[], Any]) -> None:
        """Do one step; if it fails, say so and go on."""
        print(f"{name} ...", flush=True)
        try:
            self.report[name] = work()
        except Exception as error:  # whatever it is: the board may be at hand only once
            words = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            known = isinstance(error, AtInferError | subprocess.CalledProcessError)
            last = (words.strip().splitlines() or [""])[-1]
            self.skip(name, last if known and last else f"{type(error).__name__}: {last}")

    def skip(self, name: str, reason: str) -> None:
        """Name what was not done."""
        print(f"  skipped {name}: {reason}", flush=True)
        self.skipped.append({"step": name, "reason": reason})

    @property
    def has_gpu(self) -> bool:
        """By what doctor said."""
        return bool(self.report.get("machine", {}).get("gpu", {}).get("works"))

    def engines(self) -> list[Path]:
        """Plans first: they are what this is about."""
        return [*sorted(self.folder.glob("*.trt")), *(self.folder / f"{name}.onnx" for name in self.onnx())]

    def onnx(self) -> list[str]:
        """Precisions whose ONNX files are there and made for CPUs."""
        return [name for name in FOR_CPUS if (self.folder / f"{name}.onnx").exists()]


def at_infer(*words: object) -> str:
    """A command of at-infer in a process of its own; what it printed."""
    command = [sys.executable, "-m", "at_infer", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def examine() -> dict[str, Any]:
    """What doctor says, without the paths in it: the file is made to be shown to others."""
    return without_paths(json.loads(at_infer("doctor", "--json")))


def without_paths(machine: dict[str, Any]) -> dict[str, Any]:
    """Python's, and that of the clone, which hints name as what to install."""
    del machine["python"]["executable"]
    text = json.dumps(machine)
    for name, extra in machine["extras"].items():
        if f"[{name}]" in extra["get"]:
            text = text.replace(json.dumps(extra["get"])[1:-1], f"pip install 'at-infer[{name}]'")
    shown: dict[str, Any] = json.loads(text)
    return shown


def export_all(run: Run) -> list[dict[str, Any]]:
    """The model in every precision; as plans where there is a GPU to run them."""
    settings = run.settings
    # A mode whose score is in the graph, row by row: live answers are compared with the engine's own.
    score = ScoreConfig(mode="reconstruction")
    checkpoint(settings["width"], score, settings["layers"]).save(run.folder / "ckpt.pt")
    write_rows(run.folder / "rows.parquet", settings["rows"])
    if not run.has_gpu:
        run.skip("plans", f"no GPU to run them: {run.report.get('machine', {}).get('gpu', {}).get('reason')}")
    found: list[dict[str, Any]] = []
    for precision in PRECISIONS if run.has_gpu else FOR_CPUS[: 1 if run.quick else None]:
        plan = run.has_gpu and precision != "int8-dynamic"
        words: list[object] = ["export", run.folder / "ckpt.pt", "--name", precision, "--precision", precision]
        words += ["--engine", "auto" if plan else "none", "--json"]
        words += ["--calibration", run.folder / "rows.parquet"] if precision == "int8" else []
        try:
            found.append({"precision": precision, **json.loads(at_infer(*words))})
        except subprocess.CalledProcessError as error:
            run.skip(f"export in {precision}", error.stderr.strip().splitlines()[-1])
    return found


def bench_all(run: Run) -> Any:
    """Latency and throughput, contestants in turns."""
    engines = [word for path in run.engines() for word in ("--engine", path)]
    words = ["--batch", run.settings["batch"], "--duration", run.settings["seconds"], "--json"]
    return json.loads(at_infer("bench", *engines, *words, "--check", run.folder / "rows.parquet"))


def score_all(run: Run) -> list[dict[str, Any]]:
    """Rows per second from file to file, and peak memory of the process."""
    found = []
    for path in run.engines():
        summary, peak = score_apart(run.folder / "rows.parquet", path, run.folder / "scores.parquet")
        found.append({"engine": path.name, "peak_mb": peak, "summary": summary})
    return found


def watch_best(run: Run) -> dict[str, Any]:
    """Rows as they come, of 100 series, by the first engine."""
    path = run.engines()[0]
    rows = run.settings["live_rows"]
    args = argparse.Namespace(
        batch_size=8, repeats=3, max_delay_ms=10.0, paced_rows=rows, threads=os.cpu_count(), rows=rows
    )
    with open_engine(path, threads=args.threads) as engine:
        result: dict[str, Any] = {"engine": path.name, "series": 100}
        result |= side_by_side(engine, Feed(100, rows), run.folder, args)
    return result | paced(path, Feed(100, rows), run.folder, result["engine_rows_per_s"] / 2, args)


def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    """All steps."""
    run = Run(folder, QUICK if quick else FULL, quick)
    run.step("machine", examine)
    run.step("exports", lambda: export_all(run))
    run.step("bench", lambda: bench_all(run))
    run.step("score", lambda: score_all(run))
    run.step("live", lambda: watch_best(run))
    report = {
        "benchmark": "edge",
        "format": 1,
        "quick": quick,
        "settings": run.settings,
        **run.report,
        "skipped": run.skipped,
    }
    relative: dict[str, Any] = json.loads(json.dumps(report).replace(f"{folder}/", ""))
    return relative


def main() -> None:
    """Run, write the file, say what to do with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model and short measurements, to try it out")
    parser.add_argument("-o", "--output", type=Path, default=Path("edge.json"))
    args = parser.parse_args()
    try:
        check_writable(args.output, overwrite=True)
    except AtInferError as error:
        sys.exit(f"error: {error}")
    with tempfile.TemporaryDirectory() as name:
        report = measure(Path(name), quick=args.quick)
    with atomic_path(args.output) as temporary:
        temporary.write_text(json.dumps(report) + "\n", encoding="utf-8")
    print(f"{args.output}: {len(report['skipped'])} steps skipped")


if __name__ == "__main__":
    main()
