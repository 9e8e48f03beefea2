"""A training as it was asked for, by the command or from Python, and the checkpoint that comes of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from at_infer.config import PRESETS, Fill, Resample, SeasonChoice
from at_infer.models.spacing import choose_grid
from at_infer.models.statistics import check_ratio
from at_infer.tables.files import InputFile
from at_infer.threads import check_threads
from at_infer.training_options import NetworkOptions, RecordedScore, TrainingOptions, preset_name
from training.checkpoint import Checkpoint
from training.data import DataConfig, load
from training.device import check_device, computing
from training.loop import Observer, fit
from training.parent import Parent
from training.resume import StateFile
from training.task import TrainingTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(TrainingTask):
    """A training that begins."""

    threads: int
    teacher: Parent | None = None
    """Whose scores it learns."""
    resumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A training as it was asked for; None: that of the preset, or of the checkpoint to start from."""

    source: str | InputFile
    columns: list[str] | None
    learn_clocks: bool = False
    """For an array: it has no names by which a column could be asked for."""
    exclude: tuple[str, ...]
    time_column: str | None
    series_column: str | None
    validation: float | str | InputFile
    fill: Fill | None
    season: SeasonChoice | None
    max_gap: int | None
    interval: str | None
    resample: Resample | None
    network: NetworkOptions
    training: TrainingOptions
    score: RecordedScore
    ratio: float
    device: str
    threads: int | None
    parent: Parent | None

    def run(
        self,
        *,
        resume_path: Path | None = None,
        resume: bool = False,
        begin: Callable[[Start], None] = lambda _: None,
        observe: Observer = lambda _: None,
    ) -> Checkpoint:
        """Read, train and validate; `begin` and `observe` receive the progress."""
        check_ratio(self.ratio)
        check_threads(self.threads)
        preset, parent = preset_name(self.network.preset or "default"), self.parent
        known = None if parent is None else parent.checkpoint
        if parent is None:
            model, train = self.network.config(PRESETS[preset].model), self.training.config(PRESETS[preset].train)
        else:
            self.network.check_against(parent.checkpoint.model, parent.source)
            model, train = parent.checkpoint.model, self.training.config(parent.train_config())
        train.discrepancy.check_layers(model.layers)
        score = self.score.config(None if known is None else known.score)
        device = str(check_device(self.device, train))
        config = self._data(preset, known)
        with computing(self.threads):
            data = load(config, window=model.window, stride=train.stride)
            start = Start(
                data=data,
                model=replace(model, features=len(data.columns)),
                train=train,
                device=device,
                threads=torch.get_num_threads(),
                parent=parent,
            )
            return fit(
                start,
                score,
                ratio=self.ratio,
                kept=None if resume_path is None else StateFile(resume_path, resume),
                begin=lambda resumed: begin(replace(start, resumed=resumed)),
                observe=observe,
            )

    def _data(self, preset: str, known: Checkpoint | None) -> DataConfig:
        """Columns, keys and season are those of the checkpoint to start from, unless others are named."""
        season = self.season
        if season is None and (preset == "paper" if known is None else known.season is None):
            season = "none"  # known weights know rows as they are
        return DataConfig(
            source=self.source,
            columns=self.columns if known is None else self.columns or known.columns,
            learn_clocks=self.learn_clocks,
            exclude=self.exclude,
            time_column=self.time_column or (None if known is None else known.time_column),
            series_column=self.series_column or (None if known is None else known.series_column),
            validation=self.validation,
            fill=self.fill or ("error" if known is None else known.fill),
            season=season or "auto",
            known_season=None if known is None else known.season,
            max_gap=self.max_gap,
            grid=choose_grid(self.interval, self.resample, None if known is None else known.grid),
        )
