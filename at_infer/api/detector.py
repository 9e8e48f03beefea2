"""Detector: trains on a table in memory, scores tables, and writes checkpoints and engines."""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.api.learning import Learnt, Rows, export, learn, read_checkpoint
from at_infer.api.outliers import OutlierDetector, not_fitted
from at_infer.api.progress import Bar
from at_infer.api.result import Result
from at_infer.api.scorer import Scorer
from at_infer.config import (
    DEFAULT_RATIO,
    Distance,
    Fill,
    HeadRule,
    Level,
    Padding,
    Precision,
    Prior,
    Resample,
    ScoreMode,
    SeasonChoice,
    Strategy,
)
from at_infer.output import atomic_path, check_writable
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.tables.frames import ArrowTable

_OPENING = Lock()  # of all detectors: an own lock could not be pickled


class Detector(OutlierDetector):
    """An anomaly detector with the parameters and defaults of `at-infer train`. Fitting needs torch, scoring does not.

    >>> from at_infer import Detector
    >>> detector = Detector(window=20, max_steps=20).fit(frame)
    >>> result = detector.score(frame)
    >>> detector.save("ckpt.pt", overwrite=True)

    It follows the conventions of scikit-learn for outlier detectors: `score_samples` and `decision_function` are low
    for anomalies, `predict` gives -1 for them and 1 for other rows. `score` is the other way round, as everywhere in
    at-infer: a high score is an anomaly.

    A fitted detector can be pickled, and scores without torch then. Threads may score with it at once, and take turns;
    while one fits it, the others must wait. A fit that is interrupted leaves the detector as it was. `verbose` shows
    how far it is, on a terminal or in a notebook.
    """

    def __init__(
        self,
        *,
        preset: str | None = None,
        window: int | None = None,
        width: int | None = None,
        heads: int | None = None,
        layers: int | None = None,
        feed_forward: int | None = None,
        prior: Prior | None = None,
        padding: Padding | None = None,
        strategy: Strategy | None = None,
        lambda_: float | None = None,
        noise: float | None = None,
        max_steps: int | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        stride: int | None = None,
        head_rule: HeadRule | None = None,
        distance: Distance | None = None,
        layer: int | None = None,
        seed: int | None = None,
        precision: Precision | None = None,
        compile: bool = False,  # noqa: A002 -- the name of the option
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        validation: float = 0.2,
        fill: Fill | None = None,
        season: SeasonChoice | None = None,
        max_gap: int | None = None,
        interval: str | None = None,
        resample: Resample | None = None,
        score_mode: ScoreMode | None = None,
        temperature: float | None = None,
        smooth: int | None = None,
        normalise_errors: bool | None = None,
        level: Level | None = None,
        ratio: float = DEFAULT_RATIO,
        device: str = "auto",
        threads: int | None = None,
        options: ScoreOptions | None = None,
        engine_options: EngineOptions | None = None,
        verbose: bool = False,
    ) -> None:
        """None uses the preset's value. `options` and `engine_options` are for scoring."""
        self.preset, self.window, self.width, self.heads, self.layers = preset, window, width, heads, layers
        self.feed_forward, self.prior, self.padding = feed_forward, prior, padding
        self.strategy, self.lambda_, self.noise = strategy, lambda_, noise
        self.max_steps, self.epochs = max_steps, epochs
        self.patience, self.learning_rate, self.batch_size, self.stride = patience, learning_rate, batch_size, stride
        self.head_rule, self.distance, self.layer, self.seed = head_rule, distance, layer, seed
        self.precision, self.compile, self.columns, self.exclude = precision, compile, columns, exclude
        self.validation, self.fill, self.season, self.max_gap = validation, fill, season, max_gap
        self.score_mode, self.interval, self.resample = score_mode, interval, resample
        self.temperature, self.smooth, self.normalise_errors, self.level = temperature, smooth, normalise_errors, level
        self.ratio, self.device, self.threads, self.verbose = ratio, device, threads, verbose
        self.options, self.engine_options = options, engine_options
        self._fitted: Learnt | None = None
        self._scorer: Scorer | None = None

    def fit(
        self,
        X: ArrowTable | ArrayLike,  # noqa: N803 -- the name that scikit-learn gives it
        y: object = None,  # noqa: ARG002 -- scikit-learn passes labels; none are needed
        *,
        time: str | None = None,
        series: str | None = None,
        validation: ArrowTable | ArrayLike | None = None,
        from_: "str | Path | Detector | None" = None,
    ) -> Self:
        """Train on a table, or on rows (n,F) of one series as an array; it should have few or no anomalies.

        Features are `columns`, or every numeric column of a table that is neither `time` nor `series` nor rises as
        clocks and row numbers do, or all columns of an array. The last share `validation` of each series gives the
        threshold, unless another table is given for that.

        `from_` is a checkpoint or a fitted detector to start from, as with `at-infer train --from`: its network,
        weights, columns, time, series and score, in a fifth of the steps; scaler and thresholds are those of the new
        rows.

        >>> again = Detector(max_steps=5).fit(frame, from_=detector)
        """
        start = from_._known() if isinstance(from_, Detector) else from_
        with Bar("fit", "steps", shown=self.verbose) as bar:
            learnt = learn(Rows(X, validation, time, series), self.get_params(), start=start, observe=bar.show)
        self._take(learnt)
        return self

    def score(
        self,
        X: ArrowTable | ArrayLike,  # noqa: N803
        y: object = None,  # noqa: ARG002
        *,
        times: Sequence[Any] | NDArray[Any] | None = None,
        time: str | None = None,
        series: str | None = None,
        no_time: bool = False,
        one_series: bool = False,
    ) -> Result:
        """Scores, verdicts and incidents of a table or array, as `Scorer.score` gives them.

        >>> detector.score(frame).threshold == detector.threshold_
        True
        """
        return self.scorer.score(X, times, time=time, series=series, no_time=no_time, one_series=one_series)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the checkpoint, which `at-infer export` and `Detector.load` read.

        >>> detector.save("ckpt.pt", overwrite=True)
        """
        known, path = self._known(), Path(path)
        check_writable(path, overwrite=overwrite)
        with atomic_path(path) as temporary:
            temporary.write_bytes(known.checkpoint)

    @classmethod
    def load(cls, path: str | Path, **parameters: Any) -> Self:
        """A fitted detector from a checkpoint of `save` or `at-infer train`; needs torch.

        >>> detector.save("ckpt.pt", overwrite=True)
        >>> detector = Detector.load("ckpt.pt")
        """
        detector = cls(**parameters)
        detector._take(read_checkpoint(Path(path)))
        return detector

    def export(
        self, folder: str | Path, *, overwrite: bool = False, triton: str | Path | None = None, **config: Any
    ) -> list[Path]:
        """Write ONNX files, and a TensorRT plan where one can be built, into a folder; the files that were written.

        `config` are fields of `export.config.ExportConfig`: precision, engine, name, score_mode, calibration, ...

        >>> [path.name for path in detector.export("out", engine="none", overwrite=True)]
        ['model.onnx', 'model.associations.onnx']
        """
        model = None if triton is None else Path(triton)
        return export(
            self._known(), Path(folder), config, overwrite=overwrite, triton=model, say=_say if self.verbose else _hush
        )

    @property
    def scorer(self) -> Scorer:
        """The engine that scores; it stays open.

        >>> detector.scorer.metadata.model.window
        20
        """
        known = self._known()
        with _OPENING:
            if self._scorer is None:
                with TemporaryDirectory() as place:  # the engine is in memory once it is open
                    path = Path(place) / "model.onnx"
                    path.write_bytes(known.model)
                    self._scorer = Scorer(path, self.options, self.engine_options, verbose=self.verbose)
            return self._scorer

    @property
    def threshold_(self) -> float:
        """A row with a higher score is anomalous."""
        return self.scorer.threshold

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the features."""
        return np.array(self.scorer.metadata.columns, object)

    @property
    def n_features_in_(self) -> int:
        """How many there are."""
        return len(self.scorer.metadata.columns)

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters for the next fit; those of scoring take effect at once.

        >>> detector = detector.set_params(max_steps=30)
        """
        super().set_params(**parameters)
        self._close()
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_scorer": None}

    def _known(self) -> Learnt:
        if self._fitted is None:
            raise not_fitted()
        return self._fitted

    def _take(self, learnt: Learnt) -> None:
        self._close()
        self._fitted = learnt
        _ = self.scorer  # open it now: scoring changes nothing

    def _close(self) -> None:
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None


def _say(text: str) -> None:
    sys.stderr.write(f"export: {text}\n")


def _hush(_: str) -> None:
    """Nothing is said."""
