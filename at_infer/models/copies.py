"""A copy of an exported model with other metadata; weights and plan stay as they are."""

import io
import json
from pathlib import Path
from typing import Any

from at_infer.errors import EngineError, MissingExtraError, OutputError
from at_infer.installed import install_extra
from at_infer.models.kinds import ONNX_SUFFIXES, PLAN_SUFFIXES, is_onnx, is_plan
from at_infer.models.metadata import DIGEST, PREFIX, Metadata
from at_infer.models.sidecar import seal, sidecar_path
from at_infer.models.signatures import onnx_digest
from at_infer.output import atomic_path, check_writable


def check_copy(model: Path, output: Path, *, overwrite: bool, scores: str | None = None) -> None:
    """Fail before any work if the copy could not be written."""
    kinds = ONNX_SUFFIXES if is_onnx(model) else PLAN_SUFFIXES
    if output.suffix not in kinds:
        raise OutputError(f"{output}: a copy of {model.name} ends in {' or '.join(kinds)}")
    if output.resolve() == model.resolve():
        raise OutputError(f"{output}: is the model itself; choose another name for the copy")
    check_writable(output, overwrite=overwrite, inputs=[scores])
    if is_plan(output):
        check_writable(sidecar_path(output), overwrite=overwrite)


def write_copy(model: Path, output: Path, metadata: Metadata) -> None:
    """Write the model with other metadata; an ONNX file takes the onnx package, a plan gets a new sidecar."""
    if is_plan(model):
        with atomic_path(output) as temporary:
            temporary.write_bytes(model.read_bytes())
        with atomic_path(sidecar_path(output)) as temporary:
            temporary.write_text(json.dumps(seal(metadata).to_dict(), indent=1), encoding="utf-8")
        return
    try:
        import onnx
    except ImportError:
        raise MissingExtraError(
            f"{model}: writing an ONNX file needs the onnx package; {install_extra('export')}"
        ) from None
    graph = onnx.load_model(model, load_external_data=False)
    if any(weight.data_location == onnx.TensorProto.EXTERNAL for weight in graph.graph.initializer):
        raise EngineError(f"{model}: stores weights in an external file, which a copy would lose; export it again")
    kept = [(entry.key, entry.value) for entry in graph.metadata_props if not entry.key.startswith(PREFIX)]
    del graph.metadata_props[:]
    for key, value in [*kept, *metadata.to_properties().items()]:
        graph.metadata_props.add(key=key, value=value)
    with atomic_path(output) as temporary:
        temporary.write_bytes(sealed(graph))


def sealed(graph: Any) -> bytes:
    """An ONNX model as bytes, with the digest by which `check_digest` finds that it was changed."""
    entries = [entry for entry in graph.metadata_props if entry.key == PREFIX + DIGEST]
    for entry in entries:
        graph.metadata_props.remove(entry)
    _, digest = onnx_digest(io.BytesIO(graph.SerializeToString(deterministic=True)))
    graph.metadata_props.add(key=PREFIX + DIGEST, value=digest)
    content: bytes = graph.SerializeToString(deterministic=True)
    return content
