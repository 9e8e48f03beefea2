"""A model repository for NVIDIA Triton: one folder per backend with config.pbtxt and version 1 of the model."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from at_infer.engines.tensorrt.batching import DEFAULT_PROFILE
from at_infer.errors import ExportError, OutputError
from at_infer.models.kinds import PLAN_TAGS, TITLES, file_sha256
from at_infer.models.metadata import PREFIX, Metadata

QUEUE_DELAY_US = 1000
ONNX_MODEL, PLAN_MODEL = "anomaly_transformer_onnx", "anomaly_transformer_trt"
PARAMETERS = ("at_infer", "graph", "columns", "fill", "score", "alignment", "precision", "season", "grid")

_TYPES: dict[int, str] = {
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.FLOAT16: "TYPE_FP16",
    TensorProto.BFLOAT16: "TYPE_BF16",
    TensorProto.DOUBLE: "TYPE_FP64",
    TensorProto.INT32: "TYPE_INT32",
    TensorProto.INT64: "TYPE_INT64",
}


class _Name(str):
    """A word that stands in the file without quotes: a member of an enumeration."""

    __slots__ = ()


def write_repository(
    folder: Path,
    *,
    onnx_path: Path,
    plan_path: Path | None = None,
    metadata: Metadata,
    overwrite: bool = False,
) -> list[Path]:
    """Write `anomaly_transformer_onnx` and, for a plan, `anomaly_transformer_trt`, all or nothing; their folders.

    `plan_path` is the TensorRT plan built from `onnx_path`, and `metadata` then those of the plan, whose batch
    profile both configurations take. A request waits at most `QUEUE_DELAY_US` for others to share its batch.
    Nothing but a repository written earlier is ever replaced.
    """
    smallest, best, largest = metadata.batch or DEFAULT_PROFILE.as_list()
    if smallest > 1:
        raise ExportError(
            f"{plan_path or onnx_path}: takes at least {smallest} windows, but a request to Triton may hold one; "
            f"export with batch='1:{best}:{largest}'"
        )
    if plan_path is not None:
        _check_plan(plan_path, onnx_path, metadata)
    inputs, outputs = _tensors(onnx_path)
    common = {
        "max_batch_size": largest,
        "input": inputs,
        "output": outputs,
        "dynamic_batching": {
            "preferred_batch_size": sorted({best, largest}),
            "max_queue_delay_microseconds": QUEUE_DELAY_US,
        },
        "model_warmup": [_warmup(size, inputs) for size in sorted({1, best, largest})],
    }
    models = [(ONNX_MODEL, "onnxruntime", "model.onnx", onnx_path, "KIND_CPU")]
    if plan_path is not None:
        models.append((PLAN_MODEL, "tensorrt", "model.plan", plan_path, "KIND_GPU"))
    with _complete_or_absent(folder, {ONNX_MODEL, PLAN_MODEL}, overwrite=overwrite) as temporary:
        for model, backend, file_name, source, kind in models:
            config = {
                "name": model,
                "backend": backend,
                "default_model_filename": file_name,
                **common,
                "instance_group": [{"count": 1, "kind": _Name(kind)}],
                "parameters": _parameters(metadata),
            }
            version = temporary / model / "1"
            version.mkdir(parents=True)
            shutil.copyfile(source, version / file_name)
            (version.parent / "config.pbtxt").write_text("\n".join(_lines(config)) + "\n", encoding="utf-8")
    return [folder / model for model, *_ in models]


def _check_plan(path: Path, onnx_path: Path, metadata: Metadata) -> None:
    try:
        with path.open("rb") as file:
            flavour = PLAN_TAGS.get(file.read(4))
    except OSError as error:
        raise ExportError(f"{path}: cannot be read ({error.strerror})") from None
    if flavour != "tensorrt":
        found = "not a plan" if flavour is None else f"a plan of {TITLES[flavour]}"
        raise ExportError(
            f"{path}: is {found}, and Triton loads plans of standard TensorRT only; build one with engine='tensorrt', "
            "or let Triton serve the ONNX file alone"
        )
    built_from = (metadata.engine or {}).get("onnx_sha256")
    if built_from is not None and built_from != file_sha256(onnx_path):
        raise ExportError(f"{path}: was not built from {onnx_path.name}, whose inputs and outputs it would be given")


def _tensors(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Inputs and outputs as Triton describes them: without the batch dimension."""
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf's exception types differ between its implementations
        raise ExportError(f"{path}: cannot be read as ONNX ({error})") from None
    inputs, outputs = ([_tensor(path, value) for value in part] for part in (graph.input, graph.output))
    return inputs, outputs


def _tensor(path: Path, value: onnx.ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    dims = list(tensor.shape.dim)
    if tensor.elem_type not in _TYPES or len(dims) < 2 or dims[0].HasField("dim_value"):
        raise ExportError(f"{path}: {value.name!r} has no dynamic batch dimension, or a type that Triton cannot batch")
    return {
        "name": value.name,
        "data_type": _Name(_TYPES[tensor.elem_type]),
        "dims": [dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims[1:]],
    }


def _warmup(batch_size: int, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first run of a batch size compiles and allocates: done before the model is called ready."""
    return {
        "name": f"batch {batch_size}",
        "batch_size": batch_size,
        "inputs": [
            {"key": entry["name"], "value": {k: entry[k] for k in ("data_type", "dims")} | {"zero_data": True}}
            for entry in inputs
        ],
    }


def _parameters(metadata: Metadata) -> list[dict[str, Any]]:
    """What a client needs to fill a window and to use a score, as JSON under the names of the ONNX file."""
    properties = metadata.to_properties()
    chosen = {PREFIX + key: properties[PREFIX + key] for key in PARAMETERS}
    chosen[f"{PREFIX}threshold"] = json.dumps(metadata.validation_of().threshold.to_dict(), sort_keys=True)
    if metadata.engine is not None:
        chosen[f"{PREFIX}engine"] = properties[f"{PREFIX}engine"]
    return [{"key": key, "value": {"string_value": text}} for key, text in chosen.items()]


def _lines(message: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Protobuf text format: a list of numbers on one line, a list of messages as a repeated field."""
    for key, value in message.items():
        for entry in value if isinstance(value, list) and value and isinstance(value[0], dict) else [value]:
            if isinstance(entry, dict):
                yield f"{indent}{key} {{"
                yield from _lines(entry, indent + "  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{key}: {_scalar(entry)}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not isinstance(value, _Name):
        return json.dumps(value)  # for ASCII text without control characters the two formats escape alike
    return str(value)


@contextmanager
def _complete_or_absent(folder: Path, ours: set[str], *, overwrite: bool) -> Iterator[Path]:
    """Give a temporary sibling of `folder` to fill; it takes the place of `folder` if the block succeeds."""
    found = _content(folder)
    if found and not overwrite:
        raise OutputError(f"{folder}: exists already; pass overwrite=True to replace it")
    if strange := sorted(found - ours):
        raise OutputError(f"{folder}: holds {strange[0]!r}, which is not part of this repository; give another folder")
    folder = folder.absolute()
    temporary, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if folder.exists():
            folder.rename(old)
        try:
            temporary.rename(folder)
        except OSError:
            with suppress(OSError):
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"{folder}: could not be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _content(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except NotADirectoryError:
        raise OutputError(f"{folder}: is a file; give a folder") from None
    except OSError as error:
        raise OutputError(f"{folder}: cannot be read ({error.strerror})") from None
