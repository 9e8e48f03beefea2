"""Fixtures that several files use, and what happens to GPU tests where there is no GPU."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, settings
from onnx import ModelProto
from xdist.scheduler import LoadScopeScheduling

from at_infer import score_file
from at_infer.cli import app
from at_infer.engines.tensorrt import plan as trt
from at_infer.engines.tensorrt.gpu import Gpu
from tests.checkpoints import FEATURES, PLAIN, WINDOW, checkpoint
from tests.fake_gpu import VERSION, FakeDevice, FakeEngine, fake_tensorrt
from tests.once import Once, make_once, trace_in_tests, trace_once
from tests.options import by_kind
from tests.programs import programs, stop_programs
from tests.scored import Edit, Score, Scored, variant
from training.checkpoint import Checkpoint
from training.data import DataConfig, TrainingData, load

# A shell that starts tests in the background lets them ignore Ctrl-C, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine, however slow: a test that fails, fails again. An example whose fixtures are shared
# with the next writes what the next replaces.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    max_examples=50,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("steady")

WriteParquet = Callable[..., Path]
MakeData = Callable[..., TrainingData]
Trace = Callable[..., ModelProto]


TOGETHER = {
    "test_ray.py": "ray",  # some count what is left of a cluster
    "ray_job.sh": "ray",
    "test_report_browser.py": "browser",  # one browser
    "test_readme.py": "readme",  # one folder in which documents run
    "test_notebook.py": "notebook",  # one run of it
}
"""Tests whose name has this in it run in one process, those of a kind after one another."""


class Scheduler(LoadScopeScheduling):
    """Gives out every test on its own but those of TOGETHER. The mark xdist_group does nothing since pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return next((kind for part, kind in TOGETHER.items() if part in nodeid), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    return Scheduler(config, log)


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays: no search for garbage needs to look at it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Networks of a few channels gain nothing from a second thread, and wait for it on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """Files of tests need not outlive one: a busy disk takes longer over it than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def _denormals_count() -> None:
    """Training in this process, by any fixture, flushes them to zero, and scores next to zero would be equal to it."""
    torch.set_flush_denormal(False)


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


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all workers of this run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def once(shared: Path) -> Once:
    """Make a folder once for all workers of this run."""
    return partial(make_once, shared)


@pytest.fixture(scope="session", autouse=True)
def _programs_end() -> Iterator[None]:
    yield
    stop_programs()


@pytest.fixture(scope="session")
def warm() -> Path:
    """A folder with `python` and `at-infer` that need no time to start; tests/warm.py says when to use them."""
    return programs()


@pytest.fixture(scope="session")
def trace() -> Trace:
    """A graph as ONNX, traced as users do, or quickly."""
    return trace_in_tests


@pytest.fixture(scope="session")
def real_trace() -> Trace:
    """A graph as ONNX, traced as users do."""
    return trace_once


@pytest.fixture(scope="session", autouse=True)
def _exports_trace_quickly() -> Iterator[None]:
    """Exports in this process trace the most common graphs once, and others by another exporter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("export.pipeline.trace", trace_in_tests)
        yield


def exported(once: Once, name: str, source: Checkpoint) -> Path:
    """A folder with both graphs of a checkpoint: exporting takes seconds, so it is done once."""
    from export.config import ExportConfig
    from export.pipeline import export_model

    return once(name, lambda folder: export_model(source, "0" * 64, folder, ExportConfig(engine="none")))


@pytest.fixture(scope="session")
def models(once: Once) -> Path:
    """The small checkpoint as a user exports it, with the score that training chooses by default."""
    return exported(once, "models", checkpoint())


@pytest.fixture(scope="session")
def plain_models(once: Once) -> Path:
    """The same network with mode reconstruction: a score is the error of its own row, neither centred nor smoothed."""
    return exported(once, "plain_models", checkpoint(score=PLAIN))


@pytest.fixture(scope="session")
def two_layer_models(once: Once) -> Path:
    """A deeper network than by default, which has no graph for live rows."""
    return exported(once, "two_layer_models", checkpoint(layers=2))


@pytest.fixture
def score(models: Path, tmp_path: Path) -> Score:
    """Score a file, a folder, or the rows of a frame; options by name."""
    return score_by(models, tmp_path)


@pytest.fixture
def plain_score(plain_models: Path, tmp_path: Path) -> Score:
    """The same by mode reconstruction."""
    return score_by(plain_models, tmp_path)


def score_by(models: Path, tmp_path: Path) -> Score:

    def run(source: pl.DataFrame | Path | str, **given: Any) -> Scored:
        if isinstance(source, pl.DataFrame):
            source.write_parquet(tmp_path / "given.parquet")
            source = tmp_path / "given.parquet"
        output = given.pop("output", tmp_path / "scores.parquet")
        engine = given.pop("engine", models / "model.onnx")
        summary = score_file(source, engine, output, **by_kind(**{"overwrite": True} | given))
        return Scored(pl.read_parquet(output, glob=False), summary, output)

    return run


@pytest.fixture
def edited(models: Path, tmp_path: Path) -> Edit:
    """The model with other metadata or fewer outputs."""
    return lambda **changes: variant(models / "model.onnx", tmp_path / "edited.onnx", **changes)


@pytest.fixture
def plain_edited(plain_models: Path, tmp_path: Path) -> Edit:
    """The same of the model with mode reconstruction."""
    return lambda **changes: variant(plain_models / "model.onnx", tmp_path / "edited.onnx", **changes)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every window is a chunk and a part of its own, if batches hold one window."""
    monkeypatch.setattr("at_infer.tables.row_stream.CHUNK_CELLS", WINDOW * FEATURES)
    monkeypatch.setattr("at_infer.scoring.score_file.PART_ROWS", 1)


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


@pytest.fixture(params=["tensorrt", "rtx"])
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> SimpleNamespace:
    """A fake GPU with a fake TensorRT of either flavour."""
    device = FakeDevice()
    engine = FakeEngine(device)
    module = fake_tensorrt(engine, VERSION, rtx=request.param == "rtx")
    made = SimpleNamespace(device=device, engine=engine, flavour=request.param, modules={request.param: module})
    monkeypatch.setattr(trt, "find_gpu", lambda _: Gpu("GeForce", 89))
    monkeypatch.setattr(trt, "load_flavour", lambda name: made.modules.get(name))
    monkeypatch.setattr(trt, "CudaDevice", lambda: device)
    return made
