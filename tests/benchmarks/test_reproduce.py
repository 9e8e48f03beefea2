import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer.datasets import generate
from at_infer.errors import ConfigError, DataError, MissingExtraError
from at_infer.thresholds.quantiles import quantiles
from benchmarks.reproduce import __main__ as command
from benchmarks.reproduce import baselines, floor, paper, report, tables, trainings
from benchmarks.reproduce.measures import Truth, chance, contrast, measure
from benchmarks.reproduce.outputs import adjacent_weight, scored
from benchmarks.reproduce.sources import laid_out, names, prepare, ucr_series
from tests import metric_oracles as oracle
from training.checkpoint import Checkpoint

TINY = {"width": 8, "heads": 2, "layers": 3, "learning_rate": 1e-3, "epochs": 1}


def write(folder: Path, frame: pl.DataFrame, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(folder / name)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MSL as it is laid out, with two channels of two features."""
    folder = tmp_path_factory.mktemp("data")
    parts = generate(rows=(700, 1, 600), features=2, share=0.05)
    train, test = parts["train"], parts["test"]
    channels = [("A-1", slice(0, 350)), ("A-2", slice(350, None))]
    frames = [laid_out(train.values[of], ["f00", "f01"], name) for name, of in channels]
    write(folder / "msl", pl.concat(frames), "train.parquet")
    frames = [
        laid_out(test.values[of], ["f00", "f01"], name).with_columns(label=pl.Series(test.labels[of]))
        for name, of in channels
    ]
    write(folder / "msl", pl.concat(frames), "test.parquet")
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trainings.SIZES, "reduced", TINY)


def test_psm_is_read_as_its_publishers_lay_it_out(tmp_path: Path) -> None:
    folder = tmp_path / "psm"
    folder.mkdir()
    (folder / "train.csv").write_text("timestamp_(min),feature_0,feature_1\n0.0,0.5,\n1.0,0.25,1\n")
    (folder / "test.csv").write_text("timestamp_(min),feature_0,feature_1\n2,0.75,\n3,1.5,\n4,0,\n")
    (folder / "test_label.csv").write_text("timestamp_(min),label\n2,0\n3,1\n4,0\n")
    made = prepare("psm", tmp_path, tmp_path / "work")
    train, test = (pl.read_parquet(made / f"{part}.parquet") for part in ("train", "test"))
    assert train.columns == ["timestamp", "channel", "feature_0", "feature_1"]
    assert train.rows() == [(0, "psm", 0.5, 0.0), (1, "psm", 0.25, 1.0)]  # missing: 0, as published
    assert test["label"].to_list() == [0, 1, 0]
    assert test["feature_0"].to_list() == [0.75, 1.5, 0.0]
    assert test["feature_1"].to_list() == [0.0] * 3  # a column without any value


def test_smd_is_read_as_its_publishers_lay_it_out(tmp_path: Path) -> None:
    for part in ("train", "test", "test_label"):
        (tmp_path / "smd" / part).mkdir(parents=True)
    for machine, value in (("machine-1-10", 0.5), ("machine-1-2", 0.25)):
        (tmp_path / "smd" / "train" / f"{machine}.txt").write_text(f"{value},0.000000\n{value},1.000000\n")
        (tmp_path / "smd" / "test" / f"{machine}.txt").write_text(f"{value},0.0\n{value},0.5\n{value},1.0\n")
        (tmp_path / "smd" / "test_label" / f"{machine}.txt").write_text("0\n1\n1\n")
    made = prepare("smd", tmp_path, tmp_path / "work")
    train, test = (pl.read_parquet(made / f"{part}.parquet") for part in ("train", "test"))
    assert train.columns == ["timestamp", "channel", "f00", "f01"]
    assert train["channel"].to_list() == ["machine-1-2"] * 2 + ["machine-1-10"] * 2  # by number, not by letter
    assert train["f00"].to_list() == [0.25, 0.25, 0.5, 0.5]
    assert test["label"].to_list() == [0, 1, 1] * 2
    assert test["timestamp"].to_list() == [0, 1, 2] * 2
    (tmp_path / "smd" / "test_label" / "machine-1-2.txt").write_text("0\n")
    with pytest.raises(DataError, match=r"machine-1-2\.txt: has 1 rows, the test part 3"):
        prepare("smd", tmp_path, tmp_path / "other")


def test_labels_of_psm_must_fit(tmp_path: Path) -> None:
    folder = tmp_path / "psm"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / f"{name}.csv").write_text("t,a\n0,1\n1,2\n")
    (folder / "test_label.csv").write_text("t,label\n0,1\n")
    with pytest.raises(DataError, match=r"test_label\.csv has 1 rows, test\.csv 2"):
        prepare("psm", tmp_path, tmp_path / "work")
    assert not (tmp_path / "work" / "data" / "psm" / "test.parquet").exists()


@pytest.mark.parametrize("above", ["", "P1,,P2,\n"])
def test_swat_is_read_as_its_publishers_lay_it_out(tmp_path: Path, above: str) -> None:
    folder = tmp_path / "swat"
    folder.mkdir()
    head = f"{above} Timestamp,FIT101, LIT101,Normal/Attack\n"
    (folder / "SWaT_Dataset_Normal_v1.csv").write_text(f"{head}22/12/2015 4:30:00 PM,0,124.5,Normal\n")
    rows = "28/12/2015 10:00:00 AM,2.5,522,Normal\n28/12/2015 10:00:01 AM,3,523,Attack\n28/12/2015,4,524,A ttack\n"
    (folder / "SWaT_Dataset_Attack_v0.csv").write_text(head + rows)
    made = prepare("swat", tmp_path, tmp_path / "work")
    train, test = (pl.read_parquet(made / f"{part}.parquet") for part in ("train", "test"))
    assert train.columns == ["timestamp", "channel", "FIT101", "LIT101"]
    assert train["LIT101"].to_list() == [124.5]
    assert test["label"].to_list() == [0, 1, 1]
    assert test["FIT101"].to_list() == [2.5, 3.0, 4.0]


def test_swat_sheets_saved_with_semicolons_and_as_v0_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "swat"
    folder.mkdir()
    head = "Timestamp;FIT101;LIT101;Normal/Attack\n"
    (folder / "SWaT_Dataset_Normal_v0.csv").write_text(f"{head}22/12/2015 4:00:00 PM;2,470294;261,5804;Normal\n")
    (folder / "SWaT_Dataset_Attack_v0.csv").write_text(f"{head}28/12/2015 10:00:00 AM;2,5;522;Attack\n")
    made = prepare("swat", tmp_path, tmp_path / "work")
    train, test = (pl.read_parquet(made / f"{part}.parquet") for part in ("train", "test"))
    assert train.row(0) == (0, "swat", pytest.approx(2.470294), pytest.approx(261.5804))
    assert test.row(0) == (0, "swat", 2.5, 522.0, 1)


def test_swat_is_read_as_benchmarks_pass_it_on(tmp_path: Path) -> None:
    folder = tmp_path / "swat"
    folder.mkdir()
    (folder / "swat_train2.csv").write_text("FIT101,LIT101,Normal/Attack\n0.5,1,0\n0.25,2,0\n")
    (folder / "swat2.csv").write_text("FIT101,LIT101,Normal/Attack\n1,3,0.0\n2,4,1.0\n")
    made = prepare("swat", tmp_path, tmp_path / "work")
    train, test = (pl.read_parquet(made / f"{part}.parquet") for part in ("train", "test"))
    assert train.columns == ["timestamp", "channel", "FIT101", "LIT101"]
    assert train["FIT101"].to_list() == [0.5, 0.25]
    assert test["label"].to_list() == [0, 1]
    (folder / "swat2.csv").write_text("FIT101,Normal/Attack\n1,2\n")
    with pytest.raises(DataError, match=r"swat2\.csv: has rows in state '2'"):
        prepare("swat", tmp_path, tmp_path / "other")


@pytest.mark.parametrize("name", ["msl", "smap", "smd"])
def test_arrays_that_benchmarks_pass_on_are_one_channel(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    rows = np.arange(12, dtype=np.float64).reshape(4, 3)
    for part, array in (("train", rows), ("test", rows[:2]), ("test_label", np.array([[False], [True]]))):
        np.save(folder / f"{name.upper()}_{part}.npy", array)
    made = prepare(name, tmp_path, tmp_path / "work")
    train, test = (pl.read_parquet(made / f"{part}.parquet") for part in ("train", "test"))
    assert train.columns == ["timestamp", "channel", "f00", "f01", "f02"]
    assert train["f02"].to_list() == [2.0, 5.0, 8.0, 11.0]
    assert (test["channel"].to_list(), test["label"].to_list()) == ([name] * 2, [0, 1])
    np.save(folder / f"{name.upper()}_test_label.npy", np.array([1]))
    with pytest.raises(DataError, match="has 1 labels of 2 test rows"):
        prepare(name, tmp_path, tmp_path / "other")
    np.save(folder / f"{name.upper()}_train.npy", np.array([{}]))
    with pytest.raises(DataError, match=r"train\.npy: is not a NumPy file of numbers"):
        prepare(name, tmp_path, tmp_path / "third")


def test_words_among_the_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "psm").mkdir()
    for part in ("train", "test", "test_label"):
        (tmp_path / "psm" / f"{part}.csv").write_text("timestamp_(min),a\n0,1\n1,many\n")
    with pytest.raises(DataError, match=r"train\.csv: has values that are not numbers"):
        prepare("psm", tmp_path, tmp_path / "work")


def test_a_swat_file_without_states_is_refused(tmp_path: Path) -> None:
    (tmp_path / "swat").mkdir()
    (tmp_path / "swat" / "SWaT_Dataset_Normal_v1.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="has no column 'Normal/Attack'"):
        prepare("swat", tmp_path, tmp_path / "work")


def test_ucr_is_cut_at_the_end_of_its_training_part(tmp_path: Path) -> None:
    write(tmp_path / "ucr", pl.DataFrame({"value": np.arange(10, dtype=np.float32)}), "ecg.parquet")
    (tmp_path / "ucr" / "metadata.csv").write_text("name,train_end,anomaly_start,anomaly_end,rows\necg,6,7,9,10\n")
    assert ucr_series(tmp_path) == ["ecg"]
    made = prepare("ucr/ecg", tmp_path, tmp_path / "work")
    assert pl.read_parquet(made / "train.parquet")["value"].to_list() == [0, 1, 2, 3, 4, 5]
    test = pl.read_parquet(made / "test.parquet")
    assert test["value"].to_list() == [6, 7, 8, 9]
    assert test["label"].to_list() == [0, 1, 1, 0]


def test_generated_data_have_the_sizes_of_the_paper(tmp_path: Path) -> None:
    made = prepare("generated", tmp_path, tmp_path)
    rows = {part: pl.read_parquet(made / f"{part}.parquet") for part in ("train", "validation", "test")}
    assert {part: len(frame) for part, frame in rows.items()} == {"train": 20_000, "validation": 10_000, "test": 20_000}
    assert rows["test"]["label"].mean() == pytest.approx(0.018)
    assert prepare("generated", tmp_path, tmp_path) == made


@pytest.mark.parametrize("name", ["nothing", "ucr", "psm/x", "msl"])
def test_what_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=name):
        prepare(name, tmp_path, tmp_path / "work")


def test_adjacent_weights_are_those_of_the_neighbours() -> None:
    series = torch.softmax(torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)), -1)
    expected = np.zeros((2, 5))
    for b in range(2):
        for i in range(5):
            near = [j for j in (i - 1, i + 1) if 0 <= j < 5]
            expected[b, i] = np.mean([series[b, h, i, j].item() for h in range(3) for j in near])
    np.testing.assert_allclose(adjacent_weight(series).numpy(), expected, rtol=1e-6)
    even = torch.full((1, 2, 4, 4), 0.25)
    assert torch.equal(adjacent_weight(even), torch.full((1, 4), 0.25))


def test_contrast_is_the_ratio_of_the_means() -> None:
    weights, labels = np.float32([0.01, 0.03, 0.02, 0.04]), np.array([True, True, False, False])
    assert contrast(weights, labels) == pytest.approx({"abnormal": 2.0, "normal": 3.0, "contrast": 2 / 3}, rel=1e-6)


@pytest.mark.slow
def test_measures_are_those_of_the_oracles() -> None:
    rng = np.random.default_rng(0)
    labels = np.zeros(400, bool)
    labels[[*range(50, 80), *range(300, 310)]] = True
    scores = rng.random(400, np.float32) + 0.3 * labels.astype(np.float32)
    alarms = scores > 0.9
    found = measure(scores, alarms, Truth(labels, [100, 100, 200]))
    assert found["f1"] == pytest.approx(100 * oracle.f1(alarms, labels))
    assert found["pa_f1"] == pytest.approx(100 * oracle.f1(oracle.adjusted(alarms, labels), labels))
    assert found["flagged"] == pytest.approx(100 * alarms.mean())

    def vus_pr(part: slice) -> float:
        return 100 * float(np.mean([oracle.range_areas(scores[part], labels[part], w)[1] for w in range(101)]))

    assert found["vus_pr"] == pytest.approx(vus_pr(slice(None)))
    both_kinds = [vus_pr(slice(0, 100)), vus_pr(slice(200, 400))]  # the second channel has no anomaly
    assert found["vus_pr_channels"] == pytest.approx(np.mean(both_kinds))


def test_chance_never_reads_the_data() -> None:
    labels = np.zeros(1000, bool)
    labels[200:700] = True  # an alarm on every 100th row cannot miss it
    found = chance(Truth(labels, [1000]), 0.01)
    assert found["every_nth"]["pa_recall"] == 100
    assert found["every_nth"]["flagged"] == 1
    assert found["random"]["f1"] < 10


def test_quoted_figures_are_consistent() -> None:
    """F1 is the harmonic mean of precision and recall, as far as they were rounded."""
    for name, cells in [*paper.MAIN.items(), *((name, (cell,)) for name, cell in paper.UCR.items())]:
        for precision, recall, f1 in cells:
            assert f1 == pytest.approx(2 * precision * recall / (precision + recall), abs=0.06), name
    assert len(paper.MAIN) == 19
    assert all(len(cells) == 5 for of in (*paper.F1.values(), paper.MAIN) for cells in of.values())
    assert paper.f1("main", "Anomaly Transformer", "published", "msl") == 93.59
    assert paper.f1("criterion", "one checkpoint", "discrepancy", "smap") == 90.98
    assert paper.f1("main", "Anomaly Transformer", "paper", "asd") is None


@pytest.mark.parametrize("kind", ["equal", "reversed"])
def test_rank_correlation_is_that_of_ranks(kind: str) -> None:
    values = np.random.default_rng(0).random(50, np.float32)
    other = np.exp(values if kind == "equal" else -values)
    assert floor.rank_correlation(values, other) == pytest.approx(1 if kind == "equal" else -1)


@pytest.mark.slow
def test_the_floor_is_measured_on_networks_trained_with_it_without_it_and_not_at_all(
    data: Path, tmp_path: Path
) -> None:
    found = floor.run_floor("msl", floor.training_at("msl", "reduced"), range(1), data, tmp_path)
    assert [(row["variant"], row["score"]) for row in found["rows"]] == [
        (kind, score) for kind in floor.NETWORKS for score, *_ in floor.SCORES
    ]
    floored, exact = (found["rows"][i]["assdis"] for i in (1, 2))
    assert floored[2] < 36.9 < exact[2]
    (path,) = (tmp_path / "trainings").glob("*_exact.pt")  # log P has no floor while training, either
    assert Checkpoint.load(path).train["config"]["discrepancy"]["head_rule"] == "exact"
    assert "paper, exact logarithms" in report.document({"floor": {"msl": found}})


def test_widths_are_those_that_were_trained_and_stand_beside_the_paper_only_at_its_size() -> None:
    widths = tables.TABLES["width"].variants
    assert [tables.label_of(one, "full") for one in widths] == ["width 256", "width 512", "width 1024"]
    assert [tables.label_of(one, "reduced") for one in widths] == [
        f"width {n * TINY['width'] // 512}" for n in (256, 512, 1024)
    ]  # type: ignore[operator]
    page = report.DOCUMENT.read_text(encoding="utf-8").partition("\n## Width\n")[2].partition("\n## ")[0]
    stored = report.read_results(report.RESULTS)["width"].values()
    for row in [row for of in stored for row in of["rows"]]:
        assert row["variant"] == f"width {row['changes']['width']}"
        assert f"\n| {row['variant']} |" in page
    assert page.count("\n| width ") == sum(len(of["rows"]) for of in stored)


def test_the_paper_is_quoted_beside_networks_of_its_size_only() -> None:
    assert report.quoted("depth", "L = 3", "paper", "msl", "full: 512 wide, 3 layers") == 93.59
    assert report.quoted("depth", "L = 3", "paper", "msl", "short: 512 wide, 3 layers") == 93.59
    assert report.quoted("depth", "L = 3", "paper", "msl", "reduced: 64 wide, 3 layers") is None


def test_a_shorter_training_than_the_papers_says_so_beside_its_figures() -> None:
    main = report.read_results(report.RESULTS)["main"]["msl"]
    words = "That is 2 of the paper's 10 epochs."
    assert words in " ".join(report.document({"main": {"msl": main | {"size": "short: 512 wide"}}}).split())
    assert words not in " ".join(report.document({"main": {"msl": main | {"size": "full: 512 wide"}}}).split())
    assert words not in " ".join(report.document({"main": {"asd": main | {"size": "short: 512 wide"}}}).split())


def test_a_threshold_that_could_not_be_found_says_so_in_the_table() -> None:
    results = report.read_results(report.RESULTS)
    row = {
        "variant": "by gap",
        "mode": "paper",
        "changes": {},
        "figures": None,
        "spread": None,
        "why": "no two clusters",
    }
    rows = [*results["threshold"]["msl"]["rows"], row]
    found = report.document({"threshold": {"msl": results["threshold"]["msl"] | {"rows": rows}}})
    assert "| by gap | paper: softmax(-AssDis) x error: no two clusters |  | - | - | - | - | - |" in found


def test_every_quoted_variant_is_one_of_ours() -> None:
    for name, quoted in paper.F1.items():
        ours = {variant.label for variant in tables.TABLES[name].variants}
        assert {key if isinstance(key, str) else key[0] for key in quoted} <= ours, name
    assert [variant.label for variant in tables.CONTRASTS] == list(paper.CONTRAST)


@pytest.mark.slow
def test_a_training_is_made_once(data: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tables.run_table("criterion", "msl", "reduced", range(2), data, work)
    assert [row["mode"] for row in first["rows"]] == ["reconstruction", "discrepancy", "addition", "published", "paper"]
    assert all(row["spread"] is not None for row in first["rows"])
    assert first["test"] == {"rows": 600, "anomalous_rows": 30, "segments": first["test"]["segments"], "channels": 2}
    kept = sorted(path.name for path in (work / "trainings").iterdir())
    assert len(kept) == 4  # checkpoint and outputs of two seeds; nothing to resume is left
    monkeypatch.setattr(trainings, "fit", None)
    assert tables.run_table("criterion", "msl", "reduced", range(2), data, work) == first
    used = tables.run_table("layers-used", "msl", "reduced", range(1), data, work)
    assert [row["variant"] for row in used["rows"]][::2] == ["layer 1", "layer 2", "layer 3", "all layers"]


def test_an_interrupted_training_goes_on(data: Path, tmp_path: Path, work: Path) -> None:
    training = tables.training_of(tables.TABLES["main"].variants[0], "msl", "reduced", 0)
    folder = prepare("msl", data, tmp_path)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainings, "_show", stop)
        with pytest.raises(KeyboardInterrupt):
            trainings.trained(training, folder, tmp_path)
    (left,) = (tmp_path / "trainings").iterdir()
    assert left.name.endswith(".resume.pt")
    whole = trainings.trained(training, folder, work)
    resumed = trainings.trained(training, folder, tmp_path)
    for name, tensor in whole.state_dict.items():
        assert torch.equal(tensor, resumed.state_dict[name]), name


def test_validation_scores_are_those_that_training_recorded(data: Path, work: Path) -> None:
    training = tables.training_of(tables.TABLES["main"].variants[0], "msl", "reduced", 0)
    one = scored(training, prepare("msl", data, work), work)
    recorded = Checkpoint.load(training.path(work)).validation_of().quantiles
    for mode in ("published", "paper", "reconstruction", "discrepancy", "addition"):
        np.testing.assert_allclose(quantiles(one.validation.scores(mode, training)), recorded[mode], rtol=1e-4)  # type: ignore[arg-type]
    assert one.test.scores("published", training).shape == (600,)
    of_layers = [one.test.scores("discrepancy", training, layer) for layer in range(3)]
    assert not np.array_equal(of_layers[0], of_layers[1])


def test_variants_change_what_they_name() -> None:
    def made(table: str) -> list[trainings.Training]:
        return [tables.training_of(variant, "msl", "full", 0) for variant in tables.TABLES[table].variants]

    base = trainings.Training(dataset="msl")
    assert made("main") == [base]
    assert made("width") == [replace(base, width=width) for width in (256, 512, 1024)]
    assert made("strategy")[:2] == [replace(base, strategy=name) for name in ("reconstruction", "maximize")]  # type: ignore[arg-type]
    assert {one.distance for one in made("distance")} == {"kl", "js", "wasserstein", "cross-entropy", "l2"}
    reduced = tables.training_of(tables.TABLES["width"].variants[0], "msl", "reduced", 0)
    assert reduced.width == TINY["width"] // 2
    paths = {one.path(Path()) for name in tables.TABLES for one in made(name)}
    assert len(paths) == len({one for name in tables.TABLES for one in made(name)})


def test_thresholds_are_of_validation_scores_only() -> None:
    scores = np.linspace(0, 1, 1001, dtype=np.float32)
    assert tables.threshold_of(scores, "ratio", "msl") == pytest.approx(0.99, abs=2e-3)
    assert tables.threshold_of(scores, "ratio", "smd") == pytest.approx(0.995, abs=2e-3)
    assert tables.threshold_of(scores, "delta", "smap") == 0.01
    with pytest.raises(ConfigError, match="the paper has no delta for asd"):
        tables.threshold_of(scores, "delta", "asd")
    with pytest.raises(ConfigError, match="no two clusters"):
        tables.threshold_of(np.zeros(100, np.float32), "gap", "msl")
    clusters = np.concatenate([np.full(900, 1e-4), np.full(100, 1.0)]).astype(np.float32)
    assert tables.threshold_of(clusters, "gap", "msl") == pytest.approx(0.5, rel=0.1)
    assert tables.threshold_of(clusters, "gap-log", "msl") == pytest.approx(1e-2, rel=0.5)


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    """Normal rows, and others with one that is far off."""
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(900) / 4)[:, None] * [1, -1, 0.5]
    values = (wave + rng.normal(0, 0.05, wave.shape)).astype(np.float32)
    values = np.column_stack([values, np.zeros(900, np.float32)])  # a column that never changes
    values[800, :3] = [6, 6, -6]
    return values[:600], values[600:]


@pytest.mark.parametrize("name", baselines.METHODS)
def test_baselines_find_what_anything_finds(name: str, rows: tuple[Any, Any]) -> None:
    needed = {"Deep-SVDD": "pyod", "VAR": "statsmodels"}
    if name in needed:
        pytest.importorskip(needed[name], reason="benchmarks/reproduce/requirements.txt is not installed")
    train, test = rows
    scores = baselines.METHODS[name].fit(train)(test)
    assert scores.shape == (300,)
    assert np.isfinite(scores).all()
    assert abs(int(np.argmax(scores)) - 200) <= 1


def test_autoregression_of_one_column_is_a_forecast() -> None:
    pytest.importorskip("statsmodels", reason="benchmarks/reproduce/requirements.txt is not installed")
    wave = np.sin(np.arange(700) / 4).astype(np.float32)[:, None]
    wave[600] = 3
    scores = baselines.METHODS["VAR"].fit(wave[:500])(wave[500:])
    assert int(np.argmax(scores)) in range(100, 100 + baselines.VAR_LAGS + 1)
    assert np.median(scores) < 1e-6 < scores.max()


def test_baselines_say_what_to_install(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyod", "pyod.models.deep_svdd"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(baselines, "METHODS", {"Deep-SVDD": baselines.METHODS["Deep-SVDD"]})
    with pytest.raises(MissingExtraError, match=r"Deep-SVDD: needs pyod.*requirements\.txt"):
        baselines.run_baselines("msl", data, tmp_path)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def run(monkeypatch: pytest.MonkeyPatch, *args: object) -> None:
    monkeypatch.setattr(sys, "argv", ["reproduce", *map(str, args)])
    command.main()


@pytest.mark.slow
def test_commands_write_results_and_a_report(
    data: Path, work: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: baselines.METHODS[name] for name in ("PCA", "moving average")}
    monkeypatch.setattr(baselines, "METHODS", few)
    threads = torch.get_num_threads()
    common = ("--data", data, "--work", work, "--results", results, "--size", "reduced", "--threads", threads)
    for table in ("main", "contrast", "baselines"):
        run(monkeypatch, table, *common, "--datasets", "msl")
    page = tmp_path / "page.md"
    run(monkeypatch, "report", "--results", results, "--out", page)
    text = page.read_text(encoding="utf-8")
    assert "### Main results: MSL" in text
    assert "| 93.6 |" not in text  # the paper's, of networks of its size
    assert "| THOC | quoted, not run | 89.7 |" in text
    assert "| PCA | its own |" in text
    assert "*an alarm on every 100th row*" in text
    assert "## Adjacent associations" in text
    assert "| `main` | reduced, 1 seed | - | - | - |" in text
    assert "| `published` | - | - | - | - |" in text
    assert "- No results yet of: ucr." in text
    again = tmp_path / "again.md"
    run(monkeypatch, "report", "--results", results, "--out", again)
    assert again.read_bytes() == page.read_bytes()
    assert set(json.loads((results / "reproduce_main.json").read_text())["datasets"]) == {"msl"}
    assert command.names(data) == names(data) == ["msl", "generated"]


@pytest.mark.slow
def test_ucr_joins_mean_precision_and_recall(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = generate(rows=(600, 1, 400), families=("pattern-shapelet",), share=0.05)
    values = np.concatenate([made["train"].values, made["test"].values])[:, 0]
    lines = ["name,train_end,anomaly_start,anomaly_end,rows"]
    for i in range(3):
        write(tmp_path / "ucr", pl.DataFrame({"value": values}), f"s{i}.parquet")
        lines.append(f"s{i},600,{700 + i},{720 + i},1000")
    (tmp_path / "ucr" / "metadata.csv").write_text("\n".join(lines) + "\n")
    threads = torch.get_num_threads()
    args = ("--data", tmp_path, "--work", tmp_path / "work", "--results", results, "--threads", threads)
    run(monkeypatch, "ucr", *args, "--size", "reduced", "--series", 2)
    found = json.loads((results / "reproduce_ucr.json").read_text())["datasets"]["ucr"]
    assert found["series"] == ["s0", "s1"]
    for of in [row["figures"] for row in found["rows"]]:
        together = of["pa_precision"] + of["pa_recall"]
        expected = 2 * of["pa_precision"] * of["pa_recall"] / together if together else 0.0
        assert of["pa_f1"] == pytest.approx(expected, abs=0.01)
    assert "UCR archive" in report.document(report.read_results(results))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("main",), "main: needs --data and --work"),
        (("main", "--data", ".", "--work", ".", "--datasets", "x"), "x: is"),
    ],
)
def test_errors_are_one_line(
    args: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, *args)
    assert stopped.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"error: {message}")


def test_documents_quote_chance_from_its_results() -> None:
    found = report.read_results(report.RESULTS)
    page = (report.ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    for name, label in (("every_nth", "an alarm on every Nth row"), ("random", "uniformly random scores")):
        rows = [
            next(r for r in found["chance"][d]["rows"] if r["variant"] == name) for d in ("msl", "smap", "asd", "smd")
        ]
        cells = [f"{row['figures']['pa_f1']:.1f} ± {row['spread']['pa_f1']:.1f}" for row in rows]
        assert f"| {label} | {' | '.join(cells)} |" in page
    for dataset, of in found["main"].items():  # the tables' own line is that of the same ten seeds
        random = next(row for row in found["chance"][dataset]["rows"] if row["variant"] == "random")
        assert of["chance"]["random"]["pa_f1"] == pytest.approx(random["figures"]["pa_f1"], abs=0.01)


def test_the_method_quotes_the_floor_from_its_results() -> None:
    stored = report.read_results(report.RESULTS)["floor"]["generated"]
    found = {(row["variant"], row["score"]): (row["figures"], row["spread"]) for row in stored["rows"]}
    page = (report.ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    assert f"where random scores have {stored['chance']['random']['vus_pr']:.1f}" in page
    for kind in floor.NETWORKS:
        of = [found[kind, score] for score in ("paper, floor of 1e-8", "paper, exact logarithms")]
        cells = [f"{figures['vus_pr']:.1f} ± {spread['vus_pr']:.1f}" for figures, spread in of]
        name = "trained with the floor" if kind == "trained" else kind
        assert f"| {name} | {' | '.join(cells)} |" in page


def test_the_readme_quotes_stored_results() -> None:
    readme = (report.ROOT / "README.md").read_text(encoding="utf-8")
    kept = {name: json.loads((report.RESULTS / f"{name}.json").read_text()) for name in ("quality", "live_quality")}
    groups = kept["live_quality"]["groups"]
    lines = {
        "**default**": "default: fusion",
        "the same fusion without a network": "fusion without a network",
        "shape view alone (the earlier default)": "network: shape",
        "moving average of 51 rows": "moving average 51",
        "PCA": "PCA",
        "IsolationForest": "IsolationForest",
        "the paper's score, of the default's network": "paper's score",
    }
    for label, name in lines.items():
        row = next(line for line in readme.splitlines() if line.startswith(f"| {label} |"))
        found = kept["quality"]["means"][name]["vus_pr"]
        quoted = [float(cell) for cell in row.split("|")[2:-1]]
        assert quoted == pytest.approx([found[group] for group in groups], abs=0.0501), label
    plain = " ".join(readme.split())
    ratios = {delay: [of["live_to_whole"][delay] for of in groups.values()] for delay in ("delay 0", "delay 25")}
    least, most = ([f"{bound(of):.2f}" for of in ratios.values()] for bound in (min, max))
    assert f"{least[0]} to {most[0]} of the VUS-PR; with `--delay 25` {least[1]} to {most[1]}" in plain
    main = report.read_results(report.RESULTS)["main"]["msl"]
    f1 = {row["mode"]: row["figures"]["f1"] for row in main["rows"]}["published"]
    assert f"an F1 of {f1:.1f} % on MSL, as random scores do" in plain
    assert f1 == pytest.approx(main["chance"]["random"]["f1"], abs=0.1)


def test_the_readme_quotes_the_measured_growth_of_the_cost() -> None:
    axes = json.loads((report.RESULTS / "cost_growth.json").read_text(encoding="utf-8"))["axes"]
    per_row = next(axis["exponent"] for axis in axes if axis["axis"] == "window")
    readme = " ".join((report.ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"time per window grows as N^{1 + per_row:.2f} and time per row as N^{per_row:.2f}" in readme


def test_the_page_is_what_the_results_give() -> None:
    expected = report.document(report.read_results(report.RESULTS))
    assert report.DOCUMENT.read_text(encoding="utf-8") == expected, "run python -m benchmarks.reproduce report"
