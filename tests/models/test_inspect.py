"""`at-infer inspect`: small real files of every kind, and files that are something else."""

import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import onnx
import polars as pl
import pytest
import torch
from onnx import TensorProto, helper

from at_infer.config import DiscrepancyConfig, ScoreConfig
from at_infer.installed import install_extra
from at_infer.measure.inspection import Inspection, rows, shorten
from at_infer.models.sidecar import seal, sidecar_path
from at_infer.models.signatures import identify, onnx_opsets
from at_infer.models.statistics import Scaler, Threshold, ValidationRecord
from tests.exported import FEATURES, MODEL, WINDOW, metadata
from training.checkpoint import Checkpoint
from training.model import AnomalyTransformer

PUBLISHED = Path(__file__).parents[1] / "data" / "published_small_checkpoint.pth"
LEVELS = [i / 100 for i in range(101)]


def write_checkpoint(path: Path) -> Path:
    torch.manual_seed(0)
    Checkpoint(
        model=MODEL,
        state_dict=AnomalyTransformer(MODEL).state_dict(),
        columns=["a", "b", "c"],
        time_column=None,
        series_column=None,
        scaler=Scaler(mean=[0.0, 1.0, 2.0], scale=[1.0, 1.0, 3.0]),
        fill="mean",
        discrepancy=DiscrepancyConfig(),
        score=ScoreConfig(),
        quantile_levels=LEVELS,
        validation=[
            ValidationRecord(
                threshold=Threshold(value=0.5, method="ratio", ratio=0.01, validation_rows=40),
                quantiles={"reconstruction": LEVELS},
            )
        ],
        normal=None,
        train={"seed": 7, "steps": {"reconstruction": torch.tensor([0.5, float("nan")])}},
    ).save(path)
    return path


NAMES = ("window", "reconstruction")


def write_onnx(path: Path, properties: dict[str, str], op: str = "Identity") -> Path:
    shape = ["batch", WINDOW, FEATURES]
    window, score = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in NAMES)
    graph = helper.make_graph([helper.make_node(op, [NAMES[0]], [NAMES[1]])], "graph", [window], [score])
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10, producer_name="a test")
    helper.set_model_props(model, properties)
    onnx.save(model, path)
    return path


def write_plan(path: Path, **engine: Any) -> Path:
    """Bytes that start like a plan of TensorRT 10.9, and a sidecar that fits them."""
    path.write_bytes(b"ftrt" + bytes(20) + bytes([10, 9, 0, 34]) + b"kernels")
    facts = {
        "flavour": "tensorrt",
        "version": "10.9.0.34",
        "compute_capabilities": [89],
        "plan_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "onnx_sha256": "1" * 64,
        "inputs": [{"name": "window", "shape": [-1, WINDOW, FEATURES]}],
        "outputs": [{"name": "score", "shape": [-1, WINDOW]}],
    }
    sealed = seal(metadata(batch=[1, 8, 32], engine=facts | engine))
    sidecar_path(path).write_text(json.dumps(sealed.to_dict()))
    return path


@pytest.fixture
def inspected(run_cli):
    """The JSON document that `inspect --json` prints."""

    def run(path: Path) -> dict[str, Any]:
        answer = run_cli("inspect", path, "--json")
        document: dict[str, Any] = json.loads(answer.out, parse_constant=pytest.fail)
        assert (answer.code, answer.err) == (bool(document["problems"]), "")
        return document

    return run


