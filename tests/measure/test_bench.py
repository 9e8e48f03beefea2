"""`at-infer bench`: figures, agreement, and who could not run."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest
import torch

from at_infer.measure import gpu_sensors
from at_infer.measure.bench import Contestant, compare, figures, measure, try_scorers
from at_infer.measure.gpu_sensors import Reading
from tests.checkpoints import checkpoint, raw_windows
from tests.exported import MODEL
from tests.fake_gpu import DOUBLED, ERROR, STEPS, WINDOW, write_plan
from tests.once import trace_all


@pytest.fixture
def folder(models, tmp_path):
    """A checkpoint, its graph and rows to score."""
    source, folder = checkpoint(), tmp_path / "bench"
    folder.mkdir()
    source.save(folder / "ckpt.pt")
    shutil.copyfile(models / "model.onnx", folder / "model.onnx")
    pl.DataFrame(raw_windows(10, source).reshape(-1, 3), schema=source.columns).write_parquet(folder / "data.parquet")
    return folder


def test_figures_are_those_of_numpy():
    seconds = np.random.default_rng(0).uniform(0.001, 0.002, 500)
    found = figures("engine", 8, 100, seconds.tolist())
    assert found.median_ms == pytest.approx(np.median(seconds) * 1e3)
    assert found.p99_ms == pytest.approx(np.percentile(seconds, 99) * 1e3)
    assert found.min_ms <= found.median_ms <= found.p90_ms <= found.p95_ms <= found.p99_ms <= found.max_ms
    assert found.variation == pytest.approx(seconds.std() / seconds.mean())
    assert found.windows_per_s == pytest.approx(8 / np.median(seconds))
    assert found.points_per_s == pytest.approx(100 * found.windows_per_s)
    assert not found.steady
    assert figures("engine", 1, 100, [0.001] * 20).steady


def test_contestants_take_turns_after_a_warm_up():
    calls: list[tuple[str, int]] = []

    def contestant(name: str) -> Contestant:
        def score(windows: np.ndarray) -> np.ndarray:
            calls.append((name, len(windows)))
            return windows[:, :, 0]

        return Contestant(name, "numpy", score, 0.0)

    found = measure([contestant("a"), contestant("b")], np.zeros((4, 5, 2), np.float32), [1, 4], seconds=0.001)
    assert {(entry.name, entry.batch) for entry in found} == {("a", 1), ("b", 1), ("a", 4), ("b", 4)}
    timed = [call for call in calls if call[1] == 1][6:]
    assert timed[:4] == [("a", 1), ("b", 1), ("a", 1), ("b", 1)]
    assert all(entry.runs >= 10 for entry in found)


def test_agreement_is_measured_against_the_first():
    windows = np.arange(40, dtype=np.float32).reshape(4, 5, 2)
    first = Contestant("first", "", lambda w: w[:, :, 0], 0.0)
    other = Contestant("other", "", lambda w: w[:, :, 0] + np.float32(2), 0.0)
    same, changed = compare([first, other], windows, 19.0, 3)
    assert (same.max_abs, same.verdicts_changed) == (0.0, 0.0)
    assert changed.max_abs == 2.0
    assert changed.verdicts_changed == pytest.approx(1 / 20)


def test_a_scorer_that_fails_is_no_contestant_and_says_why():
    def broken(windows: np.ndarray) -> np.ndarray:
        raise RuntimeError("no\n  compiler")

    probe = np.zeros((1, 5, 2), np.float32)
    scorers = [("broken", broken), ("sound", lambda windows: windows[:, :, 0])]
    found, absent = try_scorers(scorers, probe, runs_on="numpy", before_mb=0.0)
    assert [(one.name, one.runs_on, one.memory_mb > 0) for one in found] == [("sound", "numpy", True)]
    assert [(one.name, one.reason) for one in absent] == [("broken", "no compiler")]


@pytest.fixture
def quick_compile(monkeypatch):
    """torch.compile up to the graph that it would give to a C++ compiler, which takes half a minute of two cores."""
    if not trace_all():
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # raised inside torch.compile
def test_engines_and_pytorch_side_by_side_and_a_plan_that_needs_a_gpu(run_cli, folder, tmp_path, quick_compile):
    answer = run_cli(
        "bench", "--engine", folder / "model.onnx", "--engine", write_plan(tmp_path, "rtx"), "--batch", "4",
        "--duration", "0.01", "--against", "pytorch", "--checkpoint", folder / "ckpt.pt",
        "--check", folder / "data.parquet", "--plot", tmp_path / "plot.svg", "--json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    report = json.loads(answer.out)
    names = [entry["name"] for entry in report["contestants"]]
    assert names == ["model.onnx fp32", "pytorch eager", "pytorch compiled"]
    assert {entry["batch"] for entry in report["figures"]} == {4}
    assert all(entry["max_abs"] < 1e-4 for entry in report["agreement"])
    assert any("model.trt" in entry["name"] and "GPU" in entry["reason"] for entry in report["could_not_run"])
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")


@pytest.fixture
def plan(tmp_path, machine):
    """A plan on a fake GPU, with the metadata of the windows that the fake takes."""
    machine.engine.tensors = {tensor.name: tensor for tensor in (WINDOW, ERROR._replace(name="score"), DOUBLED)}
    model = replace(MODEL, window=STEPS)
    return write_plan(tmp_path, machine.flavour, metadata_changes={"model": model})


@pytest.fixture
def sensors(monkeypatch):
    """NVML that tells the same every time."""
    reading = Reading(clock_mhz=1900.0, power_w=60.0, memory_mb=800.0)
    monkeypatch.setattr(gpu_sensors, "open_nvml", lambda: lambda: reading)
    return reading


def test_a_plan_is_measured_with_and_without_transfers_and_graph(run_cli, plan, sensors, machine):
    answer = run_cli("bench", "--engine", plan, "--batch", "1,8", "--duration", "0.01", "--json")
    assert answer.code == 0, answer.err
    report = json.loads(answer.out)
    names = [
        "model.trt fp32",
        "model.trt fp32, no transfers",
        "model.trt fp32, no CUDA graph",
        "model.trt fp32, no CUDA graph, no transfers",
    ]
    assert [entry["name"] for entry in report["contestants"]] == names
    assert [(entry["name"], entry["batch"]) for entry in report["figures"]] == [(n, b) for b in (1, 8) for n in names]
    assert "GeForce" in report["contestants"][0]["runs_on"]
    assert report["gpu"]["clock_mhz"] == sensors.clock_mhz
    assert report["gpu"]["power_w"] == sensors.power_w
    # TensorRT: a graph of the whole batch and one of the computation, for each size; TensorRT-RTX captures its own
    assert len(machine.device.graphs) == (4 if machine.flavour == "tensorrt" else 0)


def test_the_table_tells_clocks_power_and_memory_of_the_gpu(run_cli, plan, sensors):
    out = run_cli("bench", "--engine", plan, "--batch", "1", "--duration", "0.01").out
    assert "GPU while measuring: 1900 MHz, at least 1900 MHz, 60.0 W, 800 MB of memory in use (NVML)" in out


def test_sensors_that_cannot_be_read_are_told_and_no_error(run_cli, plan, monkeypatch):
    def absent():
        raise ImportError("clocks, power and memory need NVML; pip install nvidia-ml-py")

    monkeypatch.setattr(gpu_sensors, "open_nvml", absent)
    answer = run_cli("bench", "--engine", plan, "--batch", "1", "--duration", "0.01")
    assert answer.code == 0
    assert "GPU while measuring: clocks, power and memory need NVML" in answer.out


def test_those_without_transfers_are_not_asked_for_scores():
    windows = np.ones((4, 5, 2), np.float32)
    first = Contestant("first", "", lambda w: w[:, :, 0], 0.0)
    silent = Contestant("silent", "", lambda _: None, 0.0, answers=False)
    assert [entry.name for entry in compare([first, silent], windows, 0.5, 3)] == ["first"]


def test_engines_of_one_name_are_told_apart_by_their_folder(run_cli, folder, tmp_path):
    (tmp_path / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    words = ["bench", "--engine", folder / "model.onnx", "--engine", tmp_path / "model.onnx"]
    report = json.loads(run_cli(*words, "--batch", "1", "--duration", "0.01", "--json").out)
    assert [entry["name"] for entry in report["contestants"]] == [
        f"{folder / 'model.onnx'} fp32",
        f"{tmp_path / 'model.onnx'} fp32",
    ]
    assert len(report["figures"]) == 2
    assert report["threads"] >= 1
    assert report["peak_mb"] > 0


def test_table_and_markdown(run_cli, folder):
    words = ["bench", "--engine", folder / "model.onnx", "--batch", "2", "--duration", "0.01"]
    table = run_cli(*words).out
    assert "windows/s" in table
    assert " CoV " in table
    assert "all in one process: " in table
    answer = run_cli(*words, "--markdown")
    assert answer.out.startswith("| contestant | batch |")
    assert "ONNX Runtime" in answer.out


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--batch", "none"], "batch"),
        (["--batch", "0,4"], "batch"),
        (["--duration", "0"], "duration"),
        (["--json", "--markdown"], "cannot be combined"),
        (["--plot", "absent/plot.svg"], "absent"),
        (["--against", "pytorch"], "--checkpoint"),
        (["--provider", "cuda"], "no engine runs here"),
        (["--check", "absent.parquet"], "absent.parquet"),
    ],
)
@pytest.mark.slow
def test_bad_options_get_one_line(run_cli, folder, options, word):
    answer = run_cli("bench", "--engine", folder / "model.onnx", *options)
    assert answer.code == 1
    assert word in answer.err
    assert answer.err.startswith("error: ")
    assert len(answer.err.strip().splitlines()) == 1
