"""docs/reproduction.md from the results: the paper's figure, ours and chance's, each with its protocol."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.reproduce import paper
from benchmarks.reproduce.introduction import introduction
from benchmarks.reproduce.markdown import MODES, NAMES, counted, paragraph, table
from benchmarks.reproduce.report_curves import accuracy, curves
from benchmarks.reproduce.tables import LEAKING, TABLES
from benchmarks.reproduce.trainings import SIZES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "reproduction.md"

NOTES = {
    "smd": "The paper's figure is for all 28 machines, ours for the available ones; the two are not comparable.",
    "generated": "Generated; the paper shows its own NeurIPS-TS results only as bars.",
    "asd": "Not one of the paper's data sets.",
}
COLUMNS = ("pa_f1", "f1", "vus_pr", "vus_pr_channels", "flagged")
HEADINGS = ("point-adjusted F1", "F1, not adjusted", "VUS-PR", "VUS-PR per channel", "rows flagged")

OTHERS = {
    "ucr": "accuracy on all series of UCR, beside Sub-PCA (`python -m benchmarks.ucr --size tiny`)",
    "width_cost": "memory and time by width, and its figure (`python -m benchmarks.width_cost`)",
}
"""Other benchmarks whose results the page shows."""

WANTED = ("msl", "smap", "smd", "generated")
"""Data sets that every table is wanted on, at the paper's size."""


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Per table, what was found."""
    found = {}
    for path in sorted(folder.glob("reproduce_*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        found[content["table"]] = content["datasets"]
    for name in OTHERS:
        if (path := folder / f"{name}.json").exists():
            found[f"benchmarks.{name}"] = json.loads(path.read_text(encoding="utf-8"))
    return found


def document(results: dict[str, dict[str, Any]]) -> str:
    """The whole page."""
    parts = [introduction(results), *_glance(results), *_chance_spread(results.get("chance", {}))]
    for name, of in TABLES.items():
        parts += _section(name, of.title, results)
        if name == "strategy":
            parts += _contrast(results.get("contrast", {}))
    parts += _floor(results.get("floor", {}))
    parts += curves(results)
    parts += _ucr(results.get("ucr", {}))
    parts += accuracy(results.get("benchmarks.ucr", {}))
    parts += _not_run(results)
    return "\n".join(parts)


def _glance(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The published score on every data set of the main tables, beside chance."""
    lines = [
        _glance_line(f"{NAMES.get(dataset, dataset)}, {how}{found['size'].partition(':')[0]}", dataset, found)
        for table, how in (("main", ""), ("published", "trained as published, "))
        for dataset, found in results.get(table, {}).items()
    ]
    if not lines:
        return
    yield "## At a glance\n"
    yield paragraph(
        "Score mode `published`, threshold from validation scores. Where an alarm on every Nth row, which never reads "
        "the data, scores as high as the network, the figure says nothing about the network."
    )
    adjusted = [f"point-adjusted F1: {who}" for who in ("the paper", "ours", "random", "every Nth row")]
    others = [f"{what}: {who}" for what in ("F1, not adjusted", "VUS-PR") for who in ("ours", "random")]
    yield table(["data set, size", *adjusted, *others], lines)


def _glance_line(label: str, dataset: str, found: dict[str, Any]) -> list[str]:
    ours = next(row["figures"] for row in found["rows"] if row["mode"] == "published")
    random, every = (found["chance"][name] for name in ("random", "every_nth"))
    cells = [one["pa_f1"] for one in (ours, random, every)]
    cells += [one[name] for name in ("f1", "vus_pr") for one in (ours, random)]
    of_paper = quoted("main", "Anomaly Transformer", "published", dataset, found["size"])
    return [label, _quoted(of_paper), *(f"{cell:.1f}" for cell in cells)]


