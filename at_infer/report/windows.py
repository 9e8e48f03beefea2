"""Windows of some rows through an associations engine: reconstruction of every feature, and what attention saw."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from at_infer.engines import Engine, open_engine
from at_infer.errors import EngineError
from at_infer.models.metadata import Metadata
from at_infer.scoring.missing import Filler
from at_infer.scoring.windows import window_starts

Floats = NDArray[np.float32]
BATCH = 8


@dataclass(frozen=True, slots=True)
class Attention:
    """Of one window: mean over the heads of prior and series association (L,N,N) and of the scale (L,N)."""

    prior: Floats
    series: Floats
    sigma: Floats


class Reconstructor:
    """Lays windows side by side over a stretch of one series, as scoring does by default."""

    def __init__(self, engine: Engine, metadata: Metadata) -> None:
        self.engine, self.metadata = engine, metadata
        self.window = metadata.model.window
        self.mean = np.asarray(metadata.scaler.mean, np.float32)
        self.scale = np.asarray(metadata.scaler.scale, np.float32)

    def stretch(self, first: int, end: int, series_rows: int) -> tuple[int, int]:
        """Rows of the windows that cover rows `first` to `end` of a series; themselves if it is too short for one."""
        if series_rows < self.window:
            return first, end
        last = min(-(-end // self.window) * self.window, series_rows)
        return min(first // self.window * self.window, series_rows - self.window), last

    def reconstruct(self, rows: Floats) -> tuple[Floats, Floats]:
        """Raw rows (r,F) of such a stretch -> the same in the model's eyes, raw, and squared errors, scaled."""
        filled = rows.copy()
        Filler(self.metadata.fill, self.metadata.scaler.mean).apply(filled)
        found = np.full(filled.shape, np.nan, np.float32)
        done = 0
        for starts, outputs in self._run(filled):
            for start, x_hat in zip(starts, outputs["reconstruction"], strict=True):
                found[max(start, done) : start + self.window] = x_hat[max(done - start, 0) :]
                done = start + self.window
        return found * self.scale + self.mean, np.square(found - (filled - self.mean) / self.scale)

    def attention(self, rows: Floats) -> Attention | None:
        """Of one window of raw rows (N,F); None if a row is not finite."""
        filled = rows.copy()
        Filler(self.metadata.fill, self.metadata.scaler.mean).apply(filled)
        for _, outputs in self._run(filled):
            parts = [
                np.stack([outputs[f"{part}_{layer}"][0].mean(axis=0) for layer in range(self.metadata.model.layers)])
                for part in ("prior", "series", "sigma")
            ]
            return Attention(*parts)
        return None

    def _run(self, rows: Floats) -> Iterator[tuple[list[int], dict[str, Floats]]]:
        starts = window_starts(len(rows), self.window, self.window, cover_tail=True)
        usable = [int(start) for start in starts if np.isfinite(rows[start : start + self.window]).all()]
        for k in range(0, len(usable), BATCH):
            batch = usable[k : k + BATCH]
            yield batch, self.engine.run(np.stack([rows[start : start + self.window] for start in batch]))


def open_associations(path: Path) -> Engine:
    """An engine that returns reconstruction and associations."""
    engine = open_engine(path)
    if engine.metadata is None:
        engine.close()
        raise EngineError(f"{path}: was not exported by at-infer; pass the model.associations.onnx of at-infer export")
    needed = {f"{part}_{i}" for i in range(engine.metadata.model.layers) for part in ("prior", "series", "sigma")}
    if not needed | {"reconstruction"} <= set(engine.outputs):
        engine.close()
        beside = path.with_name(f"{path.stem}.associations.onnx").name
        raise EngineError(f"{path}: has no associations; pass {beside}, which at-infer export writes beside it")
    return engine
