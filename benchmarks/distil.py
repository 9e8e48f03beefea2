"""Does a small network that was distilled from one of the paper's size give its scores, and how fast?

    python -m benchmarks.distil --data FOLDER [--channels 4] [--teacher-steps 60] [--max-steps 2000] [--keep FOLDER]

FOLDER has train.parquet and test.parquet with the columns `timestamp`, `channel`, features and, in the test part,
`label`. `at-infer train --preset paper` makes the teacher, `at-infer distil` the student, `at-infer train` a default
network that knows no teacher, `at-infer export` the ONNX files. All score the test part in turns, with one thread;
scores are compared row by row and against the labels.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.evaluation.metrics.ranking import spearman
from at_infer.scoring.options import EngineOptions
from at_infer.scoring.score_file import score_file
from benchmarks.quality.commands import at_infer
from benchmarks.quality.worth import worth

Floats = NDArray[np.float32]

NAMES = ("teacher", "student", "default")
MINUTES_A_DAY = 1440


def arguments(description: str | None, folders: str | None = None) -> argparse.ArgumentParser:
    """What it takes to learn a teacher and a student; `folders` is how many of data may be given, one by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, nargs=folders, help="folder with train.parquet and test.parquet"
    )
    parser.add_argument("--channels", type=int, help="only the first so many series")
    parser.add_argument("--teacher-steps", type=int, default=60)
    parser.add_argument("--teacher-width", type=int, default=512)
    parser.add_argument("--teacher-rate", type=float, default=3e-4, help="learning rate; the preset's is for 10 epochs")
    parser.add_argument(
        "--max-steps", type=int, help="of the student, the distilled network; default: as the command has it"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a folder for the checkpoints; a teacher that is there is used again")
    return parser


def main() -> None:
    """Train, distil, export, score in turns, print a table and one JSON line."""
    parser = arguments(__doc__)
    parser.add_argument("--score-mode", default="fusion", help="of both")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = run(args, Path(name), args.keep or Path(name))
    row = "{:10}{:>14}{:>8}{:>10}{:>18}"
    columns = ("times_as_fast", "vus_pr", "rows_per_s", "spearman")
    print(row.format("", "times as fast", "VUS-PR", "rows/s", "rank correlation"))
    for one in NAMES:
        print(row.format(one, *(found[one][column] for column in columns)))
    print(json.dumps({"benchmark": "distil", "cpus": os.cpu_count(), **found}))


def run(args: argparse.Namespace, folder: Path, kept: Path) -> dict[str, Any]:
    """All of it; what is measured."""
    labels = split(args.data, args.channels, folder)
    seconds = make(args, folder, kept)
    options = EngineOptions(threads=1)
    spent: dict[str, list[float]] = {name: [] for name in NAMES}
    scores: dict[str, Floats] = {}
    for _ in range(args.repeats):
        for name in NAMES:
            output = folder / f"{name}.parquet"
            began = time.process_time()
            score_file(
                folder / "test.parquet", folder / name / "model.onnx", output, engine_options=options, overwrite=True
            )
            spent[name].append(time.process_time() - began)
            scores[name] = pl.read_parquet(output)["score"].to_numpy()
    channel = pl.read_parquet(folder / "test.parquet")["channel"].to_numpy()
    figures: dict[str, Any] = {
        name: {
            "cpu_s": [round(one, 2) for one in spent[name]],
            "rows_per_s": round(len(labels) / statistics.median(spent[name])),
            "times_as_fast": round(
                statistics.median(a / b for a, b in zip(spent["teacher"], spent[name], strict=True)), 2
            ),
            "vus_pr": mean_vus_pr(scores[name], labels, channel),
            "spearman": round(spearman(scores[name], scores["teacher"]), 4),
        }
        for name in NAMES
    }
    student = load_record(kept / "student.pt")
    return {
        "data": args.data.name,
        "channels": len(np.unique(channel)),
        "score_mode": args.score_mode,
        "teacher_model": student["teacher"],
        "teacher_steps": args.teacher_steps,
        "student_steps": student["evaluations"][-1]["step"],
        "cpu_s": seconds,
        "validation": student["agreement"],
        "test_rows": len(labels),
        "clock": "CPU time of score, file to file, one thread, in turns; ONNX Runtime",
        **figures,
    }


def split(data: Path, channels: int | None, folder: Path) -> NDArray[np.bool_]:
    """Both parts of the chosen series without labels, and the labels."""
    names = pl.read_parquet(data / "test.parquet", columns=["channel"])["channel"].unique(maintain_order=True)
    chosen = names[: channels or len(names)].implode()
    train, test = (
        pl.read_parquet(data / f"{part}.parquet").filter(pl.col("channel").is_in(chosen)) for part in ("train", "test")
    )
    train.write_parquet(folder / "train.parquet")
    test.drop("label").write_parquet(folder / "test.parquet")
    return test["label"].to_numpy().astype(np.bool_)


def make(args: argparse.Namespace, folder: Path, kept: Path) -> dict[str, float]:
    """Checkpoints and ONNX files of both; CPU seconds of each step."""
    train, columns = folder / "train.parquet", ["--time-column", "timestamp", "--series-column", "channel"]
    teacher, student, default = (kept / f"{name}.pt" for name in NAMES)
    network = ["--preset", "paper", "--width", args.teacher_width, "--learning-rate", args.teacher_rate]
    length = ["--max-steps", args.teacher_steps, "--threads", 1]
    scored = ["--score-mode", args.score_mode]
    seconds: dict[str, float] = {}
    if not teacher.exists():
        began = time.process_time()
        at_infer("train", train, "-o", teacher, *columns, *network, *length, *scored)
        seconds["teacher"] = round(time.process_time() - began)
    began = time.process_time()
    budget = [] if args.max_steps is None else ["--max-steps", args.max_steps]
    at_infer("distil", teacher, train, "-o", student, "--threads", 1, "--overwrite", *budget)
    seconds["student"] = round(time.process_time() - began)
    began = time.process_time()
    at_infer("train", train, "-o", default, *columns, "--season", "none", "--threads", 1, "--overwrite", *scored)
    seconds["default"] = round(time.process_time() - began)
    for name, checkpoint in zip(NAMES, (teacher, student, default), strict=True):
        (folder / name).mkdir()
        at_infer("export", checkpoint, "-o", folder / name, "--engine", "none")
    return seconds


def load_record(path: Path) -> dict[str, Any]:
    """What a checkpoint says of its training."""
    from training.checkpoint import Checkpoint

    return Checkpoint.load(path).train


def mean_vus_pr(scores: Floats, labels: NDArray[np.bool_], channel: NDArray[Any]) -> float:
    """Over the series that have anomalies, in percent."""
    found = []
    for name in np.unique(channel):
        of_series = channel == name
        if 0 < labels[of_series].mean() < 1:
            found.append(worth(scores[of_series], labels[of_series], MINUTES_A_DAY)["vus_pr"])
    return round(statistics.mean(found), 2)


if __name__ == "__main__":
    main()
