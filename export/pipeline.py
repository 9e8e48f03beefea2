"""export_model(): from a checkpoint to ONNX files, a plan and the results of the parity check. All files, or none."""

import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from at_infer import __version__
from at_infer.config import ScoreConfig, head_rule
from at_infer.errors import CheckpointError, ExportError
from at_infer.installed import install_extra
from at_infer.models.copies import sealed
from at_infer.models.kinds import Flavour
from at_infer.models.knowledge import Knowledge
from at_infer.models.metadata import FORMAT, LIVE_GRAPH, Graph, Metadata
from at_infer.models.sidecar import runtime_caches
from at_infer.models.statistics import find_validation
from at_infer.output import check_writable
from at_infer.scoring.real_windows import real_windows
from at_infer.scoring.windows import ALIGNMENT
from at_infer.thresholds.ratio import carried_threshold
from export import parity
from export.config import ExportConfig
from export.fold import fold
from export.graphs import (
    FP32_OPS,
    FP32_OPS_BESIDE_PRODUCTS,
    AssociationsGraph,
    ScoreGraph,
    lower_precision,
)
from export.last_row import fits
from export.quantize import quantize_for_cpus, quantize_for_engines
from export.staging import publish, staged_files
from export.to_onnx import finish, trace, write
from export.to_tensorrt import build_plan, choose_flavour
from export.tolerances import Tolerance
from export.triton import write_repository
from export.written import Exported, ExportReport
from training.checkpoint import Checkpoint
from training.model import AnomalyTransformer

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.float32, "int8-dynamic": torch.float32}
SMALL_WIDTH = 64
"""Of a network whose products are too small a part of its time for int8-dynamic to be worth it."""
REAL_WINDOWS = 64  # of a data file, spread over it

Say = Callable[[str], None]


def export_model(
    checkpoint: Checkpoint,
    checkpoint_sha256: str,
    folder: Path,
    config: ExportConfig,
    *,
    triton: Path | None = None,
    overwrite: bool = False,
    inputs: Sequence[Path] = (),
    say: Say = lambda _: None,
) -> ExportReport:
    """Trace, lower, check and write both graphs, then build the engine; nothing is left behind on failure.

    `inputs` are files that no output may replace, beside those that `config` names.
    """
    _check_weights(checkpoint)
    if config.precision == "int8-dynamic" and checkpoint.model.width <= SMALL_WIDTH:
        say("note: int8-dynamic gains little at this size, 1.2 times the speed of fp32 and no live graph; use fp32")
    flavour = None if config.precision == "int8-dynamic" else choose_flavour(config.engine)
    targets = {suffix: folder / f"{config.name}{suffix}" for suffix in (".onnx", ".associations.onnx", ".trt")}
    sidecars = [Path(f"{targets['.trt']}{suffix}") for suffix in (".json", ".log", ".timing")]
    sidecars += runtime_caches(targets[".trt"])
    for path in [*targets.values(), *sidecars] if folder.exists() else [folder]:
        check_writable(path, overwrite=overwrite, inputs=[*inputs, config.data, config.calibration])
    real, calibration = (
        None if source is None else real_windows(source, checkpoint, most=REAL_WINDOWS)
        for source in (config.data, config.calibration)
    )

    with staged_files(folder) as staging:
        exported = []
        for graph, suffix in (("score", ".onnx"), ("associations", ".associations.onnx")):
            say(f"tracing {config.name}{suffix} in {config.precision} and comparing it with PyTorch")
            model, metadata = _make(checkpoint, checkpoint_sha256, config, graph, real, calibration)  # type: ignore[arg-type]
            finished = finish(model, metadata)
            if graph == "score" and metadata.score.mode == "fusion" and config.precision == "fp32":
                _add_live_graph(finished, checkpoint, real)
            write(finished, staging / targets[suffix].name)
            exported.append(Exported(targets[suffix], metadata))
        if flavour is not None:
            source = exported[0] if config.engine_graph == "score" else exported[1]
            say(f"building {targets['.trt'].name} with {flavour}")
            exported.append(
                Exported(targets[".trt"], _build(staging, folder, source, targets[".trt"], flavour, config))
            )
        if triton is not None:
            say(f"writing the Triton repository {triton}")
            if exported[0].metadata.score.mode == "fusion":
                say(
                    "note: the server will return no score: mode fusion needs rows outside of the window; for scores "
                    "of single windows, export with score_mode='reconstruction'"
                )
            plan_path = staging / targets[".trt"].name if flavour == "tensorrt" else None
            source_path = staging / targets[".onnx"].name
            described = exported[-1].metadata if plan_path is not None else exported[0].metadata
            write_repository(
                triton, onnx_path=source_path, plan_path=plan_path, metadata=described, overwrite=overwrite
            )
        publish(staging, folder, stale=[*targets.values(), *sidecars])
    return ExportReport(exported, _why_no_engine(config) if flavour is None else None)


def score_graph(checkpoint: Checkpoint, checkpoint_sha256: str) -> bytes:
    """The file `model.onnx` of a default export, with the same check, and nothing else: half the time."""
    _check_weights(checkpoint)
    model, metadata = _make(checkpoint, checkpoint_sha256, ExportConfig(engine="none"), "score", None, None)
    finished = finish(model, metadata)
    if metadata.score.mode == "fusion":
        _add_live_graph(finished, checkpoint, None)
    return sealed(finished)


