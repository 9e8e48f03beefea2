"""`at-infer export` as a user meets it."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import polars as pl
import pytest
import torch

from at_infer.engines import open_engine
from at_infer.installed import install_extra
from export import pipeline
from tests.checkpoints import checkpoint, raw_windows
from training.checkpoint import FORMAT

DATA = Path(__file__).parents[1] / "data"
FAMILY = {"model.onnx", "model.associations.onnx", "model.trt", "model.trt.json", "model.trt.log"}


@pytest.fixture
def ckpt(tmp_path) -> Path:
    checkpoint().save(tmp_path / "ckpt.pt")
    return tmp_path / "ckpt.pt"


@pytest.fixture
def data(tmp_path) -> Path:
    rows = raw_windows(40, checkpoint()).reshape(-1, 3)
    pl.DataFrame(rows, schema=["f00", "f01", "f02"]).write_parquet(tmp_path / "data.parquet")
    return tmp_path / "data.parquet"


@pytest.fixture
def out(tmp_path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def refused(answer, folder: Path, *words: str) -> None:
    assert answer.code == 1
    last = answer.err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    for word in words:
        assert word in last, last
    assert "Traceback" not in answer.err
    assert names(folder) == set()


@pytest.mark.tensorrt
def test_writes_both_graphs_and_a_real_engine(run_cli, ckpt, out, data):
    answer = run_cli("export", ckpt, "-o", out, "--check-data", data, "--compute-capability", "86,120", "--json")
    assert answer.code == 0, answer.err
    assert names(out) == FAMILY
    report = json.loads(answer.out)
    score, associations, plan = report["files"]
    assert score["windows"] == "real"
    assert score["agreement"]["spearman"] == pytest.approx(1, abs=1e-5)
    assert "sigma_0" in associations["max_abs"]
    assert plan["engine"]["compute_capabilities"] == [86, 120]
    sidecar = json.loads((out / "model.trt.json").read_text())
    with open_engine(out / "model.onnx") as engine:
        known = engine.metadata.to_dict()
    for key in ("columns", "scaler", "model", "score", "validation", "alignment", "parity", "precision"):
        assert sidecar[key] == known[key]
    assert sidecar["batch"] == [1, 32, 256]
    assert sidecar["engine"]["onnx_sha256"]


def test_a_mode_that_an_earlier_version_did_not_know_is_refused(run_cli, ckpt, out):
    content = torch.load(ckpt, weights_only=True)
    for record in content["validation"]:
        record["quantiles"].pop("addition", None)
    torch.save(content, out / "earlier.pt")
    answer = run_cli("export", out / "earlier.pt", "-o", out, "--engine", "none", "--score-mode", "addition")
    assert answer.code == 1
    assert "earlier.pt: has no validation scores of mode addition; train the model again" in answer.err
    assert names(out) == {"earlier.pt"}


TRACE_ONE_GRAPH = """
import export.pipeline
from at_infer.cli import main
from export.to_onnx import trace
from tests.once import trace_once
export.pipeline.trace = lambda graph, outputs: (trace if "series_0" in outputs else trace_once)(graph, outputs)
main()
"""


@pytest.mark.slow
def test_the_same_checkpoint_and_options_give_the_same_files_in_another_process(run_cli, tmp_path):
    """The associations graph is traced again there; the other takes as long, by the same code."""
    checkpoint().save(tmp_path / "ckpt.pt")
    words = ["export", str(tmp_path / "ckpt.pt"), "--engine", "none", "-o"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", TRACE_ONE_GRAPH, *words, tmp_path / "one"], env=environment, check=True)
    assert run_cli(*words, tmp_path / "two").code == 0
    for file in ("model.onnx", "model.associations.onnx"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.tensorrt
@pytest.mark.slow
def test_int8_is_calibrated_on_real_rows_and_says_what_it_costs(run_cli, ckpt, out, data):
    answer = run_cli(
        "export", ckpt, "-o", out, "--precision", "int8", "--calibration", data, "--compute-capability", "89"
    )
    assert answer.code == 0, answer.err
    assert names(out) == FAMILY
    assert "verdicts changed" in answer.out
    model = onnx.load(out / "model.onnx")
    assert sum(node.op_type == "QuantizeLinear" for node in model.graph.node) == 4
    zeros = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if "zero_point" in t.name}
    assert all((zero == 0).all() for zero in zeros.values())


@pytest.mark.slow
def test_dynamic_int8_is_for_cpus_and_builds_no_engine(run_cli, ckpt, out):
    answer = run_cli("export", ckpt, "-o", out, "--precision", "int8-dynamic")
    assert answer.code == 0, answer.err
    assert names(out) == {"model.onnx", "model.associations.onnx"}
    assert "no engine: int8-dynamic is for CPUs" in answer.out


@pytest.mark.tensorrt
@pytest.mark.slow
def test_fp16_for_turing_lowers_every_product(run_cli, ckpt, out):
    answer = run_cli("export", ckpt, "-o", out, "--precision", "fp16", "--compute-capability", "75")
    assert answer.code == 0, answer.err
    with open_engine(out / "model.onnx") as engine:
        assert "attention products" not in engine.metadata.fp32_ops


@pytest.mark.tensorrt
def test_the_engine_can_run_the_other_graph(run_cli, ckpt, out):
    answer = run_cli("export", ckpt, "-o", out, "--engine-graph", "associations", "--compute-capability", "89")
    assert answer.code == 0, answer.err
    sidecar = json.loads((out / "model.trt.json").read_text())
    assert sidecar["graph"] == "associations"
    assert "prior_0" in [output["name"] for output in sidecar["engine"]["outputs"]]


@pytest.mark.slow
def test_without_tensorrt_the_onnx_files_are_written_and_a_line_says_how_to_get_an_engine(
    run_cli, ckpt, out, monkeypatch
):
    monkeypatch.setattr(pipeline, "choose_flavour", lambda _: None)
    answer = run_cli("export", ckpt, "-o", out)
    assert answer.code == 0
    assert names(out) == {"model.onnx", "model.associations.onnx"}
    assert install_extra("rtx") in answer.out


@pytest.mark.slow
def test_another_score_mode_brings_its_own_threshold(run_cli, ckpt, out):
    assert run_cli("export", ckpt, "-o", out, "--engine", "none", "--score-mode", "published").code == 0
    source = checkpoint()
    with open_engine(out / "model.onnx") as engine:
        assert engine.metadata.score.mode == "published"
        assert engine.metadata.discrepancy.head_rule == "published"
        expected = np.interp(0.95, source.quantile_levels, source.validation_of().quantiles["published"])
        assert engine.metadata.validation_of().threshold.value == pytest.approx(expected)


@pytest.mark.slow
def test_pruned_outputs(run_cli, ckpt, out):
    assert (
        run_cli(
            "export", ckpt, "-o", out, "--engine", "none", "--outputs", "score", "--score-mode", "reconstruction"
        ).code
        == 0
    )
    with open_engine(out / "model.onnx") as engine:
        assert engine.outputs == ("score",)


@pytest.mark.slow
def test_a_published_checkpoint_exports_the_same_way(run_cli, tmp_path, out):
    published = np.load(DATA / "published_small_io.npz")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 5)).astype(np.float32)
    rows = (rows - rows.mean(0, dtype=np.float64)) / rows.std(0, dtype=np.float64)  # so that the scaler changes nothing
    pl.DataFrame(rows.astype(np.float32)).write_parquet(tmp_path / "train.parquet")
    answer = run_cli(
        "export", DATA / "published_small_checkpoint.pth", "--published", "--window", 50, "--heads", 4,
        "--scale-from", tmp_path / "train.parquet", "-o", out, "--engine", "none",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert names(out) == {"model.onnx", "model.associations.onnx"}
    with open_engine(out / "model.onnx") as engine:
        assert engine.metadata.score.mode == "published"
        np.testing.assert_allclose(engine.score(published["x"]), published["energy"], atol=1e-4)


def test_triton_repository_is_written_beside(run_cli, ckpt, out, tmp_path):
    answer = run_cli("export", ckpt, "-o", out, "--engine", "none", "--triton", tmp_path / "triton")
    assert answer.code == 0, answer.err
    assert (tmp_path / "triton" / "anomaly_transformer_onnx" / "1" / "model.onnx").exists()
    assert "note: the server will return no score" in answer.err
    assert "export with --score-mode reconstruction" in answer.err


@pytest.mark.tensorrt
def test_existing_files_are_kept_unless_told_otherwise_and_stale_ones_go(run_cli, ckpt, out):
    assert run_cli("export", ckpt, "-o", out, "--compute-capability", "89").code == 0
    before = (out / "model.onnx").read_bytes()
    answer = run_cli("export", ckpt, "-o", out)
    assert answer.code == 1
    assert "--overwrite" in answer.err
    answer = run_cli("export", ckpt, "-o", out, "--overwrite", "--atol", "0", "--rtol", "0")
    assert answer.code == 1
    assert (out / "model.onnx").read_bytes() == before
    assert names(out) == FAMILY
    assert run_cli("export", ckpt, "-o", out, "--overwrite", "--engine", "none", "--score-mode", "paper").code == 0
    assert names(out) == {"model.onnx", "model.associations.onnx"}
    assert (out / "model.onnx").read_bytes() != before


def test_a_mismatch_fails_and_leaves_nothing(run_cli, ckpt, out):
    answer = run_cli("export", ckpt, "-o", out, "--atol", "0", "--rtol", "0", "--engine", "none")
    refused(answer, out, "parity: output", "PyTorch says")


def test_a_file_that_is_no_checkpoint(run_cli, tmp_path, out):
    (tmp_path / "text.pt").write_text("hello")
    refused(run_cli("export", tmp_path / "text.pt", "-o", out), out, "text.pt")


def test_a_published_checkpoint_without_its_option(run_cli, out):
    refused(run_cli("export", DATA / "published_small_checkpoint.pth", "-o", out), out, "--published")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--published"], "--window"),
        (["--published", "--window", "50"], "--scale-from"),
        (["--published", "--window", "50", "--heads", "8", "--scale-from", "data.parquet"], "has 4 heads, not 8"),
        (["--published", "--window", "50", "--scale-from", "data.parquet"], "5 columns"),
    ],
)
def test_a_published_checkpoint_with_wrong_options(run_cli, out, data, options, word):
    options = [str(data) if option == "data.parquet" else option for option in options]
    refused(run_cli("export", DATA / "published_small_checkpoint.pth", "-o", out, *options), out, word)


def test_a_checkpoint_of_a_newer_format(run_cli, ckpt, out):
    content = torch.load(ckpt, weights_only=True)
    torch.save(content | {"format": FORMAT + 1}, ckpt)
    refused(run_cli("export", ckpt, "-o", out), out, "ckpt.pt", "upgrade")


def test_weights_that_are_not_numbers(run_cli, tmp_path, out):
    source = checkpoint()
    source.state_dict["norm.weight"][0] = float("nan")
    source.save(tmp_path / "nan.pt")
    refused(run_cli("export", tmp_path / "nan.pt", "-o", out), out, "nan.pt", "norm.weight")


def test_int8_without_calibration_asks_for_it(run_cli, ckpt, out):
    refused(run_cli("export", ckpt, "-o", out, "--precision", "int8"), out, "--calibration")


@pytest.mark.parametrize("kind", ["missing column", "fewer rows than a window", "empty", "infinite", "null"])
@pytest.mark.slow
def test_calibration_data_that_do_not_fit(run_cli, ckpt, out, tmp_path, kind):
    frame = pl.DataFrame({name: np.linspace(0, 1, 100) for name in ("f00", "f01", "f02")})
    if kind == "missing column":
        frame, word = frame.drop("f01"), "f01"
    elif kind == "fewer rows than a window":
        frame, word = frame.head(19), "window of 20"
    elif kind == "empty":
        frame, word = frame.head(0), "has no rows"
    elif kind == "infinite":
        frame, word = frame.with_columns(f02=pl.lit(float("inf"))), "f02"
    else:
        frame, word = frame.with_columns(f02=pl.lit(None, pl.Float64)), "f02"
    frame.write_parquet(tmp_path / "calibration.parquet")
    answer = run_cli(
        "export", ckpt, "-o", out, "--precision", "int8", "--calibration", tmp_path / "calibration.parquet"
    )
    refused(answer, out, "calibration.parquet", word)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--compute-capability", "99"], "unknown"),
        (["--compute-capability", "87"], "Jetson"),
        (["--compute-capability", "75"], "--precision fp16"),
        (["--batch", "8:4:2"], "batch"),
        (["--engine", "tensorrt"], "TensorRT"),
        (["--outputs", "scores"], "outputs"),
        (["--atol", "1"], "--rtol"),
        (["--precision", "int8-dynamic", "--engine", "rtx"], "for CPUs"),
    ],
)
@pytest.mark.slow
def test_options_that_cannot_be_met(run_cli, ckpt, out, options, word):
    refused(run_cli("export", ckpt, "-o", out, *options), out, word)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--window", 100),
        ("--heads", 4),
        ("--scale-from", "train.parquet"),
        ("--columns", "f00,f01"),
        ("--exclude", "f02"),
        ("--series-column", "host"),
        ("--ratio", 0.01),
    ],
)
def test_an_option_of_published_checkpoints_is_refused_for_others(run_cli, ckpt, out, option, value):
    refused(run_cli("export", ckpt, "-o", out, option, value), out, f"{option}: is for --published checkpoints")


def test_an_output_folder_that_cannot_be_made_or_takes_no_files(run_cli, ckpt, tmp_path, out):
    refused(run_cli("export", ckpt, "-o", tmp_path / "absent" / "model"), out, "parent folder does not exist")
    refused(run_cli("export", ckpt, "-o", ckpt), out, "is not a folder")
    refused(run_cli("export", ckpt, "-o", "/proc"), out, "/proc")


@pytest.mark.slow
def test_an_output_folder_is_made_and_stays_only_with_results(run_cli, ckpt, out):
    new = out / "new"
    refused(run_cli("export", ckpt, "-o", new, "--atol", "1e-12", "--rtol", "0", "--engine", "none"), out, "parity")
    assert run_cli("export", ckpt, "-o", new, "--engine", "none").code == 0
    assert names(new) == {"model.onnx", "model.associations.onnx"}


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_behind(run_cli, ckpt, out, tmp_path):
    assert run_cli("export", ckpt, "-o", tmp_path / "traced", "--engine", "none").code == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))  # bytes a file may have: less than the ONNX file
    try:
        answer = run_cli("export", ckpt, "-o", out, "--engine", "none")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    refused(answer, out, "could not be written")


@pytest.mark.tensorrt
def test_a_swapped_plan_and_an_edited_or_missing_sidecar_are_noticed(run_cli, ckpt, out):
    assert run_cli("export", ckpt, "-o", out, "--compute-capability", "89").code == 0
    plan, sidecar = out / "model.trt", out / "model.trt.json"
    original, text = plan.read_bytes(), sidecar.read_text()

    def said(path: Path = plan) -> str:
        from at_infer.errors import EngineError

        with pytest.raises(EngineError) as caught:
            open_engine(path)
        return str(caught.value)

    plan.write_bytes(original[:-1] + b"x")
    assert "sha256" in said()
    plan.write_bytes(original)
    values = json.loads(text)
    values["validation"][0]["threshold"]["value"] = 0.0
    sidecar.write_text(json.dumps(values))
    assert "edited" in said()
    sidecar.unlink()
    assert "model.trt.json" in said()


@pytest.mark.slow
@pytest.mark.tensorrt
def test_a_model_of_the_papers_width_exports_and_builds(run_cli, tmp_path, out):
    source = checkpoint(features=25, window=100, width=512, heads=8, feed_forward=512, windows=2)  # layers are alike
    replace(source, columns=[f"f{i:02}" for i in range(25)]).save(tmp_path / "paper.pt")
    answer = run_cli("export", tmp_path / "paper.pt", "-o", out, "--compute-capability", "89")
    assert answer.code == 0, answer.err
    assert names(out) == FAMILY
