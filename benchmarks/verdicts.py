"""Does a file of lower precision flag the same rows? Every row of real data through each precision, against fp32.

    python -m benchmarks.verdicts --checkpoint ckpt.pt --data test.parquet [--score-mode centred]

`at-infer export` writes the files, `at-infer score` scores the data with the checkpoint's threshold. A verdict is
whether a row is flagged. int8 is calibrated on `--calibration`, training rows; without it, int8 is left out.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.config import ExportPrecision, ScoreMode
from at_infer.errors import AtInferError
from at_infer.evaluation.metrics.ranking import spearman
from at_infer.scoring.options import EngineOptions
from at_infer.scoring.score_file import score_file
from export.config import ExportConfig
from export.pipeline import export_model
from training.checkpoint import Checkpoint

DEFAULT: tuple[ExportPrecision, ...] = ("int8-dynamic", "int8")


def scored(
    precision: ExportPrecision, checkpoint: Checkpoint, args: argparse.Namespace, folder: Path
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Score and verdict of every row."""
    calibration = args.calibration if precision == "int8" else None
    config = ExportConfig(
        name=precision, precision=precision, engine="none", score_mode=args.score_mode, calibration=calibration
    )
    model = export_model(checkpoint, "0" * 64, folder, config).files[0].path
    score_file(args.data, model, folder / f"{precision}.parquet", engine_options=EngineOptions(threads=args.threads))
    found = pl.read_parquet(folder / f"{precision}.parquet", columns=["score", "is_anomaly"])
    return found["score"].to_numpy(), found["is_anomaly"].to_numpy()


def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every precision against fp32."""
    checkpoint = Checkpoint.load(args.checkpoint)
    mode = args.score_mode or checkpoint.score.mode
    expected, flagged = scored("fp32", checkpoint, args, folder)
    print(f"score mode {mode}, {len(flagged):,} rows, {flagged.mean():.2%} flagged by fp32")
    rows = []
    for precision in args.precision or DEFAULT:
        if precision == "int8" and args.calibration is None:
            continue
        scores, verdicts = scored(precision, checkpoint, args, folder)
        same, correlation = float((verdicts == flagged).mean()), spearman(scores, expected)
        print(
            f"{precision:14}verdict unchanged on {same:.3%} of the rows, rank correlation {correlation:.4f}", flush=True
        )
        rows.append({"precision": precision, "unchanged": same, "spearman": correlation})
    return {"score_mode": mode, "rows": len(flagged), "flagged": float(flagged.mean()), "precisions": rows}


def main() -> None:
    """Run, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="of at-infer train")
    parser.add_argument("--data", required=True, help="Parquet with the rows to score")
    parser.add_argument("--calibration", help="Parquet with training rows, for int8")
    parser.add_argument(
        "--precision", action="append", choices=get_args(ExportPrecision), help="default: int8 of both kinds"
    )
    parser.add_argument("--score-mode", choices=get_args(ScoreMode), help="default: the checkpoint's")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = run(args, Path(folder))
    except AtInferError as error:
        parser.exit(1, f"error: {error}\n")
    print(json.dumps({"benchmark": "verdicts", **found}))


if __name__ == "__main__":
    main()
