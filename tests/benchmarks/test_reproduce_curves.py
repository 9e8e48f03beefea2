"""The leaking protocol, and what the page shows as figures."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from at_infer.datasets import generate
from benchmarks import width_cost
from benchmarks.reproduce import curves, figures, introduction, paper, report, report_curves, tables, trainings
from benchmarks.reproduce.measures import Truth
from benchmarks.reproduce.outputs import scored
from benchmarks.reproduce.sources import laid_out

TINY = {"width": 8, "heads": 2, "layers": 2, "learning_rate": 1e-3, "epochs": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MSL as it is laid out here, small."""
    folder = tmp_path_factory.mktemp("data")
    made = generate(rows=(700, 1, 600), features=2, share=0.05)
    (folder / "msl").mkdir()
    for part in ("train", "test"):
        frame = laid_out(made[part].values, ["f00", "f01"], "A-1")
        if part == "test":
            frame = frame.with_columns(label=pl.Series(made[part].labels))
        frame.write_parquet(folder / "msl" / f"{part}.parquet")
    return folder


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trainings.SIZES, "reduced", TINY)


@pytest.mark.slow
def test_the_leaking_protocol_stops_by_the_test_rows_and_takes_its_threshold_from_them(
    data: Path, tmp_path: Path
) -> None:
    clean, threshold_leaks, leaks = tables.TABLES["leaking"].variants
    usual = trainings.features(data / "msl", 100)
    leaking = trainings.features(data / "msl", 100, early_stopping="test")
    assert (usual.train.rows, usual.validation.rows) == (560, 140)
    assert (leaking.train.rows, leaking.validation.rows) == (700, 600)
    test_rows = pl.read_parquet(data / "msl" / "test.parquet").select("f00", "f01").to_numpy()
    scaled = (test_rows - leaking.scaler.mean) / leaking.scaler.scale
    np.testing.assert_allclose(leaking.validation.values, scaled, atol=1e-5)
    assert tables.training_of(clean, "msl", "reduced", 0) == tables.training_of(threshold_leaks, "msl", "reduced", 0)
    truth = Truth.read(data / "msl")
    one = scored(tables.training_of(leaks, "msl", "reduced", 0), data / "msl", tmp_path)
    of_train, of_test = (part.scores("paper", one.training) for part in (one.validation, one.test))
    assert (len(of_train), len(of_test)) == (700, 600)
    flagged = int((np.concatenate([of_train, of_test]) > np.quantile(np.concatenate([of_train, of_test]), 0.99)).sum())
    assert flagged == 13
    found = tables.figures_of(one, leaks, "paper", truth, "msl")
    assert found["flagged"] <= 100 * flagged / 600


@pytest.mark.slow
def test_results_have_the_rows_that_their_networks_learnt_from(data: Path, tmp_path: Path) -> None:
    found = tables.run_table("leaking", "msl", "reduced", [0], data, tmp_path)
    assert found["split"] == {"train": 560, "validation": 140}
    own = {row["variant"]: row["split"] for row in found["rows"] if "split" in row}
    assert own == {tables.LEAKING: {"train": 700, "validation": 600}}
    text = " ".join(introduction.split({"leaking": {"msl": found}}).split())
    assert "training and validation rows are MSL 560 and 140." in text
    assert "learn from all training rows: MSL 700." in text


def test_the_page_says_which_entries_have_the_split_of_the_paper() -> None:
    counts, other = {"train": 46_653, "validation": 11_664}, {"train": 46_654, "validation": 11_663}
    main = {"asd": {}, "msl": {"split": counts}}
    text = " ".join(introduction.split({"main": main, "depth": {"msl": {"split": other}}}).split())
    assert "are MSL 46,653 and 11,664 in `main`, as in the paper; MSL 46,654 and 11,663 in `depth`." in text
    assert "Without counts: ASD in `main`. These are older" in text
    assert "Without counts" not in introduction.split({"main": {"msl": {"split": counts}}})
    assert introduction.split({}) == ""


def test_every_line_that_leaks_says_so() -> None:
    for table in tables.TABLES.values():
        for variant in table.variants:
            leaks = variant.line == "leaking" or "early_stopping" in variant.changes
            assert leaks == variant.label.startswith("LEAKS: ")


def test_the_area_below_a_diagonal_is_a_half() -> None:
    assert curves.area_below(np.array([0.3, 0.1]), np.array([0.3, 0.1])) == pytest.approx(0.5)
    assert curves.area_below(np.array([0.0]), np.array([1.0])) == pytest.approx(1.0)
    labels = np.arange(1000) >= 900
    perfect = curves.mean_roc([curves.roc_points(np.linspace(0, 1, 100, dtype=np.float32), labels * 2.0, labels)])
    assert perfect["area"] == perfect["pa_area"] == 100
    random = curves.mean_roc([curves.random_points(np.arange(20_000) % 10 == 0, seed) for seed in range(3)])
    assert random["area"] == pytest.approx(50, abs=1)


def test_sigma_of_abnormal_points_is_compared_with_that_of_normal_ones() -> None:
    labels = np.array([False] * 90 + [True] * 10)
    sigma = np.stack([np.where(labels, 0.5, 1.0), np.ones(100)], axis=1).astype(np.float32)
    smaller, equal = curves.compare(sigma, labels)["layers"]
    assert (smaller["abnormal_smaller"], equal["abnormal_smaller"]) == (1, 0.5)
    assert (smaller["abnormal"], smaller["normal"]) == ([0.5] * 5, [1.0] * 5)


