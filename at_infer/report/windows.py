"""Windows of some rows through an associations engine: reconstruction of every feature, and what attention saw."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from at_infer.engines import Engine, open_engine
from at_infer.errors import EngineError
from at_infer.models.metadata import Metadata
from at_infer.models.season import Seconds
from at_infer.scoring.missing import Filler
from at_infer.scoring.options import ScoreOptions
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.windows import MovingMean

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

    def __init__(self, engine: Engine, metadata: Metadata, options: ScoreOptions) -> None:
        """`options` are those that the rows were scored with."""
        self.engine, self.metadata = engine, metadata
        short = "skip" if options.short_series == "error" else options.short_series
        self.scorer = Scorer(
            engine,
            replace(options, short_series=short, on_bad_rows="null", explain="all", threshold=0.0, ratio=None),
        )
        self.layout, self.window = self.scorer.layout, metadata.model.window
        self.mean = np.asarray(metadata.scaler.mean, np.float32)
        self.scale = np.asarray(metadata.scaler.scale, np.float32)
        features = len(metadata.columns)
        self.reconstruction = self.scorer.row_settings.finished_by(
            lambda: MovingMean(1, causal=False), window_channels=features, channels=features
        )

    def stretch(self, first: int, end: int, series_rows: int) -> tuple[int, int]:
        """Rows that the scores of rows `first` to `end` of a series depend on; all rows of a short series."""
        return (
            self.scorer.row_settings.read(first, end, series_rows) if series_rows >= self.window else (0, series_rows)
        )

    def reconstruct(self, rows: Floats, times: Seconds | None = None) -> tuple[Floats, Floats]:
        """Raw rows (r,F) of such a stretch -> their reconstruction, raw, and the error of every feature.

        A model with a season needs their times, in seconds since 1970.
        """
        x_hat = _channels(RowScorer(self._reconstruct, self.reconstruction, batch_size=BATCH), rows, times)
        errors = _channels(self.scorer.rows(BATCH), rows, times)[:, 1 : 1 + len(self.mean)]
        x_hat = x_hat * self.scale + self.mean
        season = self.metadata.season
        return x_hat if season is None or times is None else x_hat + season.at(times), errors

    def _reconstruct(self, windows: Floats) -> Floats:
        return self.engine.run(windows)["reconstruction"]

    def attention(self, rows: Floats, times: Seconds | None = None) -> Attention | None:
        """Of one window of raw rows (N,F); None if a row is not finite."""
        filled = rows.copy()
        if self.metadata.season is not None:
            self.metadata.season.subtract(filled, times)
        Filler(self.metadata.fill, self.metadata.scaler.mean).apply(filled)
        if not np.isfinite(filled).all():
            return None
        outputs = self.engine.run(filled[None])
        parts = [
            np.stack([outputs[f"{part}_{layer}"][0].mean(axis=0) for layer in range(self.metadata.model.layers)])
            for part in ("prior", "series", "sigma")
        ]
        return Attention(*parts)


def _channels(core: RowScorer, rows: Floats, times: Seconds | None) -> Floats:
    series = core.start()
    core.push(series, rows.copy(), times=times)
    core.end(series)
    core.flush()
    return np.concatenate([part.channels for part in core.take()])


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
