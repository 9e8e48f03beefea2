"""How the cost of scoring grows with window, width, features and layers, against what the arithmetic predicts.

    python -m benchmarks.cost_growth [--rounds 8] [--threads 1] [--plot docs/img/cost_growth.svg] [--models DIR]

One size at a time leaves the paper's (window 100, 512 wide, 25 features, 3 layers; 8 heads, fp32, random weights).
Batches have the same number of rows for every window, and all models take turns; every graph is what `export` makes for
mode `paper`, after its comparison with PyTorch. The exponent is the slope of a line through the logarithms: cost per
row ~ size^exponent. The arithmetic's exponent comes from the operations of benchmarks/arithmetic.py by the same fit.
`--models` keeps the exported models for another run.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from at_infer.config import PRESETS, DiscrepancyConfig, ExportPrecision, ModelConfig, ScoreConfig
from at_infer.engines import open_engine
from benchmarks.arithmetic import other_operations, product_operations
from benchmarks.cost_growth_figure import draw
from benchmarks.models import untrained
from export.config import ExportConfig
from export.pipeline import export_model

BASE = replace(PRESETS["paper"].model, features=25)
SIZES: dict[str, tuple[int, ...]] = {
    "window": (50, 100, 200, 400),
    "width": (128, 256, 512, 1024),
    "features": (1, 25, 55),
    "layers": (1, 2, 3, 4),
}
ROWS = 800
TOLERANCE = 0.1  # in the exponent: a tenth is less than 10 % per doubling, about what a shared machine blurs


def shape(axis: str, size: int) -> ModelConfig:
    """The paper's model with one other size; the feed-forward part is as wide as the rest."""
    changes = {axis: size} | ({"feed_forward": size} if axis == "width" else {})
    return ModelConfig.from_dict(BASE.to_dict() | changes)


def exported(model: ModelConfig, folder: Path, precision: ExportPrecision = "fp32") -> Path:
    """Its score graph as users get it, unless it is there: mode `paper` needs all that the network computes."""
    folder = folder / f"n{model.window}-d{model.width}-f{model.features}-l{model.layers}-{precision}"
    if not folder.exists():
        checkpoint = untrained(model, ScoreConfig(mode="paper"), DiscrepancyConfig(), windows=4, ratio=0.01)
        export_model(checkpoint, "0" * 64, folder, ExportConfig(engine="none", precision=precision))
    return folder / "model.onnx"


def measure(models: list[ModelConfig], folder: Path, rounds: int, threads: int) -> dict[ModelConfig, float]:
    """CPU seconds per row, the least of all rounds: other work on the machine only ever adds; the models take turns."""
    engines = {model: open_engine(exported(model, folder), threads=threads) for model in models}
    rng = np.random.default_rng(0)
    windows = {
        model: rng.normal(size=(ROWS // model.window, model.window, model.features)).astype(np.float32)
        for model in models
    }
    seconds: dict[ModelConfig, list[float]] = {model: [] for model in models}
    for number in range(rounds + 2):
        for model, engine in engines.items():
            begin = time.process_time()
            scores = engine.run(windows[model])["score"]
            if number >= 2:
                seconds[model].append(time.process_time() - begin)
            assert np.isfinite(scores).all()
    return {model: min(times) / ROWS for model, times in seconds.items()}


def exponent(sizes: list[int], costs: list[float]) -> float:
    """Slope of the line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def operations_per_row(model: ModelConfig) -> float:
    """Matrix products and all the rest."""
    return (product_operations(model) + other_operations(model)) / model.window


def evaluate(per_row: dict[ModelConfig, float]) -> list[dict[str, Any]]:
    """One entry per axis: sizes, times, operations and both exponents."""
    axes = []
    for axis, sizes in SIZES.items():
        models = [shape(axis, size) for size in sizes]
        times = [per_row[model] for model in models]
        operations = [operations_per_row(model) for model in models]
        measured, predicted = exponent(list(sizes), times), exponent(list(sizes), operations)
        axes.append(
            {
                "axis": axis,
                "sizes": list(sizes),
                "us_per_row": [round(1e6 * t, 2) for t in times],
                "operations_per_row": [round(count) for count in operations],
                "exponent": round(measured, 3),
                "predicted_exponent": round(predicted, 3),
                "as_predicted": measured <= predicted + TOLERANCE,
            }
        )
    return axes


def main() -> None:
    """Run, print a table and one JSON line, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="write the picture here")
    parser.add_argument("--models", type=Path, help="keep exported models here")
    parser.add_argument("--export-only", action="store_true", help="make the models and stop")
    args = parser.parse_args()
    models = list(dict.fromkeys(shape(axis, size) for axis, sizes in SIZES.items() for size in sizes))
    with tempfile.TemporaryDirectory() as name:
        folder = args.models or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for model in models:
            exported(model, folder)
        if args.export_only:
            return
        axes = evaluate(measure(models, folder, args.rounds, args.threads))
    print(f"batches of {ROWS} rows, threads: {args.threads}; microseconds of CPU time per row")
    for entry in axes:
        for size, micros, count in zip(entry["sizes"], entry["us_per_row"], entry["operations_per_row"], strict=True):
            print(f"{entry['axis']:10}{size:6}{micros:10.1f} us{count / 1e6:10.2f} million operations")
        verdict = f"no worse, within {TOLERANCE}" if entry["as_predicted"] else "worse than predicted"
        print(f"{'':10}exponent {entry['exponent']:.2f}, by arithmetic {entry['predicted_exponent']:.2f}: {verdict}")
    report = {"benchmark": "cost_growth", "rounds": args.rounds, "threads": args.threads, "rows": ROWS, "axes": axes}
    if args.plot is not None:
        args.plot.write_text(draw(report), encoding="utf-8")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
