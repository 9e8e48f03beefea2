"""Network, training and score as a caller says them; the rest is that of a preset or of a checkpoint."""

from dataclasses import dataclass, fields, replace
from typing import Any

from at_infer.config import (
    PRESETS,
    Config,
    DiscrepancyConfig,
    Distance,
    HeadRule,
    Level,
    ModelConfig,
    Padding,
    Precision,
    Prior,
    ScoreConfig,
    ScoreMode,
    Strategy,
    TrainConfig,
    check_temperature,
)
from at_infer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """The network; None: not said."""

    preset: str | None
    window: int | None
    width: int | None
    heads: int | None
    layers: int | None
    feed_forward: int | None
    prior: Prior | None
    padding: Padding | None

    def config(self, base: ModelConfig) -> ModelConfig:
        """The network of the preset with what was said; the feed-forward part follows the width."""
        said = _said(self)
        said.pop("preset", None)
        if self.width is not None:
            said = {"feed_forward": self.width} | said
        return replace(base, **said)

    def check_against(self, known: ModelConfig, source: str) -> None:
        """The network of a checkpoint is what it is: nothing else may be asked for."""
        base = known if self.preset is None else replace(PRESETS[self.preset].model, features=known.features)
        if self.config(base) != known:
            said = _said(self)
            name = next((one for one in said if one != "preset" and said[one] != getattr(known, one)), next(iter(said)))
            raise ConfigError(f"`{name}`: the network is that of {source}; leave `{name}` or `from_` out")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The training; None: not said."""

    strategy: Strategy | None
    lambda_: float | None
    noise: float | None
    max_steps: int | None
    epochs: int | None
    patience: int | None
    learning_rate: float | None
    batch_size: int | None
    stride: int | None
    head_rule: HeadRule | None
    distance: Distance | None
    layer: int | None
    seed: int | None
    precision: Precision | None
    compile: bool

    def config(self, base: TrainConfig) -> TrainConfig:
        """The training of the preset, or of the checkpoint, with what was said."""
        said = _said(self)
        compared = {name: said.pop(name) for name in ("head_rule", "distance", "layer") if name in said}
        discrepancy: DiscrepancyConfig = replace(base.discrepancy, **compared)
        if self.epochs is not None:  # a budget in epochs takes the place of one in steps, unless both are given
            said["max_steps"] = self.max_steps
        return replace(base, discrepancy=discrepancy, **said)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScore(Config):
    """The score that a checkpoint records; None: not said."""

    score_mode: ScoreMode | None
    temperature: float | None
    smooth: int | None
    normalise_errors: bool | None
    level: Level | None

    def __post_init__(self) -> None:
        if self.score_mode is not None:
            self._choice("score_mode", ScoreMode)

    def config(self, known: ScoreConfig | None) -> ScoreConfig:
        """What was said, on top of the score of a checkpoint unless another mode is asked for."""
        said = _said(self)
        base = ScoreConfig()
        if self.score_mode is not None:
            said["mode"] = said.pop("score_mode")
        elif known is not None:
            base = known
        config = replace(base, **said)
        check_temperature(config.mode, self.temperature)
        return config


def preset_name(text: str) -> str:
    """The name of a preset, or an error that says what to do."""
    if text == "small":
        raise ConfigError("`preset`: small is gone; leave `preset` out: the default is as small and trained longer")
    if text not in PRESETS:
        raise ConfigError(f"`preset`: {text!r} is not one of {', '.join(PRESETS)}")
    return text


def _said(options: NetworkOptions | TrainingOptions | RecordedScore) -> dict[str, Any]:
    values = {entry.name: getattr(options, entry.name) for entry in fields(options)}
    return {name: value for name, value in values.items() if value is not None}
