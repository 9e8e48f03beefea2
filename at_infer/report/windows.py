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
from at_infer.scoring.options import ShortSeries
from at_infer.scoring.rows import RowScorer, RowSettings
from at_infer.scoring.windows import WindowLayout

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

    def __init__(
        self, engine: Engine, metadata: Metadata, layout: WindowLayout, score: ScoreConfig, short_series: ShortSeries
    ) -> None:
        self.engine, self.metadata, self.layout = engine, metadata, layout
        self.error_kind = score.error_kind
        self.window = metadata.model.window
        self.mean = np.asarray(metadata.scaler.mean, np.float32)
        self.scale = np.asarray(metadata.scaler.scale, np.float32)
        self.settings = RowSettings(
            layout=layout,
            columns=metadata.columns,
            mean=metadata.scaler.mean,
            fill=metadata.fill,
            channels=2 * len(metadata.columns),
            short_series="skip" if short_series == "error" else short_series,
            on_bad_rows="null",
        )
        if self.error_kind.normalised:
            error_weights(metadata.normal, self.error_kind)  # says what is wrong before the long work

    def stretch(self, first: int, end: int, series_rows: int) -> tuple[int, int]:
        """Rows of all windows that rows `first` to `end` of a series are scored by; all rows of a short series."""
        n, stride, delay = self.window, self.layout.stride, self.layout.delay
        if series_rows < n:
            return 0, series_rows
        if self.layout.align == "last":
            return max(0, first - n + 1 + delay) // stride * stride, min(end + delay, series_rows)
        begin = min(max(0, -(-(first - n + 1) // stride)), (series_rows - n) // stride) * stride
        return begin, min((end - 1) // stride * stride + n, series_rows)

    def reconstruct(self, rows: Floats) -> tuple[Floats, Floats]:
        """Raw rows (r,F) of such a stretch -> their reconstruction, raw, and the error of every feature."""
        core = RowScorer(self._look_at, self.settings, batch_size=BATCH)
        series = core.start()
        core.push(series, rows.copy())
        core.end(series)
        core.flush()
        x_hat, errors = np.split(np.concatenate([part.channels for part in core.take()]), 2, axis=1)
        return x_hat * self.scale + self.mean, errors

    def _look_at(self, windows: Floats) -> Floats:
        """(B,N,F) -> reconstruction, scaled, and errors (B,N,2F)."""
        outputs = self.engine.run(windows)
        with np.errstate(over="ignore", invalid="ignore"):  # a window that overflows is taken for a bad one
            errors = feature_errors(windows, outputs, self.metadata, self.error_kind)
        return np.concatenate([outputs["reconstruction"], errors], axis=-1)

    def attention(self, rows: Floats) -> Attention | None:
        """Of one window of raw rows (N,F); None if a row is not finite."""
        filled = rows.copy()
        Filler(self.metadata.fill, self.metadata.scaler.mean).apply(filled)
        if not np.isfinite(filled).all():
            return None
        outputs = self.engine.run(filled[None])
        parts = [
            np.stack([outputs[f"{part}_{layer}"][0].mean(axis=0) for layer in range(self.metadata.model.layers)])
            for part in ("prior", "series", "sigma")
        ]
        return Attention(*parts)


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
