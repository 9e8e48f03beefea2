"""The default batch size: windows per engine call."""

import time

import numpy as np

from at_infer.engines import Engine
from at_infer.models.metadata import Metadata

BATCH_SIZES = (8, 16, 32)  # more was never faster on a CPU, and takes memory
DEFAULT_BATCH = 8
SMALL_BATCH = 32  # of a small network, for live rows: those of many series are then worked on together
PROBE_WINDOWS = 2_000  # with fewer windows than this to score, looking for the best batch costs more than it brings


def choose_batch_size(engine: Engine, metadata: Metadata, windows: int) -> int:
    """The smallest about as fast per window as any; little to do gets no measurement."""
    if metadata.batch is not None:
        return 2 * metadata.batch[2]  # two full batches of the plan's profile in flight
    if windows < PROBE_WINDOWS:
        return DEFAULT_BATCH
    windows_per_s(engine, metadata, 1)  # warm-up
    chosen, best = DEFAULT_BATCH, 0.0
    for size in BATCH_SIZES:
        speed = windows_per_s(engine, metadata, size, repeats=2)
        if 1.1 * speed < best:
            break
        if 0.97 * speed > best:
            chosen, best = size, speed
    return chosen


def windows_per_s(engine: Engine, metadata: Metadata, batch_size: int, *, repeats: int = 1) -> float:
    """Speed of the engine alone, on windows of mean rows."""
    model = metadata.model
    mean = np.asarray(metadata.scaler.mean, np.float32)
    windows = np.broadcast_to(mean, (batch_size, model.window, model.features)).copy()
    begin = time.perf_counter()
    for _ in range(repeats):
        engine.run(windows)
    return repeats * batch_size / (time.perf_counter() - begin)
