"""Memory and time of a training step by the width of the network, at the paper's window, depth, heads and batch.

    python -m benchmarks.width_cost [--steps 3] [--out benchmarks/results/width_cost.json]

Each width runs in a process of its own, forked before anything was computed, on one thread. Time is CPU time, so that
other work on the machine adds little; memory is the highest resident size above that of the loaded libraries.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from at_infer.config import PRESETS
from at_infer.output import atomic_path
from benchmarks.peak_memory import peak_mb
from training.device import flush_denormals
from training.model import AnomalyTransformer
from training.objective import objective

WIDTHS = (256, 512, 1024)
FEATURES = 25
"""Of SMAP."""


def cost(width: int, steps: int, batch: int) -> dict[str, float]:
    """Of one width; the first step warms up."""
    torch.set_num_threads(1)
    flush_denormals()
    before = peak_mb()
    torch.manual_seed(0)
    preset = PRESETS["paper"]
    config = replace(preset.model, features=FEATURES, width=width, feed_forward=width)
    network = AnomalyTransformer(config)
    optimizer = torch.optim.Adam(network.parameters(), lr=preset.train.learning_rate)
    x = torch.randn(batch, config.window, FEATURES)
    seconds = []
    for _ in range(steps + 1):
        start = time.process_time()
        x_hat, associations = network(x)
        losses = objective(
            x,
            x_hat,
            associations,
            discrepancy=preset.train.discrepancy,
            strategy="minimax",
            lambda_=preset.train.lambda_,
            prior=config.prior,
        )
        optimizer.zero_grad(set_to_none=True)
        losses.loss.backward()
        optimizer.step()
        seconds.append(time.process_time() - start)
    return {
        "width": width,
        "parameters": sum(p.numel() for p in network.parameters()),
        "step_cpu_s": round(statistics.median(seconds[1:]), 3),
        "memory_mb": round(peak_mb() - before),
    }


def main() -> None:
    """Measure every width, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=PRESETS["paper"].train.batch_size)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    for width in WIDTHS:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            found.append(pool.apply(cost, (width, args.steps, args.batch)))
        print("{width:>6} wide  {step_cpu_s:>7.3f} CPU s a step  {memory_mb:>6} MB".format(**found[-1]), flush=True)
    report = {
        "benchmark": "width_cost",
        "batch": args.batch,
        "steps": args.steps,
        "features": FEATURES,
        "widths": found,
    }
    if args.out is not None:
        with atomic_path(args.out) as temporary:
            temporary.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
