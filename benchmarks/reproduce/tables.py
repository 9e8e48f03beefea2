"""The tables: which trainings each takes, and which figures it shows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from at_infer.config import Distance, ScoreMode
from at_infer.errors import ConfigError
from at_infer.evaluation.metrics.alarms import harmonic
from at_infer.thresholds.gap import gap_threshold
from at_infer.thresholds.quantiles import QUANTILE_LEVELS, quantiles
from at_infer.thresholds.ratio import ratio_threshold
from benchmarks.reproduce import paper
from benchmarks.reproduce.measures import Figures, Floats, Truth, chance, contrast, mean, measure, spread
from benchmarks.reproduce.outputs import Scored, scored
from benchmarks.reproduce.sources import prepare, ucr_series
from benchmarks.reproduce.trainings import SIZES, Training, split_of

Line = Literal["ratio", "delta", "gap", "gap-log", "leaking"]
CRITERION: tuple[ScoreMode, ...] = ("published", "paper")
STRATEGIES: tuple[ScoreMode, ...] = (*CRITERION, "reconstruction")
OVERLAPPING = {"head_rule": "published", "stride": 10, "epochs": 1}  # the published code takes a window at every row


LEAKING = "LEAKS: early stopping on the test set, threshold from training and test scores"


class Variant(NamedTuple):
    """One line of a table, or one per score mode."""

    label: str
    changes: dict[str, Any] = {}  # noqa: RUF012
    """What is not as in the paper's main results."""
    modes: tuple[ScoreMode, ...] = CRITERION
    layer: int | None = None
    """Score by this layer alone."""
    line: Line = "ratio"
    """Where the threshold comes from."""


class Table(NamedTuple):
    """What a table compares."""

    title: str
    variants: tuple[Variant, ...]


TABLES: dict[str, Table] = {
    "main": Table("Main results", (Variant("Anomaly Transformer", modes=STRATEGIES),)),
    "published": Table(
        "Main results, trained as in the published code: heads compared one by one",
        (
            Variant("Anomaly Transformer", {"head_rule": "published"}, STRATEGIES),
            Variant("the same, one epoch of a window every 10 rows", OVERLAPPING, STRATEGIES),
        ),
    ),
    "leaking": Table(
        "The leaking protocol of the published code",
        (
            Variant("no leak", {"head_rule": "published"}),
            Variant("LEAKS: threshold from validation and test scores", {"head_rule": "published"}, line="leaking"),
            Variant(LEAKING, {"head_rule": "published", "early_stopping": "test"}, line="leaking"),
        ),
    ),
    "criterion": Table(
        "Ablation of the anomaly criterion",
        (Variant("one checkpoint", modes=("reconstruction", "discrepancy", "addition", *CRITERION)),),
    ),
    "strategy": Table(
        "Ablation of the optimisation strategy",
        (
            Variant("reconstruction", {"strategy": "reconstruction"}, STRATEGIES),
            Variant("max", {"strategy": "maximize"}, STRATEGIES),
            Variant("minimax", {}, STRATEGIES),
        ),
    ),
    "prior": Table(
        "Ablation of the prior association",
        (
            Variant("fixed, max", {"prior": "gaussian-fixed", "strategy": "maximize"}),
            Variant("fixed", {"prior": "gaussian-fixed"}),
            Variant("power law", {"prior": "power-law"}),
            Variant("learned"),
        ),
    ),
    "distance": Table(
        "Ablation of the distance between associations",
        tuple(Variant(distance, {"distance": distance}) for distance in get_args(Distance)),
    ),
    "layers-used": Table(
        "Layers whose discrepancy is used, of one checkpoint",
        (*(Variant(f"layer {i + 1}", layer=i) for i in range(3)), Variant("all layers")),
    ),
    "depth": Table("Number of layers", tuple(Variant(f"L = {n}", {"layers": n}) for n in (1, 2, 3, 4))),
    "width": Table("Width", tuple(Variant(f"width {n}", {"width": n}) for n in (256, 512, 1024))),
    "window": Table("Window", tuple(Variant(f"window {n}", {"window": n}) for n in (25, 50, 100, 200))),
    "heads": Table("Number of heads", tuple(Variant(f"H = {n}", {"heads": n}) for n in (1, 2, 4, 8, 16))),
    "lambda": Table("Loss weight", tuple(Variant(f"lambda {n}", {"lambda_": float(n)}) for n in (0, 1, 2, 3, 4))),
    "threshold": Table(
        "Threshold by ratio, by fixed delta and by gap statistic, of one checkpoint",
        (
            Variant("by r"),
            Variant("by delta", line="delta"),
            Variant("by gap", line="gap"),
            Variant("by gap of logarithms", line="gap-log"),
        ),
    ),
}
CONTRASTS = tuple(variant._replace(modes=()) for variant in TABLES["strategy"].variants)


