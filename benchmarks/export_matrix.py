"""Every precision and graph that export can write: size, build time, agreement with PyTorch, speed on the CPU.

The files are written by `export_model`, through its gate, and timed by the engine that scores with them. Contestants
take turns, and the best turn of each counts, the one that others on the machine disturbed least. With one thread it is
CPU time that counts: on an idle machine the same as wall time, on a busy one without the waiting. Trust the ratios all
the same, not the windows per second. What was timed is compared with PyTorch, by the tolerances of the gate.

    python benchmarks/export_matrix.py [--small] [--checkpoint ckpt.pt --data data.parquet] [--batch 16] [--threads 1]

Without a checkpoint: the paper's size, 25 features, seeded, one step of training on generated data.
"""

import argparse
import hashlib
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from at_infer import datasets
from at_infer.config import PRESETS, ExportPrecision, ScoreConfig, ScoreMode, TrainConfig
from at_infer.engines import open_engine
from at_infer.engines.tensorrt.batching import BatchProfile
from at_infer.engines.tensorrt.modules import load_flavour
from at_infer.errors import AtInferError, EngineError
from at_infer.models.criterion import (
    Floats,
    anomaly_score,
    discrepancy_statistics,
    error_and_discrepancy,
    layers_summed,
)
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import Scaler
from at_infer.scoring.real_windows import real_windows
from at_infer.tables import write_table
from at_infer.thresholds.ratio import carried_threshold
from export import parity
from export.config import ExportConfig
from export.graphs import ScoreGraph
from export.parity_runs import run_reference
from export.pipeline import REAL_WINDOWS, export_model
from export.to_tensorrt import build_plan
from export.tolerances import DOUBT, TOLERANCES
from export.written import Exported
from training.checkpoint import Checkpoint
from training.data import DataConfig, load
from training.device import flush_denormals
from training.loop import fit
from training.task import TrainingTask

PROFILE = BatchProfile(1, 32, 256)
PYTORCH = "pytorch"
REST_S = 0.05  # idle threads of ONNX Runtime spin for a while and would slow the next contestant
Parts = tuple[Floats, Floats]  # error and discrepancy (B,N), which every score is a function of


@dataclass(slots=True)
class Entry:
    """One exported file and what it is worth."""

    graph: str
    precision: str
    path: Path
    metadata: Metadata
    trace_and_gate_s: float
    plan_bytes: int | None = None
    plan_s: float | None = None
    cannot_run: str | None = None
    agreement: dict[str, float] = field(default_factory=dict)
    """Of the timed answers with PyTorch."""
    share_of_tolerance: float | None = None
    """The worst of the timed answers, 1 being what the gate allows."""

    @property
    def name(self) -> str:
        """Of the contestant."""
        return f"{self.graph} {self.precision}"

    @property
    def gate_share(self) -> float:
        """The worst difference the gate saw, 1 being what it allows."""
        shares: list[float] = [
            figures["share_of_tolerance"]
            for case in self.metadata.parity.values()
            for figures in case.values()
            if "share_of_tolerance" in figures
        ]
        return max(shares)


