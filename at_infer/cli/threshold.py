"""`at-infer threshold`: where to draw the line, and what that would flag."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from at_infer.cli.evaluate import rows_a_day
from at_infer.config import check_ratio
from at_infer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from at_infer.config import Align
    from at_infer.models.metadata import Metadata
    from at_infer.thresholds.quantiles import Choice, ValidationScores

SCORES, METHOD, COPY = "Validation scores", "Method", "Output"
WHAT: "dict[Align, str]" = {"window": "whole windows", "last": "last rows of windows"}


def threshold(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="model.onnx, or model.trt with its sidecar.")],
    scores: Annotated[
        str | None,
        typer.Option(
            help="Parquet of at-infer score on normal rows. Default: the quantiles that the model kept.",
            rich_help_panel=SCORES,
        ),
    ] = None,
    align: Annotated[
        Literal["window", "last"] | None,
        typer.Option(
            help="Only scores of whole windows, or only those of rows that are the last of their window, as watch and "
            "score --align last have them. Default: both, or what the rows of --scores are.",
            rich_help_panel=SCORES,
        ),
    ] = None,
    rows_per_day: Annotated[float | None, typer.Option(help="To tell rates per day.", rich_help_panel=SCORES)] = None,
    interval: Annotated[
        float | None, typer.Option(help="Seconds between rows, instead of --rows-per-day.", rich_help_panel=SCORES)
    ] = None,
    method: Annotated[
        Literal["ratio", "fixed", "gap", "spot"] | None,
        typer.Option(help="The one to write. Default: show all of them.", rich_help_panel=METHOD),
    ] = None,
    ratio: Annotated[
        float, typer.Option(help="Share of the validation rows above (the paper's r).", rich_help_panel=METHOD)
    ] = 0.01,
    delta: Annotated[float | None, typer.Option(help="A fixed threshold.", rich_help_panel=METHOD)] = None,
    false_alarms_per_day: Annotated[
        float, typer.Option(help="Target of spot: flagged normal rows a day.", rich_help_panel=METHOD)
    ] = 1.0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Copy of the model with the chosen threshold.", rich_help_panel=COPY),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing copy.", rich_help_panel=COPY)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything as one JSON document.", rich_help_panel=COPY)
    ] = False,
) -> None:
    """Choose a threshold from validation scores, and write it into a copy of a model.

    ratio is the paper's r, fixed its delta, gap its appendix (two clusters of scores). spot extrapolates the tail of
    the scores by extreme value theory to a rate of false alarms. No labels are used.

    [bold]Examples[/bold]

      at-infer threshold model.onnx --rows-per-day 1440

      at-infer threshold model.onnx --method spot --false-alarms-per-day 0.5 --interval 60 -o quiet.onnx
    """
    per_day = rows_a_day(rows_per_day, interval)
    _check(method, ratio, delta, false_alarms_per_day, output)
    from at_infer.models.copies import check_copy, write_copy
    from at_infer.thresholds.choose import read_model_metadata
    from at_infer.thresholds.quantiles import choices, flagged

    metadata = read_model_metadata(model)
    if output is not None:
        check_copy(model, output, overwrite=overwrite)
    shown: list[_Shown] = []
    for kind, known in _scores(model, metadata, scores, align).items():
        recorded = metadata.calibrated(kind).threshold
        found = [
            flagged(known, "recorded", f"in the model, by {recorded.method}", recorded.value, per_day),
            *choices(known, ratio=ratio, delta=delta, false_alarms_per_day=false_alarms_per_day, rows_per_day=per_day),
        ]
        chosen = next((choice for choice in found if choice.method == method), None)
        if chosen is not None and chosen.threshold is None:
            raise ConfigError(f"threshold: {chosen.note}; these are the scores of {WHAT[kind]}")
        if chosen is not None:
            metadata = _with(metadata, kind, known, chosen, ratio)
        shown.append(_Shown(kind, known, found, chosen))
    if output is not None:
        write_copy(model, output, metadata)
    if as_json:
        document: dict[str, Any] = {
            "model": str(model),
            "rows_per_day": per_day,
            "method": method,
            "output": None if output is None else str(output),
            **dict.fromkeys(WHAT),
            **{entry.kind: entry.to_dict() for entry in shown},
        }
        print(json.dumps(document, allow_nan=False))
    else:
        print("\n\n".join("\n".join(_lines(entry)) for entry in shown))
        if output is not None:
            values = ", ".join(f"{e.chosen.threshold:.6g} for {WHAT[e.kind]}" for e in shown if e.chosen is not None)
            print(f"\n{output}: a copy with thresholds by {method}: {values}")


class _Shown(NamedTuple):
    """Scores of one kind, what each method finds in them, and the method that was asked for."""

    kind: "Align"
    known: "ValidationScores"
    found: list["Choice"]
    chosen: "Choice | None"

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        from dataclasses import asdict

        from at_infer.thresholds.quantiles import histogram

        return {
            "scores": self.known.source,
            "rows": self.known.rows,
            "choices": [asdict(choice) for choice in self.found],
            "histogram": [asdict(one) for one in histogram(self.known)],
        }


def _with(metadata: "Metadata", kind: "Align", known: "ValidationScores", chosen: "Choice", ratio: float) -> "Metadata":
    """Metadata with the threshold that was chosen."""
    from dataclasses import replace

    from at_infer.config import Calibrated, Threshold

    assert chosen.threshold is not None
    kept = Threshold(
        value=chosen.threshold,
        method={"spot": "peaks-over-threshold"}.get(chosen.method, chosen.method),
        ratio=ratio if chosen.method == "ratio" else None,
        validation_rows=known.rows,
    )
    if kind == "window":
        return replace(metadata, threshold=kept)
    quantiles: dict[str, list[float]] = {metadata.score.mode: known.at_levels(metadata.quantile_levels)}
    causal = metadata.causal or Calibrated(threshold=kept, quantiles=quantiles)
    return replace(metadata, causal=replace(causal, threshold=kept))


def _check(
    method: str | None, ratio: float, delta: float | None, false_alarms_per_day: float, output: Path | None
) -> None:
    if output is not None and method is None:
        raise ConfigError("threshold: --output needs --method, the choice is yours")
    if method == "fixed" and delta is None:
        raise ConfigError("threshold: --method fixed needs --delta")
    check_ratio(ratio)
    if delta is not None and not abs(delta) < 3e38:
        raise ConfigError(f"delta: {delta} is not a finite number")
    if not 0 < false_alarms_per_day < float("inf"):
        raise ConfigError(f"false alarms per day: {false_alarms_per_day:g} is not a positive number")


def _scores(
    model: Path, metadata: "Metadata", source: str | None, align: "Align | None"
) -> "dict[Align, ValidationScores]":
    """Of a file that this model wrote, or the quantiles that it kept."""
    from at_infer.models.metadata import PREFIX
    from at_infer.tables.labels import read_scores
    from at_infer.thresholds.choose import written_align
    from at_infer.thresholds.quantiles import ValidationScores

    if source is None:
        found: dict[Align, ValidationScores] = {}
        for kind in WHAT:
            if (kind == "last" and metadata.causal is None) or align not in (None, kind):
                continue
            known = metadata.calibrated(kind)
            values = known.quantiles.get(metadata.score.mode)
            if values is not None:
                rows = known.threshold.validation_rows
                found[kind] = ValidationScores(f"quantiles kept in {model}", rows, metadata.quantile_levels, values)
        if not found:
            which = "" if align is None else f" of {WHAT[align]}"
            raise DataError(f"{model}: kept no validation scores of mode {metadata.score.mode}{which}; pass --scores")
        return found
    read = read_scores(source)
    expected = {"checkpoint_sha256": metadata.checkpoint_sha256, "score": metadata.score.to_dict()}
    for name, value in expected.items():
        written = read.properties.get(PREFIX + name)
        if written is not None and json.loads(written) != value:
            what = "another model" if name == "checkpoint_sha256" else "another score mode, temperature or smoothing"
            raise DataError(f"{source}: has scores of {what}; score with {model.name} as it is")
    kind = written_align(read.properties)
    if align not in (None, kind):
        raise DataError(f"{source}: has scores of {WHAT[kind]}; leave --align out, or score with --align {align}")
    return {kind: ValidationScores.of_scores(source, read.scores)}


def _lines(shown: _Shown) -> list[str]:
    from at_infer.thresholds.quantiles import histogram

    known, found = shown.known, shown.found
    lines = [f"{known.rows} validation scores of {WHAT[shown.kind]} ({known.source})", ""]
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
    lines += ["", f"{'method':10}{'threshold':>12}{'share':>11}{'rows':>10}{'a day':>9}  what"]
    for c in found:
        if c.threshold is None:
            lines.append(f"{c.method:10}{'-':>12}{'-':>11}{'-':>10}{'-':>9}  {c.what}: {c.note}")
        else:
            a_day = "-" if c.rows_a_day is None else f"{c.rows_a_day:.3g}"
            lines.append(f"{c.method:10}{c.threshold:>12.6g}{c.share:>11.4%}{c.rows:>10}{a_day:>9}  {c.what}")
    return lines
