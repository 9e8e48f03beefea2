"""The parity check: export stops if the written ONNX file and the PyTorch model differ."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from at_infer.config import ModelConfig, ScoreConfig
from at_infer.engines.ort import open_session
from at_infer.errors import ExportError
from at_infer.models.criterion import fusion_rows
from at_infer.models.fusion import fuse_windows
from export.graphs import OUTPUTS, AssociationsGraph, ScoreGraph
from export.parity_variants import at_scale_floor, without_bfloat16
from export.to_onnx import INPUT

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Outputs = dict[str, Floats]

RANDOM_WINDOWS = 32
BATCH = 16
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
TOLERANCES["int8"] = {name: Tolerance(50 * t.atol, 10 * t.rtol) for name, t in TOLERANCES["fp16"].items()}
# Associations are probabilities, and sigma is a few steps: a difference of 1 would be no bound at all.
TOLERANCES["int8"] |= {"prior": Tolerance(0.4, 0.2), "series": Tolerance(0.1, 0.2), "sigma": Tolerance(0.5, 0.2)}
TOLERANCES["int8-dynamic"] = TOLERANCES["int8"]


def check(
    model: onnx.ModelProto,
    reference: ScoreGraph | AssociationsGraph,
    *,
    precision: str,
    threshold: float,
    real: Floats | None = None,
    tolerance: Tolerance | None = None,
) -> dict[str, Any]:
    """Run both on random, real and extreme windows; return the figures, or raise and name the worst element.

    The tolerance grows by `DOUBT` times the difference between PyTorch's float32 and float64 results in that window,
    which is rounding and not an export error. `tolerance` replaces the tolerances of all outputs.
    Below fp32, extreme windows exceed the range of the type; there the outputs must be finite, and the largest error
    must still be found.
    """
    config, scaler = reference.network.config, reference.scale
    natural = {"random": random_windows(config, scaler.mean.numpy(), scaler.deviation.numpy())}
    if real is not None:
        natural["real"] = real
    extreme = extreme_windows(config, scaler.mean.numpy(), scaler.deviation.numpy())
    floor_model, floor_reference = at_scale_floor(model, reference)
    cases = [
        *((name, windows, model, reference) for name, windows in natural.items()),
        ("extreme", extreme, model, reference),
        ("scale floor", natural["random"][:4], floor_model, floor_reference),
    ]
    figures: dict[str, Any] = {}
    for name, windows, case_model, case_reference in cases:
        expected = run_reference(case_reference, windows)
        found = run_onnx(case_model, windows)
        _finite(name, found, expected)
        if name in natural or precision == "fp32":
            allowed = _allowed(case_reference, expected, windows, precision, tolerance)
            if name == "extreme" and tolerance is None:
                allowed = _with_ties(case_reference, windows, allowed)
            figures[name] = _compare(name, found, expected, allowed)
        elif name == "extreme":
            errors = [_errors(case_reference, windows, outputs) for outputs in (found, expected)]
            _finds_extreme(errors[0], errors[1], case_reference)
        if name in natural and isinstance(case_reference, ScoreGraph):
            scores = [_scores(case_reference, windows, outputs) for outputs in (found, expected)]
            if scores[0] is not None and scores[1] is not None:
                figures[name]["agreement"] = agreement(scores[0], scores[1], threshold)
    return figures


def run_reference(
    graph: ScoreGraph | AssociationsGraph, windows: Floats | Doubles, dtype: torch.dtype = torch.float32
) -> Outputs:
    """The outputs of PyTorch."""
    graph = copy.deepcopy(graph).to(dtype).eval()
    with torch.inference_mode():
        batches = [graph(torch.from_numpy(part).to(dtype)) for part in _batches(windows)]
    parts = [torch.cat(output).numpy() for output in zip(*batches, strict=True)]
    return dict(zip(graph.outputs, parts, strict=True))


def run_onnx(model: onnx.ModelProto, windows: Floats) -> Outputs:
    """The outputs of ONNX Runtime."""
    session = open_session(without_bfloat16(model).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    batches = [session.run(None, {INPUT: part}) for part in _batches(windows)]
    return dict(zip(names, (np.concatenate(parts) for parts in zip(*batches, strict=True)), strict=True))


def random_windows(config: ModelConfig, mean: Floats, scale: Floats) -> Floats:
    """Noise and noisy sines, in raw units."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(RANDOM_WINDOWS, config.window, config.features))
    steps = np.arange(config.window)[None, :, None]
    period = rng.uniform(4, config.window, size=(RANDOM_WINDOWS // 2, 1, config.features))
    z[::2] = 0.2 * z[::2] + 1.4 * np.sin(2 * np.pi * steps / period)
    return (mean + scale * z).astype(np.float32)


def extreme_windows(config: ModelConfig, mean: Floats, scale: Floats) -> Floats:
    """Zeros, constants, tiny and huge values, and spikes of 1e6 standard deviations."""
    n, f = config.window, config.features
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(n, f))
    spike, spikes = noise.copy(), noise.copy()
    spike[n // 2, 0] = 1e6
    spikes[n // 3, :] = -1e6
    scaled = np.stack([np.zeros((n, f)), np.full((n, f), 3.0), noise * 1e-30, noise * 1e6, spike, spikes])
    raw = np.stack([np.zeros((n, f)), np.full((n, f), 1e6)])
    return np.concatenate([mean + scale * scaled, raw]).astype(np.float32)


def agreement(found: Floats, expected: Floats, threshold: float) -> dict[str, float]:
    """What the change of a score means to a user."""
    return {
        "max_abs": _figure(np.abs(found - expected).max()),
        "spearman": _figure(spearman(found.ravel(), expected.ravel())),
        "verdicts_changed": _figure(((found > threshold) != (expected > threshold)).mean()),
    }


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation, equal values sharing their mean rank; 1 for two constants."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    if np.ptp(ranks_a) == 0 or np.ptp(ranks_b) == 0:
        return float(np.ptp(a) == np.ptp(b))
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _ranks(values: Floats) -> Doubles:
    values = np.where(np.abs(values) < 1e-30, 0, values)  # a softmax that underflows ends in noise
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Doubles = ((last - counts + 1 + last) / 2)[place]
    return ranks


def _finite(case: str, found: Outputs, expected: Outputs) -> None:
    for name, values in found.items():
        bad = ~np.isfinite(values)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ExportError(
                f"parity: output {name}{list(where)} is {values[where]} on {case} windows where PyTorch says "
                f"{expected[name][where]:.6g}; nothing was exported"
            )


def _allowed(
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
    allowed["score"] += table["error"].atol * min(1.0, _unit(reference)) + DOUBT * doubt
    return allowed


def _weights(reference: ScoreGraph, discrepancy: Doubles, delta: Doubles) -> tuple[Doubles, Doubles]:
    """The factor before the error, and the most it can become if AssDis changes by `delta` in a window."""
    config: ScoreConfig = reference.score
    if config.mode in ("reconstruction", "centred"):
        return np.ones_like(discrepancy), np.ones_like(discrepancy)
    if config.mode == "calibrated":
        mean, std = reference.usual_discrepancy
        weight, most = (1 - np.tanh((discrepancy - off - mean) / std / 2) for off in (0.0, delta))
        return weight, most
    k = config.temperature * reference.layers_summed if config.mode == "published" else 1.0
    logits = -k * discrepancy
    logits -= logits.max(axis=1, keepdims=True)
    log_weight = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.exp(log_weight), np.exp(np.minimum(0.0, log_weight + 2 * k * delta))


def _with_ties(
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
    return Tolerance(error.atol * _unit(reference), error.rtol)


def _unit(reference: ScoreGraph | AssociationsGraph) -> float:
    """The error of being one standard deviation off in every feature."""
    return float(reference.error_weights.mean()) if isinstance(reference, ScoreGraph) else 1.0


def _compare(case: str, found: Outputs, expected: Outputs, allowed: dict[str, Doubles]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, values in expected.items():
        difference = np.abs(found[name].astype(np.float64) - values)
        share = difference / np.maximum(allowed[name], np.finfo(np.float64).tiny)
        where = np.unravel_index(int(share.argmax()), share.shape)
        if share[where] > 1:
            index = [int(i) for i in where]
            raise ExportError(
                f"parity: output {name}{index} is {found[name][where]:.6g} on {case} windows where PyTorch says "
                f"{values[where]:.6g}; the difference may be {allowed[name][where]:.2g}; nothing was exported"
            )
        figures[name] = {"max_abs": _figure(difference.max()), "share_of_tolerance": _figure(share.max())}
    return figures


def _scores(reference: ScoreGraph, windows: Floats, outputs: Outputs) -> Floats | None:
    """Of the graph, or for mode `fusion` of each window as a series of its own; None if there is too little."""
    if "score" in outputs:
        return outputs["score"]
    known = None if reference.normal is None else reference.normal.views
    if reference.score.mode != "fusion" or known is None or not {"reconstruction", "shape"} <= outputs.keys():
        return None
    return fuse_windows(fusion_rows(windows, outputs, reference.scale.scaler), known, reference.score)


def _errors(reference: ScoreGraph | AssociationsGraph, windows: Floats, outputs: Outputs) -> Floats | None:
    if "error" in outputs or "reconstruction" not in outputs or not isinstance(reference, ScoreGraph):
        return outputs.get("error")
    residual = fusion_rows(windows, outputs, reference.scale.scaler)[..., windows.shape[2] : 2 * windows.shape[2]]
    errors: Floats = np.square(residual).mean(axis=-1)
    return errors


def _finds_extreme(found: Floats | None, expected: Floats | None, reference: ScoreGraph | AssociationsGraph) -> None:
    """The largest error of each window is an input of 1e6 and more in the extreme ones: no type may lose it."""
    if found is None or expected is None:
        return
    peak, expected_peak = found.max(axis=1), expected.max(axis=1)
    lost = np.abs(peak - expected_peak) > 0.05 * expected_peak + _unit(reference)
    if lost.any():
        i = int(lost.argmax())
        raise ExportError(
            f"parity: the largest error of extreme window {i} is {peak[i]:.6g} where PyTorch says "
            f"{expected_peak[i]:.6g}; nothing was exported"
        )


def _batches(windows: Floats | Doubles) -> Sequence[NDArray[Any]]:
    return np.array_split(windows, -(-len(windows) // BATCH))


def _figure(value: float) -> float:
    """Six digits, so that the metadata stay the same where rounding noise differs."""
    return float(f"{float(value):.6g}")
