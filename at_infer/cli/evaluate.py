"""`at-infer evaluate`: metrics of scores against labels, next to baselines."""

import json
from pathlib import Path
from typing import Annotated

import typer

from at_infer.choices import Join, ProtocolName
from at_infer.cli import options as shared
from at_infer.cli.options import input_option, output_option, panel
from at_infer.cli.terminal import show
from at_infer.errors import ConfigError

threshold_option = panel("Threshold")


def evaluate(
    scores: Annotated[str, typer.Argument(metavar="SCORES", help="Output of at-infer score.")],
    labels: Annotated[str | None, input_option(help="File with the labels. Default: the scores file itself.")] = None,
    label_column: shared.LabelColumn = "label",
    score_column: Annotated[str, input_option(help="Column of the scores.")] = "score",
    join: Annotated[
        Join,
        input_option(help="Columns that both files must agree on. auto: all key columns that both have."),
    ] = "auto",
    time_column: shared.TimeOfScores = None,
    series_column: shared.SeriesOfScores = None,
    rows_per_day: shared.RowsPerDay = None,
    interval: shared.RowInterval = None,
    ratio: Annotated[
        float | None, threshold_option(help="The paper's r: fraction of the validation scores above the threshold.")
    ] = None,
    delta: Annotated[float | None, threshold_option(help="A fixed threshold. Default: the recorded one.")] = None,
    validation: Annotated[
        str | None, threshold_option(help="Scores of the validation rows, if none are recorded.")
    ] = None,
    engine: Annotated[Path | None, threshold_option(help="Model that contains its validation quantiles.")] = None,
    protocol: Annotated[
        ProtocolName,
        threshold_option(
            help="published-leaking: percentile over train and test scores, as the published code does; it leaks."
        ),
    ] = "paper",
    train_scores: Annotated[
        str | None, threshold_option(help="Scores of the training rows, for published-leaking.")
    ] = None,
    seed: Annotated[int, output_option(min=0, help="Seed of the random baseline.")] = 0,
    as_json: Annotated[
        bool, output_option("--json", help="Everything, including every series, as one JSON document.")
    ] = False,
    markdown: Annotated[bool, output_option("--markdown", help="Tables in Markdown.")] = False,
) -> None:
    """Compare scores with labels, next to baselines that ignore the data.

    The paper's point-adjusted metrics, and metrics without adjustment. Both files must have the same rows in the same
    order; their key columns are compared. The threshold never comes from the test scores, except with
    --protocol published-leaking.

    [bold]Examples[/bold]

      at-infer evaluate scores.parquet --labels test.parquet

      at-infer evaluate scores.parquet --labels test.parquet --ratio 0.01 --markdown
    """
    if as_json and markdown:
        raise ConfigError("evaluate: --json and --markdown cannot be combined; give one")
    from at_infer.evaluation.incidents import evaluate_file
    from at_infer.evaluation.table import as_text
    from at_infer.tables.scores import ScoredFile
    from at_infer.thresholds.choose import EvaluationThreshold
    from at_infer.thresholds.rates import rows_a_day

    per_day = rows_a_day(rows_per_day, interval)
    asked = EvaluationThreshold(
        ratio=ratio, delta=delta, validation=validation, engine=engine, protocol=protocol, train_scores=train_scores
    )
    file = ScoredFile(
        scores,
        labels or scores,
        label_column=label_column,
        score_column=score_column,
        time_column=time_column,
        series_column=series_column,
        join=join,
    )
    found, told = evaluate_file(file, asked, seed=seed, rows_per_day=per_day)
    if as_json:
        incidents = None if told is None else told.to_dict()
        document = {"scores": scores, "labels": labels or scores, **found.to_dict(), "incidents": incidents}
        show(json.dumps(document, allow_nan=False))
    else:
        show(as_text(found, scores, incidents=told, markdown=markdown).rstrip("\n"))
