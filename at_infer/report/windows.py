"""Windows of some rows through an associations engine: reconstruction of every feature, and what attention saw."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from at_infer.config import ScoreConfig
from at_infer.engines import Engine, open_engine
from at_infer.errors import EngineError
from at_infer.models.criterion import error_weights, feature_errors
from at_infer.models.metadata import Metadata
from at_infer.scoring.missing import Filler
from at_infer.scoring.windows import Layout, window_starts

Floats = NDArray[np.float32]
BATCH = 8


@dataclass(frozen=True, slots=True)
class Attention:
    """Of one window: mean over the heads of prior and series association (L,N,N) and of the scale (L,N)."""

    prior: Floats
    series: Floats
    sigma: Floats


class Reconstructor:
    """Reconstructs rows of a series by the windows that scored them, with the feature errors of `score --explain`."""

    def __init__(self, engine: Engine, metadata: Metadata, layout: Layout, score: ScoreConfig) -> None:
        self.engine, self.metadata, self.layout = engine, metadata, layout
        self.error_kind = score.error_kind
        self.window = metadata.model.window
        self.mean = np.asarray(metadata.scaler.mean, np.float32)
        self.scale = np.asarray(metadata.scaler.scale, np.float32)
        if self.error_kind.normalised:
            error_weights(metadata.normal, self.error_kind)  # says what is wrong before the long work

    def stretch(self, first: int, end: int, series_rows: int) -> tuple[int, int]:
        """Rows of all windows that cover rows `first` to `end` of a series; themselves if it is too short for one."""
        n, stride = self.window, self.layout.stride
        if series_rows < n:
            return first, end
        if self.layout.align == "last":
            return max(0, first - n + 1), end
        begin = min(max(0, -(-(first - n + 1) // stride)), (series_rows - n) // stride) * stride
        return begin, min((end - 1) // stride * stride + n, series_rows)

    def reconstruct(self, rows: Floats) -> tuple[Floats, Floats]:
        """Raw rows (r,F) of such a stretch -> their reconstruction, raw, and the error of every feature."""
        filled, n, features = self._filled(rows), self.window, rows.shape[1]
        starts = window_starts(len(filled), n, self.layout.stride, cover_tail=self.layout.align == "window")
        merger, found = self.layout.merger(), [np.empty((0, 2 * features), np.float32)]
        for k in range(0, len(starts), BATCH):
            windows = np.stack([filled[start : start + n] for start in starts[k : k + BATCH]])
            usable = np.isfinite(windows).all(axis=(1, 2))
            merged = np.full((*windows.shape[:2], 2 * features), np.nan, np.float32)
            if usable.any():
                outputs = self.engine.run(windows[usable])
                merged[usable, :, :features] = outputs["reconstruction"]
                merged[usable, :, features:] = feature_errors(windows[usable], outputs, self.metadata, self.error_kind)
            found.append(merger.add(starts[k : k + BATCH], merged))
        if len(starts):
            found.append(merger.end().reshape(-1, 2 * features))
        known = np.concatenate(found) if len(starts) else np.full((len(rows), 2 * features), np.nan, np.float32)
        return known[:, :features] * self.scale + self.mean, known[:, features:]

    def attention(self, rows: Floats) -> Attention | None:
        """Of one window of raw rows (N,F); None if a row is not finite."""
        filled = self._filled(rows)
        if not np.isfinite(filled).all():
            return None
        outputs = self.engine.run(filled[None])
        parts = [
            np.stack([outputs[f"{part}_{layer}"][0].mean(axis=0) for layer in range(self.metadata.model.layers)])
            for part in ("prior", "series", "sigma")
        ]
        return Attention(*parts)

    def _filled(self, rows: Floats) -> Floats:
        filled = rows.copy()
        Filler(self.metadata.fill, self.metadata.scaler.mean).apply(filled)
        return filled


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
