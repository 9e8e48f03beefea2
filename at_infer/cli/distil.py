"""`at-infer distil`: a large checkpoint in, a small one that gives its scores out."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from at_infer.cli import published_options, train_options
from at_infer.cli.options import LogFormat, run_option, score_option
from at_infer.cli.published_options import PublishedOptions
from at_infer.cli.terminal import set_log_format
from at_infer.cli.train_options import model_option, training_option
from at_infer.config import DEFAULT_RATIO, Fill, ModelConfig, ScoreMode
from at_infer.installed import load_extra
from at_infer.models.statistics import check_ratio
from at_infer.output import check_writable

DEFAULT = ModelConfig(features=1)


def distil(
    checkpoint: Annotated[Path, typer.Argument(help="The teacher: a large checkpoint.", metavar="CHECKPOINT")],
    data: Annotated[str, typer.Argument(help="Rows like those it was trained on, in Parquet.", metavar="DATA")],
    output: Annotated[Path, run_option("-o", "--output", help="Checkpoint of the student to write.")],
    validation: train_options.Validation = "0.2",
    fill: Annotated[
        Fill | None,
        train_options.data_option(help="Missing values, as in train.", show_default="the teacher's"),
    ] = None,
    width: Annotated[int | None, model_option(help="Channels of the student.", show_default=str(DEFAULT.width))] = None,
    heads: Annotated[int | None, model_option(help="Its attention heads.", show_default=str(DEFAULT.heads))] = None,
    layers: Annotated[int | None, model_option(help="Its layers.", show_default=str(DEFAULT.layers))] = None,
    max_steps: Annotated[
        int | None,
        training_option(help="Budget: at most this many steps; fewer if agreement stops rising.", show_default="2000"),
    ] = None,
    seed: train_options.Seed = None,
    score_mode: Annotated[
        ScoreMode | None, score_option(help="Score to learn and to record.", show_default="the teacher's")
    ] = None,
    ratio: Annotated[
        float | None,
        score_option(
            help="Threshold: share of validation rows above it.", show_default=f"the teacher's, or {DEFAULT_RATIO}"
        ),
    ] = None,
    device: train_options.Device = "auto",
    threads: train_options.Threads = None,
    overwrite: train_options.Overwrite = False,
    log_json: train_options.LogJson = False,
    log_format: LogFormat = "text",
    published: published_options.Published = False,
    window: published_options.Window = None,
    scale_from: Annotated[
        str | None,
        published_options.published_option(help="Parquet it was trained on, for its scaler.", show_default="DATA"),
    ] = None,
    columns: published_options.Columns = None,
    exclude: published_options.Exclude = None,
    series_column: published_options.SeriesColumn = None,
) -> None:
    """Train a small network that gives the scores of a large one, in a fraction of the time.

    The student learns what the teacher makes of windows of DATA, as they are and with made-up faults. It keeps the
    teacher's columns, scaler, season and score; validation statistics and thresholds are its own. At the end both score
    the validation part: the rank correlation of their scores is shown and recorded. Export and use the result like
    any other checkpoint.

    [bold]Examples[/bold]

      at-infer distil paper.pt train.parquet -o small.pt

      at-infer distil paper.pt train.parquet -o small.pt --width 128 --max-steps 4000

      at-infer distil MSL_checkpoint.pth train.parquet -o small.pt --published --window 100 --score-mode fusion
    """
    set_log_format(log_format)
    check_writable(output, overwrite=overwrite, inputs=[checkpoint, data, validation, scale_from])
    if ratio is not None:
        check_ratio(ratio)
    lacking = PublishedOptions(
        window=window, scale_from=scale_from, columns=columns, exclude=exclude, series_column=series_column
    )
    if not published:
        lacking.refuse(checkpoint)
    load_extra("train", "distil")
    from at_infer.cli.training_log import open_log
    from at_infer.models.kinds import file_sha256
    from training.distil import Distillation
    from training.parent import Parent

    if published:
        lacking = replace(lacking, scale_from=scale_from or data, ratio=ratio)
        known = lacking.read(checkpoint, score_mode, fill or "error")
        teacher = Parent(str(checkpoint), file_sha256(checkpoint), known)
    else:
        teacher = Parent.load(checkpoint)
    request = Distillation(
        source=data,
        teacher=teacher,
        validation=train_options.share_or_file(validation),
        fill=fill,
        width=width,
        heads=heads,
        layers=layers,
        max_steps=max_steps,
        seed=seed,
        score_mode=score_mode,
        ratio=ratio,
        device=device,
        threads=threads,
    )
    with open_log(as_json=log_json) as log:
        try:
            student = request.run(begin=log.start, observe=log.progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was written") from None
        student.save(output)
        log.done(student, output)