def _chance_spread(datasets: dict[str, Any]) -> Iterator[str]:
    if not datasets:
        return
    yield "## Scores that never read the data\n\n`python -m benchmarks.reproduce chance`\n"
    yield paragraph("Means and standard deviations over ten seeds, or over ten offsets, at the paper's r.")
    lines = []
    for dataset, found in datasets.items():
        nth = f"every {round(1 / found['ratio'])}th row"
        for row in found["rows"]:
            figures, spread = row["figures"], row["spread"]
            cells = [f"{figures[name]:.1f} ± {spread[name]:.1f}" for name in ("pa_f1", "f1")]
            lines.append([NAMES.get(dataset, dataset), "random" if row["variant"] == "random" else nth, *cells])
    yield table(["data set", "score", *HEADINGS[:2]], lines)


def _floor(datasets: dict[str, Any]) -> Iterator[str]:
    """The discrepancy with and without a floor inside its logarithms."""
    if not datasets:
        return
    yield "## The floor inside the logarithms of AssDis\n\n`python -m benchmarks.reproduce floor`\n"
    yield paragraph(
        "P underflows. It is clamped to at least 1e-8 inside the logarithm (`--head-rule paper`), or log P is computed "
        "from sigma without a floor (`--head-rule exact`). Networks are trained with the floor, unless the line says "
        "otherwise. The rank correlation is that of AssDis with and without it."
    )
    for dataset, found in datasets.items():
        yield f"### The floor inside the logarithms of AssDis: {NAMES.get(dataset, dataset)}\n"
        yield paragraph(
            f"{found['width']} wide, {found['layers']} layers, up to {found['epochs']} epochs; "
            f"{counted(len(found['seeds']), 'seed')}. r = {100 * found['ratio']:g} %."
        )
        lines = [
            [row["variant"], row["score"], *_figures(row["figures"], row["spread"]), *_assdis(row)]
            for row in found["rows"]
        ]
        lines += [[label, score, *cells, "", ""] for label, score, _, *cells in _chance(found)]
        yield table(["network", "score", *HEADINGS, "AssDis: least, median, most", "rank correlation"], lines)


def _assdis(row: dict[str, Any]) -> list[str]:
    floored = row["score"].startswith("published")
    return [" / ".join(f"{value:.4g}" for value in row["assdis"]), "" if floored else f"{row['rank_correlation']:.2f}"]


def _section(name: str, title: str, results: dict[str, dict[str, Any]]) -> Iterator[str]:
    datasets = results.get(name, {})
    if not datasets:
        return
    others = "; the detectors beside the network: `python -m benchmarks.reproduce baselines`" if name == "main" else ""
    yield f"## {title}\n\n`python -m benchmarks.reproduce {name}`{others}\n"
    for dataset, found in datasets.items():
        yield f"### {title}: {NAMES.get(dataset, dataset)}\n\n{_setting(dataset, found)}"
        lines = [
            [row["variant"], _score(row), _quoted(of_paper), *_figures(row["figures"], row["spread"])]
            for row in found["rows"]
            for of_paper in [quoted(name, row["variant"], row["mode"], dataset, found["size"])]
        ]
        if name == "main":
            lines += _leaking(results.get("leaking", {}).get(dataset, {}))
            others = results.get("baselines", {}).get(dataset, {}).get("rows", [])
            lines += [_baseline(row, dataset) for row in others]
            lines += _only_quoted({row["variant"] for row in others}, dataset)
        lines += _chance(found)
        yield table(["", "score", "the paper's point-adjusted F1", *HEADINGS], lines)
        if name == "leaking" and _same_networks(found["rows"]):
            yield paragraph(
                "Early stopping had no effect here: both networks rank the test rows alike. What differs is the "
                "threshold."
            )


def _same_networks(rows: list[dict[str, Any]]) -> bool:
    """The training that leaks ended like the one that does not."""
    clean, leaks = (
        [row["figures"]["vus_pr"] for row in rows if row["variant"] == label] for label in ("no leak", LEAKING)
    )
    return clean == leaks


