"""What a user would pick instead of at-infer, on the same rows and machine, in one run.

    python -m benchmarks.peers [--peers-python build/peers/bin/python] [--rounds 5] [--windows 64] [--overlap-rows 300]

A PyTorch script in the manner of the published code, the Anomaly Transformers of PyOD and DeepOD, scikit-learn's
IsolationForest, and at-infer from file to file in fp32 and int8-dynamic. All transformers have the paper's size
(window 100, 25 features, 512 wide, 3 layers; PyOD's feed-forward part is 2048 wide and cannot be set). Every
contestant is a process of its own with two threads; they take turns. benchmarks/peers-requirements.txt says how to
install the other libraries; what cannot run is named, with the reason.

Rows are scored in windows that do not overlap. PyOD and DeepOD do not work like that by default: they put a window at
every row, DeepOD always. So there is a second group, with a window at every row, on fewer rows.

Answers: the script and at-infer have the same weights and must agree. The others have weights of their own: scores
must be finite, not all the same, and the same in every round; the forest must find a planted spike. Start-up is the
time from starting the process to its first scored window, the fitted model being on disk.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.config import ScoreConfig
from benchmarks.models import FEATURES, checkpoint
from benchmarks.peer_worker import WINDOW
from export.config import ExportConfig
from export.pipeline import export_model
from training.checkpoint import Checkpoint

ROOT = Path(__file__).parent.parent
TITLES = {
    "published": "published-style PyTorch script",
    "pyod": "PyOD, step 100",
    "isolation_forest": "scikit-learn IsolationForest",
    "fp32": "at-infer score, fp32",
    "int8": "at-infer score, int8-dynamic",
    "pyod-overlap": "PyOD, step 1 (its default)",
    "deepod": "DeepOD",
    "fp32-overlap": "at-infer score --stride 1, fp32",
    "int8-overlap": "at-infer score --stride 1, int8",
}
OVERLAPPING = ("pyod-overlap", "deepod", "fp32-overlap", "int8-overlap")
FITTED = {"pyod": ("pyod", "pyod-overlap"), "deepod": ("deepod",), "isolation_forest": ("isolation_forest",)}
PRECISIONS: tuple[Literal["fp32", "int8-dynamic"], ...] = ("fp32", "int8-dynamic")
SAME_WEIGHTS = {"fp32": "published", "int8": "published", "int8-overlap": "fp32-overlap"}
Answers = dict[str, NDArray[np.float64]]


class Worker:
    """A contestant's process."""

    def __init__(self, python: str, name: str, folder: Path) -> None:
        begin = time.perf_counter()
        self.process = start(python, name, folder)
        self.answer()
        self.startup_s = time.perf_counter() - begin

    def answer(self) -> dict[str, Any]:
        """The next JSON line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, words = self.process.communicate()
            raise RuntimeError(last_line(words))
        found: dict[str, Any] = json.loads(line)
        return found

    def score(self, path: Path) -> tuple[float, NDArray[np.float64]]:
        """Seconds it took, and the scores."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        found = self.answer()
        return found["seconds"], np.asarray(found["scores"])

    def finish(self) -> float:
        """Peak memory in MB."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak: float = self.answer()["peak_mb"]
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return peak


def start(python: str, name: str, folder: Path) -> subprocess.Popen[str]:
    """A process with this repository on its path and two threads."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"}
    command = [python, "-m", "benchmarks.peer_worker", name, str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=ROOT)


def last_line(text: str) -> str:
    """What a traceback says in the end."""
    return (text.strip().splitlines() or ["no reason given"])[-1]


