"""One cause everywhere: a model trained with the default score, its explanations, and the report with an engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import ScoreOptions, score_file
from at_infer.cli import app
from at_infer.config import ScoreConfig
from at_infer.models.metadata import Metadata
from at_infer.report.details import shares_of
from at_infer.report.scores import ScoresReport, survey_scores
from at_infer.report.windows import Reconstructor, open_associations
from at_infer.tables.scores import ScoredFile
from tests.conftest import Answer
from tests.first_column import FirstColumn, N
from tests.report_pages import Page, write_scores

pytestmark = pytest.mark.slow

ROWS, BURSTS = 850, {"wave": (250, 290), "noise": (520, 560)}


def frame(rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    waves = {"wave": np.sin(t / 5), "slow": 10 * np.cos(t / 40), "level": 3 * np.sin(t / 9)}
    return pl.DataFrame(
        {name: of + rng.normal(scale=0.05, size=rows) for name, of in waves.items()} | {"noise": rng.normal(size=rows)}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the default score, and rows to score: two features burst."""
    made = tmp_path_factory.mktemp("causes")
    frame(1500, 0).write_parquet(made / "train.parquet")
    t = pl.int_range(ROWS)
    burst = {
        name: pl.when(t.is_between(*rows)).then(pl.col(name) + 4 * (-1) ** (t % 2)).otherwise(pl.col(name))
        for name, rows in BURSTS.items()
    }
    frame(ROWS, 1).with_columns(**burst).write_parquet(made / "data.parquet")
    train = ["train", made / "train.parquet", "-o", made / "ckpt.pt", "--max-steps", 60]
    export = ["export", made / "ckpt.pt", "-o", made, "--engine", "none"]
    for words in ([*train, "--threads", 1], export):
        with pytest.raises(SystemExit) as done:
            app([str(word) for word in words])
        assert done.value.code in (0, None)
    return made


@pytest.fixture
def survey(folder: Path, tmp_path: Path) -> Callable[..., ScoresReport]:
    """Score the rows and look at the scores, with or without the engine."""

    def run(explain: str, *, engine: bool, rows: int = ROWS, **options: Any) -> ScoresReport:
        chosen = ScoreOptions(explain=explain, **options)  # type: ignore[arg-type]
        data, path = tmp_path / "data.parquet", tmp_path / f"{explain}.parquet"
        pl.read_parquet(folder / "data.parquet")[:rows].write_parquet(data)
        score_file(data, folder / "model.onnx", path, chosen, overwrite=True)
        more = {"data": str(data), "engine": folder / "model.associations.onnx"} if engine else {}
        return survey_scores(ScoredFile(str(path)), **more)  # type: ignore[arg-type]

    return run


def causes(report: ScoresReport) -> list[str]:
    return [shares[0].feature for shares in report.details.shares.values()]


def test_the_model_is_of_the_default_score(folder: Path) -> None:
    with open_associations(folder / "model.associations.onnx") as engine:
        assert isinstance(engine.metadata, Metadata)
        assert engine.metadata.score == ScoreConfig()


def test_every_way_names_the_same_cause(survey: Callable[..., ScoresReport]) -> None:
    ways = {(explain, engine): survey(explain, engine=engine) for explain in ("top", "all") for engine in (False, True)}
    ways["none", True] = survey("none", engine=True)
    exact = ways["all", False]
    assert causes(exact)
    assert set(BURSTS) <= set(causes(exact))
    for way, report in ways.items():
        assert causes(report) == causes(exact), way
        for k, shares in report.details.shares.items():
            expected = {entry.feature: entry.share for entry in exact.details.shares[k]}
            for entry in shares:
                if entry.exact:
                    assert entry.share == pytest.approx(expected[entry.feature], rel=1e-3), way
                else:
                    assert way[0] == "top"
                    assert 0 < entry.share <= expected.get(entry.feature, 1) * (1 + 1e-3), way


