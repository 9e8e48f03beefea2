"""Build a plan from an ONNX file, with TensorRT or TensorRT-RTX: the only file that imports them for building.

Precision lives in the graph's types, so one path serves TensorRT 10, TensorRT 11 and TensorRT-RTX; what only some of
them have is asked for with hasattr.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from at_infer.engines.tensorrt.batching import BatchProfile
from at_infer.engines.tensorrt.gpu import find_gpu
from at_infer.engines.tensorrt.modules import (
    Message,
    complaints,
    install_hint,
    load_flavour,
    recorded,
    shared_logger,
)
from at_infer.errors import AtInferError, ConfigError, EngineError, ExportError, OutputError
from at_infer.models.kinds import TITLES, Flavour
from at_infer.models.metadata import Metadata
from at_infer.models.sidecar import runtime_caches, seal, sidecar_path
from at_infer.output import atomic_path

__all__ = ["BatchProfile", "EngineChoice", "build_plan", "choose_flavour", "parse_compute_capabilities"]

EngineChoice = Literal["auto", "tensorrt", "rtx", "none"]

INPUT = "window"
RTX_CAPABILITIES = (75, 80, 86, 89, 120, 121)
RTX_DEFAULT = (80, 86, 89, 120, 121)  # several cost neither size nor time; Turing cannot multiply in fp32
JETSON_CAPABILITIES = {87: "Jetson Orin", 110: "Jetson Thor"}


def choose_flavour(engine: EngineChoice) -> Flavour | None:
    """What to build with: `auto` is TensorRT where it and a GPU are present, else TensorRT-RTX, else nothing."""
    if engine not in get_args(EngineChoice):
        raise ConfigError(f"engine: {engine!r} is not one of {', '.join(get_args(EngineChoice))}")
    if engine == "none":
        return None
    if engine == "auto":
        if _gpu_answers() and load_flavour("tensorrt") is not None:
            return "tensorrt"
        return "rtx" if load_flavour("rtx") is not None else None
    _require(engine)
    if engine == "tensorrt":
        try:
            find_gpu("TensorRT's builder")
        except EngineError as error:
            raise ExportError(f"{error}; to build without a GPU, use engine='rtx'") from None
    return engine


def parse_compute_capabilities(text: str) -> list[int]:
    """`86,89,120` or `8.6,8.9,12.0` -> [86, 89, 120]: GPU architectures that TensorRT-RTX can build for."""
    found = []
    for part in text.split(","):
        digits = part.strip().replace(".", "", 1)
        number = int(digits) if digits.isascii() and digits.isdigit() else None
        if number in JETSON_CAPABILITIES:
            raise ConfigError(
                f"compute_capabilities: {number} is {JETSON_CAPABILITIES[number]}, which TensorRT-RTX does not target; "
                "run the export on the device itself, with engine='tensorrt'"
            )
        if number not in RTX_CAPABILITIES:
            known = ", ".join(map(str, RTX_CAPABILITIES))
            raise ConfigError(f"compute_capabilities: {part.strip()!r} is unknown; TensorRT-RTX builds for {known}")
        found.append(number)
    return list(dict.fromkeys(found))


def build_plan(
    onnx_path: Path,
    plan_path: Path,
    metadata: Metadata,
    *,
    flavour: Flavour,
    batch: BatchProfile,
    compute_capabilities: Sequence[int] | None = None,
    tf32: bool = False,
    portable: bool = False,
) -> Metadata:
    """Write the plan, its sidecar and the builder's log beside it; returns the metadata as in the sidecar.

    `compute_capabilities`: for TensorRT-RTX, None stands for all that can run any precision; TensorRT builds for
    the GPU at hand only. `tf32`: let fp32 products round their inputs to 10 bits, faster but no longer fp32.
    `portable`: TensorRT's plan also runs on other GPUs from Ampere on, and on later versions; not on a Jetson.
    """
    trt = _require(flavour)
    capabilities = _targets(trt, flavour, compute_capabilities, metadata.precision)
    try:
        model = onnx_path.read_bytes()
    except OSError as error:
        raise ExportError(f"{onnx_path}: cannot be read ({error.strerror or error})") from None
    log_path = _beside(plan_path, "log")
    timing_path = None if flavour == "rtx" else _beside(plan_path, "timing")  # RTX times nothing while building
    title = f"{TITLES[flavour]} {trt.__version__}"
    with recorded(trt) as messages:
        try:
            network = _parse(trt, model)
            targets = capabilities if flavour == "rtx" else None
            plan = _build(trt, network, batch, targets, tf32=tf32, portable=portable, timing_path=timing_path)
        except RefusalError as error:
            with suppress(OutputError):
                _write_log(messages, log_path)
            reason = error.reason or complaints(messages) or "it gave no reason"
            raise ExportError(f"{onnx_path}: {title} cannot {error.step}: {reason}; its log is {log_path}") from None
    facts = {
        "flavour": flavour,
        "version": str(trt.__version__),
        "compute_capabilities": capabilities,
        "plan_sha256": hashlib.sha256(plan).hexdigest(),
        "onnx_sha256": hashlib.sha256(model).hexdigest(),
        "tf32": tf32,
        "portable": portable,
        "inputs": [_describe(network.parsed.get_input(i)) for i in range(network.parsed.num_inputs)],
        "outputs": [_describe(network.parsed.get_output(i)) for i in range(network.parsed.num_outputs)],
    }
    described = seal(replace(metadata, batch=batch.as_list(), engine=facts))
    _write_log(messages, log_path)
    # Kernels compiled for the plan that this one replaces.
    for cache in runtime_caches(plan_path):
        with suppress(OSError):
            cache.unlink(missing_ok=True)
    with atomic_path(plan_path) as plan_file, atomic_path(sidecar_path(plan_path)) as sidecar_file:
        plan_file.write_bytes(plan)
        sidecar_file.write_text(json.dumps(described.to_dict(), indent=2) + "\n", encoding="utf-8")
    return described


class RefusalError(Exception):
    """A step that TensorRT will not take; without `reason` it is in the log."""

    def __init__(self, step: str, reason: str = "") -> None:
        super().__init__(step, reason)
        self.step, self.reason = step, reason


class Network(NamedTuple):
    """A parsed graph and what has to live as long as it."""

    builder: Any
    parsed: Any
    parser: Any


def _parse(trt: Any, model: bytes) -> Network:
    """The graph as a network whose types are the graph's, never the builder's guess."""
    logger = shared_logger(trt)
    builder = trt.Builder(logger)
    flags = trt.NetworkDefinitionCreationFlag  # a TensorRT without STRONGLY_TYPED knows nothing else
    parsed = builder.create_network(1 << int(flags.STRONGLY_TYPED) if hasattr(flags, "STRONGLY_TYPED") else 0)
    parser = trt.OnnxParser(parsed, logger)
    if not parser.parse(model):
        raise RefusalError("parse it", _parser_errors(parser))
    names = [parsed.get_input(i).name for i in range(parsed.num_inputs)]
    if names != [INPUT]:  # bytes that are no ONNX model at all parse without complaint, to nothing
        raise RefusalError("use it", f"a graph of at-infer has one input, {INPUT!r}, this has {names}")
    return Network(builder, parsed, parser)


def _build(
    trt: Any,
    network: Network,
    batch: BatchProfile,
    capabilities: Sequence[int] | None,
    *,
    tf32: bool,
    portable: bool,
    timing_path: Path | None,
) -> bytes:
    """The plan."""
    config = network.builder.create_builder_config()
    if not tf32 and hasattr(trt.BuilderFlag, "TF32"):
        config.clear_flag(trt.BuilderFlag.TF32)
    if portable:
        make_portable(trt, config)
    _add_profile(network.builder, config, network.parsed.get_input(0), batch)
    if capabilities is not None:
        config.num_compute_capabilities = len(capabilities)
        for i, number in enumerate(capabilities):
            target = getattr(trt.ComputeCapability, f"SM{number}", None)
            if target is None or not config.set_compute_capability(target, i):
                raise RefusalError(f"build for compute capability {number}")
    if timing_path is not None:
        _load_timings(config, timing_path)
    plan = network.builder.build_serialized_network(network.parsed, config)
    if plan is None:
        raise RefusalError("build a plan from it")
    if timing_path is not None:
        with atomic_path(timing_path) as temporary:
            temporary.write_bytes(bytes(config.get_timing_cache().serialize()))
    return bytes(plan)


def make_portable(trt: Any, config: Any) -> None:
    """Ask for a plan that other GPUs and later versions can run."""
    level = getattr(getattr(trt, "HardwareCompatibilityLevel", None), "AMPERE_PLUS", None)
    if level is None or not hasattr(trt.BuilderFlag, "VERSION_COMPATIBLE"):
        raise RefusalError("build a portable plan", "it has no hardware or version compatibility")
    config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    config.hardware_compatibility_level = level


def _load_timings(config: Any, path: Path) -> None:
    """Kernel timings of earlier builds on this GPU; damaged ones, or another GPU's, are not used."""
    known = b""
    with suppress(OSError):
        known = path.read_bytes()
    cache = config.create_timing_cache(known)
    if cache is None or not config.set_timing_cache(cache, False):
        config.set_timing_cache(config.create_timing_cache(b""), False)


