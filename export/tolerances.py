"""How far an exported graph may differ from the PyTorch model, element by element."""

import copy
from dataclasses import dataclass

import numpy as np
import torch

from at_infer.config import ScoreConfig
from export.graphs import OUTPUTS, AssociationsGraph, ScoreGraph
from export.parity_runs import Doubles, Floats, Outputs, run_reference

ROUNDINGS = 100.0  # of an input, as many as sums of about a hundred products may come to
DOUBT = 10.0  # how many times PyTorch's own float32 rounding error a difference may be


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A difference may be `atol + rtol * |expected|`."""

    atol: float
    rtol: float


# Keys are the outputs without their layer number. Values in units of the scaled data, where one is a standard
# deviation; `score` has none of its own, it follows from error and discrepancy.
TOLERANCES: dict[str, dict[str, Tolerance]] = {
    "fp32": {
        "reconstruction": Tolerance(1e-4, 1e-4),
        "shape": Tolerance(2e-4, 1e-4),
        "last": Tolerance(1e-4, 1e-4),
        "error": Tolerance(1e-5, 1e-3),
        "discrepancy": Tolerance(1e-4, 1e-5),
        "prior": Tolerance(1e-5, 1e-3),
        "series": Tolerance(1e-5, 1e-3),
        "sigma": Tolerance(1e-5, 1e-3),
    },
    "fp16": {
        "reconstruction": Tolerance(2e-2, 1e-2),
        "shape": Tolerance(4e-2, 1e-2),
        "error": Tolerance(2e-2, 2e-2),
        "discrepancy": Tolerance(1e-1, 1e-2),
        "prior": Tolerance(2e-2, 5e-2),
        "series": Tolerance(2e-2, 5e-2),
        "sigma": Tolerance(2e-2, 2e-2),
    },
}
TOLERANCES["bf16"] = {name: Tolerance(8 * t.atol, 8 * t.rtol) for name, t in TOLERANCES["fp16"].items()}
TOLERANCES["int8"] = {name: Tolerance(30 * t.atol, 6 * t.rtol) for name, t in TOLERANCES["fp16"].items()}
# Associations are probabilities, and sigma is a few steps: a difference of 1 would be no bound at all.
TOLERANCES["int8"] |= {"prior": Tolerance(0.4, 0.2), "series": Tolerance(0.1, 0.2), "sigma": Tolerance(0.5, 0.2)}
TOLERANCES["int8-dynamic"] = TOLERANCES["int8"]


def allowed_differences(
    reference: ScoreGraph | AssociationsGraph,
    expected: Outputs,
    windows: Floats,
    precision: str,
    tolerance: Tolerance | None,
) -> dict[str, Doubles]:
    """Per element, how far an answer may be off."""
    if tolerance is not None:
        return {name: tolerance.atol + tolerance.rtol * np.abs(answer) for name, answer in expected.items()}
    table = TOLERANCES[precision]
    if isinstance(reference, ScoreGraph):
        return _allowed_scores(reference, windows, table)
    exact = run_reference(reference, windows, torch.float64)
    return {name: _limit(table[name.split("_")[0]], expected[name], exact[name]) for name in expected}


def _allowed_scores(reference: ScoreGraph, windows: Floats, table: dict[str, Tolerance]) -> dict[str, Doubles]:
    """A score may be off as far as it follows from an error and an AssDis that are off as far as they may be."""
    if "score" not in reference.outputs:
        single, exact = (run_reference(reference, windows, dtype) for dtype in (torch.float32, torch.float64))
        return {name: _limit(table[name], single[name], exact[name]) for name in reference.outputs}
    whole = copy.copy(reference)
    whole.outputs = OUTPUTS
    single, exact = (run_reference(whole, windows, dtype) for dtype in (torch.float32, torch.float64))
    tolerances = table | {"error": _error_tolerance(reference, table)}
    allowed: dict[str, Doubles] = {}
    for name in OUTPUTS:
        if name != "score":
            allowed[name] = _limit(tolerances[name], single[name], exact[name])
    error = np.abs(exact["error"].astype(np.float64))
    discrepancy = exact["discrepancy"].astype(np.float64)
    weight, most = _weights(reference, discrepancy, allowed["discrepancy"].max(axis=1, keepdims=True))
    match reference.score.mode:
        case "discrepancy":
            allowed["score"] = most - weight
        case "addition":
            allowed["score"] = most - weight + allowed["error"]
        case _:
            allowed["score"] = (most - weight) * error + most * allowed["error"]
    doubt = np.abs(single["score"] - exact["score"]).max(axis=1, keepdims=True)
    allowed["score"] += table["error"].atol * min(1.0, error_unit(reference)) + DOUBT * doubt
    return allowed


def _weights(reference: ScoreGraph, discrepancy: Doubles, delta: Doubles) -> tuple[Doubles, Doubles]:
    """The factor before the error, and the most it can become if AssDis changes by `delta` in a window."""
    config: ScoreConfig = reference.score
    if config.mode in ("reconstruction", "centred"):
        return np.ones_like(discrepancy), np.ones_like(discrepancy)
    if config.mode == "calibrated":
        mean, std = reference.discrepancy_statistics
        weight, most = (1 - np.tanh((discrepancy - off - mean) / std / 2) for off in (0.0, delta))
        return weight, most
    k = config.temperature * reference.layers_summed if config.mode == "published" else 1.0
    logits = -k * discrepancy
    logits -= logits.max(axis=1, keepdims=True)
    log_weight = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.exp(log_weight), np.exp(np.minimum(0.0, log_weight + 2 * k * delta))


def with_ties(
    reference: ScoreGraph | AssociationsGraph, windows: Floats, allowed: dict[str, Doubles]
) -> dict[str, Doubles]:
    """Add how far an input that is some roundings off moves the answer.

    Rows of 1e6 that are all alike differ by their position only: their attention is nearly a tie, and PyTorch may break
    it in float32 as in float64 by luck.
    """
    mean = reference.scale.mean.numpy().astype(np.float64)
    roundings = np.random.default_rng(2).uniform(-ROUNDINGS, ROUNDINGS, windows.shape) * np.finfo(np.float32).eps
    exact, moved = (
        run_reference(reference, given, torch.float64) for given in (windows, windows + (windows - mean) * roundings)
    )
    return {
        name: limit + np.abs(moved[name] - exact[name]).max(axis=tuple(range(1, limit.ndim)), keepdims=True)
        for name, limit in allowed.items()
        if name in exact
    }


def _limit(tolerance: Tolerance, single: Floats, exact: Floats) -> Doubles:
    """By the table, and `DOUBT` times what PyTorch's float32 answer is off its float64 one in that window."""
    values = single.astype(np.float64)
    doubt = np.abs(values - exact).max(axis=tuple(range(1, values.ndim)), keepdims=True)
    limit: Doubles = tolerance.atol + tolerance.rtol * np.abs(values) + DOUBT * doubt
    return limit


def _error_tolerance(reference: ScoreGraph, table: dict[str, Tolerance]) -> Tolerance:
    """Of the error as the graph forms it: a feature that counts more may also be off by more."""
    error = table["error"]
    return Tolerance(error.atol * error_unit(reference), error.rtol)


def error_unit(reference: ScoreGraph | AssociationsGraph) -> float:
    """The error of being one standard deviation off in every feature."""
    return float(reference.error_weights.mean()) if isinstance(reference, ScoreGraph) else 1.0
