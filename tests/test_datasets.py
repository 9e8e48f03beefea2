"""Synthetic anomalies keep their definitions, in our own signal and in any other."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from at_infer.datasets import AMPLITUDE, FAMILIES, NOISE, Dataset, Family, clean, generate, inject
from at_infer.errors import ConfigError, DataError

SMALL = (400, 300, 2000)


def spans_of(data: Dataset) -> list[tuple[int, int]]:
    """First row and end of each run of anomalous rows."""
    edges = np.flatnonzero(np.diff(data.labels.astype(int), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def injected(family: Family, share: float = 0.05, features: int = 1) -> tuple[NDArray[np.float32], Dataset]:
    """A clean signal, and a copy with anomalies of one family."""
    signal = clean(10_000, features=features, rng=np.random.default_rng(1)).astype(np.float32)
    return signal, inject(signal, families=[family], share=share, rng=np.random.default_rng(2))


def test_default_sizes_and_share_are_those_of_the_paper() -> None:
    parts = generate()
    assert {name: data.values.shape for name, data in parts.items()} == {
        "train": (20_000, 1),
        "validation": (10_000, 1),
        "test": (20_000, 1),
    }
    assert [int(data.labels.sum()) for data in parts.values()] == [0, 0, 360]
    test = parts["test"]
    assert [str(a.dtype) for a in (test.values, test.labels, test.family)] == ["float32", "uint8", "uint8"]


def test_families_share_the_anomalous_rows_equally() -> None:
    test = generate(features=3)["test"]
    assert np.bincount(test.family).tolist() == [20_000 - 360, 72, 72, 72, 72, 72]
    assert ((test.family > 0) == test.labels).all()


def test_contamination_puts_anomalies_into_train_and_validation() -> None:
    parts = generate(rows=SMALL, share=0.0, contamination=0.1)
    assert [int(data.labels.sum()) for data in parts.values()] == [40, 30, 0]


def test_the_same_seed_makes_the_same_data_and_another_seed_does_not() -> None:
    one, same, other = (generate(rows=SMALL, features=2, seed=seed) for seed in (3, 3, 4))
    for name in one:
        for field in ("values", "labels", "family"):
            assert np.array_equal(getattr(one[name], field), getattr(same[name], field))
        assert not np.array_equal(one[name].values, other[name].values)


def test_a_part_does_not_depend_on_the_anomalies_or_the_noise_of_the_others() -> None:
    plain, contaminated = generate(rows=SMALL), generate(rows=SMALL, contamination=0.2)
    assert np.array_equal(plain["test"].values, contaminated["test"].values)
    parts = generate(rows=(1000, 1000, 1000), share=0.0)  # whole periods: only the noise differs
    noise = [data.values[:, 0] - AMPLITUDE * np.sin(2 * np.pi * np.arange(1000) / 25) for data in parts.values()]
    assert np.abs(np.corrcoef(noise) - np.eye(3)).max() < 0.15


def test_the_parts_continue_one_signal() -> None:
    parts = generate(rows=(410, 333, 500), features=4, share=0.0)
    joined = np.concatenate([data.values for data in parts.values()])
    whole = clean(1243, features=4, rng=np.random.default_rng(0))
    assert np.abs(joined - whole).max() < 12 * NOISE  # two draws of the noise apart


def test_the_columns_of_a_multivariate_signal_correlate_but_differ() -> None:
    correlation = np.asarray(np.corrcoef(clean(5000, features=8, rng=np.random.default_rng(0)).T))
    off_diagonal = correlation[~np.eye(8, dtype=bool)]
    assert off_diagonal.min() > 0.2
    assert off_diagonal.max() < 0.95


def test_global_points_lie_outside_the_range_of_the_clean_data() -> None:
    signal, data = injected("point-global")
    points = data.values[data.labels == 1]
    assert ((points > signal.max()) | (points < signal.min())).all()
    assert (np.abs(points - signal.mean()) > 3 * signal.std()).all()
    assert points.max() > signal.max()
    assert points.min() < signal.min()


def test_contextual_points_fit_the_global_range_but_not_their_neighbours() -> None:
    signal, data = injected("point-contextual")
    rows = np.flatnonzero(data.labels)
    inside = (data.values[rows] <= signal.max()) & (data.values[rows] >= signal.min())
    assert inside.mean() > 0.95
    for row in rows:
        near = signal[max(0, row - 2) : row + 3, 0]
        assert abs(data.values[row, 0] - near.mean()) > 2.99 * near.std()


def test_a_shapelet_keeps_period_phase_and_range_but_not_the_form() -> None:
    signal, data = injected("pattern-shapelet", share=0.2)
    usual = np.sin(2 * np.pi * np.arange(len(signal)) / 25)
    rows = data.labels == 1
    assert np.corrcoef(data.values[rows, 0], usual[rows])[0, 1] > 0.7
    assert np.abs(data.values).max() < np.abs(signal).max() + 5 * NOISE
    residual = (data.values[:, 0] - AMPLITUDE * usual).astype(np.float64)
    for first, end in spans_of(data):
        assert residual[first:end].std() > 4 * NOISE


def test_a_square_column_gets_another_form_than_square() -> None:
    square = AMPLITUDE * np.sign(np.sin(2 * np.pi * (np.arange(2000) + 0.5) / 25))[:, None]
    data = inject(square, families=["pattern-shapelet"], share=0.1, rng=np.random.default_rng(0))
    for first, end in spans_of(data):
        assert np.abs(data.values[first:end] - square[first:end]).mean() > 0.2


def test_a_seasonal_segment_has_another_dominating_frequency() -> None:
    rows = np.arange(4000)
    signal = np.sin(2 * np.pi * rows / 5)[:, None]  # fast, so that a slower segment still has whole periods
    data = inject(signal, families=["pattern-seasonal"], share=0.1, rng=np.random.default_rng(0))
    ratios = []
    for first, end in spans_of(data):
        segment = data.values[first:end, 0]
        spectrum = np.abs(np.fft.rfft(segment - segment.mean(), 1024))
        ratios.append(spectrum.argmax() / 1024 * 5)
    assert all(ratio < 0.75 or ratio > 1.5 for ratio in ratios)
    assert min(ratios) < 1 < max(ratios)


def test_a_trend_rises_or_falls_through_its_segment_and_the_level_returns() -> None:
    signal, data = injected("pattern-trend")
    for first, end in spans_of(data):
        slope = (data.values[first:end, 0] - signal[first:end, 0]).astype(np.float64)
        assert np.allclose(np.diff(slope), slope[0], atol=1e-5)
        assert abs(slope[-1]) > 1.4 * signal.std()
        assert np.array_equal(data.values[end : end + 1], signal[end : end + 1])


def test_a_multivariate_anomaly_hits_some_columns_and_not_always_the_same() -> None:
    signal, data = injected("point-global", features=4)
    hit = (data.values != signal)[data.labels == 1]
    assert hit.any(axis=1).all()
    assert hit.any(axis=0).all()
    assert len(np.unique(hit.sum(axis=1))) == 4


@st.composite
def tables(draw: st.DrawFn) -> NDArray[np.float32]:
    """Series of all sorts: noise, steps, spikes, counters, constants, mixed scales."""
    rows, features = draw(st.integers(1, 400)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    step, spike = (np.arange(rows) > rows // 2).astype(float), (np.arange(rows) == rows // 3).astype(float)
    kinds = [np.zeros(rows), rng.normal(size=rows), step, spike, np.arange(rows), np.sin(np.arange(rows) / 4)]
    columns = [draw(st.sampled_from(kinds)) for _ in range(features)]
    scales = [draw(st.sampled_from([1.0, 1e-8, 1e8])) for _ in range(features)]
    offsets = [draw(st.sampled_from([0.0, 1.0, -30.0])) for _ in range(features)]
    return ((np.stack(columns, axis=1) + offsets) * scales).astype(np.float32)


@given(
    values=tables(),
    families=st.lists(st.sampled_from(FAMILIES), min_size=1, unique=True),
    share=st.floats(0, 0.4),
    seed=st.integers(0, 1000),
)
def test_injection_changes_exactly_the_labelled_rows_of_any_series(
    values: NDArray[np.float32], families: list[Family], share: float, seed: int
) -> None:
    before = values.copy()
    try:
        data = inject(values, families=families, share=share, rng=np.random.default_rng(seed))
    except ConfigError:
        assume(False)
    assert np.array_equal(values, before)
    assert np.isfinite(data.values).all()

    total = round(share * len(values))
    assert data.labels.sum() == total
    assert set(np.unique(data.labels)) <= {0, 1}
    counts = np.bincount(data.family, minlength=6)[[FAMILIES.index(family) + 1 for family in families]]
    assert counts.sum() == total
    assert np.ptp(counts) <= 1

    changed = data.values != values
    assert not changed[data.labels == 0].any()
    for first, end in spans_of(data):
        assert len(set(data.family[first:end])) == 1  # of one family: anomalies neither overlap nor touch
        assert changed[first:end].any()
        if data.family[first] <= 2:
            assert end - first == 1
    varying = np.ptp(values, axis=0) > 0
    if varying.any():
        assert not changed[:, ~varying].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_flat_stretch_or_a_constant_series_is_changed_visibly_too(family: Family) -> None:
    mostly_flat = np.zeros((3000, 1))
    mostly_flat[-5:] = 1
    for values, step in ((mostly_flat, mostly_flat.std() / 5), (np.full((3000, 2), 7.0), 0.2)):
        data = inject(values, families=[family], share=0.1, rng=np.random.default_rng(0))
        for first, end in spans_of(data):
            assert np.abs(data.values[first:end] - values[first:end]).max() > step


def test_segments_are_long_enough_to_show_a_pattern() -> None:
    _, data = injected("pattern-shapelet")
    lengths = [end - first for first, end in spans_of(data)]
    assert min(lengths) >= 12
    assert max(lengths) <= 50
    assert all(end < first for (_, end), (first, _) in pairwise(spans_of(data)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.6, "families": ["point-global"]}, "share: 0.6 makes .* too many"),
        ({"share": 1.0}, "share: 1.0 of the rows"),
        ({"share": float("nan")}, "share: nan"),
        ({"contamination": -0.1}, "contamination: -0.1"),
        ({"families": []}, "families: none given"),
        ({"families": ["point-global", "point-global"]}, "one of them twice"),
        ({"families": ["spike"]}, "families: 'spike' is not known; choose from point-global"),
        ({"rows": (10, 0, 10)}, "rows: "),
        ({"features": 0}, "features: 0"),
        ({"seed": -1}, "seed: -1"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(**{"rows": SMALL, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [np.zeros(5), np.zeros((0, 2)), np.array([[1.0], [np.nan]]), np.full((9, 1), 1e31)])
def test_values_that_are_no_finite_table_are_refused(values: NDArray[np.float64]) -> None:
    with pytest.raises(DataError, match="values: "):
        inject(values, share=0.1, rng=np.random.default_rng(0))


def run(*arguments: object) -> Result:
    from at_infer.cli import app

    return CliRunner().invoke(app, ["generate", *map(str, arguments)])


def test_the_command_writes_three_files_with_continuous_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    result = run("-o", folder, "--kind", "multivariate", "--rows", 300, 200, 1000, "--share", 0.05)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"{folder}/train.parquet: 300 rows, 5 features, 0 anomalous rows",
        f"{folder}/validation.parquet: 200 rows, 5 features, 0 anomalous rows",
        f"{folder}/test.parquet: 1000 rows, 5 features, 50 anomalous rows",
    ]
    train, validation, test = (pl.read_parquet(folder / f"{name}.parquet") for name in ("train", "validation", "test"))
    features = {f"f0{j}": pl.Float32 for j in range(5)}
    assert train.schema == validation.schema == {"timestamp": pl.Int64, **features}
    assert test.schema == {"timestamp": pl.Int64, **features, "label": pl.UInt8, "family": pl.String}
    assert pl.concat([part["timestamp"] for part in (train, validation, test)]).to_list() == list(range(1500))
    assert set(test["family"]) == {"normal", *FAMILIES}
    assert ((test["family"] != "normal") == (test["label"] == 1)).all()


def test_the_command_takes_families_and_a_number_of_features(tmp_path: Path) -> None:
    chosen = ("--family", "point-global", "--family", "pattern-trend", "--features", 3)
    assert run("-o", tmp_path, *chosen, "--rows", 50, 50, 1000).exit_code == 0
    test = pl.read_parquet(tmp_path / "test.parquet")
    assert test.width == 1 + 3 + 2
    assert set(test["family"]) == {"normal", "point-global", "pattern-trend"}


def test_the_command_replaces_files_only_if_told_to(tmp_path: Path) -> None:
    kept = tmp_path / "test.parquet"
    kept.write_bytes(b"mine")
    result = run("-o", tmp_path, "--rows", 50, 50, 50)
    assert result.exit_code == 1
    assert result.stderr == f"error: {kept}: exists already; pass --overwrite to replace it\n"
    assert [path.name for path in tmp_path.iterdir()] == ["test.parquet"]
    assert kept.read_bytes() == b"mine"

    assert run("-o", tmp_path, "--rows", 50, 50, 50, "--overwrite").exit_code == 0
    assert pl.read_parquet(kept).height == 50


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--kind", "bivariate"], "--kind: 'bivariate'"),
        (["--family", "spike"], "--family: 'spike'"),
        (["--share", "2"], "--share: 2.0"),
        (["--contamination", "-1"], "--contamination: -1.0"),
        (["--features", "0"], "--features: 0"),
        (["--rows", "0", "1", "1"], "--rows: (0, 1, 1)"),
        (["--seed", "-1"], "--seed: -1"),
    ],
)
def test_a_bad_value_is_one_line_and_leaves_nothing_behind(tmp_path: Path, options: list[str], where: str) -> None:
    result = run("-o", tmp_path / "data", *options)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {where}")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_or_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "data"):
        result = run("-o", output, "--rows", 50, 50, 50)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"error: {output}: ")
        assert result.stderr.count("\n") == 1


def test_help_names_every_family_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from at_infer.cli import app;"
        "result = CliRunner().invoke(app, ['generate', '--help'], env={'COLUMNS': '300'});"
        "print(result.output); assert result.exit_code == 0;"
        "heavy = {'numpy', 'polars', 'torch'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(family in done.stdout for family in FAMILIES)
