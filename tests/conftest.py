"""Fixtures that several files use, and what happens to GPU tests where there is no GPU."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer.cli import app
from training.data import DataConfig, TrainingData, load

WriteParquet = Callable[..., Path]
MakeData = Callable[..., TrainingData]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Networks of a few channels gain nothing from a second thread, and wait for it on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture
def write_parquet(tmp_path: Path) -> WriteParquet:
    """Write columns, given as a frame or by name, as a Parquet file in the test's folder."""

    def write(name: str, frame: pl.DataFrame | None = None, **columns: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (pl.DataFrame(columns) if frame is None else frame).write_parquet(path)
        return path

    return write


@pytest.fixture
def waves() -> pl.DataFrame:
    """300 rows of two noisy sines."""
    rng = np.random.default_rng(0)
    t = np.arange(300)
    noise = rng.normal(scale=0.1, size=(2, len(t)))
    return pl.DataFrame({"a": np.sin(t / 4) + noise[0], "b": 5 + 2 * np.cos(t / 6) + noise[1]})


@pytest.fixture
def make_data(write_parquet: WriteParquet, waves: pl.DataFrame) -> MakeData:
    """The training data of `waves`, or of another frame."""

    def make(frame: pl.DataFrame | None = None, *, window: int = 10, stride: int | None = None) -> TrainingData:
        path = write_parquet("data.parquet", waves if frame is None else frame)
        return load(DataConfig(source=str(path)), window=window, stride=stride)

    return make


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


@pytest.fixture
def run_cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Answer]]:
    """Run a command in this process; an exception other than an exit is a bug and passes through."""
    threads = torch.get_num_threads()

    def run(*words: object) -> Answer:
        capfd.readouterr()
        code = 0
        try:
            app([str(word) for word in words])
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 0
        return Answer(code, *capfd.readouterr())

    yield run
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)
