"""`at-infer threshold`: candidate thresholds, and how many rows each would flag."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from at_infer.choices import ThresholdMethod
from at_infer.cli import options as shared
from at_infer.cli.incident_options import CoolDownRows, MergeRows, MinRows, incident_options
from at_infer.cli.messages import in_options
from at_infer.cli.options import output_option, panel, rate_option
from at_infer.cli.scoring_options import DEFAULT_RATES
from at_infer.cli.terminal import show
from at_infer.config import DEFAULT_RATIO, Align
from at_infer.errors import ConfigError

if TYPE_CHECKING:
    from at_infer.thresholds.methods import Comparison

scores_option, method_option = panel("Validation scores"), panel("Method")


def threshold(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="model.onnx, or model.trt with its sidecar.")],
    scores: Annotated[
        str | None,
        scores_option(help="Output of at-infer score on normal rows. Default: the validation quantiles of the model."),
    ] = None,
    align: Annotated[
        Align | None,
        scores_option(
            help="Only the threshold of whole windows, or only that of last rows (watch, score --align last). "
            "Default: both, or that of the rows in --scores."
        ),
    ] = None,
    rows_per_day: Annotated[float | None, rate_option(help="For rates per day.")] = None,
    interval: shared.RowInterval = None,
    method: Annotated[
        ThresholdMethod | None,
        method_option(help="Method to use with --output. Default: show all methods."),
    ] = None,
    ratio: Annotated[
        float, method_option(help="Fraction of the validation rows above it (the paper's r).")
    ] = DEFAULT_RATIO,
    delta: Annotated[float | None, method_option(help="A fixed threshold.")] = None,
    false_alarms_per_day: Annotated[
        float, method_option(help="False-alarm rate for spot: flagged normal rows per day.")
    ] = 1.0,
    false_alarms: Annotated[
        str | None,
        method_option(
            help="Rate of false incidents for incidents: 1/day, 2/week, '1/10000 rows'.",
            metavar="RATE",
            show_default=DEFAULT_RATES,
        ),
    ] = None,
    min_rows: MinRows = None,
    merge_rows: MergeRows = None,
    cool_down_rows: CoolDownRows = None,
    output: Annotated[
        Path | None, output_option("-o", "--output", help="Copy of the model with the chosen threshold.")
    ] = None,
    overwrite: Annotated[bool, output_option("--overwrite", help="Replace an existing copy.")] = False,
    as_json: Annotated[bool, output_option("--json", help="Everything as one JSON document.")] = False,
) -> None:
    """Choose a threshold from validation scores, and write it into a copy of a model.

    ratio is the paper's r, fixed its delta, gap the gap statistic of its appendix (two clusters of scores), gap-log
    the same for their logarithms. spot extrapolates the tail of the scores by extreme value theory to a rate of false
    rows; incidents uses the rate of false incidents on the validation part. No labels are used.

    [bold]Examples[/bold]

      at-infer threshold model.onnx --rows-per-day 1440

      at-infer threshold model.onnx --method spot --false-alarms-per-day 0.5 --interval 60 -o quiet.onnx

      at-infer threshold model.onnx --method incidents --false-alarms 1/week -o quiet.onnx
    """
    from at_infer.models.copies import check_copy, write_copy
    from at_infer.thresholds.methods import MethodOptions, compare_methods, with_thresholds
    from at_infer.thresholds.rates import rows_a_day
    from at_infer.thresholds.recorded import WHAT, read_model_metadata

    if output is not None and method is None:
        raise ConfigError("--output: needs --method; choose one")
    rules = incident_options(
        min_rows,
        merge_rows,
        cool_down_rows,
        wanted=scores is not None,
        way="the model has counted them by its own rules; give scores of normal rows to count in with --scores",
    )
    options = MethodOptions(
        method=method,
        ratio=ratio,
        delta=delta,
        false_alarms_per_day=false_alarms_per_day,
        false_alarms=false_alarms,
        rows_per_day=rows_a_day(rows_per_day, interval),
    )
    metadata = read_model_metadata(model)
    if output is not None:
        check_copy(model, output, overwrite=overwrite, scores=scores)
    curve = None
    if scores is not None:
        from at_infer.incidents.curve import curve_of_file

        curve = curve_of_file(scores, metadata.score, rules)
    found = compare_methods(model, metadata, options, scores=scores, curve=curve, align=align)
    if output is not None:
        write_copy(model, output, with_thresholds(metadata, found, ratio))
    found = [one for one in found if one.delay == 0] or found  # other delays get thresholds too, and are much alike
    if as_json:
        document: dict[str, object] = {
            "model": str(model),
            "rows_per_day": options.rows_per_day,
            "method": method,
            "output": None if output is None else str(output),
            **dict.fromkeys(WHAT),
            **{one.align: one.to_dict() for one in found},
        }
        show(json.dumps(document, allow_nan=False))
    else:
        show("\n\n".join("\n".join(_lines(one, WHAT[one.align])) for one in found))
        if output is not None:
            values = ", ".join(f"{one.chosen.threshold:.6g} for {WHAT[one.align]}" for one in found if one.chosen)
            show(f"\n{output}: a copy with thresholds by {method}: {values}")


def _lines(shown: "Comparison", what: str) -> list[str]:
    from at_infer.thresholds.quantiles import histogram

    known, found = shown.scores, shown.choices
    lines = [f"{known.rows} validation scores of {what} ({known.source})", ""]
    bins = histogram(known)
    widest = max(one.share for one in bins)
    for one in bins:
        inside = [c.method for c in found if c.threshold is not None and one.low <= c.threshold < one.high]
        mark = f"  < {', '.join(inside)}" if inside else ""
        bar = "#" * round(40 * one.share / widest) or ("." if one.share > 0 else "")
        lines.append(f"{one.low:>11.4g} .. {one.high:<11.4g}{one.share:>9.4%}  {bar}{mark}".rstrip())
    outside = [c.method for c in found if c.threshold is not None and c.threshold >= bins[-1].high]
    if outside:
        lines.append(f"above all of them: {', '.join(outside)}")
    lines += ["", f"{'method':10}{'threshold':>12}{'share':>11}{'rows':>10}{'a day':>9}{'incidents/day':>15}  what"]
    for c in found:
        if c.threshold is None:
            lines.append(f"{c.method:10}{'-':>12}{'-':>11}{'-':>10}{'-':>9}{'-':>15}  {c.what}: {in_options(c.note)}")
        else:
            a_day = "-" if c.rows_a_day is None else f"{c.rows_a_day:.3g}"
            told = "-" if c.incidents_a_day is None else f"{c.incidents_a_day:.3g}"
            lines.append(f"{c.method:10}{c.threshold:>12.6g}{c.share:>11.4%}{c.rows:>10}{a_day:>9}{told:>15}  {c.what}")
    return lines
