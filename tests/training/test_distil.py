"""Students of a large network: they agree with it, say how far, and are ordinary checkpoints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.config import ModelConfig, ScoreConfig, ScoreMode, TrainConfig
from at_infer.errors import AtInferError
from at_infer.models.kinds import file_sha256
from tests.conftest import Answer, WriteParquet
from training import distil
from training.checkpoint import Checkpoint
from training.data import DataConfig, load
from training.distil import Distillation
from training.disturbed import disturb
from training.loop import fit
from training.parent import Parent
from training.task import TrainingTask

MODEL = ModelConfig(features=2, window=10, width=24, heads=2, layers=2, feed_forward=24, padding="circular")
TRAIN = TrainConfig(max_steps=60, batch_size=8, learning_rate=1e-2)
STUDENT = {"width": 8, "heads": 2, "device": "cpu", "threads": 1}
PUBLISHED = Path(__file__).parents[1] / "data" / "published_small_checkpoint.pth"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distil, "MOST_WINDOWS", 200)
    monkeypatch.setattr(distil, "RATE", 1e-2)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Parent:
    """Trained on the file data.parquet beside it."""
    folder = tmp_path_factory.mktemp("teacher")
    t, noise = np.arange(1000), np.random.default_rng(0).normal(scale=0.1, size=(2, 1000))
    waves = pl.DataFrame({"a": np.sin(t / 4) + noise[0], "b": 5 + 2 * np.cos(t / 6) + noise[1]})
    waves.write_parquet(folder / "data.parquet")
    data = load(DataConfig(source=str(folder / "data.parquet")), window=MODEL.window, stride=1)
    fit(TrainingTask(data=data, model=MODEL, train=TRAIN), ScoreConfig()).save(folder / "teacher.pt")
    return Parent.load(folder / "teacher.pt")


def rows_of(teacher: Parent) -> Path:
    return Path(teacher.source).with_name("data.parquet")


def student(teacher: Parent, source: Path | None = None, **options: Any) -> Checkpoint:
    return Distillation(source=str(source or rows_of(teacher)), teacher=teacher, **STUDENT | options).run()


@pytest.mark.parametrize("mode", ["reconstruction", "published"])
@pytest.mark.slow
def test_a_student_that_has_learnt_agrees_more_than_one_that_has_not(teacher: Parent, mode: ScoreMode) -> None:
    new, old = (student(teacher, score_mode=mode, max_steps=steps).train for steps in (1, 200))
    assert old["agreement"]["spearman"] > new["agreement"]["spearman"] + 0.3
    for name in ("reconstruction", "discrepancy"):
        first, last = (train["evaluations"][-1][f"validation_{name}"] for train in (new, old))
        assert last < first / 2 or (mode, name, last) == ("reconstruction", "discrepancy", 0)


def test_a_student_with_fewer_layers_has_a_higher_temperature(teacher: Parent) -> None:
    published = replace(teacher.checkpoint, score=ScoreConfig(mode="published"))
    assert distil.student_score(published, replace(MODEL, layers=1)).temperature == 100
    assert distil.student_score(published, MODEL) == published.score
    assert distil.student_score(teacher.checkpoint, MODEL) == teacher.checkpoint.score


def test_a_student_prepares_rows_as_its_teacher_does_and_has_thresholds_of_its_own(teacher: Parent) -> None:
    known, found = teacher.checkpoint, student(teacher, max_steps=5)
    for name in ("columns", "scaler", "season", "spacing", "grid", "fill", "score", "time_column", "series_column"):
        assert getattr(found, name) == getattr(known, name)
    assert found.model == replace(MODEL, width=8, feed_forward=8, layers=1)
    assert found.validation_of().threshold.ratio == known.validation_of().threshold.ratio
    assert found.validation_of().threshold.value != known.validation_of().threshold.value
    assert (found.train["teacher_sha256"], found.train["teacher"]) == (teacher.sha256, MODEL.to_dict())
    assert found.train["agreement"]["rows"] == 200
    assert 0.9 < found.train["agreement"]["same_verdicts"] <= 1
    assert found.train["times_as_fast"] > 0


def test_rows_of_another_level_are_scaled_by_the_scaler_of_the_teacher(
    teacher: Parent, write_parquet: WriteParquet
) -> None:
    higher = write_parquet("higher.parquet", pl.read_parquet(rows_of(teacher)).with_columns(pl.col("a") + 3))
    config = DataConfig(source=str(higher), prepared_for=teacher.checkpoint)
    data = load(config, window=MODEL.window)
    assert data.scaler == teacher.checkpoint.scaler
    assert data.train.values[:, 0].mean() > 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"width": 32, "layers": 2},
            r"a student of \d+ weights is not smaller than its teacher, which has",
        ),
        ({"heads": 3}, "3 heads do not divide a width of 8"),
        ({"ratio": 2.0}, "2 is not a fraction"),
        ({"max_steps": 0}, "max_steps: 0 is too small"),
    ],
)
def test_what_cannot_be_learnt_is_refused(teacher: Parent, options: dict[str, Any], says: str) -> None:
    with pytest.raises(AtInferError, match=says):
        student(teacher, **options)


def test_rows_without_a_column_of_the_teacher_are_refused(teacher: Parent, write_parquet: WriteParquet) -> None:
    with pytest.raises(AtInferError, match=r"a\.parquet: .*'b'"):
        student(teacher, write_parquet("a.parquet", a=np.arange(300.0)))


def test_faults_come_from_the_seed_and_leave_the_rows_alone() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    before = rows.copy()
    one, same, other = (disturb(rows, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(rows, before)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert 0.01 < (one != rows).mean() < 0.5


@pytest.mark.slow
def test_the_command_turns_a_published_checkpoint_into_a_small_one(
    run_cli: Any, tmp_path: Path, write_parquet: WriteParquet
) -> None:
    rng = np.random.default_rng(0)
    data = write_parquet("rows.parquet", **{f"f{i}": rng.normal(size=600) for i in range(5)})
    small = tmp_path / "small.pt"
    words = ["distil", PUBLISHED, data, "-o", small, "--width", 8, "--max-steps", 5, "--threads", 1]
    assert "has no window length" in run_cli(*words, "--published").err
    assert not small.exists()
    done: Answer = run_cli(*words, "--published", "--window", 50)
    assert done.code == 0, done.err
    assert f"learning the scores of {PUBLISHED}: 32 wide, 4 heads, 2 layers" in done.err
    assert "agreement with the teacher on 120 validation rows: rank correlation" in done.out
    assert "a rank correlation of 0.95 was not reached; try --max-steps 10 or --width 16, or --score-mode" in done.out
    assert Checkpoint.load(small).score.mode == "published"
    shown = run_cli("inspect", small, "--json").out
    assert file_sha256(PUBLISHED) in shown
    exported = run_cli("export", small, "-o", tmp_path / "out", "--engine", "none")
    assert exported.code == 0, exported.err


def test_the_command_refuses_in_one_line_and_writes_nothing(run_cli: Any, teacher: Parent, tmp_path: Path) -> None:
    data, small = rows_of(teacher), tmp_path / "small.pt"
    small.write_text("mine")
    for words, says in (
        ([teacher.source, data], "exists already"),
        ([teacher.source, data, "--overwrite", "--window", 10], "--window: is for --published checkpoints"),
        ([data, data, "--overwrite"], "is not a checkpoint"),
        ([teacher.source, tmp_path / "none.parquet", "--overwrite"], "none.parquet"),
    ):
        answer: Answer = run_cli("distil", *words, "-o", small, "--width", 8)
        assert answer.code == 1
        assert says in answer.err
        assert answer.err.count("\n") == 1
    assert small.read_text() == "mine"
    assert run_cli("distil", teacher.source, data, "-o", teacher.source, "--overwrite").code == 1
