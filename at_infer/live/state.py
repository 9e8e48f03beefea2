"""The memory of a stream as a file: one JSON line, the state of every series, a checksum."""

import json
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from at_infer.config import MOST_WINDOW
from at_infer.errors import ConfigError, DataError
from at_infer.live.pushed import LiveSeries
from at_infer.live.rows import is_key
from at_infer.live.times import as_json, moment
from at_infer.output import atomic_path
from at_infer.scoring.series import SeriesState
from at_infer.scoring.windows import Floats
from at_infer.untrusted import MOST_JSON_BYTES, check_regular, load_json, shown, typed

if TYPE_CHECKING:
    from at_infer.live.scorer import StreamScorer

FORMAT = 3


def save_state(path: Path, stream: "StreamScorer", extra: dict[str, Any]) -> None:
    """Write the state beside its place, then rename it."""
    odd = next((name for name in stream.series if not is_key(name)), None)
    if odd is not None:
        raise DataError(f"{path}: cannot keep a series named {shown(odd)}; name series by short texts or numbers")
    head = {
        "at_infer_stream": FORMAT,
        **memory_of(stream),
        "series": [_describe(name, known) for name, known in stream.series.items()],
        "extra": extra,
    }
    line = json.dumps(head).encode() + b"\n"
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        crc = zlib.crc32(line)
        file.write(line)
        for known in stream.series.values():
            for array in _arrays(known.state.remember()).values():
                data = np.ascontiguousarray(array, "<f4").tobytes()
                file.write(data)
                crc = zlib.crc32(data, crc)
        file.write(crc.to_bytes(4, "little"))


def _arrays(kept: dict[str, Any]) -> dict[str, Floats]:
    return {name: value for name, value in kept.items() if isinstance(value, np.ndarray)}


def _describe(name: Any, known: LiveSeries) -> dict[str, Any]:
    kept = known.state.remember()
    arrays = _arrays(kept)
    return {
        "name": name,
        "time": None if known.time is None else as_json(known.time[1]),
        "waiting": list(known.waiting),
        "numbers": {name: value for name, value in kept.items() if name not in arrays},
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
    }


def load_state(path: Path, stream: "StreamScorer") -> dict[str, Any]:
    """Replace what the stream remembers by what the file holds."""
    check_regular(path, DataError)
    try:
        with path.open("rb") as file, values_of(path):
            return _load(path, file, stream)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


class StateError(ConfigError):
    """A state that is sound, but of something else."""


@contextmanager
def values_of(path: Path) -> Iterator[None]:
    """While values of a state are used for the first time: those that cannot be used mean that it is damaged."""
    try:
        yield
    except StateError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError, ConfigError):
        raise DataError(f"{path}: is damaged; remove it to start again") from None


def _load(path: Path, file: BinaryIO, stream: "StreamScorer") -> dict[str, Any]:
    line = file.readline(MOST_JSON_BYTES)
    try:
        head = load_json(line)
        found = head["at_infer_stream"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: is not the state of a stream; remove it to start again") from None
    if found != FORMAT:
        raise DataError(f"{path}: has format {found}, this at-infer reads {FORMAT}; remove it to start again")
    if head["model"] != json.loads(json.dumps(_model(stream))):
        raise StateError(f"{path}: belongs to another model; give its `engine`, or another `state`")
    for name, value in json.loads(json.dumps(_score(stream))).items():
        was = head["score"].get(name, value)
        if was != value:
            raise StateError(f"{path}: was written with {name} {was}, not {value}; give the same, or another `state`")
    if len(head["series"]) > stream.max_series:
        raise StateError(
            f"{path}: holds {len(head['series'])} series, more than max_series={stream.max_series}; raise it, or "
            f"give another `state`"
        )
    stream.series = dict(_series(path, file, stream, head["series"], zlib.crc32(line)))
    extra: dict[str, Any] = head["extra"]
    return extra


def _series(
    path: Path, file: BinaryIO, stream: "StreamScorer", entries: list[dict[str, Any]], crc: int
) -> Iterator[tuple[Any, LiveSeries]]:
    for entry in entries:
        kept: dict[str, Any] = dict(entry["numbers"])
        for name, shape in entry["shapes"].items():
            size = 4 * int(np.prod(shape))
            data = file.read(size)
            if len(data) < size:
                raise DataError(f"{path}: is truncated; remove it to start again")
            crc = zlib.crc32(data, crc)
            kept[name] = np.frombuffer(data, "<f4").reshape(shape).copy()
        name = typed(str | int | float, entry["name"], "name")
        state: SeriesState = stream.core.start(str(name))
        _check_memory(kept, state.remember())
        state.recall(kept)
        time = entry["time"]
        waiting = deque(_tag(tag) for tag in typed(list[Any], entry["waiting"], "waiting"))
        if len(waiting) > stream.scorer.delay:
            raise ConfigError(f"waiting: {len(waiting)} rows, of a delay of {stream.scorer.delay}")
        yield name, LiveSeries(state, None if time is None else (moment(time), time), waiting)
    if file.read() != crc.to_bytes(4, "little"):
        raise DataError(f"{path}: is damaged; remove it to start again")


def _check_memory(kept: dict[str, Any], fresh: dict[str, Any]) -> None:
    """Numbers count from 0; arrays are those of a series that begins, along axes of which it has something."""
    counts = {name: value for name, value in kept.items() if not isinstance(value, np.ndarray)}
    ends = [typed(int, value, name) for name, value in counts.items() if name.split(".")[-1] in ("rows", "number")]
    if max(ends) - min(ends) > MOST_WINDOW:
        raise ConfigError(f"rows: {max(ends)} and {min(ends)} are not of one series")
    for name, value in kept.items():
        if not isinstance(value, np.ndarray):
            counted = typed(float if name == "time" else int, value, name)
            if name != "time" and not 0 <= counted <= kept["rows"] + MOST_WINDOW:
                raise ConfigError(f"{name}: {counted} does not belong to {kept['rows']} rows")
        elif isinstance(known := fresh.get(name, value), np.ndarray):
            same = [now in (own, now if own == 0 else own) for now, own in zip(value.shape, known.shape, strict=True)]
            if not all(same):
                raise ConfigError(f"{name}: has the shape {value.shape}")
        else:
            raise ConfigError(f"{name}: is not a number")


def _tag(tag: Any) -> Any:
    """Name of a row in messages: its number, or that with series and time."""
    if not isinstance(tag, list):
        return typed(str | int | float | None, tag, "waiting")
    typed(int, tag[0], "waiting")
    return tuple(typed(str | int | float | None, one, "waiting") for one in tag)


def _model(stream: "StreamScorer") -> dict[str, Any]:
    """Must be equal for rows and scores to continue; engines of one checkpoint are interchangeable."""
    known = stream.metadata
    return {
        "checkpoint_sha256": known.checkpoint_sha256,
        "columns": known.columns,
        "model": known.model.to_dict(),
        "scaler": known.scaler.to_dict(),
        "fill": known.fill,
        **({"mask": True} if stream.scorer.masks else {}),
    }


def memory_of(stream: "StreamScorer") -> dict[str, Any]:
    """Must be equal for a stream to continue from the state of another."""
    return {"model": _model(stream), "score": _score(stream)}


def _score(stream: "StreamScorer") -> dict[str, Any]:
    """Settings that the state of a score depends on."""
    scorer = stream.scorer
    return {**scorer.config.to_dict(), "delay": scorer.delay, "reasons": scorer.options.explain != "none"}
