"""The memory of a stream as a file: one JSON line, what is remembered of every series, a checksum."""

import json
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from at_infer.errors import ConfigError, DataError
from at_infer.live.pushed import LiveSeries
from at_infer.live.times import as_json, moment
from at_infer.output import atomic_path
from at_infer.scoring.series import SeriesState
from at_infer.scoring.windows import Floats
from at_infer.untrusted import MOST_JSON_BYTES, check_regular, load_json

if TYPE_CHECKING:
    from at_infer.live.scorer import StreamScorer

FORMAT = 3


def save_state(path: Path, stream: "StreamScorer", extra: dict[str, Any]) -> None:
    """Write the state beside its place, then rename it."""
    odd = next((name for name in stream.series if not isinstance(name, str | int | float)), None)
    if odd is not None:
        raise DataError(f"{path}: cannot keep a series named {odd!r}; name series by texts or numbers")
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
        with path.open("rb") as file:
            return _load(path, file, stream)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ConfigError, DataError):
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError):
        raise DataError(f"{path}: is damaged; remove it to start afresh") from None


def _load(path: Path, file: BinaryIO, stream: "StreamScorer") -> dict[str, Any]:
    line = file.readline(MOST_JSON_BYTES)
    try:
        head = load_json(line)
        found = head["at_infer_stream"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: is not the state of a stream; remove it to start afresh") from None
    if found != FORMAT:
        raise DataError(f"{path}: has format {found}, this at-infer reads {FORMAT}; remove it to start afresh")
    if head["model"] != json.loads(json.dumps(_model(stream))):
        raise ConfigError(f"{path}: belongs to another model; give its `engine`, or another `state`")
    for name, value in json.loads(json.dumps(_score(stream))).items():
        was = head["score"].get(name, value)
        if was != value:
            raise ConfigError(f"{path}: was kept with {name} {was}, not {value}; give the same, or another `state`")
    if len(head["series"]) > stream.max_series:
        raise ConfigError(
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
                raise DataError(f"{path}: is cut short; remove it to start afresh")
            crc = zlib.crc32(data, crc)
            kept[name] = np.frombuffer(data, "<f4").reshape(shape).copy()
        state: SeriesState = stream.core.start(str(entry["name"]))
        state.recall(kept)
        time = entry["time"]
        waiting = deque(tuple(tag) if isinstance(tag, list) else tag for tag in entry["waiting"])
        yield entry["name"], LiveSeries(state, None if time is None else (moment(time), time), waiting)
    if file.read() != crc.to_bytes(4, "little"):
        raise DataError(f"{path}: is damaged; remove it to start afresh")


def _model(stream: "StreamScorer") -> dict[str, Any]:
    """What must be the same for rows and scores to go on: engines of one checkpoint may take turns."""
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
    """What must be the same for a stream to go on from the memory of another."""
    return {"model": _model(stream), "score": _score(stream)}


def _score(stream: "StreamScorer") -> dict[str, Any]:
    """What the memory of a score depends on."""
    scorer = stream.scorer
    return {**scorer.config.to_dict(), "delay": scorer.delay, "reasons": scorer.options.explain != "none"}
