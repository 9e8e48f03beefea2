"""`at-infer train`: a Parquet file in, a checkpoint out."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from at_infer.config import (
    PRESETS,
    DiscrepancyConfig,
    Distance,
    Fill,
    HeadRule,
    ModelConfig,
    Precision,
    Prior,
    ScoreConfig,
    ScoreMode,
    Strategy,
    TrainConfig,
    check_ratio,
    default_score,
)
from at_infer.errors import MissingExtraError
from at_infer.output import check_writable
from at_infer.threads import check_threads, let_threads_sleep

DATA, MODEL, TRAINING, SCORE, RUN = "Data", "Model", "Training", "Score and threshold", "Run"
DEFAULT = TrainConfig()


def train(
    data: Annotated[str, typer.Argument(help="Parquet file, folder of Parquet files, or quoted glob.", metavar="DATA")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Checkpoint to write.", rich_help_panel=RUN)],
    columns: Annotated[
        str | None,
        typer.Option(help="Features, comma separated. Default: every numeric column.", rich_help_panel=DATA),
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(help="Columns that are not features, comma separated.", rich_help_panel=DATA)
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Checked to rise; not a feature.", rich_help_panel=DATA)
    ] = None,
    series_column: Annotated[
        str | None,
        typer.Option(help="Tells series apart; windows never cross a change of it.", rich_help_panel=DATA),
    ] = None,
    validation: Annotated[
        str, typer.Option(help="Share at the end of each series, or another Parquet file.", rich_help_panel=DATA)
    ] = "0.2",
    fill: Annotated[
        Fill,
        typer.Option(help="Missing values: refuse, repeat the last value, or the mean.", rich_help_panel=DATA),
    ] = "error",
    preset: Annotated[
        Literal["paper", "small"],
        typer.Option(
            help="Size of the network: paper is 512 wide with 8 heads and 3 layers, small is 64, 4 and 2.",
            rich_help_panel=MODEL,
        ),
    ] = "paper",
    window: Annotated[int, typer.Option(help="Rows of a window.", rich_help_panel=MODEL)] = 100,
    width: Annotated[int | None, typer.Option(help="Channels; overrides the preset.", rich_help_panel=MODEL)] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads; overrides the preset.", rich_help_panel=MODEL)
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers; overrides the preset.", rich_help_panel=MODEL)] = None,
    feed_forward: Annotated[
        int | None,
        typer.Option(help="Feed-forward channels. Default: the preset's, or --width.", rich_help_panel=MODEL),
    ] = None,
    prior: Annotated[Prior, typer.Option(help="Kernel of the prior association.", rich_help_panel=MODEL)] = "gaussian",
    strategy: Annotated[
        Strategy,
        typer.Option(help="Minimax, direct maximisation, or reconstruction only.", rich_help_panel=TRAINING),
    ] = DEFAULT.strategy,
    lambda_: Annotated[
        float, typer.Option("--lambda", help="Weight of the discrepancy in the loss.", rich_help_panel=TRAINING)
    ] = DEFAULT.lambda_,
    epochs: Annotated[int, typer.Option(help="At most this many.", rich_help_panel=TRAINING)] = DEFAULT.epochs,
    max_steps: Annotated[
        int | None, typer.Option(help="Stop after this many steps.", rich_help_panel=TRAINING)
    ] = DEFAULT.max_steps,
    patience: Annotated[
        int,
        typer.Option(
            help="Stop after this many epochs without a better reconstruction of the validation part.",
            rich_help_panel=TRAINING,
        ),
    ] = DEFAULT.patience,
    learning_rate: Annotated[float, typer.Option(help="Of Adam.", rich_help_panel=TRAINING)] = DEFAULT.learning_rate,
    batch_size: Annotated[int, typer.Option(help="Windows per step.", rich_help_panel=TRAINING)] = DEFAULT.batch_size,
    stride: Annotated[
        int | None,
        typer.Option(help="Rows between training windows. Default: no overlap.", rich_help_panel=TRAINING),
    ] = DEFAULT.stride,
    head_rule: Annotated[
        HeadRule,
        typer.Option(
            help="Discrepancy: heads averaged first (paper), or per head (published code).", rich_help_panel=TRAINING
        ),
    ] = "paper",
    distance: Annotated[Distance, typer.Option(help="Distance of the associations.", rich_help_panel=TRAINING)] = "kl",
    layer: Annotated[
        int | None,
        typer.Option(help="Use the discrepancy of one layer, from 0. Default: all.", rich_help_panel=TRAINING),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same weights.", rich_help_panel=TRAINING)] = DEFAULT.seed,
    score_mode: Annotated[
        Literal[ScoreMode, "auto"] | None,
        typer.Option(
            help="Score to record; see docs/method.md. auto: the one that best finds anomalies put into a copy of the "
            "validation part.",
            show_default="centred, with --normalise-errors and --smooth of half a window",
            rich_help_panel=SCORE,
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Of mode published.", rich_help_panel=SCORE)
    ] = ScoreConfig().temperature,
    smooth: Annotated[
        int | None,
        typer.Option(
            help="Moving mean of the score over so many rows.", show_default="1 for a named mode", rich_help_panel=SCORE
        ),
    ] = None,
    normalise_errors: Annotated[
        bool | None,
        typer.Option(
            "--normalise-errors/--no-normalise-errors",
            help="Divide each feature's error by its mean on the validation part; not in modes paper and published.",
            show_default="not for a named mode",
            rich_help_panel=SCORE,
        ),
    ] = None,
    ratio: Annotated[
        float, typer.Option(help="Threshold: share of validation rows above it.", rich_help_panel=SCORE)
    ] = 0.01,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=RUN)] = "auto",
    precision: Annotated[
        Precision, typer.Option(help="Autocast type, on CUDA.", rich_help_panel=RUN)
    ] = DEFAULT.precision,
    compile_: Annotated[bool, typer.Option("--compile", help="torch.compile, on CUDA.", rich_help_panel=RUN)] = False,
    threads: Annotated[int | None, typer.Option(help="CPU threads. Default: all.", rich_help_panel=RUN)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped.", rich_help_panel=RUN)
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing checkpoint.", rich_help_panel=RUN)
    ] = False,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="JSON lines on stdout, for machines.", rich_help_panel=RUN)
    ] = False,
) -> None:
    """Learn an Anomaly Transformer from the rows of a Parquet file.

    The last 20 % of each series are kept for validation: they stop the training in time and give the
    threshold. No labels are needed. A run that was stopped continues with --resume.

    [bold]Examples[/bold]

      at-infer train train.parquet -o ckpt.pt

      at-infer train "logs/*.parquet" -o ckpt.pt --series-column host --time-column ts --preset small
    """
    check_writable(output, overwrite=overwrite)
    model = {"features": 1, "window": window, **PRESETS[preset]}
    if width is not None:
        model |= {"width": width, "feed_forward": width}
    chosen = {"heads": heads, "layers": layers, "feed_forward": feed_forward}
    model |= {name: value for name, value in chosen.items() if value is not None}
    model_config = ModelConfig(prior=prior, **model)
    train_config = TrainConfig(
        strategy=strategy,
        discrepancy=DiscrepancyConfig(head_rule=head_rule, distance=distance, layer=layer),
        lambda_=lambda_,
        learning_rate=learning_rate,
        batch_size=batch_size,
        epochs=epochs,
        max_steps=max_steps,
        patience=patience,
        stride=stride,
        seed=seed,
        precision=precision,
        compile=compile_,
    )
    usual = default_score(window) if score_mode is None else ScoreConfig()
    score_config = replace(
        usual,
        mode=usual.mode if score_mode is None or score_mode == "auto" else score_mode,
        temperature=temperature,
        smooth=usual.smooth if smooth is None else smooth,
        normalise_errors=usual.normalise_errors if normalise_errors is None else normalise_errors,
    )
    check_ratio(ratio)

    let_threads_sleep()
    try:
        import torch
    except ImportError:
        raise MissingExtraError("train: PyTorch is not installed; pip install 'at-infer[train]'") from None
    from at_infer.cli.training_log import open_log
    from training.data import DataConfig, load
    from training.device import check_device, flush_denormals
    from training.loop import fit
    from training.selection import AutoScore

    flush_denormals()
    if threads is not None:
        check_threads(threads)
        torch.set_num_threads(threads)
    where = str(check_device(device, train_config))
    train_config.discrepancy.check_layers(model_config.layers)
    resume_path = output.with_name(f"{output.stem}.resume.pt")
    with open_log(as_json=log_json) as log:
        rows = load(
            DataConfig(
                source=data,
                columns=_names(columns),
                exclude=tuple(_names(exclude) or ()),
                time_column=time_column,
                series_column=series_column,
                validation=_share_or_file(validation),
                fill=fill,
            ),
            window=window,
            stride=stride,
        )
        model_config = replace(model_config, features=len(rows.columns))
        threads = torch.get_num_threads()
        try:
            checkpoint = fit(
                rows,
                model_config,
                train_config,
                AutoScore(temperature=temperature, smooth=smooth, normalise_errors=normalise_errors)
                if score_mode == "auto"
                else score_config,
                ratio=ratio,
                fill=fill,
                device=where,
                resume_path=resume_path,
                resume=resume,
                begin=lambda resumed: log.start(rows, model_config, where, threads, resumed=resumed),
                observe=log.progress,
            )
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
