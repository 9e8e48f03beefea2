"""The figures of a report as images, for tickets and wikis: the only file that imports matplotlib."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import MissingExtraError, OutputError
from at_infer.installed import install_extra
from at_infer.output import atomic_path, check_writable
from at_infer.report.attention import SeenWindow
from at_infer.report.details import Detail
from at_infer.report.overview import worst_series
from at_infer.report.scores import ScoresReport
from at_infer.report.training import TrainingReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCORE, ALARM, HIT, MISS, LABEL, RECONSTRUCTION = "#0067a5", "#c1400b", "#007a55", "#8e3a86", "#f6dfae", "#c77700"
SERIES_SHOWN, SEGMENTS_SHOWN, COLUMNS = 6, 5, 2000


def check_images(folder: Path) -> None:
    """Fail before the long work if no image could be drawn or written."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"png: needs matplotlib; {install_extra('report')}") from None
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is a file; give a folder")
    if not folder.absolute().parent.is_dir():
        raise OutputError(f"{folder}: folder {folder.parent} does not exist; create it or choose another")


def draw_scores(report: ScoresReport, folder: Path, *, overwrite: bool) -> list[Path]:
    """Overview, thresholds, the worst segments and associations; as far as the report has them."""
    figures = {"overview": _overview(report), "thresholds": _thresholds(report)}
    for detail in report.details.segments[:SEGMENTS_SHOWN]:
        figures[f"segment-{detail.segment + 1}"] = _segment(report, detail)
    if report.windows:
        figures["associations"] = _associations(report.windows)
    return _save(figures, folder, overwrite=overwrite)


def draw_training(report: TrainingReport, folder: Path, *, overwrite: bool) -> list[Path]:
    """Losses and learned scales."""
    figures = {name: _loss(report, name) for name in ("reconstruction", "discrepancy")}
    if report.scales:
        figures["scales"] = _scales(report)
    return _save(figures, folder, overwrite=overwrite)


def _save(figures: dict[str, "Figure"], folder: Path, *, overwrite: bool) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = {folder / f"{name}.png": figure for name, figure in figures.items()}
    for path in paths:
        check_writable(path, overwrite=overwrite)
    for path, figure in paths.items():
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png", dpi=120)
    return list(paths)


def _figure(rows: int, height: float, columns: int = 1) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns)).reshape(-1).tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#e9edf0")
    return figure, axes


def _title(ax: "Axes", text: str) -> None:
    ax.set_title(text, loc="left", fontsize=10, parse_math=False)  # a name may hold dollar signs


