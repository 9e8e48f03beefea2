"""From data to alarms, step by step, on generated data: python examples/walk_through.py [folder]

Training and export run as commands; scoring is plain Python without torch.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from at_infer import Scorer, StreamScorer, score_file


def main() -> None:
    """Generate, train, export, score a file, score rows in memory, score live rows, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("walk-through"))
    parser.add_argument("--rows", type=int, nargs=3, default=[20_000, 10_000, 20_000], help="train, validation, test")
    parser.add_argument("--max-steps", type=int, default=400, help="training budget")
    args = parser.parse_args()
    folder: Path = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    engine = folder / "model.onnx"

    rows = " ".join(map(str, args.rows))
    at_infer(folder, f"generate -o data --kind multivariate --rows {rows}")
    at_infer(
        folder,
        "train data/train.parquet -o ckpt.pt --validation data/validation.parquet --time-column timestamp "
        f"--max-steps {args.max_steps} --score-mode reconstruction",
    )
    at_infer(folder, "export ckpt.pt --engine none")

    # A file of any size: one row out per row in.
    summary = score_file(folder / "data" / "test.parquet", engine, folder / "scores.parquet")
    print(f"{summary.anomalies} of {summary.rows} rows in {summary.segments} segments")

    # Rows in memory.
    with Scorer(engine) as scorer:
        window = scorer.metadata.model.window
        quiet = np.tile(np.asarray(scorer.metadata.scaler.mean, np.float32), (2 * window, 1))
        quiet[window + 5] += 10 * np.asarray(scorer.metadata.scaler.scale, np.float32)  # a jolt
        scores = scorer.score(quiet)
        print(f"the jolt scores {scores.score[window + 5]:.3g}, the threshold is {scorer.threshold:.3g}")

    # Rows as they come: each is scored as the last of its window.
    with StreamScorer(engine) as stream:
        for row in quiet:
            last = stream.push(row)
        print(f"the last row live: {last}")

    at_infer(
        folder,
        "report scores.parquet --data data/test.parquet --labels data/test.parquet --engine model.associations.onnx "
        "--interval 60 -o report.html",
    )


def at_infer(folder: Path, words: str) -> None:
    """Run a command of at-infer in a folder, as a shell would."""
    print(f"$ at-infer {words}", flush=True)
    subprocess.run([sys.executable, "-m", "at_infer", *words.split()], cwd=folder, check=True)


if __name__ == "__main__":
    main()
