"""The memory of a stream as a file: one JSON line, the last rows and scores of every series, a checksum."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from at_infer.errors import ConfigError, DataError
from at_infer.live.memory import SeriesMemory
from at_infer.live.rings import Ints, Rings
from at_infer.live.times import as_json, moment
from at_infer.output import atomic_path
from at_infer.scoring.windows import Floats

if TYPE_CHECKING:
    from at_infer.live.scorer import StreamScorer

FORMAT = 1
CHUNK_SERIES = 256


def save_state(path: Path, stream: "StreamScorer", extra: dict[str, Any]) -> None:
    """Write the state beside its place, then rename it."""
    memory = stream.memory
    slots = np.array(list(memory.slots.values()), np.int64)
    times = [memory.times[slot] for slot in slots.tolist()]
    head = {
        "at_infer_stream": FORMAT,
        "model": _model(stream),
        "score": stream.scorer.config.to_dict(),
        "series": list(memory.slots),
        "counts": memory.counts[slots].tolist(),
        "times": [None if known is None else as_json(known[1]) for known in times],
        "extra": extra,
    }
    odd = next((name for name in memory.slots if not isinstance(name, str | int | float)), None)
    if odd is not None:
        raise DataError(f"{path}: cannot keep a series named {odd!r}; name series by texts or numbers")
    line = json.dumps(head).encode() + b"\n"
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        crc = zlib.crc32(line)
        file.write(line)
        for ring in (memory.rows, memory.scores):
            for part in _parts(ring, slots, memory.counts):
                file.write(part.data)
                crc = zlib.crc32(part.data, crc)
        file.write(crc.to_bytes(4, "little"))


def _parts(ring: Rings, slots: Ints, counts: Ints) -> Iterator[Floats]:
    """The last rows of every series (s,N,F), oldest first, a few series at a time."""
    for first in range(0, len(slots), CHUNK_SERIES):
        some = slots[first : first + CHUNK_SERIES]
        yield np.ascontiguousarray(ring.take(some, counts[some] - 1), "<f4")


def load_state(path: Path, stream: "StreamScorer") -> dict[str, Any]:
    """Replace what the stream remembers by what the file holds."""
    try:
        with path.open("rb") as file:
            return _load(path, file, stream)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path}: is damaged; remove it to start afresh") from None


def _load(path: Path, file: BinaryIO, stream: "StreamScorer") -> dict[str, Any]:
    line = file.readline()
    try:
        head = json.loads(line)
        found = head["at_infer_stream"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: is not the state of a stream; remove it to start afresh") from None
    if found != FORMAT:
        raise DataError(f"{path}: has format {found}, this at-infer reads {FORMAT}; remove it to start afresh")
    if head["model"] != json.loads(json.dumps(_model(stream))):
        raise ConfigError(f"{path}: belongs to another model; give its --engine, or another --state")
    for name, value in stream.scorer.config.to_dict().items():
        if head["score"][name] != value:
            was = head["score"][name]
            raise ConfigError(f"{path}: was kept with {name} {was}, not {value}; give the same, or another --state")
    memory = stream.memory
    if len(head["series"]) > memory.max_series:
        raise ConfigError(
            f"{path}: holds {len(head['series'])} series, more than --max-series {memory.max_series}; raise it, or "
            f"give another --state"
        )
    fresh = SeriesMemory(
        memory.max_series,
        window=memory.rows.window,
        features=memory.rows.rows.shape[2],
        smooth=memory.scores.window,
        spare=memory.rows.spare,
    )
    _fill(path, file, fresh, head, zlib.crc32(line))
    stream.memory = fresh
    extra: dict[str, Any] = head["extra"]
    return extra


def _fill(path: Path, file: BinaryIO, memory: SeriesMemory, head: dict[str, Any], crc: int) -> None:
    if head["series"]:
        memory.grow(len(head["series"]))
    for name, count, time in zip(head["series"], head["counts"], head["times"], strict=True):
        slot, _ = memory.see(name)
        memory.counts[slot] = count
        memory.times[slot] = None if time is None else (moment(time), time)
    for ring in (memory.rows, memory.scores):
        row_bytes = ring.window * ring.rows.shape[2] * 4
        for first in range(0, len(head["series"]), CHUNK_SERIES):
            slots = np.arange(first, min(first + CHUNK_SERIES, len(head["series"])))  # given out in this order
            data = file.read(len(slots) * row_bytes)
            if len(data) < len(slots) * row_bytes:
                raise DataError(f"{path}: is cut short; remove it to start afresh")
            crc = zlib.crc32(data, crc)
            rows = np.frombuffer(data, "<f4").reshape(len(slots), ring.window, -1)
            for back in range(ring.window):
                ring.put(slots, memory.counts[slots] - 1 - back, rows[:, -1 - back])
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
    }