def prepare(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    """Data, exported models and fitted detectors, unless they are there; the reasons of those that cannot be had."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(args.windows * WINDOW, FEATURES)).astype(np.float32)
    for spike in args.spikes:
        rows[spike] *= 20
    names = [f"f{i:02}" for i in range(FEATURES)]
    table = pl.DataFrame({"timestamp": np.arange(len(rows)), **dict(zip(names, rows.T, strict=True))})
    table.write_parquet(folder / "rows.parquet")
    table.head(args.overlap_rows).write_parquet(folder / "few.parquet")
    table.head(WINDOW).write_parquet(folder / "first.parquet")
    if not (folder / "ckpt.pt").exists():
        checkpoint(512, ScoreConfig(mode="published")).save(folder / "ckpt.pt")
    for precision in PRECISIONS:
        if not (folder / f"{precision}.onnx").exists():
            config = ExportConfig(name=precision, precision=precision, engine="none")
            export_model(Checkpoint.load(folder / "ckpt.pt"), "0" * 64, folder, config)
    absent: dict[str, str] = {}
    for name, contestants in FITTED.items():
        if not (folder / f"{name}.pickle").exists():
            process = start(args.peers_python, f"fit:{name}", folder)
            reason = last_line(process.communicate()[1])
            if process.returncode:
                absent |= dict.fromkeys(contestants, reason)
    return absent


def check(answers: Answers, args: argparse.Namespace) -> dict[str, float]:
    """Nobody is timed on nonsense; how far those with the same weights are apart.

    By correlation, not by rank: most scores of this mode are 0 or nearly so.
    """
    for name, scores in answers.items():
        rows = args.overlap_rows if name in OVERLAPPING else args.windows * WINDOW
        assert scores.shape == (rows,), f"{name}: {scores.shape} scores for {rows} rows"
        assert np.isfinite(scores).all(), f"{name}: scores are not finite"
        assert scores.std() > 0, f"{name}: all scores are the same"
    if "isolation_forest" in answers:
        top = int(answers["isolation_forest"].argmax())
        assert top in args.spikes, f"isolation_forest: the highest score is at {top}"
    agreement = {}
    for name, other in SAME_WEIGHTS.items():
        agreement[name] = float(np.corrcoef(answers[name], answers[other])[0, 1])
    np.testing.assert_allclose(answers["fp32"], answers["published"], rtol=5e-2, atol=1e-5)
    assert min(agreement.values()) > 0.9, agreement
    return agreement


def main() -> None:
    """Run, compare, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", default=sys.executable, help="Python with benchmarks/peers-requirements.txt")
    parser.add_argument("--rounds", type=int, default=5, help="timed turns of each contestant")
    parser.add_argument("--starts", type=int, default=3, help="times that each contestant is started")
    parser.add_argument("--windows", type=int, default=64, help="windows that do not overlap")
    parser.add_argument("--overlap-rows", type=int, default=300, help="rows of those with a window at every row")
    parser.add_argument("--models", type=Path, help="keep what is prepared here, for another run")
    parser.add_argument("--prepare-only", action="store_true", help="export, fit and stop")
    args = parser.parse_args()
    args.spikes = [150, args.windows * WINDOW - 50]
    with tempfile.TemporaryDirectory() as name:
        folder = args.models or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        absent = prepare(folder, args)
        if args.prepare_only:
            return
        report = compare(folder, args, absent)
    print_table(report)
    print(json.dumps(report))


def compare(folder: Path, args: argparse.Namespace, absent: dict[str, str]) -> dict[str, Any]:
    """Start everybody, let them take turns, check what they answered."""
    workers: dict[str, Worker] = {}
    startups: dict[str, list[float]] = {name: [] for name in TITLES if name not in absent}
    for number in range(args.starts):
        for name in startups:
            python = args.peers_python if name in sum(FITTED.values(), ()) else sys.executable
            print(f"start {number + 1} of {args.starts}: {TITLES[name]}", file=sys.stderr)
            worker = Worker(python, name, folder)
            startups[name].append(worker.startup_s)
            if number == args.starts - 1:
                workers[name] = worker
            else:
                worker.finish()
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    answers: Answers = {}
    agreement: dict[str, float] = {}
    for number in range(args.rounds + 1):
        print(f"round {number} of {args.rounds}", file=sys.stderr)
        for name, worker in workers.items():
            taken, scores = worker.score(folder / ("few.parquet" if name in OVERLAPPING else "rows.parquet"))
            if number:
                seconds[name].append(taken)
                np.testing.assert_allclose(scores, answers[name], rtol=1e-3, atol=1e-6, err_msg=name)
            else:  # a warm-up
                answers[name] = scores
        if not number:
            agreement = check(answers, args)
    contestants = []
    for name, worker in workers.items():
        rows = args.overlap_rows if name in OVERLAPPING else args.windows * WINDOW
        windows = rows - WINDOW + 1 if name in OVERLAPPING else args.windows
        median = statistics.median(seconds[name])
        contestants.append(
            {
                "name": TITLES[name],
                "overlapping": name in OVERLAPPING,
                "rows_per_s": round(rows / median, 1),
                "windows_per_s": None if name == "isolation_forest" else round(windows / median, 1),
                "peak_mb": round(worker.finish()),
                "startup_s": round(statistics.median(startups[name]), 2),
                "agreement": agreement.get(name),
            }
        )
    return {
        "benchmark": "peers",
        "rounds": args.rounds,
        "threads": 2,
        "rows": args.windows * WINDOW,
        "overlap_rows": args.overlap_rows,
        "contestants": contestants,
        "could_not_run": {TITLES[name]: reason for name, reason in absent.items()},
    }


def print_table(report: dict[str, Any]) -> None:
    """The two groups, one after the other."""
    for overlapping, title in (
        (False, f"{report['rows']} rows, windows that do not overlap"),
        (True, f"{report['overlap_rows']} rows, a window at every row"),
    ):
        print(f"{title:40}{'rows/s':>10}{'windows/s':>11}{'peak MB':>9}{'start-up s':>12}")
        for entry in report["contestants"]:
            if entry["overlapping"] == overlapping:
                windows = "-" if entry["windows_per_s"] is None else f"{entry['windows_per_s']:.0f}"
                print(
                    f"  {entry['name']:38}{entry['rows_per_s']:10.0f}{windows:>11}{entry['peak_mb']:9}"
                    f"{entry['startup_s']:12.2f}"
                )
    for name, reason in report["could_not_run"].items():
        print(f"{name}: could not run here: {reason}")


if __name__ == "__main__":
    main()
