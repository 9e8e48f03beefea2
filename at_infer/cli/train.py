"""`at-infer train`: a Parquet file in, a checkpoint out."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from at_infer.cli.options import panel, run_option, score_option
from at_infer.cli.scoring_options import number_of_steps
from at_infer.config import (
    PRESETS,
    Distance,
    Fill,
    HeadRule,
    Level,
    Padding,
    Precision,
    Prior,
    ScoreMode,
    SeasonChoice,
    Strategy,
    TrainConfig,
)
from at_infer.errors import MissingExtraError
from at_infer.installed import check_own_packages, install_extra
from at_infer.models.statistics import check_ratio
from at_infer.output import check_writable
from at_infer.threads import let_threads_sleep
from at_infer.training_options import NetworkOptions, RecordedScore, TrainingOptions, preset_name

data_option, model_option, training_option = panel("Data"), panel("Model"), panel("Training")
DEFAULT = TrainConfig()
PRESET = "the preset's"


def train(
    data: Annotated[str, typer.Argument(help="Parquet file, folder of Parquet files, or quoted glob.", metavar="DATA")],
    output: Annotated[Path, run_option("-o", "--output", help="Checkpoint to write.")],
    columns: Annotated[
        str | None, data_option(help="Features, comma separated. Default: every numeric column.")
    ] = None,
    exclude: Annotated[str | None, data_option(help="Columns that are not features, comma separated.")] = None,
    time_column: Annotated[str | None, data_option(help="Checked to rise; not a feature.")] = None,
    series_column: Annotated[
        str | None, data_option(help="Tells series apart; windows never cross a change of it.")
    ] = None,
    validation: Annotated[
        str,
        data_option(
            help="Share at the end of each series (more, if that is less than a window), or another Parquet file."
        ),
    ] = "0.2",
    fill: Annotated[
        Fill | None,
        data_option(help="Missing values: refuse, repeat the last value, or the mean.", show_default="error"),
    ] = None,
    season: Annotated[
        SeasonChoice | None,
        data_option(
            help="Subtract a profile by time of day or week (--time-column) from the columns that show one, from none, "
            "or a daily or weekly one from all.",
            show_default="auto; none with --preset paper",
        ),
    ] = None,
    max_gap: Annotated[
        str | None,
        data_option(
            help="Windows never cross more usual steps of time than this between two rows; none: they do.",
            metavar="K|none",
            show_default="3, if the rows come regularly",
        ),
    ] = None,
    interval: Annotated[
        str | None,
        data_option(
            help="Put the rows on a grid first: one row per interval of --time-column; recorded for scoring.",
            metavar="30s|5m|1h|none",
            show_default="none; that of --from",
        ),
    ] = None,
    resample: Annotated[
        Literal["mean", "last"] | None,
        data_option(help="With --interval: the mean of the values in an interval, or the last.", show_default="mean"),
    ] = None,
    preset: Annotated[
        str | None,
        model_option(
            help="Network and training together: default (64 wide, 1 layer, counted in steps) or paper (512 wide, 3 "
            "layers, 10 epochs, the published network).",
            metavar="default|paper",
            show_default="default",
        ),
    ] = None,
    window: Annotated[int | None, model_option(help="Rows of a window.", show_default="100")] = None,
    width: Annotated[int | None, model_option(help="Channels.", show_default=PRESET)] = None,
    heads: Annotated[int | None, model_option(help="Attention heads.", show_default=PRESET)] = None,
    layers: Annotated[int | None, model_option(help="Layers.", show_default=PRESET)] = None,
    feed_forward: Annotated[int | None, model_option(help="Feed-forward channels.", show_default="--width")] = None,
    prior: Annotated[
        Prior | None, model_option(help="Kernel of the prior association.", show_default="gaussian")
    ] = None,
    padding: Annotated[
        Padding | None,
        model_option(
            help="Neighbour of the window's edge rows: the row itself, or the other end as in the published code.",
            show_default="replicate; circular with --preset paper",
        ),
    ] = None,
    from_: Annotated[
        Path | None,
        training_option(
            "--from",
            help="Checkpoint to start from: its network, weights, columns and score, in a fifth of the steps. Scaler, "
            "validation statistics and thresholds are those of the new rows.",
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        training_option(
            help="Budget: at most this many steps. Training ends earlier if the validation loss has stopped falling.",
            show_default=f"{DEFAULT.max_steps}; a fifth of it with --from",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        training_option(
            help="Budget in passes over the training windows instead.", show_default="10 with --preset paper"
        ),
    ] = None,
    patience: Annotated[
        int | None,
        training_option(
            help="The validation loss has stopped falling after this many evaluations without a better one (every "
            f"{DEFAULT.evaluate_every} steps; with --preset paper every epoch).",
            show_default=PRESET,
        ),
    ] = None,
    learning_rate: Annotated[float | None, training_option(help="Of Adam.", show_default=PRESET)] = None,
    batch_size: Annotated[int | None, training_option(help="Windows per step.", show_default="32")] = None,
    stride: Annotated[
        int | None,
        training_option(
            help="Rows from one training window to the next.",
            show_default="1; with --preset paper the window, no overlap",
        ),
    ] = None,
    strategy: Annotated[
        Strategy | None,
        training_option(help="Minimax, direct maximisation, or reconstruction only.", show_default="minimax"),
    ] = None,
    lambda_: Annotated[
        float | None, training_option("--lambda", help="Weight of the discrepancy in the loss.", show_default="3")
    ] = None,
    head_rule: Annotated[
        HeadRule | None,
        training_option(
            help="Discrepancy: heads averaged first (paper; exact: without a floor), or per head (published code).",
            show_default="paper",
        ),
    ] = None,
    distance: Annotated[
        Distance | None, training_option(help="Distance of the associations.", show_default="kl")
    ] = None,
    layer: Annotated[
        int | None, training_option(help="Use the discrepancy of one layer, from 0. Default: all.")
    ] = None,
    seed: Annotated[int | None, training_option(help="Same seed, same weights.", show_default="0")] = None,
    score_mode: Annotated[
        ScoreMode | None,
        score_option(help="Score to record; see docs/method.md.", show_default="fusion of several views"),
    ] = None,
    temperature: Annotated[float | None, score_option(help="Of mode published.", show_default="50")] = None,
    smooth: Annotated[
        int | None, score_option(help="Moving mean of the score over so many rows.", show_default="1 for a named mode")
    ] = None,
    normalise_errors: Annotated[
        bool | None,
        score_option(
            "--normalise-errors/--no-normalise-errors",
            help="Divide each feature's error by its mean on the validation part; not in modes paper and published.",
            show_default="not for a named mode",
        ),
    ] = None,
    level: Annotated[
        Level | None,
        score_option(
            help="Of mode fusion: compare levels with the recent past, with the training data, or not at all.",
            show_default="recent",
        ),
    ] = None,
    ratio: Annotated[float, score_option(help="Threshold: share of validation rows above it.")] = 0.01,
    device: Annotated[str, run_option(help="auto, cpu, cuda or mps.")] = "auto",
    precision: Annotated[Precision | None, run_option(help="Autocast type, on CUDA.", show_default="fp32")] = None,
    compile_: Annotated[bool, run_option("--compile", help="torch.compile, on CUDA.")] = False,
    threads: Annotated[int | None, run_option(help="CPU threads. Default: all.")] = None,
    resume: Annotated[bool, run_option("--resume", help="Continue a run that was stopped.")] = False,
    overwrite: Annotated[bool, run_option("--overwrite", help="Replace an existing checkpoint.")] = False,
    log_json: Annotated[bool, run_option("--log-json", help="JSON lines on stdout, for machines.")] = False,
) -> None:
    """Learn an Anomaly Transformer from the rows of a Parquet file.

    The last 20 % of each series are kept for validation: they tell when to stop and give the threshold. No labels are
    needed. Training goes on until the validation loss has stopped falling, within a budget of steps, and keeps the best
    weights. A run that was stopped continues with --resume. If data have moved on, --from starts from known weights.

    [bold]Examples[/bold]

      at-infer train train.parquet -o ckpt.pt

      at-infer train "logs/*.parquet" -o ckpt.pt --series-column host --time-column ts

      at-infer train new.parquet --from ckpt.pt -o new.pt

      at-infer train train.parquet -o paper.pt --preset paper --score-mode paper
    """
    resume_path = output.with_name(f"{output.stem}.resume.pt")
    for path in (output, resume_path):
        replaced = overwrite or path == resume_path
        check_writable(path, overwrite=replaced, inputs=[data, validation, from_])
    check_ratio(ratio)
    network = NetworkOptions(
        preset=None if preset is None else preset_name(preset),
        window=window,
        width=width,
        heads=heads,
        layers=layers,
        feed_forward=feed_forward,
        prior=prior,
        padding=padding,
    )
    training = TrainingOptions(
        strategy=strategy,
        lambda_=lambda_,
        max_steps=max_steps,
        epochs=epochs,
        patience=patience,
        learning_rate=learning_rate,
        batch_size=batch_size,
        stride=stride,
        head_rule=head_rule,
        distance=distance,
        layer=layer,
        seed=seed,
        precision=precision,
        compile=compile_,
    )
    score = RecordedScore(
        score_mode=score_mode,
        temperature=temperature,
        smooth=smooth,
        normalise_errors=normalise_errors,
        level=level,
    )
    base = PRESETS[preset or "default"]
    network.config(base.model), training.config(base.train)  # complain before torch is loaded, which takes a while

    let_threads_sleep()
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"train: PyTorch is not installed; {install_extra('train')}") from None
    check_own_packages()
    from at_infer.cli.training_log import open_log
    from training.parent import Parent
    from training.request import Request

    request = Request(
        source=data,
        columns=_names(columns),
        exclude=tuple(_names(exclude) or ()),
        time_column=time_column,
        series_column=series_column,
        validation=_share_or_file(validation),
        fill=fill,
        season=season,
        max_gap=number_of_steps(max_gap),
        interval=interval,
        resample=resample,
        network=network,
        training=training,
        score=score,
        ratio=ratio,
        device=device,
        threads=threads,
        parent=None if from_ is None else Parent.load(from_),
    )
    with open_log(as_json=log_json) as log:
        try:
            checkpoint = request.run(resume_path=resume_path, resume=resume, begin=log.start, observe=log.progress)
            checkpoint.save(output)
        except KeyboardInterrupt:
            kept = f"{resume_path} is kept; the same command with --resume continues"
            raise KeyboardInterrupt(kept if resume_path.exists() else "nothing was written") from None
        resume_path.unlink(missing_ok=True)
        log.done(checkpoint, output)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _share_or_file(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