def _leaking(found: dict[str, Any]) -> Iterator[list[str]]:
    """The published code's protocol, of a network of its own size."""
    for row in found.get("rows", []):
        if row["variant"] == LEAKING:
            of = f"{row['variant']}; {found['size'].partition(',')[0]}, {counted(len(found['seeds']), 'seed')}"
            yield [f"**{of}**", _score(row), "", *_figures(row["figures"], row["spread"])]


def quoted(table: str, variant: str, mode: str, dataset: str, size: str) -> float | None:
    """The paper's figure, beside networks of the paper's size only."""
    return paper.f1(table, variant, mode, dataset) if _of_paper_size(size) else None


def _of_paper_size(size: str) -> bool:
    return size.startswith(("full", "short"))


def _score(row: dict[str, Any]) -> str:
    return MODES[row["mode"]] + (f": {row['why']}" if row["figures"] is None else "")


def _setting(dataset: str, found: dict[str, Any]) -> str:
    test = found["test"]
    seeds = len(found["seeds"])
    text = (
        f"{test['rows']:,} test rows, {test['anomalous_rows']:,} of them in {test['segments']} anomalies, "
        f"{counted(test['channels'], 'channel')}. Networks of size {found['size']}; {counted(seeds, 'seed')}."
    )
    if dataset in paper.DATASETS and found["size"].startswith("short"):
        text += f" That is {SIZES['short']['epochs']} of the paper's {SIZES['full']['epochs']} epochs."
    if "ratio" in found:
        text += f" r = {100 * found['ratio']:g} %."
    return paragraph(f"{text} {NOTES[dataset]}" if dataset in NOTES else text)


def _baseline(row: dict[str, Any], dataset: str) -> list[str]:
    quoted = paper.MAIN.get(row["variant"])
    known = quoted is not None and dataset in paper.DATASETS
    of_paper = quoted[paper.DATASETS.index(dataset)].f1 if quoted is not None and known else None
    sample = "" if row["most_rows"] is None else f", from at most {row['most_rows']:,} rows"
    return [row["variant"], f"its own{sample}", _quoted(of_paper), *_figures(row["figures"], None)]


def _only_quoted(run: set[str], dataset: str) -> Iterator[list[str]]:
    """Methods of the paper that were not run here."""
    if dataset in paper.DATASETS:
        for method, cells in paper.MAIN.items():
            if method not in run and method != "Anomaly Transformer":
                f1 = cells[paper.DATASETS.index(dataset)].f1
                yield [method, "quoted, not run", _quoted(f1), *([""] * len(COLUMNS))]


def _chance(found: dict[str, Any]) -> Iterator[list[str]]:
    nth = round(1 / found["ratio"])
    for name, label in (("random", "*random score*"), ("every_nth", f"*an alarm on every {nth}th row*")):
        yield [label, "never read the data", "", *_figures(found["chance"][name], None)]


def _contrast(datasets: dict[str, Any]) -> Iterator[str]:
    if not datasets:
        return
    yield "## Adjacent associations\n\n`python -m benchmarks.reproduce contrast`\n"
    yield paragraph(
        "Mean weight of the series association between a point and the points just before and after it, over heads and "
        "layers, for abnormal and normal test rows. Uniform attention over a window of 100 gives 1 %. The paper does "
        "not say which points it counts as adjacent. A contrast above 1 means that anomalies attend to "
        "their neighbours more than normal points do."
    )
    for dataset, found in datasets.items():
        yield f"### Adjacent associations: {NAMES.get(dataset, dataset)}\n\n{_setting(dataset, found)}"
        lines = []
        for row in found["rows"]:
            of_paper = ["", "", ""]
            if dataset in paper.DATASETS and _of_paper_size(found["size"]):
                abnormal, normal = paper.CONTRAST[row["variant"]][paper.DATASETS.index(dataset)]
                of_paper = [f"{abnormal:.2f}", f"{normal:.2f}", f"{abnormal / normal:.2f}"]
            ours = row["figures"]
            lines.append(
                [
                    row["variant"],
                    *of_paper,
                    f"{ours['abnormal']:.3f}",
                    f"{ours['normal']:.3f}",
                    f"{ours['contrast']:.2f}",
                ]
            )
        yield table(
            [
                "strategy",
                *(f"{who} {what}" for who in ("paper:", "ours:") for what in ("abnormal", "normal", "contrast")),
            ],
            lines,
        )