@pytest.mark.parametrize("options", [{"stride": 30}, {"align": "last", "rows": 330}, {"mode": "reconstruction"}])
def test_the_engine_finds_the_errors_of_the_windows_and_score_that_were_used(
    survey: Callable[..., ScoresReport], options: dict[str, Any]
) -> None:
    told, found = (survey(explain, engine=True, **options) for explain in ("all", "none"))
    assert told.details.shares
    assert all(np.isfinite(shown).any() for detail in found.details.segments for shown in detail.reconstructions)
    for k, shares in told.details.shares.items():
        names, parts = [entry.feature for entry in shares], [entry.share for entry in shares]
        assert [entry.feature for entry in found.details.shares[k]] == names
        np.testing.assert_allclose([entry.share for entry in found.details.shares[k]], parts, rtol=1e-3)


class Ramp(FirstColumn):
    """Reconstructs a row by its place in the window, so that it matters which window a row is in."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(**changes)
        self.outputs = ("reconstruction",)

    def run(self, windows: np.ndarray) -> dict[str, np.ndarray]:
        return {"reconstruction": np.broadcast_to(np.arange(N, dtype=np.float32)[:, None], windows.shape).copy()}


@pytest.mark.parametrize("rows", [N - 3, N, 3 * N, 3 * N + 5])
@pytest.mark.parametrize("layout", [(N, "window"), (3, "window"), (1, "window"), (1, "last")])
def test_rows_are_reconstructed_by_the_windows_that_scored_them(rows: int, layout: tuple[int, Any]) -> None:
    engine = Ramp(fill="mean")
    stride, align = layout
    pad = "skip" if align == "last" else "pad"
    options = ScoreOptions(mode="reconstruction", stride=stride, align=align, short_series=pad)
    reconstructor = Reconstructor(engine, engine.metadata, options)
    values = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    values[4, 1], values[-1, 0] = np.nan, np.inf
    whole = reconstructor.reconstruct(values)
    for first in range(rows):
        for end in range(first + 1, rows + 1):
            begin, stop = reconstructor.stretch(first, end, rows)
            assert begin <= first < end <= stop
            for found, expected in zip(reconstructor.reconstruct(values[begin:stop]), whole, strict=True):
                np.testing.assert_allclose(found[first - begin : end - begin], expected[first:end], rtol=1e-5)


def test_a_share_is_exact_or_at_least() -> None:
    names = ["a", "b", "c"]
    assert [tuple(entry) for entry in shares_of(np.array([1.0, 3.0, 0.0]), names)] == [
        ("b", 0.75, True),
        ("a", 0.25, True),
    ]
    assert [tuple(entry) for entry in shares_of(np.array([0.0, 3.0, 0.0, 1.0]), names)] == [("b", 0.75, True)]
    some = shares_of(np.array([1.0, 2.0, 0.0, 1.0]), names)
    assert [str(entry) for entry in some] == ["b, at least 50 % of the error", "a, at least 25 % of the error"]
    assert shares_of(np.zeros(4), names) == []


def test_the_top_feature_of_a_row_counts_by_its_error(run_cli: Callable[..., Answer], tmp_path: Path) -> None:
    columns = {
        "row": [0, 1, 2, 3],
        "score": [1.0, 1.0, 1.0, 0.1],
        "top_feature": ["often", "often", "strong", None],
        "top_feature_share": [0.5, 0.5, 0.9, None],
        "error": [1.0, 1.0, 8.0, None],
    }
    scores = write_scores(tmp_path / "s.parquet", columns)
    assert run_cli("report", scores, "-o", tmp_path / "r.html").code == 0
    top = Page(tmp_path / "r.html").description["segments"]["top"][0]
    assert [(name, pytest.approx(share), exact) for name, share, exact in top] == [
        ("strong", 0.72, False),
        ("often", 0.1, False),
    ]
    pl.read_parquet(scores).with_columns(top_feature=pl.lit(None, pl.String)).write_parquet(tmp_path / "none.parquet")
    answer = run_cli("report", tmp_path / "none.parquet", "--threshold", 0.5, "-o", tmp_path / "none.html")
    assert answer.code == 0, answer
    assert Page(tmp_path / "none.html").description["segments"]["top"] == [[]]