def _add_profile(builder: Any, config: Any, window: Any, batch: BatchProfile) -> None:
    """The one dynamic dimension is the batch."""
    dynamic, *shape = (int(size) for size in window.shape)
    if dynamic != -1 or -1 in shape:
        raise RefusalError(
            "use it", f"in {INPUT!r} the batch has to be dynamic and nothing else, it is {[dynamic, *shape]}"
        )
    profile = builder.create_optimization_profile()
    profile.set_shape(INPUT, *((size, *shape) for size in batch.as_list()))
    if config.add_optimization_profile(profile) < 0:
        raise RefusalError(f"use the batch profile {batch}")


def _targets(trt: Any, flavour: Flavour, asked: Sequence[int] | None, precision: str) -> list[int]:
    """Compute capabilities to build for, after checking that the precision exists there."""
    if precision == "int8-dynamic":
        raise ExportError("precision: int8-dynamic is for CPUs; TensorRT needs precision='int8' and calibration data")
    if flavour == "tensorrt":
        found = find_gpu("TensorRT's builder").compute_capability
        if asked is not None and list(asked) != [found]:
            raise ExportError(
                f"compute_capabilities: {', '.join(map(str, asked))} is not the local GPU, {found}, and TensorRT "
                "builds only for that; use engine='rtx' for others"
            )
        return [found]
    if asked is None:
        return [number for number in RTX_DEFAULT if hasattr(trt.ComputeCapability, f"SM{number}")]
    return parse_compute_capabilities(",".join(map(str, asked)))