def _ucr(datasets: dict[str, Any]) -> Iterator[str]:
    if not datasets:
        return
    found = datasets["ucr"]
    yield "## UCR archive\n\n`python -m benchmarks.reproduce ucr`\n"
    count, at_hand = len(found["series"]), found["series_in_archive"]
    yield paragraph(
        f"{count} of the {at_hand} available series, evenly spaced (the archive has 250). One network per series, of "
        f"size {found['size']}; {counted(len(found['seeds']), 'seed')}. r = {100 * found['ratio']:g} %. Precision and "
        "recall are means over the series, and F1 is computed from them, as in the paper."
    )
    lines = [[row["variant"], MODES[row["mode"]], "", *_figures(row["figures"], None)] for row in found["rows"]]
    lines += [[name, "quoted, not run", _quoted(cell.f1), *([""] * len(COLUMNS))] for name, cell in paper.UCR.items()]
    lines += _chance(found)
    yield table(["", "score", "the paper's point-adjusted F1", *HEADINGS], lines)


def _not_run(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Which tables have results on which data, at which size, and what the page lacks for other reasons."""
    yield "## What was run, and what was not\n"
    yield paragraph(
        "Size and number of seeds per table; a dash is not run. Wanted is `full` with three seeds everywhere. All "
        "networks were trained on CPUs. The command under each heading runs what is missing "
        "(`--datasets`, `--size full`, `--seeds 3`), and goes on where it was stopped."
    )
    names = [name for name in (*TABLES, "contrast", "floor", "curves") if name != "ucr"]
    lines = [[f"`{name}`", *(_ran(results.get(name, {}).get(dataset)) for dataset in WANTED)] for name in names]
    yield table(["table", *(NAMES[dataset] for dataset in WANTED)], lines)
    notes = [f"- No results yet of: {name}." for name in ("ucr", "baselines", "chance") if name not in results]
    notes += [f"- Not run: {what}." for name, what in OTHERS.items() if f"benchmarks.{name}" not in results]
    if without := [NAMES[name] for name in ("msl", "smap", "smd") if name not in results.get("curves", {})]:
        notes.append(f"- Figures of {', '.join(without)}: not made; they need the networks, which are not stored.")
    data = {dataset for name in TABLES for dataset in results.get(name, {})}
    if absent := [NAMES[dataset] for dataset in ("psm", "swat") if dataset not in data]:
        notes.append(f"- {' and '.join(absent)}: the data are not here.")
    notes += [
        "- SMD: 19 of the 28 machines are here.",
        "- The loaders take the layouts in which PSM, SWaT and SMD are published or passed on (the help of "
        "`benchmarks.reproduce` lists them); they were tested on generated files of these layouts, never on the data.",
        '- Methods marked "quoted, not run" were not run.',
    ]
    yield "\n".join(notes) + "\n"


def _ran(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    size = found["size"].partition(":")[0] if "size" in found else f"{found['width']} wide"
    return f"{size}, {counted(len(found['seeds']), 'seed')}"


def _figures(figures: dict[str, float] | None, spread: dict[str, float] | None) -> list[str]:
    if figures is None:
        return ["-"] * len(COLUMNS)
    return [f"{figures[name]:.1f}" + ("" if spread is None else f" ± {spread[name]:.1f}") for name in COLUMNS]


def _quoted(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
