"""The kind of a file, told by its content."""

import zipfile
from pathlib import Path
from typing import BinaryIO, Literal

from at_infer.errors import AtInferError
from at_infer.models.kinds import PLAN_TAGS
from at_infer.models.sidecar import sidecar_path

Kind = Literal["checkpoint", "onnx", "plan", "parquet"]

PICKLED_CHECKPOINT = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
"""First bytes of a checkpoint of torch before 1.6; later ones are zip files."""
SUFFIXES = {
    ".pt": "a checkpoint",
    ".pth": "a checkpoint",
    ".onnx": "an ONNX model",
    ".trt": "a TensorRT plan",
    ".plan": "a TensorRT plan",
    ".engine": "a TensorRT plan",
    ".parquet": "a Parquet file",
}
MODEL_PROTO = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Fields of an ONNX ModelProto and their wire types: 0 is a number, 2 has a length."""
GRAPH, OPSET_IMPORT = 7, 8


def identify(path: Path) -> Kind:
    """Tell the kind of a file by its first bytes and its structure; its name only helps to word the error."""
    try:
        with path.open("rb") as file:
            head = file.read(32)
            if head[:4] == b"PAR1":
                return "parquet"
            if head[:4] in PLAN_TAGS:
                return "plan"
            if head.startswith(PICKLED_CHECKPOINT) or _is_zipped_checkpoint(file):
                return "checkpoint"
            if onnx_opsets(file) is not None:
                return "onnx"
        if sidecar_path(path).is_file():  # its first bytes may be wrong, and the sidecar will tell
            return "plan"
    except FileNotFoundError:
        raise AtInferError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise AtInferError(f"{path}: is a folder; give a file") from None
    except OSError as error:
        raise AtInferError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not head:
        raise AtInferError(f"{path}: is empty")
    if path.suffix == ".json" and path.with_suffix("").is_file():
        raise AtInferError(f"{path}: belongs to {path.with_suffix('').name}; inspect that file")
    if path.suffix in SUFFIXES:
        raise AtInferError(f"{path}: is named like {SUFFIXES[path.suffix]} but is damaged or something else")
    raise AtInferError(f"{path}: is neither a checkpoint, an ONNX model, a TensorRT plan nor a Parquet file")


def onnx_opsets(file: BinaryIO) -> dict[str, int] | None:
    """Opsets by domain if the whole file is one ONNX ModelProto, else None; tensors are skipped, not read."""
    end, found, opsets = file.seek(0, 2), set(), {}
    file.seek(0)
    try:
        while file.tell() < end:
            tag = _varint(file)
            number, wire = tag >> 3, tag & 7
            if MODEL_PROTO.get(number) != wire:
                return None
            found.add(number)
            value = _varint(file)
            if wire == 2:
                after = file.tell() + value
                if after > end:
                    return None
                if number == OPSET_IMPORT:
                    domain, version = _opset(file, after)
                    opsets[domain] = version
                file.seek(after)
    except EOFError:
        return None
    return opsets if GRAPH in found else None


def _opset(file: BinaryIO, end: int) -> tuple[str, int]:
    domain, version = "ai.onnx", 0
    while file.tell() < end:
        tag, value = _varint(file), _varint(file)
        if tag == 0x0A:
            domain = file.read(value).decode(errors="replace") or domain
        elif tag == 0x10:
            version = value
    return domain, version


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise EOFError


def _is_zipped_checkpoint(file: BinaryIO) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError):
        return False