def _places(report: ScoresReport, times: NDArray[np.float64] | None, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Where rows lie on the x axis."""
    if times is None:
        return rows
    return (times * 1000).astype("datetime64[us]") if report.overview.clock == "date" else times


def _overview(report: ScoresReport) -> "Figure":
    overview = report.overview
    shown = worst_series(overview)[:SERIES_SHOWN]
    figure, axes = _figure(len(shown), 1.4 + 2.4 * len(shown))
    begins = np.append(0, np.cumsum([series.buckets for series in overview.series]))
    for ax, k in zip(axes, shown, strict=True):
        series, part = overview.series[k], slice(begins[k], begins[k + 1])
        low, high = overview.low[part], overview.high[part]
        rows = series.first_row + np.arange(len(low)) * overview.bucket_rows
        x = _places(report, None if overview.times is None else overview.times[part], rows)
        x, low, high = _narrowed(x, low, high)
        for segments, colour in ((overview.events, LABEL), (overview.segments, "#f3c3ae")):
            if segments is not None:
                at = np.flatnonzero(segments.series == k)
                edges = [
                    _places(report, None if overview.times is None else segments.times[at, side], rows)
                    for side, rows in enumerate((segments.first[at], segments.end[at] - 1))
                ]
                for a, b in zip(*edges, strict=True):
                    ax.axvspan(a, b, color=colour, linewidth=1, alpha=0.8, zorder=0)
        ax.fill_between(x, low, high, color=SCORE, linewidth=0.8)
        ax.margins(x=0.01)
        ax.axhline(report.threshold, color=ALARM, linestyle="--", linewidth=1.2)
        if np.nanmin(low, initial=np.inf) > 0 and report.threshold > 0:
            ax.set_yscale("log")
        name = f"{series.name}: " if series.name else ""
        _title(
            ax, f"{name}{series.segments:,} segments, {series.flagged:,} of {series.rows:,} rows above the threshold"
        )
        ax.set_ylabel("score")
    axes[-1].set_xlabel(str(report.file.keys.time) if overview.clock else "row", parse_math=False)
    return figure


def _narrowed(x: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """No more columns than an image has; lowest and highest score of each."""
    width = -(-len(x) // COLUMNS)
    if width <= 1:
        return x, low, high
    at = np.arange(0, len(x), width)
    return x[at], np.fmin.reduceat(low, at), np.fmax.reduceat(high, at)


def _thresholds(report: ScoresReport) -> "Figure":
    figure, (ax,) = _figure(1, 3.6)
    grid, total = report.grid, report.overview.total
    rows, segments = total.rows.above(grid.cuts), total.runs.starts.above(grid.cuts)
    if len(grid.cuts) > 1:
        ax.stairs(-np.diff(rows), grid.values, fill=True, color="#9cc3de", label="rows")
        ax.set_yscale("log", nonpositive="clip")
    if grid.values[0] > 0:
        ax.set_xscale("log")
    ax.axvline(report.threshold, color=ALARM, linestyle="--")
    ax.set_xlabel("score, threshold")
    ax.set_ylabel("rows with this score")
    right = ax.twinx()
    right.step(grid.values, segments / (report.days or 1), where="post", color=ALARM)
    if segments.any():
        right.set_yscale("log", nonpositive="mask")
    right.set_ylabel("segments a day" if report.days else "segments", color=ALARM)
    _title(ax, "What another threshold would do")
    return figure


def _segment(report: ScoresReport, detail: Detail) -> "Figure":
    figure, axes = _figure(1 + len(detail.names), 1.6 + 1.5 * (1 + len(detail.names)))
    x = _places(report, detail.times, detail.first_row + np.arange(len(detail.scores)))
    segments, k = report.overview.segments, detail.segment
    inside = slice(
        max(int(segments.first[k]) - detail.first_row, 0), min(int(segments.end[k]) - detail.first_row, len(x))
    )
    name = report.overview.series[int(segments.series[k])].name
    axes[0].plot(x, detail.scores, color=SCORE)
    axes[0].axhline(report.threshold, color=ALARM, linestyle="--", linewidth=1.2)
    _title(axes[0], f"{name + ': ' if name else ''}score, peak {segments.peak[k]:.4g}")
    shares = {entry.feature: str(entry) for entry in report.details.shares[k]}
    for j, ax in enumerate(axes[1:]):
        ax.plot(x, detail.values[j], color=SCORE, label="measured")
        if detail.reconstructions:
            ax.plot(x, detail.reconstructions[j], color=RECONSTRUCTION, linestyle="--", label="reconstructed")
        _title(ax, shares.get(detail.names[j], detail.names[j]))
    for ax in axes:
        ax.axvspan(x[inside.start], x[inside.stop - 1], color="#f3c3ae", alpha=0.6, linewidth=2, zorder=0)
    if detail.reconstructions:
        axes[1].legend(loc="upper right", fontsize=8)
    return figure


def _associations(windows: Sequence[SeenWindow]) -> "Figure":
    """The worst window and the normal one: feature, sigma of every layer, prior and series of the last layer."""
    chosen = [*[w for w in windows if w.segment is not None][:1], *[w for w in windows if w.segment is None]]
    figure, axes = _figure(4, 10, len(chosen))
    for column, window in enumerate(chosen):
        value, sigma, prior, series = axes[column :: len(chosen)]
        rows = window.first_row + np.arange(len(window.scores))
        value.plot(rows, window.values, color=SCORE)
        _title(value, f"{'normal' if window.segment is None else 'anomalous'} window, {window.name}")
        for layer, of in enumerate(window.attention.sigma):
            sigma.plot(rows, of, label=f"layer {layer + 1}")
        sigma.legend(fontsize=8)
        _title(sigma, "learned scale sigma, mean of the heads")
        for ax, maps, title in (
            (prior, window.attention.prior, "prior association"),
            (series, window.attention.series, "series association"),
        ):
            ax.imshow(np.sqrt(maps[-1]), cmap="plasma", aspect="auto")
            ax.grid(visible=False)
            _title(ax, f"{title}, layer {len(maps)}")
    return figure


def _loss(report: TrainingReport, name: str) -> "Figure":
    figure, (ax,) = _figure(1, 4)
    steps = report.steps.get(name)
    if steps is not None:
        ax.plot(np.arange(1, len(steps) + 1), steps, color=SCORE, alpha=0.3, linewidth=0.8, label="step")
    at = [one["step"] for one in report.evaluations]
    ax.plot(at, [one[name] for one in report.evaluations], color=SCORE, marker="o", label="mean of steps")
    ax.plot(
        at,
        [one[f"validation_{name}"] for one in report.evaluations],
        color=RECONSTRUCTION,
        linestyle="--",
        marker="o",
        label="validation",
    )
    ax.axvline(report.best_step, color=HIT, label=f"best weights, step {report.best_step}")
    if name == "reconstruction":
        ax.set_yscale("log")
    ax.set_xlabel("step")
    ax.legend(fontsize=8)
    _title(ax, "reconstruction loss" if name == "reconstruction" else "association discrepancy")
    return figure


def _scales(report: TrainingReport) -> "Figure":
    figure, (ax,) = _figure(1, 4)
    for x, label, (low, q1, median, q3, high) in _boxes(report.scales):
        ax.plot([x, x], [low, high], color=SCORE, linewidth=1.5)
        ax.plot([x, x], [q1, q3], color=SCORE, linewidth=8, solid_capstyle="butt")
        ax.plot([x - 0.25, x + 0.25], [median, median], color="white", linewidth=2)
        ax.text(x, 0, label, ha="center", va="top", fontsize=7)
    ax.set_ylim(bottom=0)
    ax.set_xticks([])
    _title(ax, "learned scales sigma on the validation part, layer.head: median, half and nine of ten rows")
    return figure


def _boxes(scales: list[list[list[float]]]) -> Iterator[tuple[float, str, list[float]]]:
    x = 0.0
    for layer, heads in enumerate(scales):
        for head, quantiles in enumerate(heads):
            yield x, f"{layer + 1}.{head + 1}", quantiles
            x += 1
        x += 1