def _parser_errors(parser: Any) -> str:
    """Errors of the parser; `desc` alone may be no more than 'false'."""
    errors = (parser.get_error(i) for i in range(parser.num_errors))
    return "; ".join(
        f"{error.code().name} at {error.node_operator() or 'graph'} {error.node_name()!r}: "
        + " ".join(error.desc().split())
        for error in errors
    )


def _describe(tensor: Any) -> dict[str, Any]:
    """JSON facts of an input or output; -1 is the batch."""
    return {"name": tensor.name, "shape": [int(size) for size in tensor.shape], "dtype": tensor.dtype.name.lower()}


def _require(flavour: Flavour) -> Any:
    trt = load_flavour(flavour)
    if trt is None:
        raise ExportError(f"{TITLES[flavour]}: is not installed; {install_hint(flavour)}")
    return trt


def _gpu_answers() -> bool:
    try:
        find_gpu()
    except AtInferError:
        return False
    return True


def _beside(plan_path: Path, suffix: str) -> Path:
    return plan_path.with_name(f"{plan_path.name}.{suffix}")


def _write_log(messages: Sequence[Message], path: Path) -> None:
    """All but the chatter, which is thousands of lines."""
    lines = (f"[{severity}] {text}\n" for severity, text in messages if severity != "VERBOSE")
    with atomic_path(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
