"""Detector: trains on a table in memory, scores tables, and writes checkpoints and engines."""

import hashlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.api.result import Result
from at_infer.api.scorer import Scorer
from at_infer.config import (
    PRESETS,
    Distance,
    Fill,
    HeadRule,
    Level,
    Padding,
    Precision,
    Prior,
    ScoreConfig,
    ScoreMode,
    SeasonChoice,
    Strategy,
    check_temperature,
)
from at_infer.errors import ConfigError, DataError, MissingExtraError, NotFittedError, OutputError
from at_infer.installed import check_own_packages, install_extra
from at_infer.models.spacing import Resample, choose_grid
from at_infer.models.statistics import check_ratio
from at_infer.output import atomic_path, check_writable
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.windows import Floats
from at_infer.tables.files import InputFile
from at_infer.tables.frames import ArrowTable, array_frame, as_file, is_table, read_frame
from at_infer.threads import check_threads, let_threads_sleep
from at_infer.training_options import NetworkOptions, TrainingOptions, preset_name

if TYPE_CHECKING:
    from training.checkpoint import Checkpoint
    from training.loop import Progress


class Detector:
    """An anomaly detector with the parameters and defaults of `at-infer train`. Fitting needs torch, scoring does not.

    >>> from at_infer import Detector
    >>> detector = Detector(window=20, max_steps=20).fit(frame)
    >>> result = detector.score(frame)
    >>> detector.save("ckpt.pt", overwrite=True)

    It follows the conventions of scikit-learn for outlier detectors: `score_samples` and `decision_function` are low
    for anomalies, `predict` gives -1 for them and 1 for other rows. `score` is the other way round, as everywhere in
    at-infer: a high score is an anomaly.

    A fitted detector can be pickled, and scores without torch then. One thread may use it at a time. A fit that is
    interrupted leaves the detector as it was.
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
        fill: Fill = "error",
        season: SeasonChoice | None = None,
        max_gap: int | None = None,
        interval: str | None = None,
        resample: Resample | None = None,
        score_mode: ScoreMode | None = None,
        temperature: float | None = None,
        smooth: int | None = None,
        normalise_errors: bool | None = None,
        level: Level | None = None,
        ratio: float = 0.01,
        device: str = "auto",
        threads: int | None = None,
        options: ScoreOptions | None = None,
        engine_options: EngineOptions | None = None,
        verbose: bool = False,
    ) -> None:
        """None stands for what the preset has. `options` and `engine_options` are for scoring."""
        self.preset, self.window, self.width, self.heads, self.layers = preset, window, width, heads, layers
        self.feed_forward, self.prior, self.padding = feed_forward, prior, padding
        self.strategy, self.lambda_, self.max_steps, self.epochs = strategy, lambda_, max_steps, epochs
        self.patience, self.learning_rate, self.batch_size, self.stride = patience, learning_rate, batch_size, stride
        self.head_rule, self.distance, self.layer, self.seed = head_rule, distance, layer, seed
        self.precision, self.compile, self.columns, self.exclude = precision, compile, columns, exclude
        self.validation, self.fill, self.season, self.max_gap = validation, fill, season, max_gap
        self.score_mode, self.interval, self.resample = score_mode, interval, resample
        self.temperature, self.smooth, self.normalise_errors, self.level = temperature, smooth, normalise_errors, level
        self.ratio, self.device, self.threads, self.verbose = ratio, device, threads, verbose
        self.options, self.engine_options = options, engine_options
        self._fitted: tuple[bytes, bytes] | None = None
        """Checkpoint and ONNX file."""
        self._scorer: Scorer | None = None

    def fit(
        self,
        X: ArrowTable | ArrayLike,  # noqa: N803 -- the name that scikit-learn gives it
        y: object = None,  # noqa: ARG002 -- scikit-learn passes labels; none are needed
        *,
        time: str | None = None,
        series: str | None = None,
        validation: ArrowTable | ArrayLike | None = None,
    ) -> Self:
        """Learn from a table, or from rows (n,F) of one series as an array; rows should be normal, or nearly so.

        Features are `columns`, or every numeric column that is neither `time` nor `series`. The last share
        `validation` of each series gives the threshold, unless another table is given for that.
        """
        torch = _import_torch()
        from training.data import DataConfig, load
        from training.device import check_device, flush_denormals
        from training.loop import fit

        check_ratio(self.ratio)
        preset = preset_name(self.preset or "default")
        said = self.get_params()
        network = NetworkOptions(**{entry.name: said[entry.name] for entry in fields(NetworkOptions)})
        training = TrainingOptions(**{entry.name: said[entry.name] for entry in fields(TrainingOptions)})
        model_config = network.config(PRESETS[preset].model)
        train_config = training.config(PRESETS[preset].train)
        train_config.discrepancy.check_layers(model_config.layers)
        score_config = self._score_config()
        device = str(check_device(self.device, train_config))
        threads = torch.get_num_threads()
        flush_denormals()
        try:
            if self.threads is not None:
                check_threads(self.threads)
                torch.set_num_threads(self.threads)
            rows = load(
                DataConfig(
                    source=_input(X, "table", (time, series)),
                    columns=None if self.columns is None else list(self.columns),
                    exclude=tuple(self.exclude),
                    time_column=time,
                    series_column=series,
                    validation=self.validation
                    if validation is None
                    else _input(validation, "validation", (time, series)),
                    fill=self.fill,
                    season=self.season or ("none" if preset == "paper" else "auto"),
                    max_gap=self.max_gap,
                    grid=choose_grid(self.interval, self.resample, None),
                ),
                window=model_config.window,
                stride=train_config.stride,
            )
            checkpoint = fit(
                rows,
                replace(model_config, features=len(rows.columns)),
                train_config,
                score_config,
                ratio=self.ratio,
                fill=self.fill,
                device=device,
                observe=_show if self.verbose else lambda _: None,
            )
        finally:
            torch.set_flush_denormal(False)
            torch.set_num_threads(threads)
        self._take(checkpoint)
        return self

    def score(
        self,
        X: ArrowTable | ArrayLike,  # noqa: N803
        times: Sequence[Any] | NDArray[Any] | None = None,
        *,
        time: str | None = None,
        series: str | None = None,
        no_time: bool = False,
        one_series: bool = False,
    ) -> Result:
        """Scores, verdicts and incidents of a table or array, as `Scorer.score` gives them."""
        return self.scorer.score(X, times, time=time, series=series, no_time=no_time, one_series=one_series)

    def score_samples(self, X: ArrowTable | ArrayLike) -> Floats:  # noqa: N803
        """The negative score of each row: low for anomalies, as in scikit-learn; NaN without a score."""
        return -self.score(X).score

    def decision_function(self, X: ArrowTable | ArrayLike) -> Floats:  # noqa: N803
        """Threshold minus score: negative for anomalies, as in scikit-learn (PyOD has the opposite sign)."""
        return np.float32(self.threshold_) - self.score(X).score

    def predict(self, X: ArrowTable | ArrayLike) -> NDArray[np.int64]:  # noqa: N803
        """-1 for an anomalous row, 1 for any other, as in scikit-learn (PyOD has 1 and 0)."""
        return np.where(self.score(X).is_anomaly, -1, 1)

    def fit_predict(self, X: ArrowTable | ArrayLike, y: object = None) -> NDArray[np.int64]:  # noqa: N803
        """`fit` and `predict` on the same rows."""
        return self.fit(X, y).predict(X)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the checkpoint, which `at-infer export` and `Detector.load` read."""
        checkpoint, _ = self._known()
        path = Path(path)
        check_writable(path, overwrite=overwrite)
        with atomic_path(path) as temporary:
            temporary.write_bytes(checkpoint)

    @classmethod
    def load(cls, path: str | Path, **parameters: Any) -> Self:
        """A fitted detector from a checkpoint of `save` or `at-infer train`; needs torch."""
        _import_torch()
        from training.checkpoint import Checkpoint

        detector = cls(**parameters)
        detector._take(Checkpoint.load(Path(path)), Path(path).read_bytes())
        return detector

    def export(
        self, folder: str | Path, *, overwrite: bool = False, triton: str | Path | None = None, **config: Any
    ) -> list[Path]:
        """Write ONNX files, and a TensorRT plan where one can be built, into a folder; the files that were written.

        `config` are fields of `export.pipeline.ExportConfig`: precision, engine, name, score_mode, calibration, ...
        """
        _import_torch()
        from export.pipeline import ExportConfig, export_model
        from training.checkpoint import Checkpoint

        names = [entry.name for entry in fields(ExportConfig)]
        for name in config:
            if name not in names:
                raise ConfigError(f"export: there is no parameter {name}; there are {', '.join(names)}")
        known, _ = self._known()
        folder = Path(folder)
        if not folder.is_dir() and (folder.exists() or not folder.parent.is_dir()):
            what = "is no folder; choose another" if folder.exists() else "parent folder does not exist; create it"
            raise OutputError(f"{folder}: {what}")
        with TemporaryDirectory() as place:
            (Path(place) / "ckpt.pt").write_bytes(known)
            checkpoint = Checkpoint.load(Path(place) / "ckpt.pt")
        report = export_model(
            checkpoint,
            hashlib.sha256(known).hexdigest(),
            folder,
            ExportConfig(**config),
            triton=None if triton is None else Path(triton),
            overwrite=overwrite,
        )
        return [file.path for file in report.files]

    @property
    def scorer(self) -> Scorer:
        """The engine that scores; it stays open."""
        _, model = self._known()
        if self._scorer is None:
            with TemporaryDirectory() as place:  # the engine is in memory once it is open
                path = Path(place) / "model.onnx"
                path.write_bytes(model)
                self._scorer = Scorer(path, self.options, self.engine_options)
        return self._scorer

    @property
    def threshold_(self) -> float:
        """A row with a higher score is anomalous."""
        return self.scorer.threshold

    @property
    def offset_(self) -> float:
        """`decision_function` is `score_samples` minus this."""
        return -self.threshold_

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the features."""
        return np.array(self.scorer.metadata.columns, object)

    @property
    def n_features_in_(self) -> int:
        """How many there are."""
        return len(self.scorer.metadata.columns)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Parameters by name, as they were given."""
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **parameters: Any) -> Self:
        """Other parameters, for the next fit; those of scoring count at once."""
        for name, value in parameters.items():
            if name not in _parameters():
                raise ConfigError(f"detector: has no parameter {name}; there are {', '.join(_parameters())}")
            setattr(self, name, value)
        self._close()
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags  # only scikit-learn asks

        return Tags(
            estimator_type="outlier_detector",
            target_tags=TargetTags(required=False),
            input_tags=InputTags(allow_nan=self.fill != "error"),
        )

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_scorer": None}

    def __repr__(self) -> str:
        usual = {name: entry.default for name, entry in inspect.signature(Detector).parameters.items()}
        said = {name: value for name, value in self.get_params().items() if value != usual[name]}
        return f"Detector({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def _score_config(self) -> ScoreConfig:
        given = {name: getattr(self, name) for name in ("temperature", "smooth", "normalise_errors", "level")}
        config = ScoreConfig().override(mode=self.score_mode, **given)
        check_temperature(config.mode, self.temperature)
        return config

    def _known(self) -> tuple[bytes, bytes]:
        if self._fitted is None:
            raise NotFittedError("detector: is not fitted; call fit or Detector.load first")
        return self._fitted

    def _take(self, checkpoint: "Checkpoint", written: bytes | None = None) -> None:
        """Keep a checkpoint with the ONNX file that scores like it."""
        from export.pipeline import ExportConfig, export_model

        with TemporaryDirectory() as place:
            if written is None:
                checkpoint.save(Path(place) / "ckpt.pt")
                written = (Path(place) / "ckpt.pt").read_bytes()
            sha256 = hashlib.sha256(written).hexdigest()
            export_model(checkpoint, sha256, Path(place) / "model", ExportConfig(engine="none"))
            model = (Path(place) / "model" / "model.onnx").read_bytes()
        self._close()
        self._fitted = written, model

    def _close(self) -> None:
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None


def _parameters() -> list[str]:
    return list(inspect.signature(Detector).parameters)


def _import_torch() -> Any:
    let_threads_sleep()
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
        import torch
    except ImportError as error:
        raise MissingExtraError(f"detector: {error.name} is not installed; {install_extra('export')}") from None
    check_own_packages()
    return torch


def _input(given: ArrowTable | ArrayLike, where: str, keys: Sequence[str | None]) -> InputFile:
    """Rows to learn from; columns of an array are called x0, x1, ..."""
    if is_table(given):
        return as_file(read_frame(given, [key for key in keys if key is not None]), where)
    try:
        with np.errstate(over="ignore"):  # what is too large is found later
            values = np.asarray(given, np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: are not numbers ({error}); give an array, or a table with names") from None
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(f"{where}: has shape {list(values.shape)}; give rows and columns")
    return as_file(array_frame(values, [f"x{j}" for j in range(values.shape[1])]), where)


def _show(progress: "Progress") -> None:
    end = "\n" if progress.step == progress.steps else ""
    sys.stderr.write(f"\rfit: step {progress.step} of {progress.steps}{end}")
    sys.stderr.flush()
