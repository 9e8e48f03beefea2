"""Model repositories for Triton, read back with Triton's own protobuf schema."""

import errno
import hashlib
import importlib.util
import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import onnx
import pytest
from google.protobuf import text_format
from onnx import TensorProto, helper

from at_infer.errors import ExportError, OutputError
from export.triton import ONNX_MODEL, PLAN_MODEL, write_repository
from tests.exported import FEATURES, WINDOW, metadata

SCORE_OUTPUTS = {"score": [WINDOW], "error": [WINDOW], "discrepancy": [WINDOW], "reconstruction": [WINDOW, FEATURES]}
ASSOCIATIONS = {"reconstruction": [WINDOW, FEATURES], "prior_0": [2, WINDOW, WINDOW], "sigma_0": [2, WINDOW]}


def write_onnx(path: Path, outputs: dict[str, list[int]], batch: str | int = "batch") -> Path:
    """A graph of the right names and shapes; its nodes do not matter here."""
    window = helper.make_tensor_value_info("window", TensorProto.FLOAT, [batch, WINDOW, FEATURES])
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *dims]) for name, dims in outputs.items()]
    nodes = [helper.make_node("Identity", ["window"], [name]) for name in outputs]
    onnx.save(helper.make_model(helper.make_graph(nodes, "graph", [window], made)), path)
    return path


@pytest.fixture
def onnx_path(tmp_path):
    return write_onnx(tmp_path / "model.onnx", SCORE_OUTPUTS)


@pytest.fixture
def plan_path(tmp_path):
    (tmp_path / "model.trt").write_bytes(b"ftrt" + bytes(60))
    return tmp_path / "model.trt"


@pytest.fixture(scope="module")
def schema():
    """Triton's ModelConfig; loaded from its file because the package around it wants grpcio."""
    path = str(files("tritonclient") / "grpc" / "model_config_pb2.py")
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def read(schema):
    def parse(model_folder: Path) -> Any:
        return text_format.Parse((model_folder / "config.pbtxt").read_text(), schema.ModelConfig())

    return parse


def test_both_backends_get_a_folder_with_version_1_of_the_model(tmp_path, onnx_path, plan_path):
    repository = tmp_path / "repository"
    written = write_repository(repository, onnx_path=onnx_path, plan_path=plan_path, metadata=metadata())
    assert written == [repository / "anomaly_transformer_onnx", repository / "anomaly_transformer_trt"]
    assert {str(path.relative_to(repository)) for path in repository.rglob("*") if path.is_file()} == {
        "anomaly_transformer_onnx/config.pbtxt",
        "anomaly_transformer_onnx/1/model.onnx",
        "anomaly_transformer_trt/config.pbtxt",
        "anomaly_transformer_trt/1/model.plan",
    }
    assert (repository / "anomaly_transformer_onnx/1/model.onnx").read_bytes() == onnx_path.read_bytes()
    assert (repository / "anomaly_transformer_trt/1/model.plan").read_bytes() == plan_path.read_bytes()


def test_every_configuration_fits_the_schema_and_names_its_folder_backend_and_file(
    tmp_path, onnx_path, plan_path, read
):
    folders = write_repository(tmp_path / "r", onnx_path=onnx_path, plan_path=plan_path, metadata=metadata())
    configs = [read(folder) for folder in folders]
    assert [config.name for config in configs] == [folder.name for folder in folders] == [ONNX_MODEL, PLAN_MODEL]
    assert [config.backend for config in configs] == ["onnxruntime", "tensorrt"]
    for folder, config in zip(folders, configs, strict=True):
        assert (folder / "1" / config.default_model_filename).is_file()


@pytest.mark.parametrize("outputs", [SCORE_OUTPUTS, {"score": [WINDOW]}, ASSOCIATIONS], ids=["all", "score", "assoc"])
def test_the_tensors_are_those_of_the_graph_without_the_batch(tmp_path, read, schema, outputs):
    path = write_onnx(tmp_path / "model.onnx", outputs)
    config = read(write_repository(tmp_path / "r", onnx_path=path, metadata=metadata())[0])
    assert [(t.name, list(t.dims)) for t in config.input] == [("window", [WINDOW, FEATURES])]
    assert {t.name: list(t.dims) for t in config.output} == outputs
    assert {t.data_type for t in [*config.input, *config.output]} == {schema.TYPE_FP32}


def test_batching_and_warm_up_follow_the_profile_of_the_plan(tmp_path, onnx_path, plan_path, read):
    folders = write_repository(
        tmp_path / "r", onnx_path=onnx_path, plan_path=plan_path, metadata=metadata(batch=[1, 16, 64])
    )
    for config in map(read, folders):
        assert config.max_batch_size == 64
        assert list(config.dynamic_batching.preferred_batch_size) == [16, 64]
        assert config.dynamic_batching.max_queue_delay_microseconds == 1000
        assert [warmup.batch_size for warmup in config.model_warmup] == [1, 16, 64]
        for warmup in config.model_warmup:
            assert warmup.inputs["window"].zero_data
            assert list(warmup.inputs["window"].dims) == [WINDOW, FEATURES]


def test_a_profile_of_one_size_is_not_listed_twice(tmp_path, onnx_path, read):
    config = read(write_repository(tmp_path / "r", onnx_path=onnx_path, metadata=metadata(batch=[1, 1, 1]))[0])
    assert list(config.dynamic_batching.preferred_batch_size) == [1]
    assert len(config.model_warmup) == 1


