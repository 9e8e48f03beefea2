"""Kinds of model files: suffixes, flavours of plans and their first bytes, and the digest that identifies a file."""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from at_infer.errors import EngineError
from at_infer.untrusted import check_regular

Flavour = Literal["tensorrt", "rtx"]

ONNX_SUFFIXES = (".onnx",)
PLAN_SUFFIXES = (".trt", ".plan", ".engine")
TITLES: dict[Flavour, str] = {"tensorrt": "TensorRT", "rtx": "TensorRT-RTX"}
PLAN_TAGS: dict[bytes, Flavour] = {b"ftrt": "tensorrt", b"vtrt": "rtx"}
"""First bytes of a plan; bytes 24 to 27 are then the version that built it."""


def is_onnx(path: Path) -> bool:
    """Is this an ONNX file, by its name?"""
    return path.suffix in ONNX_SUFFIXES


def is_plan(path: Path) -> bool:
    """Is this a TensorRT plan, by its name?"""
    return path.suffix in PLAN_SUFFIXES


def file_sha256(path: Path) -> str:
    """Digest of a file."""
    check_regular(path, EngineError)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise EngineError(f"{path}: no such file") from None
    except OSError as error:
        raise EngineError(f"{path}: cannot be read ({error.strerror or error})") from None


def json_sha256(values: Any) -> str:
    """Digest of JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
