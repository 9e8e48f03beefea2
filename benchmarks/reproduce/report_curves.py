"""The part of docs/reproduction.md that has figures, and the accuracy on the UCR archive."""

from collections.abc import Iterator
from typing import Any

from benchmarks.reproduce import paper
from benchmarks.reproduce.markdown import MODES, NAMES, counted, paragraph, table

FIGURES = {
    "roc": "ROC curves over r",
    "convergence": "losses by epoch",
    "sigma": "sigma of abnormal and normal points",
    "intervals": "validation scores by decade",
    "width": "memory and time of a training step by width",
}
"""docs/img/reproduce_NAME.svg, and what it shows."""
MEMORY_AND_TIME = {256: (4.9, 0.12), 512: (5.5, 0.15), 1024: (6.6, 0.27)}
"""The paper's: GB, and seconds that it gives for 100 iterations, on its GPU."""


def shown(name: str, heading: str, text: str) -> Iterator[str]:
    """One of the figures below its heading and what there is to say about it."""
    yield f"{heading}\n"
    yield paragraph(text)
    yield f"![{FIGURES[name]}](img/reproduce_{name}.svg)\n"


def curves(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Figures with the numbers behind them."""
    found = results.get("curves", {})
    if found:
        yield "## Curves\n\n`python -m benchmarks.reproduce curves`, then `python -m benchmarks.reproduce.figures`\n"
        sizes = "; ".join(
            f"{NAMES.get(dataset, dataset)}: {of['size']}, {counted(len(of['seeds']), 'seed')}"
            for dataset, of in found.items()
        )
        yield paragraph(
            "Networks trained as in the published code, heads compared one by one, without its leaks, at these sizes. "
            f"{sizes}."
        )
        yield from _roc(found)
        yield from _convergence(found)
        yield from _sigma(found)
        yield from _intervals(found)
    yield from _width(results.get("benchmarks.width_cost", {}))


def _roc(found: dict[str, Any]) -> Iterator[str]:
    ratios = ", ".join(f"{100 * ratio:g}" for ratio in next(iter(found.values()))["roc"]["random"]["ratios"])
    yield from shown(
        "roc",
        "### ROC curves over r",
        f"Thresholds exceeded by r = {ratios} % of the validation scores, as in the paper. The area is that below "
        "the lines through these points, (0, 0) and (1, 1). The paper's curves are point-adjusted; random is the mean "
        "of ten seeds.",
    )
    lines = [
        [NAMES.get(dataset, dataset), MODES.get(name, name), f"{of['pa_area']:.1f}", f"{of['area']:.1f}"]
        for dataset, entry in found.items()
        for name, of in entry["roc"].items()
    ]
    yield table(["data set", "score", "area, point-adjusted", "area"], lines)


def _convergence(found: dict[str, Any]) -> Iterator[str]:
    yield from shown(
        "convergence",
        "### Convergence",
        "Reconstruction error and association discrepancy by epoch, of the training and the validation windows. "
        "Training ends when the validation error has not fallen for three epochs.",
    )
    lines = []
    for dataset, entry in found.items():
        for seed, evaluations in zip(entry["seeds"], entry["convergence"], strict=True):
            first, last = evaluations[0], evaluations[-1]
            cells = [f"{one[key]:.3g}" for key in _LOSSES for one in (first, last)]
            lines.append([f"{NAMES.get(dataset, dataset)}, seed {seed}", str(len(evaluations)), *cells])
    headings = [f"{what}: {when}" for what in ("error", "validation error", "AssDis") for when in ("first", "last")]
    yield table(["data set", "epochs", *headings], lines)


_LOSSES = ("reconstruction", "validation_reconstruction", "discrepancy")


def _sigma(found: dict[str, Any]) -> Iterator[str]:
    yield from shown(
        "sigma",
        "### Sigma",
        "The learned scale of test rows, mean over the heads, by layer: medians, and how often sigma of an abnormal "
        "point is smaller than that of a normal one (50 % is chance). The paper says that anomalies generally have a "
        "smaller sigma, and shows examples. First seed.",
    )
    lines = []
    for dataset, entry in found.items():
        middle = entry["sigma"]["levels"].index(0.5)
        for number, of in enumerate(entry["sigma"]["layers"]):
            cells = [f"{of[kind][middle]:.3f}" for kind in ("abnormal", "normal")]
            smaller = f"{100 * of['abnormal_smaller']:.1f}"
            lines.append([f"{NAMES.get(dataset, dataset)}, layer {number + 1}", *cells, smaller])
    yield table(["data set", "abnormal", "normal", "abnormal is smaller, %"], lines)


def _intervals(found: dict[str, Any]) -> Iterator[str]:
    yield from shown(
        "intervals",
        "### Intervals of validation scores",
        "The paper counts validation scores up to a tenth of delta, up to delta and above it, and finds hardly any in "
        "the middle. First seed; the figure counts by decade, also where the paper has no delta.",
    )
    lines = []
    for dataset, entry in found.items():
        if dataset in paper.INTERVALS:
            delta = paper.DELTA[dataset]
            name = f"{NAMES[dataset]}, delta {delta:g}"
            lines.append([name, "the paper", *(f"{count:,}" for count in paper.INTERVALS[dataset])])
            for mode, of in entry["intervals"].items():
                lines.append([name, MODES[mode], *(f"{count:,}" for count in of["intervals"])])
    if lines:
        yield table(["data set", "score", "up to delta / 10", "up to delta", "above delta"], lines)


def _width(found: dict[str, Any]) -> Iterator[str]:
    if not found:
        return
    yield from shown(
        "width",
        "## Memory and time by width\n\n`python -m benchmarks.width_cost`",
        f"One training step of {found['batch']} windows of 100 rows and {found['features']} features, 3 layers, on one "
        f"thread of a CPU: CPU time, median of {found['steps']} steps, and memory above that of the loaded libraries. "
        "The paper's figures are of its GPU, with 32 windows; only how they grow can be compared.",
    )
    lines = []
    for of in found["widths"]:
        memory, seconds = MEMORY_AND_TIME[of["width"]]
        ours = [f"{of['parameters'] / 1e6:.1f}", f"{of['memory_mb']}", f"{of['step_cpu_s']:.2f}"]
        lines.append([str(of["width"]), *ours, f"{memory:.1f}", f"{seconds:.2f}"])
    yield table(
        ["width", "million parameters", "MB", "CPU s a step", "the paper: GB", "the paper: s, 100 iterations"], lines
    )


def accuracy(found: dict[str, Any]) -> Iterator[str]:
    """Whether the highest score is near the anomaly, as in the contest."""
    if not found:
        return
    yield "## UCR archive: accuracy\n\n`python -m benchmarks.ucr --size tiny`\n"
    yield paragraph(
        f"{found['series']} of the {found['of']} available series (the archive has 250), one network each, of size "
        f"{found['size']}. A series counts as solved if the row with the highest score is at most 100 rows "
        "from the anomaly, or as many as the anomaly is long: the criterion of the contest; no threshold. "
        "Point-adjusted F1 is that of mean precision and recall, with the highest 1 % of the test scores flagged."
    )
    lines = [
        [MODES.get(name.removeprefix("mode "), name), *(f"{of[key]:.1f}" for key in ("accuracy", "vus_pr", "pa_f1"))]
        for name, of in found["means"].items()
    ]
    yield table(["", "accuracy", "VUS-PR", "point-adjusted F1"], lines)
    for name, there in found.get("partly", {}).items():
        yield paragraph(_partly(name, there))
    if not any("matrix profile" in name for name in (*found["means"], *found.get("partly", {}))):
        yield "The matrix profile was not run.\n"


def _partly(name: str, there: dict[str, Any]) -> str:
    """A method that ran on some of the series only, beside the others on these."""
    accuracies = {
        MODES.get(of.removeprefix("mode "), of): f"{found['accuracy']:.1f} %" for of, found in there["means"].items()
    }
    its_own = accuracies.pop(name)
    others = "; ".join(f"{of} {accuracy}" for of, accuracy in accuracies.items())
    return (
        f"The {name} ran on {there['series']} of these series only: accuracy {its_own}. The others on these: {others}."
    )
