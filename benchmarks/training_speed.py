"""One training step of ours against the published procedure, same weights, same batch, answers compared.

The published procedure (benchmarks/published.py) normalises the prior anew in each of the four KL terms of a layer, and
takes two backward passes through a retained graph.

    python -m benchmarks.training_speed [--steps 12] [--threads 2]
"""

import argparse
import json
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from at_infer.config import PRESETS, DiscrepancyConfig
from benchmarks.peak_memory import peak_mb
from benchmarks.published import published_forward, published_kl
from training.device import flush_denormals
from training.model import AnomalyTransformer
from training.objective import objective

LAMBDA = 3.0
HEAD_RULE = {"paper": DiscrepancyConfig(), "published": DiscrepancyConfig(head_rule="published")}


def published_step(model: AnomalyTransformer, x: Tensor) -> tuple[float, float]:
    """Forward, two losses, two backward passes; gradients are left in the parameters."""
    x_hat, associations = published_forward(model, x)
    series_loss = torch.zeros(())
    prior_loss = torch.zeros(())

    def normalised(prior: Tensor) -> Tensor:
        return prior / prior.sum(-1).unsqueeze(-1).repeat(1, 1, 1, prior.shape[-1])

    for series, prior in associations:
        series_loss = series_loss + (
            published_kl(series, normalised(prior).detach()).mean()
            + published_kl(normalised(prior).detach(), series).mean()
        )
        prior_loss = prior_loss + (
            published_kl(normalised(prior), series.detach()).mean()
            + published_kl(series.detach(), normalised(prior)).mean()
        )
    reconstruction = F.mse_loss(x_hat, x)
    maximize = reconstruction - LAMBDA * series_loss / len(associations)
    minimize = reconstruction + LAMBDA * prior_loss / len(associations)
    maximize.backward(retain_graph=True)
    minimize.backward()
    return maximize.item(), minimize.item()


def our_step(model: AnomalyTransformer, x: Tensor, head_rule: str) -> tuple[float, float]:
    """The step of training/loop.py: one forward, one backward pass."""
    x_hat, associations = model(x)
    losses = objective(x, x_hat, associations, discrepancy=HEAD_RULE[head_rule], strategy="minimax", lambda_=LAMBDA)
    losses.loss.backward()
    error, difference = losses.reconstruction.item(), LAMBDA * losses.discrepancy.item()
    return error - difference, error + difference


CONTESTANTS: dict[str, tuple[Callable[[AnomalyTransformer, Tensor], tuple[float, float]], bool]] = {
    "published": (published_step, False),
    "published, denormals flushed": (published_step, True),
    "ours, published head rule": (lambda model, x: our_step(model, x, "published"), True),
    "ours, paper's head rule": (lambda model, x: our_step(model, x, "paper"), True),
    "ours, paper's, denormals kept": (lambda model, x: our_step(model, x, "paper"), False),
}


def setting(args: argparse.Namespace) -> tuple[AnomalyTransformer, Tensor]:
    """The same weights and batch for everyone."""
    torch.manual_seed(0)
    paper = PRESETS["paper"].model
    config = replace(paper, features=25, window=args.window, width=args.width, feed_forward=args.width)
    return AnomalyTransformer(config), torch.randn(args.batch, args.window, 25)


def check_answers(args: argparse.Namespace) -> float:
    """Largest difference between gradients, relative to the largest gradient of that parameter."""
    model, x = setting(args)
    losses = published_step(model, x)
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    ours = our_step(model, x, "published")
    assert all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(losses, ours, strict=True)), (losses, ours)
    worst = 0.0
    for e, p in zip(expected, model.parameters(), strict=True):
        assert p.grad is not None
        worst = max(worst, ((e - p.grad).abs().max() / e.abs().max().clamp_min(1e-8)).item())
    assert worst < 1e-2, f"gradients differ by {worst:.1e}"
    return worst


def measure(name: str, args: argparse.Namespace, connection: "multiprocessing.connection.Connection") -> None:
    """Contestant in its own process, so that denormal mode and peak memory are its own; a step on request."""
    step, flush = CONTESTANTS[name]
    if flush:
        flush_denormals()
    torch.set_num_threads(args.threads)
    model, x = setting(args)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    while connection.recv():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        step(model, x)
        optimizer.step()
        connection.send(time.perf_counter() - start)
    connection.send(peak_mb())


def main() -> None:
    """Run the contestants interleaved and print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="timed steps of each contestant")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    gradient_difference = check_answers(args)

    context = multiprocessing.get_context("spawn")
    workers = {}
    for name in CONTESTANTS:
        here, there = context.Pipe()
        process = context.Process(target=measure, args=(name, args, there), daemon=True)
        process.start()
        workers[name] = here
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    for step in range(args.steps + 2):
        for name, connection in workers.items():
            connection.send(True)
            elapsed = connection.recv()
            if step >= 2:
                seconds[name].append(elapsed)
    peak_mb = {}
    for name, connection in workers.items():
        connection.send(False)
        peak_mb[name] = connection.recv()

    base = statistics.median(seconds["published"])
    print(
        f"batch {args.batch}, window {args.window}, 25 features, width {args.width}, 3 layers, {args.threads} threads"
    )
    print(f"{'':32}{'ms/step':>9}{'speed-up':>10}{'peak MB':>9}")
    for name in workers:
        median = statistics.median(seconds[name])
        print(f"{name:32}{median * 1e3:9.0f}{base / median:9.2f}x{peak_mb[name]:9.0f}")
    print(
        json.dumps(
            {
                "benchmark": "training_speed",
                "steps": args.steps,
                "threads": args.threads,
                "ms_per_step": {name: round(statistics.median(s) * 1e3, 1) for name, s in seconds.items()},
                "speed_up": {name: round(base / statistics.median(s), 2) for name, s in seconds.items()},
                "peak_mb": {name: round(mb) for name, mb in peak_mb.items()},
                "gradient_difference": gradient_difference,
            }
        )
    )


if __name__ == "__main__":
    main()