def run_table(name: str, dataset: str, size: str, seeds: Sequence[int], data: Path, work: Path) -> dict[str, Any]:
    """All lines of a table for one data set."""
    folder = prepare(dataset, data, work)
    truth, ratio = Truth.read(folder), paper.ratio_of(dataset)
    rows = []
    split = split_of(training_of(TABLES[name].variants[0], dataset, size, seeds[0]), folder, work)
    for variant in TABLES[name].variants:
        of_seeds = [scored(training_of(variant, dataset, size, seed), folder, work) for seed in seeds]
        its_own = split_of(of_seeds[0].training, folder, work)
        for mode in variant.modes:
            row = {"variant": label_of(variant, size), "mode": mode, "changes": changes(variant, size)}
            row |= {} if its_own == split else {"split": its_own}
            try:
                found = [figures_of(one, variant, mode, truth, dataset) for one in of_seeds]
                rows.append(row | {"figures": mean(found), "spread": spread(found)})
            except ConfigError as error:  # no such threshold for this data set or these scores: the table says why
                why = str(error).removeprefix("threshold: ").partition(";")[0]
                rows.append(row | {"figures": None, "spread": None, "why": why})
    return _entry(size, seeds, truth, split) | {"ratio": ratio, "chance": chance(truth, ratio), "rows": rows}


def run_contrast(dataset: str, size: str, seeds: Sequence[int], data: Path, work: Path) -> dict[str, Any]:
    """Adjacent-association weights of abnormal and normal points, per strategy."""
    folder = prepare(dataset, data, work)
    truth = Truth.read(folder)
    rows = []
    for variant in CONTRASTS:
        of_seeds = [scored(training_of(variant, dataset, size, seed), folder, work) for seed in seeds]
        found = [contrast(one.test.adjacent_weights(), truth.labels) for one in of_seeds]
        rows.append({"variant": variant.label, "figures": _mean_of(found, 4), "spread": spread(found)})
    split = split_of(training_of(CONTRASTS[0], dataset, size, seeds[0]), folder, work)
    return _entry(size, seeds, truth, split) | {"rows": rows}


def run_ucr(names: Sequence[str], size: str, seeds: Sequence[int], data: Path, work: Path) -> dict[str, Any]:
    """A network per series; precision and recall are means over the series, F1 joins them, as in the paper."""
    of_series: dict[str, list[Figures]] = {mode: [] for mode in STRATEGIES}
    of_chance: dict[str, list[Figures]] = {"random": [], "every_nth": []}
    variant = TABLES["main"].variants[0]
    for name in names:
        folder = prepare(f"ucr/{name}", data, work)
        truth = Truth.read(folder)
        for seed in seeds:
            one = scored(training_of(variant, f"ucr/{name}", size, seed), folder, work)
            for mode in STRATEGIES:
                of_series[mode].append(figures_of(one, variant, mode, truth, "ucr"))
        for kind, found in chance(truth, paper.ratio_of("ucr")).items():
            of_chance[kind].append(found)
    rows = [
        {"variant": variant.label, "mode": mode, "figures": joined(found), "spread": None}
        for mode, found in of_series.items()
    ]
    return {
        "size": size_in_words(size),
        "seeds": list(seeds),
        "series": list(names),
        "series_in_archive": len(ucr_series(data)),
        "ratio": paper.ratio_of("ucr"),
        "chance": {kind: joined(found) for kind, found in of_chance.items()},
        "rows": rows,
    }


def training_of(variant: Variant, dataset: str, size: str, seed: int) -> Training:
    """The paper's settings at a size, with the variant's changes."""
    return replace(Training(dataset=dataset, seed=seed, **SIZES[size]), **changes(variant, size))


def changes(variant: Variant, size: str) -> dict[str, Any]:
    """Widths shrink with the size: a table of widths keeps its proportions."""
    found = dict(variant.changes)
    if "width" in found:
        found["width"] = found["width"] * SIZES[size]["width"] // SIZES["full"]["width"]
    return found


def label_of(variant: Variant, size: str) -> str:
    """The width is the one that was trained."""
    trained = changes(variant, size)
    return f"width {trained['width']}" if "width" in trained else variant.label


def figures_of(one: Scored, variant: Variant, mode: ScoreMode, truth: Truth, dataset: str) -> Figures:
    """Of one training; the threshold sees test rows only where the line says that it leaks."""
    validation, test = (part.scores(mode, one.training, variant.layer) for part in (one.validation, one.test))
    seen = np.concatenate([validation, test]) if variant.line == "leaking" else validation
    threshold = threshold_of(seen, variant.line, dataset)
    return measure(test, test > np.float32(threshold), truth)


def threshold_of(validation: Floats, line: Line, dataset: str) -> float:
    """From validation scores, or the paper's constant."""
    if line == "delta":
        if dataset not in paper.DELTA:
            raise ConfigError(f"threshold: the paper has no delta for {dataset}; choose another line")
        return paper.DELTA[dataset]
    if line in ("ratio", "leaking"):
        return ratio_threshold(validation, paper.ratio_of(dataset))
    return gap_threshold(QUANTILE_LEVELS, quantiles(validation), logarithmic=line == "gap-log")


def joined(of: Sequence[Figures]) -> Figures:
    """Means, and the F1 of mean precision and mean recall."""
    found = mean(of)
    return found | {"pa_f1": round(harmonic(found["pa_precision"], found["pa_recall"]), 2)}


def _mean_of(of: Sequence[Figures], digits: int) -> Figures:
    return {name: round(float(np.mean([one[name] for one in of])), digits) for name in of[0]}


def _entry(size: str, seeds: Sequence[int], truth: Truth, split: dict[str, int]) -> dict[str, Any]:
    return {"size": size_in_words(size), "seeds": list(seeds), "split": split, "test": truth.describe()}


def size_in_words(size: str) -> str:
    """For the page."""
    chosen = SIZES[size]
    return (
        f"{size}: {chosen['width']} wide, {chosen['layers']} layers, {chosen['heads']} heads, "
        f"up to {chosen['epochs']} epochs, learning rate {chosen['learning_rate']:g}"
    )
