"""Configuration of model, training and score: frozen, framework-free, JSON round trip."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

from at_infer.errors import ConfigError
from at_infer.untrusted import typed_fields

Prior = Literal["gaussian", "gaussian-fixed", "power-law"]
HeadRule = Literal["paper", "published", "exact"]
Distance = Literal["kl", "js", "wasserstein", "cross-entropy", "l2"]
ScoreMode = Literal[
    "fusion", "paper", "published", "reconstruction", "centred", "calibrated", "discrepancy", "addition"
]
Align = Literal["window", "last"]
SeasonChoice = Literal["auto", "none", "1d", "1w"]
"""Look for a daily or weekly season, subtract none, or subtract a daily or a weekly one from every feature."""
Resample = Literal["mean", "last"]
"""Of the values of a step: their mean, or the last one."""
Level = Literal["recent", "fixed", "ignore"]
Fill = Literal["error", "forward", "mean"]
Strategy = Literal["minimax", "maximize", "reconstruction"]
Precision = Literal["fp32", "bf16", "fp16"]
Padding = Literal["replicate", "circular"]
ExportPrecision = Literal["fp32", "fp16", "bf16", "int8", "int8-dynamic"]
Provider = Literal["cpu", "cuda", "tensorrt", "rtx"]

SCORE_MODES: tuple[ScoreMode, ...] = get_args(ScoreMode)
WINDOW_MODES: tuple[ScoreMode, ...] = tuple(mode for mode in SCORE_MODES if mode != "fusion")
"""Modes that are functions of a window; `fusion` also looks at rows around it."""
PLAN_BATCHES = "1:32:256"
"""Smallest, best and largest batch that plans are made for, unless others are asked for."""
DEFAULT_RATIO = 0.01
"""Fraction of the validation rows above the threshold of training (the paper's r)."""
DEFAULT_RATE, DEFAULT_RATE_WITHOUT_DATES = "1/day", "1/1440 rows"
"""Rate of false incidents, where incidents are made and no other threshold is requested; without dates as if a row were
a minute."""
MOST_WINDOW, MOST_FEATURES, MOST_LAYERS = 1 << 16, 1 << 16, 1 << 8
"""More takes more memory or time than machines have; a file that asks for it is damaged or hostile."""


def _plain(value: Any) -> Any:
    """As `dataclasses.asdict`, which takes ten times as long over the quantiles of a model."""
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= {float}:
            return value.copy() if isinstance(value, list) else value
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    return value


class Config:
    """JSON round trip and checks shared by the dataclasses below."""

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of JSON values."""
        plain: dict[str, Any] = _plain(self)
        return plain

    _earlier: ClassVar[Mapping[str, Any]] = {}
    """Fields that earlier versions of at-infer did not write, and what they stood for."""

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The reverse of `to_dict`; a field that is unknown, missing or of another type is an error."""
        known = {**cls._earlier, **values} if isinstance(values, Mapping) else values
        return cls(**typed_fields(cls, known))

    def _choice(self, name: str, kind: object) -> None:
        value = getattr(self, name)
        if value not in get_args(kind):
            raise ConfigError(f"{name}: {value!r} is not one of {', '.join(get_args(kind))}")

    def _at_least(self, name: str, low: float) -> None:
        value = getattr(self, name)
        if not value >= low:
            raise ConfigError(f"{name}: {value} is too small; it must be at least {low:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(Config):
    """The shape of the network, in the paper's letters where it has them; the paper's own is `PRESETS["paper"]`."""

    _earlier: ClassVar[Mapping[str, Any]] = {"padding": "circular"}

    features: int
    """F (d in the paper): columns of a row."""
    window: int = 100
    """N: rows of a window."""
    width: int = 64
    """D (d_model): channels of the hidden state."""
    heads: int = 2
    """H: attention heads; divides the width."""
    layers: int = 1
    """L: blocks of Anomaly-Attention and feed-forward."""
    feed_forward: int = 64
    """Hidden channels of the feed-forward part."""
    prior: Prior = "gaussian"
    """Kernel of the prior association: learned scale, scale fixed to 1, or power law with learned exponent."""
    padding: Padding = "replicate"
    """Neighbour of the edge rows in the embedding: the edge row itself, or the window's other end (published code)."""

    def __post_init__(self) -> None:
        for name in ("features", "width", "heads", "layers", "feed_forward"):
            self._at_least(name, 1)
        self._at_least("window", 2)
        for name, most in (("features", MOST_FEATURES), ("window", MOST_WINDOW), ("layers", MOST_LAYERS)):
            if getattr(self, name) > most:
                raise ConfigError(f"{name}: {getattr(self, name)} is too large; at most {most}")
        self._choice("prior", Prior)
        self._choice("padding", Padding)
        if self.width % self.heads:
            raise ConfigError(f"heads: {self.heads} heads do not divide a width of {self.width}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscrepancyConfig(Config):
    """How prior and series associations are compared."""

    head_rule: HeadRule = "paper"
    """`paper`: heads averaged, then compared (Algorithm 2). `published`: compared per head, then averaged. `exact`: as
    `paper`, but with the logarithm of the prior as it is, however small the prior; for distance `kl`."""
    distance: Distance = "kl"
    """`kl` is the symmetrised Kullback-Leibler divergence of equation 3; the others are the paper's ablation."""
    layer: int | None = None
    """Use one layer (counted from 0) instead of the mean over all."""

    def __post_init__(self) -> None:
        self._choice("head_rule", HeadRule)
        self._choice("distance", Distance)
        if self.head_rule == "exact" and self.distance != "kl":
            raise ConfigError(f"head_rule: exact is for distance kl, not {self.distance}; choose paper or published")
        if self.layer is not None:
            self._at_least("layer", 0)

    def check_layers(self, layers: int) -> None:
        """Raise if the chosen layer does not exist in a network of `layers` layers."""
        if self.layer is not None and self.layer >= layers:
            raise ConfigError(f"layer: {self.layer} does not exist; the network has layers 0 to {layers - 1}")


LIVE_DELAYS = (0, 1, 5, 10, 25)
"""Delays of live rows, each with its own threshold."""


def split_delay(model: ModelConfig, mode: ScoreMode, delay: int) -> tuple[int, int]:
    """Of the rows that a live row is scored late: those that its window goes on, and those that smoothing looks ahead.

    Mode `fusion` gains from smoothing. The row at the edge of a circular window is next to its first row, so one more
    row is worth more there. The other modes smooth over the past.
    """
    beyond = min(delay, int(model.padding == "circular")) if mode == "fusion" else delay
    return beyond, delay - beyond


class ErrorKind(NamedTuple):
    """How the error of a reconstruction is computed."""

    centred: bool
    """Subtract each feature's local mean residual."""
    normalised: bool
    """Divide each feature's error by its mean on the validation part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreConfig(Config):
    """How error and association discrepancy of a window become its anomaly scores."""

    _earlier: ClassVar[Mapping[str, Any]] = {"normalise_errors": False, "level": "recent"}

    mode: ScoreMode = "fusion"
    """One of the modes of docs/method.md."""
    temperature: float = 50.0
    """Factor inside the softmax of mode `published`; the other modes do not use it."""
    smooth: int = 1
    """Moving mean of the score over this many rows of a series; 1: none. Not part of the graph."""
    normalise_errors: bool = False
    """Divide each feature's squared error by its mean on the validation part, in the modes that are not the paper's."""
    level: Level = "recent"
    """Of mode `fusion`: compare the level of a feature with its recent past, with the training data, or not at all."""

    def __post_init__(self) -> None:
        self._choice("mode", ScoreMode)
        self._choice("level", Level)
        self._at_least("smooth", 1)
        for name, is_given in (("smooth", self.smooth > 1), ("normalise_errors", self.normalise_errors)):
            if self.mode == "fusion" and is_given:
                raise ConfigError(f"{name}: mode fusion smooths and normalises by itself; leave it out, or name a mode")
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(f"temperature: {self.temperature} is not a positive number")

    def override(self, **given: Any) -> Self:
        """The same with other settings; None: unchanged."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    @property
    def uses_discrepancy(self) -> bool:
        """Does the score look at the associations at all?"""
        return self.mode not in ("fusion", "reconstruction", "centred")

    @property
    def error_kind(self) -> ErrorKind:
        """Which error the mode is made of; modes `paper` and `published` are what they are, whatever the options."""
        if self.mode in ("fusion", "paper", "published", "discrepancy"):
            return ErrorKind(centred=False, normalised=False)
        return ErrorKind(centred=self.mode == "centred", normalised=self.normalise_errors)


def check_temperature(mode: ScoreMode, temperature: float | None) -> None:
    """A temperature that was asked for must have an effect."""
    if temperature is not None and mode != "published":
        raise ConfigError(f"temperature: mode {mode} does not use it; leave it out, or choose mode='published'")


def head_rule(mode: ScoreMode, discrepancy: DiscrepancyConfig) -> HeadRule:
    """Mode `paper` always averages the heads first, mode `published` never; the others follow the training."""
    averaged, per_head = head_rules(discrepancy)
    fixed: dict[ScoreMode, HeadRule] = {"paper": averaged, "published": per_head}
    return fixed.get(mode, discrepancy.head_rule)


def head_rules(discrepancy: DiscrepancyConfig) -> tuple[HeadRule, HeadRule]:
    """The two that the modes of one model need: heads averaged first, and compared one by one."""
    return ("exact" if discrepancy.head_rule == "exact" else "paper"), "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(Config):
    """How to train; the paper's way is `PRESETS["paper"]`.

    The learning rate rises during the warm-up and then stays, until the validation loss has stopped falling or the
    budget is nearly spent; then it falls to zero during the cool-down, which ends the training.
    """

    _earlier: ClassVar[Mapping[str, Any]] = {"noise": 0.0}

    strategy: Strategy = "minimax"
    """Minimax with stop-gradients (equation 5), direct maximisation, or reconstruction loss alone."""
    discrepancy: DiscrepancyConfig = field(default_factory=DiscrepancyConfig)
    """How the associations are compared."""
    lambda_: float = 3.0
    """Weight of the discrepancy in the loss."""
    noise: float = 0.6
    """Gaussian noise is added to the windows that the network sees, of a standard deviation between 0 and this, drawn
    for each window, in units of the scaler. The loss compares with the rows themselves, so copying does not pay."""
    learning_rate: float = 1e-3
    """Of Adam, between warm-up and cool-down."""
    warm_up: float = 0.05
    """Share of the budget during which the learning rate rises."""
    cool_down: float = 0.2
    """Share of the budget during which it falls; 0: it never does, and training ends without."""
    batch_size: int = 32
    """Windows per step."""
    max_steps: int | None = 400
    """The budget in steps, cool-down included."""
    epochs: int | None = None
    """The budget in passes over the training windows; the smaller of the two holds."""
    evaluate_every: int | None = 50
    """Steps from one evaluation on the validation part to the next; None: after every epoch."""
    patience: int = 5
    """The loss has stopped falling after this many evaluations without a better reconstruction loss."""
    tolerance: float = 0.05
    """An evaluation is better if its loss is lower by more than this share."""
    stride: int | None = 1
    """Rows from one training window to the next; None: the window's length, so that they do not overlap."""
    seed: int = 0
    """Of initial weights and batch order."""
    precision: Precision = "fp32"
    """Autocast type; sigma, prior and discrepancy stay in float32."""
    compile: bool = False
    """Use torch.compile."""

    def __post_init__(self) -> None:
        self._choice("strategy", Strategy)
        self._choice("precision", Precision)
        for name in ("batch_size", "patience"):
            self._at_least(name, 1)
        for name in ("max_steps", "epochs", "evaluate_every", "stride"):
            if getattr(self, name) is not None:
                self._at_least(name, 1)
        for name in ("warm_up", "cool_down", "tolerance"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}: {getattr(self, name):g} is not a fraction in [0, 1)")
        if self.max_steps is None and self.epochs is None:
            raise ConfigError("max_steps: there is no budget; give max_steps or epochs")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed: {self.seed} is not between 0 and 2**63 - 1")
        if not 0 < self.learning_rate < 1:
            raise ConfigError(f"learning_rate: {self.learning_rate:g} is not between 0 and 1")
        if not 0 <= self.lambda_ < float("inf"):
            raise ConfigError(f"lambda_: {self.lambda_:g} must be zero or a positive number")
        if not 0 <= self.noise < float("inf"):
            raise ConfigError(f"noise: {self.noise:g} must be zero or a positive number")


class Preset(NamedTuple):
    """A network, without its number of features, and its training."""

    model: ModelConfig
    train: TrainConfig


PRESETS: dict[str, Preset] = {
    "default": Preset(ModelConfig(features=1), TrainConfig()),
    "paper": Preset(
        ModelConfig(features=1, width=512, heads=8, layers=3, feed_forward=512, padding="circular"),
        TrainConfig(
            noise=0.0,
            learning_rate=1e-4,
            warm_up=0.0,
            cool_down=0.0,
            max_steps=None,
            epochs=10,
            evaluate_every=None,
            patience=3,
            tolerance=0.0,
            stride=None,
        ),
    ),
}
