"""Figures of docs/reproduction.md from the stored results; needs matplotlib, the extra `report`.

python -m benchmarks.reproduce.figures [--results benchmarks/results] [--out docs/img]
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from at_infer.output import atomic_path
from benchmarks.reproduce.markdown import NAMES
from benchmarks.reproduce.report import RESULTS, ROOT, read_results
from benchmarks.reproduce.report_curves import FIGURES, MEMORY_AND_TIME

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"published": "#c0392b", "paper": "#3b6ea5", "reconstruction": "#5b8c5a", "random": "#999999"}
ABNORMAL, NORMAL = "#c0392b", "#3b6ea5"
Results = dict[str, dict[str, Any]]


def panels(rows: int, columns: int) -> "tuple[Figure, list[list[Axes]]]":
    """A grid of axes without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, 3.1 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def by_dataset(results: Results, rows: int) -> "tuple[Figure, list[tuple[str, dict[str, Any], list[Axes]]]]":
    """A column for each data set with curves: its title, its results and its axes from above."""
    found = results["curves"]
    figure, axes = panels(rows, len(found))
    titles = [f"{NAMES.get(dataset, dataset)}, {of['size'].partition(':')[0]}" for dataset, of in found.items()]
    return figure, list(zip(titles, found.values(), map(list, zip(*axes, strict=True)), strict=True))


def roc(results: Results) -> "Figure":
    """Point-adjusted above, plain below."""
    figure, columns = by_dataset(results, 2)
    kinds = (("pa_tpr", "pa_area", "point-adjusted"), ("tpr", "area", "plain"))
    for title, entry, axes in columns:
        for ax, (key, area, how) in zip(axes, kinds, strict=True):
            for name, of in entry["roc"].items():
                points = sorted(zip([0, *of["fpr"], 100], [0, *of[key], 100], strict=True))
                x, y = zip(*points, strict=True)
                ax.plot(x, y, ".-", color=COLOURS[name], label=f"{name}: {of[area]:.1f}", linewidth=1)
            ax.set(title=f"{title}, {how}", xlabel="false-positive rate, %", ylabel="recall, %")
            ax.legend(title="area, %", fontsize=7, title_fontsize=7, loc="lower right")
    return figure


def convergence(results: Results) -> "Figure":
    """Error and discrepancy by epoch."""
    figure, columns = by_dataset(results, 2)
    for title, entry, axes in columns:
        for ax, what in zip(axes, ("reconstruction", "discrepancy"), strict=True):
            for number, evaluations in enumerate(entry["convergence"]):
                epochs = range(1, len(evaluations) + 1)
                for key, colour, label in ((what, NORMAL, "training"), (f"validation_{what}", ABNORMAL, "validation")):
                    values = [one[key] for one in evaluations]
                    ax.plot(epochs, values, ".-", color=colour, label=label if number == 0 else None, linewidth=1)
            ax.set(title=f"{title}: {what}", xlabel="epoch", yscale="log" if ax is axes[0] else "linear")
            ax.legend(fontsize=7)
    return figure


def sigma(results: Results) -> "Figure":
    """Quantiles of both kinds of points, by layer."""
    figure, columns = by_dataset(results, 1)
    for title, entry, (ax,) in columns:
        layers = entry["sigma"]["layers"]
        for shift, kind, colour in ((-0.17, "abnormal", ABNORMAL), (0.17, "normal", NORMAL)):
            boxes = [dict(zip(("whislo", "q1", "med", "q3", "whishi"), of[kind], strict=True)) for of in layers]
            drawn = ax.bxp(
                boxes,
                positions=[number + 1 + shift for number in range(len(layers))],
                widths=0.28,
                showfliers=False,
                patch_artist=True,
                boxprops={"facecolor": colour, "alpha": 0.4},
                medianprops={"color": colour},
                manage_ticks=False,
            )
            drawn["boxes"][0].set_label(kind)
        ax.set(title=title, xlabel="layer", ylabel="sigma", xticks=range(1, len(layers) + 1))
        ax.legend(fontsize=7)
    return figure


def intervals(results: Results) -> "Figure":
    """Counts of validation scores by decade."""
    figure, columns = by_dataset(results, 1)
    for title, entry, (ax,) in columns:
        for number, (mode, of) in enumerate(entry["intervals"].items()):
            edges = [of["edges"][0] - 1, *of["edges"]]
            places = [edge + 0.2 + 0.3 * number for edge in edges]
            ax.bar(places, of["counts"], width=0.3, color=COLOURS[mode], label=mode)
        ax.set(title=title, xlabel="log10 of the score", ylabel="validation rows", yscale="log")
        ax.legend(fontsize=7)
    return figure


def width(results: Results) -> "Figure":
    """Relative to 512, beside the paper's."""
    found = results["benchmarks.width_cost"]["widths"]
    figure, axes = panels(1, 2)
    widths = [of["width"] for of in found]
    base = widths.index(512)
    for ax, key, place, title in ((axes[0][0], "memory_mb", 0, "memory"), (axes[0][1], "step_cpu_s", 1, "time")):
        ax.plot(widths, [of[key] / found[base][key] for of in found], "o-", color=NORMAL, label="ours, CPU")
        quoted = [MEMORY_AND_TIME[w][place] / MEMORY_AND_TIME[512][place] for w in widths]
        ax.plot(widths, quoted, "s--", color="#999999", label="the paper, GPU")
        ax.set(title=f"{title} of a training step", xlabel="width", ylabel="relative to 512", xticks=widths)
        ax.legend(fontsize=7)
    return figure


DRAWN: dict[str, tuple[str, Callable[[Results], "Figure"]]] = {
    "roc": ("curves", roc),
    "convergence": ("curves", convergence),
    "sigma": ("curves", sigma),
    "intervals": ("curves", intervals),
    "width": ("benchmarks.width_cost", width),
}


def draw(results: Results, out: Path) -> list[Path]:
    """All figures whose results are there."""
    from matplotlib import rc_context

    made = []
    for name in FIGURES:
        needed, figure_of = DRAWN[name]
        if needed in results:
            path = out / f"reproduce_{name}.svg"
            with rc_context({"svg.hashsalt": name, "font.size": 8}), atomic_path(path) as temporary:
                figure_of(results).savefig(temporary, format="svg", metadata={"Date": None})
            made.append(path)
    return made


def main() -> None:
    """Write them, and say which."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img")
    args = parser.parse_args()
    for path in draw(read_results(args.results), args.out):
        print(path)


if __name__ == "__main__":
    main()