def main() -> None:
    """Export everything, run the contestants interleaved, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkpoint", type=Path, help="of at-infer train; default: a seeded network of --small's size"
    )
    parser.add_argument("--data", help="Parquet with real rows for the checkpoint; default: generated rows")
    parser.add_argument("--small", action="store_true", help="a small network and few repeats, for a quick look")
    parser.add_argument("--precision", action="append", choices=get_args(ExportPrecision), help="default: all of them")
    parser.add_argument("--batch", type=int, default=16, help="windows per call")
    parser.add_argument("--threads", type=int, default=1, help="more than one suffer most from a busy machine")
    parser.add_argument("--repeats", type=int, help="timed turns of each contestant; default 11, or 3 with --small")
    args = parser.parse_args()
    args.repeats = args.repeats or (3 if args.small else 11)
    flush_denormals()  # as the engine does
    torch.set_num_threads(args.threads)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(args, Path(folder))
    except AtInferError as error:
        parser.exit(1, f"error: {error}\n")


def run(args: argparse.Namespace, folder: Path) -> None:
    """The whole benchmark, with its files in `folder`."""
    checkpoint, data = setting(args, folder)
    checkpoint = of_windows(checkpoint)
    precisions = args.precision or get_args(ExportPrecision)
    entries = [entry for precision in precisions for entry in export(precision, checkpoint, data, folder)]
    windows = real_windows(data, checkpoint, most=REAL_WINDOWS)
    seconds = measure(entries, checkpoint, windows, args)
    print_table(entries, seconds, checkpoint, args, len(windows))
    print(json.dumps(report(entries, seconds, checkpoint, args, len(windows))))


def setting(args: argparse.Namespace, folder: Path) -> tuple[Checkpoint, str]:
    """The model, and rows for it."""
    if args.checkpoint is not None:
        checkpoint = Checkpoint.load(args.checkpoint)
        if args.data is not None:
            return checkpoint, args.data
        return checkpoint, write_rows(folder, checkpoint.columns, checkpoint.scaler)[1]
    preset, features = ("default", 5) if args.small else ("paper", 25)
    unscaled = Scaler(mean=[0.0] * features, scale=[1.0] * features)
    clean, rows = write_rows(folder, [f"f{j:02}" for j in range(features)], unscaled)
    loaded = load(DataConfig(source=clean), window=100)
    model = replace(PRESETS[preset].model, features=features)
    task = TrainingTask(data=loaded, model=model, train=TrainConfig(max_steps=1))
    checkpoint = fit(task, ScoreConfig(mode="reconstruction"))
    return checkpoint, args.data or rows


def write_rows(folder: Path, columns: list[str], scaler: Scaler) -> tuple[str, str]:
    """Generated rows, clean and with anomalies in them, about as large as the scaler expects."""
    parts = datasets.generate(rows=(8000, 1, 8000), features=len(columns))
    paths = {name: folder / f"{name}.parquet" for name in ("train", "test")}
    for name, path in paths.items():
        values = (np.asarray(scaler.mean) + np.asarray(scaler.scale) * parts[name].values).astype(np.float32)
        write_table(path, dict(zip(columns, values.T, strict=True)))
    return str(paths["train"]), str(paths["test"])


def of_windows(checkpoint: Checkpoint) -> Checkpoint:
    """Mode `fusion` looks at more than windows; here its error, mode `reconstruction`, stands for it."""
    if checkpoint.score.mode != "fusion":
        return checkpoint
    mode: ScoreMode = "reconstruction"
    kept = [record for record in checkpoint.validation if mode in record.quantiles]
    records = [
        replace(of, threshold=carried_threshold(of.threshold, checkpoint.quantile_levels, of.quantiles[mode]))
        for of in kept
    ]
    return replace(checkpoint, score=ScoreConfig(mode=mode), validation=records)


def export(precision: ExportPrecision, checkpoint: Checkpoint, data: str, folder: Path) -> Iterator[Entry]:
    """Both graphs in one precision, as `at-infer export` writes them, and a plan of each."""
    began: list[float] = []
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in checkpoint.state_dict.values())).hexdigest()
    calibration = data if precision == "int8" else None
    config = ExportConfig(name=precision, precision=precision, data=data, calibration=calibration, engine="none")
    # It announces each graph before it begins with it.
    written = export_model(checkpoint, digest, folder, config, say=lambda _: began.append(time.perf_counter())).files
    ends = [*began[1:], time.perf_counter()]
    for exported, start, end in zip(written, began, ends, strict=True):
        entry = Entry(exported.metadata.graph, precision, exported.path, exported.metadata, end - start)
        if precision != "int8-dynamic" and load_flavour("rtx") is not None:
            entry.plan_s, entry.plan_bytes = build(exported)
        yield entry


def build(exported: Exported) -> tuple[float, int]:
    """Seconds and bytes of the TensorRT-RTX plan for its default GPUs; nothing of it runs without one."""
    path, precision = exported.path.with_suffix(".trt"), exported.metadata.precision
    start = time.perf_counter()
    build_plan(exported.path, path, exported.metadata, flavour="rtx", batch=PROFILE, tf32=precision != "fp32")
    return time.perf_counter() - start, path.stat().st_size


def measure(
    entries: list[Entry], checkpoint: Checkpoint, windows: Floats, args: argparse.Namespace
) -> dict[str, list[float]]:
    """Seconds for all windows, per contestant and turn; the answers of the last turn are checked."""
    batches = [windows[i : i + args.batch] for i in range(0, len(windows), args.batch)]
    reference = ScoreGraph(
        checkpoint.network(),
        checkpoint.scaler,
        entries[0].metadata.discrepancy,
        checkpoint.score,
        checkpoint.normal,
    )
    contestants: dict[str, Callable[[Floats], dict[str, Floats]]] = {}

    def pytorch(batch: Floats) -> dict[str, Floats]:
        with torch.inference_mode():
            found = reference(torch.from_numpy(batch))
        return {name: tensor.numpy() for name, tensor in zip(reference.outputs, found, strict=True)}

    contestants[PYTORCH] = pytorch
    for entry in entries:
        try:
            contestants[entry.name] = open_engine(entry.path, threads=args.threads).run
        except EngineError as error:
            entry.cannot_run = str(error).replace(str(entry.path), entry.path.name)

    clock = time.process_time if args.threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    answers: dict[str, Parts] = {}
    for turn in range(args.repeats + 1):
        for name, answer in contestants.items():
            time.sleep(REST_S)
            start = clock()
            found = [answer(batch) for batch in batches]
            elapsed = clock() - start
            if turn > 0:  # the first warms up
                seconds[name].append(elapsed)
            if turn == args.repeats:
                answers[name] = parts(found, batches, entries[0].metadata)
    expected, exact = (run_reference(reference, windows, kind) for kind in (torch.float32, torch.float64))
    for entry in entries:
        if entry.cannot_run is None:
            check(entry, answers[entry.name], expected, exact)
    return seconds


def parts(found: list[dict[str, Floats]], batches: list[Floats], metadata: Metadata) -> Parts:
    """Error and discrepancy of what a contestant answered, whichever graph it ran."""
    pairs = [error_and_discrepancy(batch, outputs, metadata) for batch, outputs in zip(batches, found, strict=True)]
    error, discrepancy = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return error, discrepancy


def check(entry: Entry, answer: Parts, expected: dict[str, Floats], exact: dict[str, Floats]) -> None:
    """The timed answers against PyTorch's, by the tolerances of the gate; note what they are worth."""
    shares = []
    for name, found in zip(("error", "discrepancy"), answer, strict=True):
        limit = TOLERANCES[entry.precision][name]
        doubt = np.abs(expected[name] - exact[name]).max(axis=1, keepdims=True)
        allowed = limit.atol + limit.rtol * np.abs(expected[name]) + DOUBT * doubt
        shares.append(float((np.abs(found - expected[name]) / allowed).max()))
    entry.share_of_tolerance = max(shares)
    assert entry.share_of_tolerance <= 1, f"{entry.name}: the timed answers are {max(shares):.1f} tolerances off"
    metadata = entry.metadata
    scores = anomaly_score(
        *answer,
        metadata.score,
        layers_summed=layers_summed(metadata),
        discrepancy_statistics=discrepancy_statistics(metadata),
    )
    entry.agreement = parity.agreement(scores, expected["score"], metadata.validation_of().threshold.value)


