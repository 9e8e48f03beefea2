"""From a large network, the teacher, to a small one that gives its scores: an ordinary checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from at_infer.config import DEFAULT_RATIO, PRESETS, Fill, ModelConfig, ScoreConfig, ScoreMode, TrainConfig, head_rule
from at_infer.errors import CheckpointError, ConfigError
from at_infer.models.statistics import check_ratio
from at_infer.tables.files import InputFile
from at_infer.threads import check_threads
from at_infer.training_options import RecordedScore
from training.checkpoint import Checkpoint
from training.data import DataConfig, PartWindows, TrainingData, load
from training.device import check_device, computing
from training.disturbed import disturb
from training.lesson import Lesson, Taught, teach, usual_error
from training.loop import Observer, fit
from training.model import AnomalyTransformer
from training.parent import Parent
from training.request import Start
from training.student_agreement import compare, time_ratio

BUDGET = 2_000
"""Steps: a student sees its windows many times, since a step of it costs little beside a window of the teacher."""
RATE = 3e-3
"""Of Adam: a reconstruction that is given can be learnt faster than one that is looked for."""
MOST_WINDOWS, MOST_CELLS = 1_024, 1 << 24
"""That the teacher is asked about; as many again are disturbed."""
MOST_EVALUATED = 128
"""Windows of the validation part, and as many again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """A distillation as it was asked for; None: that of the teacher, or of the default network."""

    source: str | InputFile
    teacher: Parent
    validation: float | str | InputFile = 0.2
    fill: Fill | None = None
    width: int | None = None
    heads: int | None = None
    layers: int | None = None
    max_steps: int | None = None
    seed: int | None = None
    score_mode: ScoreMode | None = None
    ratio: float | None = None
    device: str = "auto"
    threads: int | None = None

    def run(self, *, begin: Callable[[Start], None] = lambda _: None, observe: Observer = lambda _: None) -> Checkpoint:
        """Let the teacher look at windows, train the student, and compare the scores of both."""
        check_threads(self.threads)
        known, ratio, fill = self._teacher(), self._ratio(), self.fill or self.teacher.checkpoint.fill
        model, train = self._model(known), self._train(known)
        device = check_device(self.device, train)
        with computing(self.threads):
            data = load(self._data(known, fill), window=model.window, stride=1)
            start = Start(
                data=data,
                model=model,
                train=train,
                device=str(device),
                threads=torch.get_num_threads(),
                teacher=self.teacher,
            )
            begin(start)
            teacher = known.network().to(device)
            lesson = prepare(teacher, known, data, model, device, train.seed)
            task = replace(start, lesson=lesson)
            student = fit(task, student_score(known, model), ratio=ratio, observe=observe)
            agreement = compare(known, student, data.validation, ratio=ratio, device=device, seed=train.seed)
            found = {
                "teacher_sha256": self.teacher.sha256,
                "teacher": known.model.to_dict(),
                "agreement": agreement._asdict(),
                "times_as_fast": time_ratio(teacher, student.network().to(device), lesson.validation.values),
            }
        return replace(student, train=student.train | found)

    def _teacher(self) -> Checkpoint:
        """With the score to learn."""
        known = self.teacher.checkpoint
        asked = RecordedScore(
            score_mode=self.score_mode, temperature=None, smooth=None, normalise_errors=None, level=None
        )
        if self.score_mode not in (None, known.score.mode):
            known = replace(known, score=asked.config(known.score))
        if known.normal is None or (known.score.mode == "fusion" and known.normal.views is None):
            raise CheckpointError(f"{self.teacher.source}: has no validation statistics; train it again")
        return known

    def _ratio(self) -> float:
        recorded = self.teacher.checkpoint.validation_of().threshold.ratio
        ratio = next((one for one in (self.ratio, recorded) if one is not None), DEFAULT_RATIO)
        check_ratio(ratio)
        return ratio

    def _model(self, known: Checkpoint) -> ModelConfig:
        """The default network, or what was said; it sees windows as the teacher does."""
        said = {name: value for name in ("width", "heads", "layers") if (value := getattr(self, name)) is not None}
        if self.width is not None:
            said["feed_forward"] = self.width
        alike = {name: getattr(known.model, name) for name in ("features", "window", "prior", "padding")}
        model = replace(PRESETS["default"].model, **alike, **said)
        with torch.device("meta"):
            weights = sum(parameter.numel() for parameter in AnomalyTransformer(model).parameters())
        theirs = sum(tensor.numel() for tensor in known.state_dict.values())
        if weights >= theirs:
            raise ConfigError(
                f"`width`: a student of {weights} weights is not smaller than its teacher, which has {theirs}; give a "
                f"smaller `width` or fewer `layers`"
            )
        return model

    def _train(self, known: Checkpoint) -> TrainConfig:
        return TrainConfig(
            strategy="reconstruction",
            discrepancy=replace(known.discrepancy, layer=None),
            max_steps=BUDGET if self.max_steps is None else self.max_steps,
            learning_rate=RATE,
            noise=0.0,
            evaluate_every=100,
            tolerance=0.02,
            seed=self.seed or 0,
        )

    def _data(self, known: Checkpoint, fill: Fill) -> DataConfig:
        return DataConfig(
            source=self.source,
            columns=known.columns,
            time_column=known.time_column,
            series_column=known.series_column,
            validation=self.validation,
            fill=fill,
            prepared_for=known,
            grid=known.grid,
        )


def prepare(
    teacher: AnomalyTransformer,
    known: Checkpoint,
    data: TrainingData,
    student: ModelConfig,
    device: torch.device,
    seed: int,
) -> Lesson:
    """Windows of both parts, as they are and disturbed, with what the teacher makes of them."""
    rng = np.random.default_rng([seed, 1])
    rule = replace(known.discrepancy, head_rule=head_rule(known.score.mode, known.discrepancy))

    def ask(part: PartWindows, most: int) -> tuple[Taught, Tensor]:
        starts = part.starts if len(part.starts) <= most else np.sort(rng.choice(part.starts, most, replace=False))
        windows = part.values[starts[:, None] + np.arange(student.window)]  # (P,N,F)
        faulty = disturb(windows.reshape(-1, student.features), rng).reshape(windows.shape)
        taught = teach(teacher, torch.from_numpy(np.concatenate([windows, faulty])).to(device), rule)
        clean = len(windows) * student.window
        return taught, usual_error(taught.values[:clean], taught.reconstruction[:clean])

    most = max(1, min(MOST_WINDOWS, MOST_CELLS // (student.window * student.features)))
    (train, usual), (validation, _) = ask(data.train, most), ask(data.validation, MOST_EVALUATED)
    return Lesson(
        train=train,
        validation=validation,
        usual_error=usual,
        discrepancy=replace(rule, layer=None) if known.score.uses_discrepancy else None,
        across_windows=known.score.mode == "calibrated",
    )


def student_score(known: Checkpoint, student: ModelConfig) -> ScoreConfig:
    """That of the teacher; mode `published` multiplies AssDis by the number of layers, so its temperature follows."""
    if known.score.mode != "published":
        return known.score
    layers = known.model.layers if known.discrepancy.layer is None else 1
    return replace(known.score, temperature=known.score.temperature * layers / student.layers)