def test_scores_are_counted_by_decade_and_by_the_papers_intervals() -> None:
    scores = np.array([0, 1e-9, 0.005, 0.01, 0.02, 0.1, 0.5, 500], np.float32)
    found = curves.count(scores, "msl")
    assert found["intervals"] == [4, 2, 2]  # bounds belong to the lower interval, as in the paper
    assert sum(found["counts"]) == len(scores)
    assert len(found["counts"]) == len(found["edges"]) + 1
    assert (found["counts"][0], found["counts"][-1]) == (2, 1)
    assert "intervals" not in curves.count(scores, "generated")
    assert all(sum(paper.INTERVALS[name]) == paper.ROWS[name][1] for name in ("msl", "smap", "smd", "psm"))


@pytest.mark.slow
def test_curves_and_costs_become_figures_and_a_page(data: Path, tmp_path: Path) -> None:
    found = curves.run_curves("msl", "reduced", [0, 1], data, tmp_path / "work")
    cost = {"batch": 1, "steps": 1, "features": 25}
    threads = torch.get_num_threads()
    measured = width_cost.cost(256, 1, 1)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)  # Hypothesis refuses to draw floats where training has switched it on
    assert {"memory_mb", "step_cpu_s"} <= set(measured)  # those of a process of its own; here they may be 0
    widths = [measured | {"width": width, "memory_mb": width, "step_cpu_s": width} for width in width_cost.WIDTHS]
    (tmp_path / "reproduce_curves.json").write_text(json.dumps({"table": "curves", "datasets": {"msl": found}}))
    (tmp_path / "width_cost.json").write_text(json.dumps(cost | {"widths": widths}))
    results = report.read_results(tmp_path)
    made = figures.draw(results, tmp_path)
    assert [path.name for path in made] == [f"reproduce_{name}.svg" for name in report_curves.FIGURES]
    again = [path.read_bytes() for path in made]
    assert [path.read_bytes() for path in figures.draw(results, tmp_path)] == again
    page = report.document(results)
    assert "| MSL, delta 0.1 | the paper | 11,537 | 8 | 119 |" in page
    assert "| MSL, seed 1 | 2 |" in page
    assert all(f"](img/{path.name})" in page for path in made)


def test_the_page_says_how_many_series_ran_and_at_which_size() -> None:
    means = {"mode paper": {"accuracy": 12.5, "vus_pr": 3.0, "pa_f1": 60.0}}
    page = "\n".join(report_curves.accuracy({"series": 8, "of": 200, "size": "tiny: 32 wide", "means": means}))
    assert "8 of the 200 available series" in page
    assert "size tiny: 32 wide" in page
    assert "| paper: softmax(-AssDis) x error | 12.5 | 3.0 | 60.0 |" in page
    assert "The matrix profile was not run." in page
    some = {"matrix profile (stumpy)": {"series": 3, "means": means | {"matrix profile (stumpy)": {"accuracy": 66.67}}}}
    page = "\n".join(
        report_curves.accuracy({"series": 8, "of": 200, "size": "tiny: 32 wide", "means": means, "partly": some})
    )
    assert "was not run" not in page
    expected = (
        "The matrix profile (stumpy) ran on 3 of these series only: accuracy 66.7 %. The others on these: "
        "paper: softmax(-AssDis) x error 12.5 %."
    )
    assert expected in " ".join(page.split())


def test_a_leaking_line_of_the_main_table_says_its_size() -> None:
    row = {"variant": tables.LEAKING, "mode": "paper", "figures": dict.fromkeys(report.COLUMNS, 1.0), "spread": None}
    entry = {"size": "reduced: 64 wide, 3 layers", "seeds": [0], "ratio": 0.01, "rows": [row]}
    entry["test"] = {"rows": 1, "anomalous_rows": 1, "segments": 1, "channels": 1}
    entry["chance"] = dict.fromkeys(("random", "every_nth"), row["figures"])
    main = entry | {"rows": [row | {"variant": "Anomaly Transformer", "mode": "published"}]}
    page = report.document({"main": {"msl": main}, "leaking": {"msl": entry}})
    assert page.count(f"| **{tables.LEAKING}; reduced: 64 wide, 1 seed** |") == 1


def test_figures_of_the_page_are_there_and_small() -> None:
    page = report.DOCUMENT.read_text(encoding="utf-8")
    for name in re.findall(r"\]\((img/[^)]+)\)", page):
        assert 0 < (report.DOCUMENT.parent / name).stat().st_size < 200_000


@pytest.mark.slow
def test_figures_of_the_page_are_those_of_the_results(tmp_path: Path) -> None:
    made = figures.draw(report.read_results(report.RESULTS), tmp_path)
    folder = report.DOCUMENT.parent / "img"
    assert [path.name for path in made] == [f"reproduce_{name}.svg" for name in report_curves.FIGURES]
    for path in made:
        kept = (folder / path.name).read_bytes()
        assert path.read_bytes() == kept, f"{path.name}: run python -m benchmarks.reproduce.figures"