def print_table(
    entries: list[Entry],
    seconds: dict[str, list[float]],
    checkpoint: Checkpoint,
    args: argparse.Namespace,
    windows: int,
) -> None:
    """One line per file."""
    model, base = checkpoint.model, min(seconds[PYTORCH])
    print(
        f"{model.width} wide, {model.layers} layers, window {model.window}, {model.features} features; "
        f"batch {args.batch}, {args.threads} thread(s); PyTorch in fp32: {windows / base:.0f} windows/s"
    )
    print(
        f"{'graph':14}{'precision':14}{'ONNX MB':>8}{'trace+gate s':>14}{'plan MB':>9}{'plan s':>8}{'gate':>7}"
        f"{'score off by':>14}{'rank corr.':>12}{'verdicts':>10}{'speed':>8}"
    )
    for entry in entries:
        plan = (
            f"{entry.plan_bytes / 1e6:9.2f}{entry.plan_s:8.1f}"
            if entry.plan_bytes is not None and entry.plan_s is not None
            else f"{'-':>9}{'-':>8}"
        )
        worth = f"{'not run':>14}{'-':>12}{'-':>10}{'-':>8}"
        if entry.cannot_run is None:
            found = entry.agreement
            worth = (
                f"{found['max_abs']:14.1e}{found['spearman']:12.6f}{found['verdicts_changed']:10.3%}"
                f"{base / min(seconds[entry.name]):7.2f}x"
            )
        print(
            f"{entry.graph:14}{entry.precision:14}{entry.path.stat().st_size / 1e6:8.2f}"
            f"{entry.trace_and_gate_s:14.1f}{plan}{entry.gate_share:7.2f}{worth}"
        )
    print("gate: worst difference in tolerances; speed: windows/s of ONNX Runtime over those of PyTorch")


def report(
    entries: list[Entry],
    seconds: dict[str, list[float]],
    checkpoint: Checkpoint,
    args: argparse.Namespace,
    windows: int,
) -> dict[str, Any]:
    """The same for machines."""
    import onnx
    import onnxruntime

    base = min(seconds[PYTORCH])
    rtx = load_flavour("rtx")

    def row(entry: Entry) -> dict[str, Any]:
        timed = seconds.get(entry.name)
        return {
            "graph": entry.graph,
            "precision": entry.precision,
            "onnx_bytes": entry.path.stat().st_size,
            "trace_and_gate_s": round(entry.trace_and_gate_s, 2),
            "plan_bytes": entry.plan_bytes,
            "plan_s": None if entry.plan_s is None else round(entry.plan_s, 2),
            "gate_share_of_tolerance": entry.gate_share,
            "timed_share_of_tolerance": entry.share_of_tolerance,
            "score_agreement": entry.agreement,
            "windows_per_s": None if timed is None else round(windows / min(timed), 1),
            "windows_per_s_median": None if timed is None else round(windows / statistics.median(timed), 1),
            "times_pytorch": None if timed is None else round(base / min(timed), 3),
            "not_run": entry.cannot_run,
        }

    return {
        "benchmark": "export_matrix",
        "model": checkpoint.model.to_dict(),
        "trained_steps": sum(1 for _ in checkpoint.train.get("steps", {}).get("reconstruction", ())),
        "score_mode": checkpoint.score.mode,
        "batch": args.batch,
        "threads": args.threads,
        "clock": "cpu" if args.threads == 1 else "wall",
        "repeats": args.repeats,
        "windows": windows,
        "machine": platform.machine(),
        "versions": {
            "torch": str(torch.__version__),
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
            "tensorrt_rtx": None if rtx is None else rtx.__version__,
        },
        "pytorch_windows_per_s": round(windows / base, 1),
        "rows": [row(entry) for entry in entries],
    }


if __name__ == "__main__":
    main()
