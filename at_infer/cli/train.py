"""`at-infer train`: a Parquet file in, a checkpoint out."""

from pathlib import Path
from typing import Annotated

import typer

from at_infer.cli import train_options as given
from at_infer.cli.options import LogFormat, run_option, split_names
from at_infer.cli.scoring_options import number_of_steps
from at_infer.cli.terminal import set_log_format
from at_infer.config import DEFAULT_RATIO, PRESETS, Precision
from at_infer.installed import load_extra
from at_infer.models.statistics import check_ratio
from at_infer.output import check_writable
from at_infer.training_options import NetworkOptions, RecordedScore, TrainingOptions, preset_name


def train(
    data: Annotated[str, typer.Argument(help="Parquet file, folder of Parquet files, or quoted glob.", metavar="DATA")],
    output: Annotated[Path, run_option("-o", "--output", help="Checkpoint to write.")],
    columns: given.Columns = None,
    exclude: given.Exclude = None,
    time_column: given.TimeColumn = None,
    series_column: given.SeriesColumn = None,
    validation: given.Validation = "0.2",
    fill: given.Fill = None,
    season: given.Season = None,
    max_gap: given.MaxGap = None,
    interval: given.Interval = None,
    resample: given.Resample = None,
    preset: given.Preset = None,
    window: given.Window = None,
    width: given.Width = None,
    heads: given.Heads = None,
    layers: given.Layers = None,
    feed_forward: given.FeedForward = None,
    prior: given.Prior = None,
    padding: given.Padding = None,
    from_: given.FromCheckpoint = None,
    max_steps: given.MaxSteps = None,
    epochs: given.Epochs = None,
    patience: given.Patience = None,
    learning_rate: given.LearningRate = None,
    batch_size: given.BatchSize = None,
    stride: given.Stride = None,
    strategy: given.Strategy = None,
    lambda_: given.Lambda = None,
    noise: given.Noise = None,
    head_rule: given.HeadRule = None,
    distance: given.Distance = None,
    layer: given.Layer = None,
    seed: given.Seed = None,
    score_mode: given.ScoreMode = None,
    temperature: given.Temperature = None,
    smooth: given.Smooth = None,
    normalise_errors: given.NormaliseErrors = None,
    level: given.Level = None,
    ratio: given.Ratio = DEFAULT_RATIO,
    device: given.Device = "auto",
    precision: Annotated[Precision | None, run_option(help="Autocast type, on CUDA.", show_default="fp32")] = None,
    compile_: Annotated[bool, run_option("--compile", help="torch.compile, on CUDA.")] = False,
    threads: given.Threads = None,
    resume: Annotated[bool, run_option("--resume", help="Continue a stopped run.")] = False,
    overwrite: given.Overwrite = False,
    log_json: given.LogJson = False,
    log_format: LogFormat = "text",
) -> None:
    """Train an Anomaly Transformer on the rows of a Parquet file.

    The last 20 % of each series are used for validation: for early stopping and for the threshold. No labels are
    needed. Training runs until the validation loss stops falling, for at most --max-steps steps, and keeps the best
    weights. --resume continues a stopped run. --from fine-tunes a checkpoint if the data have drifted.

    [bold]Examples[/bold]

      at-infer train train.parquet -o ckpt.pt

      at-infer train "logs/*.parquet" -o ckpt.pt --series-column host --time-column ts

      at-infer train new.parquet --from ckpt.pt -o new.pt

      at-infer train train.parquet -o paper.pt --preset paper --score-mode paper
    """
    set_log_format(log_format)
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
        noise=noise,
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
    base, validated_by = PRESETS[preset or "default"], given.share_or_file(validation)
    network.config(base.model), training.config(base.train)  # complain before torch is loaded, which takes a while
    from at_infer.tables.files import source_files

    for source in (data, validated_by):
        if isinstance(source, str):
            source_files(source)

    load_extra("train", "train")
    from at_infer.cli.training_log import open_log
    from training.parent import Parent
    from training.request import Request

    request = Request(
        source=data,
        columns=None if columns is None else split_names(columns),
        exclude=() if exclude is None else tuple(split_names(exclude)),
        time_column=time_column,
        series_column=series_column,
        validation=validated_by,
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
