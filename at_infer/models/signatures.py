"""The type of a file, detected from its content."""

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from at_infer.errors import AtInferError, EngineError
from at_infer.models.kinds import ONNX_SUFFIXES, PLAN_SUFFIXES, PLAN_TAGS
from at_infer.models.metadata import DIGEST, PREFIX
from at_infer.models.sidecar import sidecar_path
from at_infer.untrusted import check_regular

Kind = Literal["checkpoint", "onnx", "plan", "parquet"]

PICKLED_CHECKPOINT = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
"""First bytes of a checkpoint of torch before 1.6; later ones are zip files."""
SUFFIXES = {
    ".pt": "a checkpoint",
    ".pth": "a checkpoint",
    **dict.fromkeys(ONNX_SUFFIXES, "an ONNX model"),
    **dict.fromkeys(PLAN_SUFFIXES, "a TensorRT plan"),
    ".parquet": "a Parquet file",
}
MODEL_PROTO = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Fields of an ONNX ModelProto and their wire types: 0 is a number, 2 has a length."""
GRAPH, OPSET_IMPORT, METADATA_PROPS = 7, 8, 14
DIGEST_KEY = b"\x0a" + bytes([len(PREFIX + DIGEST)]) + (PREFIX + DIGEST).encode()
"""How an entry of METADATA_PROPS with the digest begins; tag and length of the value follow."""


def identify(path: Path) -> Kind:
    """Tell the kind of a file by its first bytes and its structure; its name only helps to word the error."""
    check_regular(path, AtInferError)
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
    found, opsets = set(), {}
    try:
        for number, _, content, after in _fields(file):
            found.add(number)
            if number == OPSET_IMPORT:
                file.seek(content)
                domain, version = _opset(file, after)
                opsets[domain] = version
    except EOFError:
        return None
    return opsets if GRAPH in found else None


def check_digest(path: Path) -> None:
    """Fail if an ONNX file is not as it was exported; one that has no digest, as those of earlier versions, passes.

    It finds accidents, such as a flipped bit in the weights, which would be scored with without a word. Whoever can
    write the file can write its digest, too.
    """
    try:
        with path.open("rb") as file:
            recorded, found = onnx_digest(file)
    except (EOFError, OSError):
        return  # whoever opens it says what is wrong
    if recorded not in (None, found):
        raise EngineError(f"{path}: was modified after the export (its sha256 differs); export the model again")


def onnx_digest(file: BinaryIO) -> tuple[str | None, str]:
    """What an ONNX file says the sha256 of its other fields is, and what it is; `EOFError` if it is no ONNX file."""
    recorded, digest = None, hashlib.sha256()
    for number, start, content, after in _fields(file):
        file.seek(content)
        if number == METADATA_PROPS and after - content < len(DIGEST_KEY) + 80:
            entry = file.read(after - content)
            if entry.startswith(DIGEST_KEY):
                recorded = entry[len(DIGEST_KEY) + 2 :].decode("ascii", errors="replace")
                continue
        file.seek(start)
        left = after - start
        while left:
            piece = file.read(min(left, 1 << 20))
            if not piece:
                raise EOFError
            digest.update(piece)
            left -= len(piece)
    return recorded, digest.hexdigest()


def _fields(file: BinaryIO) -> Iterator[tuple[int, int, int, int]]:
    """Of a ModelProto: number of a field, and where it, its content and the next one start."""
    end = file.seek(0, 2)
    at = 0
    while at < end:
        file.seek(at)
        tag = _varint(file)
        number, wire = tag >> 3, tag & 7
        if MODEL_PROTO.get(number) != wire:
            raise EOFError
        value = _varint(file)
        content = file.tell()
        after = content + value if wire == 2 else content
        if after > end:
            raise EOFError
        yield number, at, content, after
        at = after


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
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, OSError):
        return False