@pytest.fixture
def table(run_cli, monkeypatch):
    """What `inspect` prints for people."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(path: Path) -> str:
        answer = run_cli("inspect", path)
        assert (answer.code, answer.err) == ("problem:" in answer.out, "")
        return str(answer.out)

    return run


def test_a_checkpoint_tells_its_model_columns_and_threshold(tmp_path, inspected):
    document = inspected(write_checkpoint(tmp_path / "ckpt.pt"))
    assert document["kind"] == "checkpoint"
    assert document["metadata"]["model"] == MODEL.to_dict()
    assert document["metadata"]["columns"] == ["a", "b", "c"]
    (record,) = document["metadata"]["validation"]
    assert record["threshold"]["value"] == 0.5
    assert record["quantiles"]["reconstruction"] == LEVELS
    assert document["facts"]["sha256"] == hashlib.sha256((tmp_path / "ckpt.pt").read_bytes()).hexdigest()
    assert document["facts"]["parameters"] == sum(p.numel() for p in AnomalyTransformer(MODEL).parameters())
    assert "state_dict" not in document["metadata"]


def test_json_stays_json_where_a_number_is_not_one(tmp_path, inspected):
    document = inspected(write_checkpoint(tmp_path / "ckpt.pt"))
    assert document["metadata"]["train"]["steps"]["reconstruction"] == [0.5, None]


def test_the_table_shortens_long_lists(tmp_path, table):
    text = table(write_checkpoint(tmp_path / "ckpt.pt"))
    assert "checkpoint of at-infer train" in text
    assert "0, 0.01, 0.02 ... 1 (101 in all)" in text
    assert "0.57" not in text
    assert "validation.window.threshold.value" in text


def test_the_name_of_a_file_does_not_matter(tmp_path, inspected):
    assert inspected(write_checkpoint(tmp_path / "ckpt.onnx"))["kind"] == "checkpoint"
    assert inspected(write_onnx(tmp_path / "model.parquet", metadata().to_properties()))["kind"] == "onnx"
    assert inspected(write_plan(tmp_path / "model.pt"))["kind"] == "plan"


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_a_published_checkpoint_tells_all_but_its_window(tmp_path, inspected, zipped):
    state = torch.load(PUBLISHED, weights_only=True)
    torch.save(state, tmp_path / "published.pth", _use_new_zipfile_serialization=zipped)
    document = inspected(tmp_path / "published.pth")
    assert document["kind"] == "published-checkpoint"
    assert document["metadata"]["model"] == {
        "features": 5,
        "width": 32,
        "heads": 4,
        "layers": 2,
        "feed_forward": 32,
        "prior": "gaussian",
        "padding": "circular",
    }
    assert "`published`" in document["notes"][0]


def test_the_state_of_an_interrupted_training_is_recognised(tmp_path, inspected):
    state = {"identity": {"device": "cpu"}, "state": {"step": 3, "best_loss": float("inf")}, "optimizer": {}}
    torch.save(state, tmp_path / "ckpt.resume.pt")
    document = inspected(tmp_path / "ckpt.resume.pt")
    assert document["kind"] == "resume"
    assert document["metadata"]["state"] == {"step": 3, "best_loss": None}


def test_a_checkpoint_without_torch_names_the_extra(tmp_path, run_cli, monkeypatch):
    path = write_checkpoint(tmp_path / "ckpt.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = run_cli("inspect", path)
    assert answer.code == 1
    assert install_extra("train") in answer.err


def test_a_foreign_file_of_torch_is_refused(tmp_path, run_cli):
    torch.save({"weight": torch.zeros(3)}, tmp_path / "resnet.pth")
    answer = run_cli("inspect", tmp_path / "resnet.pth")
    assert answer.code == 1
    assert "is a PyTorch file, but no checkpoint of at-infer" in answer.err


def test_an_exported_onnx_file_tells_its_metadata_inputs_and_outputs(tmp_path, inspected):
    given = metadata()
    document = inspected(write_onnx(tmp_path / "model.onnx", given.to_properties()))
    assert document["kind"] == "onnx"
    assert document["what"] == "score graph in ONNX, fp32, exported by at-infer 0.1.0"
    assert document["metadata"] == given.to_dict()
    assert list(document["metadata"]) == list(given.to_dict())
    assert document["facts"]["inputs"] == [{"name": "window", "type": "float", "shape": ["batch", WINDOW, FEATURES]}]
    assert [output["name"] for output in document["facts"]["outputs"]] == ["reconstruction"]
    assert document["facts"]["opset"] == {"ai.onnx": 20, "ai.onnx.ml": 3}
    assert document["facts"]["bytes"] == (tmp_path / "model.onnx").stat().st_size


def test_the_table_of_an_onnx_file_shows_shapes(tmp_path, table):
    text = table(write_onnx(tmp_path / "model.onnx", metadata().to_properties()))
    assert "window  float ['batch', 8, 3]" in text


def test_a_foreign_onnx_file_says_what_is_missing(tmp_path, inspected):
    document = inspected(write_onnx(tmp_path / "foreign.onnx", {"author": "someone"}))
    assert document["metadata"] is None
    assert document["facts"]["properties"] == {"author": "someone"}
    assert "not exported by at-infer" in document["notes"][0]


def test_metadata_of_a_newer_format_are_shown_and_named_a_problem(tmp_path, inspected):
    document = inspected(write_onnx(tmp_path / "new.onnx", metadata(format=99).to_properties()))
    assert document["metadata"]["format"] == 99
    assert "upgrade at-infer" in document["problems"][0]


def test_damaged_metadata_are_shown_and_named_a_problem(tmp_path, inspected):
    document = inspected(write_onnx(tmp_path / "m.onnx", metadata().to_properties() | {"at_infer.columns": "[oops"}))
    assert document["metadata"]["columns"] == "[oops"
    assert "damaged" in document["problems"][0]


def test_an_onnx_file_that_onnx_runtime_cannot_open_still_tells_what_it_can(tmp_path, inspected):
    document = inspected(write_onnx(tmp_path / "odd.onnx", {}, op="NoSuchOperator"))
    assert document["facts"]["opset"]["ai.onnx"] == 20
    assert "NoSuchOperator" in document["problems"][0]


def test_a_plan_is_described_by_its_sidecar_without_a_gpu(tmp_path, inspected):
    document = inspected(write_plan(tmp_path / "model.trt"))
    assert document["kind"] == "plan"
    assert document["what"] == "TensorRT plan, score graph, fp32, exported by at-infer 0.1.0"
    assert document["facts"]["version"] == "10.9.0.34"
    assert document["metadata"]["batch"] == [1, 8, 32]
    assert document["metadata"]["engine"]["compute_capabilities"] == [89]
    assert document["problems"] == []


def test_a_plan_swapped_for_another_is_named_a_problem(tmp_path, inspected, table):
    path = write_plan(tmp_path / "model.trt")
    path.write_bytes(path.read_bytes() + b"x")
    document = inspected(path)
    assert "sha256 differs" in document["problems"][0]
    assert document["metadata"]["precision"] == "fp32"
    assert "problem: " in table(path)


def test_a_plan_overwritten_by_something_else_is_still_checked_against_its_sidecar(tmp_path, inspected):
    path = write_plan(tmp_path / "model.trt")
    path.write_bytes(b"something else")
    assert "sha256 differs" in inspected(path)["problems"][0]


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "is not JSON"), ("[]", "not the sidecar"), ("{}", "lack"), ("\udcff", "is not JSON")]
)
def test_a_broken_sidecar_is_named_a_problem(tmp_path, inspected, text, problem):
    path = write_plan(tmp_path / "model.trt")
    sidecar_path(path).write_bytes(text.encode(errors="surrogateescape"))
    assert problem in inspected(path)["problems"][0]


def test_an_edited_sidecar_is_named_a_problem(tmp_path, inspected):
    path = write_plan(tmp_path / "model.trt")
    values = json.loads(sidecar_path(path).read_text())
    values["validation"][0]["threshold"]["value"] = 0.0
    sidecar_path(path).write_text(json.dumps(values))
    assert "was edited" in inspected(path)["problems"][0]


@pytest.mark.parametrize(
    ("head", "flavour", "version"),
    [
        (b"ftrt" + bytes(20) + bytes([10, 3, 0, 26]), "TensorRT", "10.3.0.26"),
        (b"vtrt" + bytes(20) + bytes([1, 7, 1, 116]), "TensorRT-RTX", "1.7.1.116"),
        (b"ftrt", "TensorRT", None),
    ],
    ids=["standard", "rtx", "cut off"],
)
def test_a_plan_without_a_sidecar_tells_flavour_and_version(tmp_path, inspected, head, flavour, version):
    (tmp_path / "foreign.engine").write_bytes(head)
    document = inspected(tmp_path / "foreign.engine")
    assert (document["facts"]["flavour"], document["facts"]["version"]) == (flavour, version)
    assert document["metadata"] is None
    assert "no foreign.engine.json beside it" in document["notes"][0]


def test_the_sidecar_itself_points_to_its_plan(tmp_path, run_cli):
    answer = run_cli("inspect", sidecar_path(write_plan(tmp_path / "model.trt")))
    assert (answer.code, answer.out) == (1, "")
    assert "belongs to model.trt; inspect that file" in answer.err


def test_a_file_of_scores_tells_who_wrote_it(tmp_path, inspected):
    frame = pl.DataFrame({"row": [0, 1, 2], "score": [0.1, 0.2, 0.3], "is_anomaly": [False, False, True]})
    frame = frame.cast({"score": pl.Float32})
    frame.write_parquet(tmp_path / "s.parquet", metadata={"at_infer.threshold": '{"value": 0.25}', "other": "x"})
    document = inspected(tmp_path / "s.parquet")
    assert document["kind"] == "scores"
    assert document["facts"]["rows"] == 3
    assert document["facts"]["columns"] == {"row": "Int64", "score": "Float32", "is_anomaly": "Boolean"}
    assert document["facts"]["properties"] == {"other": "x"}
    assert document["metadata"] == {"threshold": {"value": 0.25}}


def test_scores_without_metadata_and_plain_data_are_told_apart(tmp_path, inspected):
    pl.DataFrame({"score": [0.1], "is_anomaly": [True]}).write_parquet(tmp_path / "s.parquet")
    pl.DataFrame({"a": [0.1]}).write_parquet(tmp_path / "[d]*.parquet")
    assert inspected(tmp_path / "s.parquet")["notes"] == ["it does not say which model wrote it"]
    assert inspected(tmp_path / "[d]*.parquet")["kind"] == "parquet"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"hello, this is text", "is neither a checkpoint, an ONNX model, a TensorRT plan nor a Parquet"),
        ("model.onnx", b"\x08\x08", "is named like an ONNX model but is damaged or something else"),
        ("ckpt.pt", b"PK\x03\x04", "is named like a checkpoint but is damaged or something else"),
        ("model.trt", b"\0" * 64, "is named like a TensorRT plan but is damaged or something else"),
        ("data.parquet", b"PAR1 and no footer PAR", "cannot be read as Parquet"),
        ("empty.onnx", b"", "is empty"),
        ("other.json", b"{}", "is neither a checkpoint"),
    ],
)
def test_something_else_gets_one_clear_line(tmp_path, run_cli, name, content, message):
    (tmp_path / name).write_bytes(content)
    answer = run_cli("inspect", tmp_path / name)
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert answer.err.startswith(f"error: {tmp_path / name}: ")
    assert message in answer.err


def test_a_missing_file_and_a_folder_get_one_clear_line(tmp_path, run_cli):
    assert "no such file" in run_cli("inspect", tmp_path / "nowhere").err
    assert "is a folder" in run_cli("inspect", tmp_path).err


def test_a_zip_file_without_tensors_is_not_a_checkpoint(tmp_path, run_cli):
    with zipfile.ZipFile(tmp_path / "book.zip", "w") as archive:
        archive.writestr("chapter.txt", "text")
    assert "is neither a checkpoint" in run_cli("inspect", tmp_path / "book.zip").err


@pytest.mark.slow
def test_every_cut_of_an_onnx_file_is_recognised_as_damaged(tmp_path):
    content = write_onnx(tmp_path / "model.onnx", metadata().to_properties()).read_bytes()
    assert identify(tmp_path / "model.onnx") == "onnx"
    whole = [n for n in range(len(content)) if _opsets(tmp_path, content[:n]) is not None]
    # A cut between two fields after the graph leaves a shorter model, which is one nevertheless.
    assert all(onnx.ModelProto.FromString(content[:n]).HasField("graph") for n in whole)
    assert len(whole) < 30


def _opsets(folder: Path, content: bytes) -> dict[str, int] | None:
    (folder / "cut").write_bytes(content)
    with (folder / "cut").open("rb") as file:
        return onnx_opsets(file)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "none"),
        (None, "none"),
        (0.1 + 0.2, "0.3"),
        ([1, 2, 3], "1, 2, 3"),
        (list(range(100)), "0, 1, 2 ... 99 (100 in all)"),
        ([{"epoch": 1}], "1 entry"),
        ({"a": {"b": 1}, "c": [1, 2]}, "a (b 1), c (1, 2)"),
    ],
)
def test_values_are_shown_in_a_few_words(value, text):
    assert shorten(value) == text


def test_one_level_of_nesting_is_unfolded():
    report = Inspection(file="f", kind="k", what="w", facts={"bytes": 2_500_000}, metadata={"a": {"b": 1}, "c": "d"})
    assert list(rows(report)) == [("size", "2.5 MB (2500000 bytes)"), ("a.b", "1"), ("c", "d")]