def _make(
    checkpoint: Checkpoint,
    checkpoint_sha256: str,
    config: ExportConfig,
    graph: Graph,
    real: NDArray[np.float32] | None,
    calibration: NDArray[np.float32] | None,
) -> tuple[onnx.ModelProto, Metadata]:
    """One graph, after the parity check."""
    score = replace(checkpoint.score, mode=config.score_mode or checkpoint.score.mode)
    if score.mode == "fusion" and "score" in (config.outputs or ()):
        raise ExportError(
            "outputs: mode fusion computes its score from more rows than a window has, and its graph returns "
            "reconstruction and shape; leave outputs out, or choose another score mode"
        )
    discrepancy = replace(checkpoint.discrepancy, head_rule=head_rule(score.mode, checkpoint.discrepancy))
    validation = checkpoint.validation
    if score.mode != checkpoint.score.mode:
        validation = [record for record in validation if score.mode in record.quantiles]  # not of every delay
        if not any(record.align == "window" for record in validation):
            raise CheckpointError(f"checkpoint: has no validation scores of mode {score.mode}; train the model again")
        validation = [
            replace(
                record,
                threshold=carried_threshold(record.threshold, checkpoint.quantile_levels, record.quantiles[score.mode]),
            )
            for record in validation
        ]

    def build(optimised: bool) -> ScoreGraph | AssociationsGraph:
        network = checkpoint.network()
        if optimised and config.precision in DTYPES:
            lower_precision(network, DTYPES[config.precision], every_product=config.on_turing)
        elif optimised:
            fold(network)
        if graph == "associations":
            return AssociationsGraph(network, checkpoint.scaler)
        return ScoreGraph(network, checkpoint.scaler, discrepancy, score, checkpoint.normal, config.outputs)

    optimised = build(optimised=True)
    model = trace(optimised, optimised.outputs)
    if config.precision == "int8":
        assert calibration is not None
        model = quantize_for_engines(model, calibration)
    elif config.precision == "int8-dynamic":
        model = quantize_for_cpus(model)
    tolerance = None
    if config.atol is not None and config.rtol is not None:
        tolerance = Tolerance(config.atol, config.rtol)
    reference = build(optimised=False)
    threshold = find_validation(validation, "window", 0).threshold.value
    figures = parity.check(
        model, reference, precision=config.precision, threshold=threshold, real=real, tolerance=tolerance
    )
    fp32_ops = FP32_OPS_BESIDE_PRODUCTS if config.on_turing else FP32_OPS
    if config.precision == "fp32":
        fp32_ops = "all"
    known = {entry.name: getattr(checkpoint, entry.name) for entry in fields(Knowledge)}
    known |= {"discrepancy": discrepancy, "score": score, "validation": validation}
    metadata = Metadata(
        format=FORMAT,
        at_infer=__version__,
        checkpoint_sha256=checkpoint_sha256,
        parent_sha256=checkpoint.train.get("parent_sha256"),
        graph=graph,
        alignment=ALIGNMENT,
        precision=config.precision,
        fp32_ops=fp32_ops,
        batch=None,
        parity=figures,
        engine=None,
        **known,
    )
    return model, metadata


def _add_live_graph(model: onnx.ModelProto, checkpoint: Checkpoint, real: NDArray[np.float32] | None) -> None:
    """The graph for live rows, where it saves most of the work, after a parity check of its own."""
    if not fits(checkpoint.model):
        return

    def build(network: AnomalyTransformer) -> ScoreGraph:
        return ScoreGraph(network, checkpoint.scaler, checkpoint.discrepancy, ScoreConfig(), None, ("last",))

    reference, network = build(checkpoint.network()), checkpoint.network()
    fold(network)
    traced = trace(build(network), ("last",))
    parity.check(traced, reference, precision="fp32", threshold=0.0, real=real)
    model.metadata_props.add(key=LIVE_GRAPH, value=b64encode(traced.SerializeToString(deterministic=True)).decode())


def _build(
    staging: Path, folder: Path, source: Exported, target: Path, flavour: Flavour, config: ExportConfig
) -> Metadata:
    """The plan, beside the ONNX file it is built from; of a failed build only the builder's log is kept."""
    timing = Path(f"{target}.timing")
    if timing.exists():
        shutil.copy(timing, staging)
    try:
        return build_plan(
            staging / source.path.name,
            staging / target.name,
            source.metadata,
            flavour=flavour,
            batch=config.batch,
            compute_capabilities=config.compute_capabilities,
            tf32=config.precision != "fp32",
            portable=config.portable,
        )
    except ExportError as error:
        log = staging / f"{target.name}.log"
        if log.exists():
            log.replace(folder / log.name)
        raise ExportError(str(error).replace(f"{staging}{os.sep}", f"{folder}{os.sep}")) from None


def _check_weights(checkpoint: Checkpoint) -> None:
    for name, tensor in checkpoint.state_dict.items():
        if not tensor.isfinite().all():
            raise CheckpointError(f"checkpoint: weight {name} is not finite; train the model again")
    if not (np.isfinite(checkpoint.scaler.mean).all() and np.isfinite(checkpoint.scaler.scale).all()):
        raise CheckpointError("checkpoint: its scaler is not finite; train the model again")


def _why_no_engine(config: ExportConfig) -> str | None:
    if config.engine == "none":
        return None
    if config.precision == "int8-dynamic":
        return "no engine: int8-dynamic is for CPUs; use precision='int8' for one"
    return f"no engine: neither TensorRT nor TensorRT-RTX is installed; {install_extra('rtx')} builds one anywhere"
