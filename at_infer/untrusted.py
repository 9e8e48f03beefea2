"""Reading what others wrote: regular files only, JSON within bounds, and values of the types that are declared."""

import json
import reprlib
import stat
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from at_infer.errors import AtInferError, ConfigError

MOST_JSON_BYTES = 1 << 28
_LARGEST_INT = 2**63 - 1
_LARGEST_FLOAT = 1.7976931348623157e308
_BRIEF = reprlib.Repr()
"""A list may hold itself many times over, and would be written out without end."""
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist, _BRIEF.maxtuple, _BRIEF.maxstring = 3, 8, 8, 8, 60


def check_regular(path: Path, error: type[AtInferError]) -> None:
    """A pipe would let whoever opens it wait, and a device such as /dev/zero never ends; an absent file passes."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # whoever opens it says why
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise error(f"{path}: is not a regular file; copy its content into one")


def check_name(path: Path | str, error: type[AtInferError]) -> None:
    """Names of files are bytes: polars and ONNX Runtime open those that are UTF-8 only, and say so in odd ways."""
    if not is_unicode(str(path)):
        raise error(f"{path}: its name is not UTF-8; rename it, or choose another")


def load_json(text: str | bytes) -> Any:
    """JSON values, or a `ValueError` whatever is wrong with it: too long, too deep, a number of thousands of digits."""
    if len(text) > MOST_JSON_BYTES:
        raise ValueError(f"more than {MOST_JSON_BYTES >> 20} MB of JSON")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_json(path: Path, error: type[AtInferError], hint: str = "") -> Any:
    """What a JSON file holds; `FileNotFoundError` if there is none, `error` for all else that is wrong with it."""
    check_regular(path, error)
    try:
        with path.open("rb") as file:
            return load_json(file.read(MOST_JSON_BYTES + 1))
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror or problem})") from None
    except ValueError as problem:
        raise error(f"{path}: is not JSON ({problem}){hint}") from None


def typed(hint: Any, value: Any, where: str) -> Any:
    """The value, if it is what the hint of a field declares; numbers are finite, and true is not a number."""
    if hint is Any:
        return value
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in of:
            return None
        *others, last = (one for one in of if one is not type(None))
        for one in others:
            with suppress(ConfigError):
                return typed(one, value, where)
        return typed(last, value, where)
    if origin is Literal:
        if not (isinstance(value, str) and value in of):
            raise ConfigError(f"{where}: {shown(value)} is not one of {', '.join(of)}")
        return value
    if origin is list and isinstance(value, list):
        if of[0] is float and set(map(type, value)) == {float} and all(map(isfinite, value)):
            return value.copy()  # most of what is read: thousands of quantiles
        return [typed(of[0], one, where) for one in value]
    if origin is tuple and isinstance(value, list | tuple) and (of[-1] is Ellipsis or len(value) == len(of)):
        return tuple(typed(of[0], one, where) for one in value)
    if origin is dict and isinstance(value, dict):
        return {typed(str, name, where): typed(of[1], one, f"{where}.{name}") for name, one in value.items()}
    if isinstance(hint, type) and origin is None:
        if hasattr(hint, "from_dict"):
            return value if isinstance(value, hint) else hint.from_dict(value)
        if is_dataclass(hint):
            return value if isinstance(value, hint) else hint(**typed_fields(hint, value))
        if _is(hint, value):
            return value
    raise ConfigError(f"{where}: {shown(value)} is not {_NAMES.get(origin or hint, 'what belongs there')}")


def typed_fields(kind: type, values: Any) -> dict[str, Any]:
    """The fields of a dataclass from JSON values; an unknown or missing one is an error, not a default."""
    hints = _hints(kind)
    if not isinstance(values, Mapping):
        raise ConfigError(f"{kind.__name__}: {shown(values)} is not a set of named fields")
    if values.keys() != hints.keys():
        odd = ", ".join(sorted(map(str, values.keys() ^ hints.keys())))
        raise ConfigError(f"{kind.__name__}: unexpected or missing fields: {odd}")
    return {name: typed(hint, values[name], name) for name, hint in hints.items()}


def shown(value: Any) -> str:
    """A value in an error: short, whatever it is."""
    try:
        text = repr(value) if isinstance(value, str | int | float) else _BRIEF.repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        text = f"{type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else f"{text[:60]}..."


_NAMES = {
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    tuple: "a list",
    dict: "a set of named values",
}


def _is(hint: type, value: Any) -> bool:
    if hint is int:
        return type(value) is int and abs(value) <= _LARGEST_INT
    if hint is float:
        return type(value) in (int, float) and abs(value) <= _LARGEST_FLOAT  # NaN is not
    if hint is str:
        return isinstance(value, str) and is_unicode(value)
    return isinstance(value, hint)


def is_unicode(text: str) -> bool:
    """JSON may spell half of a surrogate pair, which no file or table can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in fields(kind)}
