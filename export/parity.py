"""The parity check: export stops if the written ONNX file and the PyTorch model differ."""

from typing import Any

import numpy as np
import onnx

from at_infer.errors import ExportError
from at_infer.evaluation.metrics.ranking import spearman
from at_infer.models.criterion import fusion_rows
from at_infer.models.fusion import fuse_windows
from at_infer.thresholds.verdict import exceeds
from export.graphs import AssociationsGraph, ScoreGraph
from export.parity_runs import Doubles, Floats, Outputs, extreme_windows, random_windows, run_onnx, run_reference
from export.parity_variants import at_scale_floor
from export.tolerances import Tolerance, allowed_differences, error_unit, with_ties


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
            allowed = allowed_differences(case_reference, expected, windows, precision, tolerance)
            if name == "extreme" and tolerance is None:
                allowed = with_ties(case_reference, windows, allowed)
            figures[name] = _compare(name, found, expected, allowed)
        elif name == "extreme":
            errors = [_errors(case_reference, windows, outputs) for outputs in (found, expected)]
            _finds_extreme(errors[0], errors[1], case_reference)
        if name in natural and isinstance(case_reference, ScoreGraph):
            scores = [_scores(case_reference, windows, outputs) for outputs in (found, expected)]
            if scores[0] is not None and scores[1] is not None:
                figures[name]["agreement"] = agreement(scores[0], scores[1], threshold)
    return figures


def agreement(found: Floats, expected: Floats, threshold: float) -> dict[str, float]:
    """Effect of a changed score on verdicts."""
    return {
        "max_abs": _figure(np.abs(found - expected).max()),
        "spearman": _figure(spearman(found.ravel(), expected.ravel())),
        "verdicts_changed": _figure((exceeds(found, threshold) != exceeds(expected, threshold)).mean()),
    }


def _finite(case: str, found: Outputs, expected: Outputs) -> None:
    for name, values in found.items():
        bad = ~np.isfinite(values)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ExportError(
                f"parity: output {name}{list(where)} is {values[where]} on {case} windows where PyTorch says "
                f"{expected[name][where]:.6g}; nothing was exported"
            )


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
    lost = np.abs(peak - expected_peak) > 0.05 * expected_peak + error_unit(reference)
    if lost.any():
        i = int(lost.argmax())
        raise ExportError(
            f"parity: the largest error of extreme window {i} is {peak[i]:.6g} where PyTorch says "
            f"{expected_peak[i]:.6g}; nothing was exported"
        )


def _figure(value: float) -> float:
    """Six digits, so that the metadata stay the same where rounding noise differs."""
    return float(f"{float(value):.6g}")
