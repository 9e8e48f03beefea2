"""Options of `at-infer train`: data, network, training, score and run."""

from pathlib import Path
from typing import Annotated

from at_infer import config
from at_infer.cli.options import panel, run_option, score_option

data_option, model_option, training_option = panel("Data"), panel("Model"), panel("Training")
DEFAULT = config.TrainConfig()
PRESET = "the preset's"

Columns = Annotated[
    str | None, data_option(help="Features, comma separated. Default: every numeric column but clocks and row numbers.")
]
Exclude = Annotated[str | None, data_option(help="Columns that are not features, comma separated.")]
TimeColumn = Annotated[str | None, data_option(help="Must increase; not a feature.")]
SeriesColumn = Annotated[str | None, data_option(help="Identifies the series; a window never spans two.")]
Validation = Annotated[
    str,
    data_option(help="Fraction at the end of each series (more if shorter than a window), or another Parquet file."),
]
Fill = Annotated[
    config.Fill | None,
    data_option(help="Missing values: error, repeat the last value, or use the mean.", show_default="error"),
]
Season = Annotated[
    config.SeasonChoice | None,
    data_option(
        help="Subtract a profile by time of day or week (--time-column) from the columns that show one, from none, "
        "or a daily or weekly one from all.",
        show_default="auto; none with --preset paper",
    ),
]
MaxGap = Annotated[
    str | None,
    data_option(
        help="A gap of more than K median time steps splits a series; none: ignore gaps.",
        metavar="K|none",
        show_default="3; none for irregular rows",
    ),
]
Interval = Annotated[
    str | None,
    data_option(
        help="Resample first to one row per interval of --time-column; scoring does the same.",
        metavar="30s|5m|1h|none",
        show_default="none; that of --from",
    ),
]
Resample = Annotated[
    config.Resample | None,
    data_option(help="With --interval: the mean of the values in an interval, or the last.", show_default="mean"),
]

Preset = Annotated[
    str | None,
    model_option(
        help="Network and training together: default (64 wide, 1 layer, counted in steps) or paper (512 wide, 3 "
        "layers, 10 epochs, the published network).",
        metavar="default|paper",
        show_default="default",
    ),
]
Window = Annotated[int | None, model_option(help="Window length in rows.", show_default="100")]
Width = Annotated[int | None, model_option(help="Channels of the hidden state.", show_default=PRESET)]
Heads = Annotated[int | None, model_option(help="Attention heads.", show_default=PRESET)]
Layers = Annotated[int | None, model_option(help="Layers.", show_default=PRESET)]
FeedForward = Annotated[int | None, model_option(help="Feed-forward channels.", show_default="--width")]
Prior = Annotated[config.Prior | None, model_option(help="Kernel of the prior association.", show_default="gaussian")]
Padding = Annotated[
    config.Padding | None,
    model_option(
        help="Padding of windows: repeat the edge row, or circular as in the published code.",
        show_default="replicate; circular with --preset paper",
    ),
]

FromCheckpoint = Annotated[
    Path | None,
    training_option(
        "--from",
        help="Checkpoint to start from: its network, weights, columns and score, in a fifth of the steps. Scaler, "
        "validation statistics and thresholds are those of the new rows.",
    ),
]
MaxSteps = Annotated[
    int | None,
    training_option(
        help="At most this many steps. Training ends earlier if the validation loss stops falling.",
        show_default=f"{DEFAULT.max_steps}; a fifth of it with --from",
    ),
]
Epochs = Annotated[
    int | None,
    training_option(help="Budget in passes over the training windows instead.", show_default="10 with --preset paper"),
]
Patience = Annotated[
    int | None,
    training_option(
        help="The validation loss has stopped falling after this many evaluations without a better one (every "
        f"{DEFAULT.evaluate_every} steps; with --preset paper every epoch).",
        show_default=PRESET,
    ),
]
LearningRate = Annotated[float | None, training_option(help="Learning rate of Adam.", show_default=PRESET)]
BatchSize = Annotated[int | None, training_option(help="Windows per step.", show_default="32")]
Stride = Annotated[
    int | None,
    training_option(
        help="Rows from one training window to the next.",
        show_default="1; with --preset paper the window, no overlap",
    ),
]
Strategy = Annotated[
    config.Strategy | None,
    training_option(help="Minimax, direct maximisation, or reconstruction only.", show_default="minimax"),
]
Lambda = Annotated[
    float | None, training_option("--lambda", help="Weight of the discrepancy in the loss.", show_default="3")
]
Noise = Annotated[
    float | None,
    training_option(
        help="Add Gaussian noise of up to this many standard deviations to training windows. Without noise (0) the "
        "network learns to copy anomalies too.",
        show_default=f"{DEFAULT.noise:g}; 0 with --preset paper",
    ),
]
HeadRule = Annotated[
    config.HeadRule | None,
    training_option(
        help="Discrepancy: heads averaged first (paper; exact: without a floor), or per head (published code).",
        show_default="paper",
    ),
]
Distance = Annotated[config.Distance | None, training_option(help="Distance of the associations.", show_default="kl")]
Layer = Annotated[int | None, training_option(help="Use the discrepancy of one layer, from 0. Default: all.")]
Seed = Annotated[int | None, training_option(help="The same seed gives the same weights.", show_default="0")]

ScoreMode = Annotated[
    config.ScoreMode | None,
    score_option(
        help="Score mode stored in the checkpoint; see docs/method.md.", show_default="fusion of several views"
    ),
]
Temperature = Annotated[float | None, score_option(help="Softmax temperature of mode published.", show_default="50")]
Smooth = Annotated[
    int | None, score_option(help="Moving average of the score over this many rows.", show_default="1 for a named mode")
]
NormaliseErrors = Annotated[
    bool | None,
    score_option(
        "--normalise-errors/--no-normalise-errors",
        help="Divide each feature's error by its mean on the validation part; not in modes paper and published.",
        show_default="not for a named mode",
    ),
]
Level = Annotated[
    config.Level | None,
    score_option(
        help="Level view of mode fusion: relative to recent rows, relative to the training data, or off.",
        show_default="recent",
    ),
]
Ratio = Annotated[float, score_option(help="Threshold: fraction of the validation rows above it.")]

Device = Annotated[str, run_option(help="auto, cpu, cuda or mps.")]
Threads = Annotated[int | None, run_option(help="CPU threads. Default: all.", envvar="AT_INFER_THREADS")]
Overwrite = Annotated[bool, run_option("--overwrite", help="Replace an existing checkpoint.")]
LogJson = Annotated[bool, run_option("--log-json", help="Progress as JSON lines on stdout.")]


def share_or_file(validation: str) -> float | str:
    """What --validation says."""
    try:
        return float(validation)
    except ValueError:
        return validation