def test_the_onnx_file_runs_on_the_cpu(tmp_path, onnx_path, plan_path, read, schema):
    folders = write_repository(tmp_path / "r", onnx_path=onnx_path, plan_path=plan_path, metadata=metadata())
    kinds = [config.instance_group[0].kind for config in map(read, folders)]
    group = schema.ModelInstanceGroup
    assert kinds == [group.KIND_CPU, group.KIND_GPU]


def test_the_parameters_tell_columns_threshold_and_score_mode_whatever_the_columns_are_called(
    tmp_path, onnx_path, plan_path, read
):
    given = metadata(engine={"flavour": "tensorrt", "version": "10.9.0"}, batch=[1, 2, 4])
    for folder in write_repository(tmp_path / "r", onnx_path=onnx_path, plan_path=plan_path, metadata=given):
        parameters = {key: value.string_value for key, value in read(folder).parameters.items()}
        properties = given.to_properties()
        assert json.loads(parameters["at_infer.threshold"]) == given.validation_of().threshold.to_dict()
        assert parameters.items() - {("at_infer.threshold", parameters["at_infer.threshold"])} <= properties.items()
        assert {
            "at_infer.columns",
            "at_infer.threshold",
            "at_infer.score",
            "at_infer.engine",
        } <= parameters.keys()


def test_a_plan_of_tensorrt_rtx_is_refused_because_triton_cannot_load_it(tmp_path, onnx_path):
    (tmp_path / "rtx.trt").write_bytes(b"vtrt" + bytes(60))
    with pytest.raises(ExportError, match=r"rtx\.trt: is a plan of TensorRT-RTX.*engine='tensorrt'"):
        write_repository(
            tmp_path / "r", onnx_path=onnx_path, plan_path=tmp_path / "rtx.trt", metadata=metadata(batch=[1, 2, 4])
        )
    assert not (tmp_path / "r").exists()


def test_a_plan_built_from_another_graph_is_refused(tmp_path, onnx_path, plan_path):
    other = metadata(batch=[1, 2, 4], engine={"onnx_sha256": "0" * 64})
    with pytest.raises(ExportError, match=r"model\.trt: was not built from model\.onnx"):
        write_repository(tmp_path / "r", onnx_path=onnx_path, plan_path=plan_path, metadata=other)
    same = metadata(batch=[1, 2, 4], engine={"onnx_sha256": hashlib.sha256(onnx_path.read_bytes()).hexdigest()})
    assert len(write_repository(tmp_path / "r", onnx_path=onnx_path, plan_path=plan_path, metadata=same)) == 2


def test_a_profile_that_cannot_take_one_window_is_refused(tmp_path, onnx_path, plan_path):
    with pytest.raises(ExportError, match=r"at least 8 windows.*batch='1:16:32'"):
        write_repository(tmp_path / "r", onnx_path=onnx_path, plan_path=plan_path, metadata=metadata(batch=[8, 16, 32]))


def test_a_fixed_batch_is_refused(tmp_path):
    path = write_onnx(tmp_path / "fixed.onnx", SCORE_OUTPUTS, batch=4)
    with pytest.raises(ExportError, match="'window' has no dynamic batch dimension"):
        write_repository(tmp_path / "r", onnx_path=path, metadata=metadata())


@pytest.mark.parametrize("content", [b"no onnx", None])
def test_a_file_that_is_not_onnx_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ExportError, match=r"model\.onnx: cannot be read as ONNX"):
        write_repository(tmp_path / "r", onnx_path=tmp_path / "model.onnx", metadata=metadata())


def test_an_existing_repository_is_replaced_only_when_asked(tmp_path, onnx_path, plan_path):
    repository = tmp_path / "r"
    write_repository(repository, onnx_path=onnx_path, plan_path=plan_path, metadata=metadata())
    with pytest.raises(OutputError, match="overwrite=True"):
        write_repository(repository, onnx_path=onnx_path, metadata=metadata())
    write_repository(repository, onnx_path=onnx_path, metadata=metadata(), overwrite=True)
    assert [path.name for path in repository.iterdir()] == ["anomaly_transformer_onnx"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.trt", "r"]


def test_an_empty_folder_is_filled(tmp_path, onnx_path):
    (tmp_path / "r").mkdir()
    assert write_repository(tmp_path / "r", onnx_path=onnx_path, metadata=metadata())[0].is_dir()


def test_a_folder_with_anything_else_in_it_is_never_replaced(tmp_path, onnx_path):
    (tmp_path / "r" / "thesis").mkdir(parents=True)
    with pytest.raises(OutputError, match="holds 'thesis'"):
        write_repository(tmp_path / "r", onnx_path=onnx_path, metadata=metadata(), overwrite=True)
    assert (tmp_path / "r" / "thesis").is_dir()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, onnx_path):
    with pytest.raises(OutputError, match="is a file"):
        write_repository(onnx_path, onnx_path=onnx_path, metadata=metadata(), overwrite=True)


def test_a_full_disk_leaves_the_old_repository_and_nothing_else(tmp_path, onnx_path, plan_path, monkeypatch):
    repository = tmp_path / "r"
    write_repository(repository, onnx_path=onnx_path, metadata=metadata())
    copyfile = shutil.copyfile

    def full(source: Path, target: Path) -> None:
        if source == plan_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        copyfile(source, target)

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OutputError, match=r"could not be written \(No space left on device\)"):
        write_repository(
            repository, onnx_path=onnx_path, plan_path=plan_path, metadata=metadata(batch=[1, 2, 4]), overwrite=True
        )
    assert [path.name for path in repository.iterdir()] == ["anomaly_transformer_onnx"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.trt", "r"]
