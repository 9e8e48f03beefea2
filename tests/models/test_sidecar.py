"""What the file beside a plan protects from."""

import hashlib
import json
from dataclasses import replace

import pytest

from at_infer.errors import EngineError
from at_infer.models.sidecar import (
    SEAL,
    check_compute_capability,
    check_version,
    load_sidecar,
    runtime_cache_path,
    runtime_caches,
    seal,
    sidecar_path,
)
from tests.exported import metadata

PLAN = b"vtrt and so on"
FACTS = {
    "flavour": "rtx",
    "version": "1.7.1.116",
    "compute_capabilities": [86, 89],
    "plan_sha256": hashlib.sha256(PLAN).hexdigest(),
    "onnx_sha256": "0" * 64,
    "inputs": [{"name": "window", "shape": [-1, 8, 3], "dtype": "float"}],
    "outputs": [{"name": "score", "shape": [-1, 8], "dtype": "float"}],
}


@pytest.fixture
def plan_path(tmp_path):
    path = tmp_path / "model.trt"
    path.write_bytes(PLAN)
    return path


@pytest.fixture
def sealed(plan_path):
    sealed = seal(metadata(batch=[1, 4, 8], engine=FACTS))
    sidecar_path(plan_path).write_text(json.dumps(sealed.to_dict()))
    return sealed


def edit(plan_path, change):
    path = sidecar_path(plan_path)
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_files_beside_a_plan_carry_its_whole_name(tmp_path):
    assert sidecar_path(tmp_path / "model.trt").name == "model.trt.json"
    cache = runtime_cache_path(tmp_path / "model.trt", "NVIDIA GeForce RTX 4090", "1.7.1.116")
    assert cache.name == "model.trt.nvidia-geforce-rtx-4090.1.7.1.116.cache"
    assert runtime_cache_path(tmp_path / "model.trt", "../x", "1").parent == tmp_path


def test_only_the_caches_of_a_plan_are_its_own(tmp_path):
    names = ["model.trt.gpu.1.cache", "model.trt.other.2.cache", "model.trt.json", "other.trt.gpu.1.cache"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in runtime_caches(tmp_path / "model.trt")] == names[:2]
    assert runtime_caches(tmp_path / "absent" / "model.trt") == []


def test_a_sidecar_gives_back_what_was_written(plan_path, sealed):
    assert load_sidecar(plan_path) == sealed
    assert load_sidecar(plan_path, PLAN) == sealed


def test_reformatting_the_sidecar_is_no_edit(plan_path, sealed):
    path = sidecar_path(plan_path)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4, sort_keys=True))
    assert load_sidecar(plan_path) == sealed


def test_a_plan_without_sidecar_has_no_metadata(plan_path):
    assert load_sidecar(plan_path) is None


def test_a_missing_plan_is_told(tmp_path):
    with pytest.raises(EngineError, match=r"model\.trt: no such file"):
        load_sidecar(tmp_path / "model.trt")


def test_a_sidecar_without_its_plan_is_told(plan_path, sealed):
    plan_path.unlink()
    with pytest.raises(EngineError, match=r"model\.trt: no such file"):
        load_sidecar(plan_path)


@pytest.mark.parametrize("content", [b"", b"not json", b"{", b"\xff\xfe\x00", b"[1, 2]", b"null"])
def test_a_sidecar_that_is_no_sidecar_is_told(plan_path, content):
    sidecar_path(plan_path).write_bytes(content)
    with pytest.raises(EngineError, match=r"model\.trt\.json: is not (JSON|the sidecar).*export the model again"):
        load_sidecar(plan_path)


def test_a_swapped_plan_is_refused(plan_path, sealed):
    plan_path.write_bytes(PLAN + b"!")
    with pytest.raises(EngineError, match=r"model\.trt: is not the plan that model\.trt\.json describes"):
        load_sidecar(plan_path)


def test_bytes_about_to_be_loaded_are_the_ones_checked(plan_path, sealed):
    with pytest.raises(EngineError, match="sha256 differs"):
        load_sidecar(plan_path, b"something else")


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["columns"].reverse(),
        lambda values: values["validation"][0]["threshold"].update(value=0.5),
        lambda values: values["engine"].update(compute_capabilities=[120]),
        lambda values: values["engine"].update({SEAL: "0" * 64}),
        lambda values: values.update(comment="mine"),
    ],
)
def test_an_edit_is_noticed(plan_path, sealed, change):
    edit(plan_path, change)
    with pytest.raises(EngineError, match=r"model\.trt\.json: was edited after the export"):
        load_sidecar(plan_path)


def test_a_plan_swapped_together_with_its_sha_is_noticed_as_an_edit(plan_path, sealed):
    plan_path.write_bytes(b"vtrt of another")
    edit(plan_path, lambda v: v["engine"].update(plan_sha256=hashlib.sha256(b"vtrt of another").hexdigest()))
    with pytest.raises(EngineError, match="was edited"):
        load_sidecar(plan_path)


@pytest.mark.parametrize("field", ["columns", "scaler", "engine"])
def test_a_removed_field_is_named(plan_path, sealed, field):
    edit(plan_path, lambda values: values.pop(field))
    with pytest.raises(EngineError, match=field):
        load_sidecar(plan_path)


@pytest.mark.parametrize("field", [*FACTS, SEAL])
def test_a_damaged_engine_fact_is_named(plan_path, sealed, field):
    edit(plan_path, lambda values: values["engine"].update({field: None}))
    with pytest.raises(EngineError, match=rf"engine facts are damaged \({field}\)"):
        load_sidecar(plan_path)


@pytest.mark.parametrize("facts", [None, [], "rtx"])
def test_metadata_of_something_else_than_a_plan_are_refused(plan_path, sealed, facts):
    edit(plan_path, lambda values: values.update(engine=facts))
    with pytest.raises(EngineError, match=r"describes no plan|metadata are damaged \(engine"):
        load_sidecar(plan_path)


def test_an_unknown_flavour_is_damage(plan_path, sealed):
    edit(plan_path, lambda values: values["engine"].update(flavour="openvino"))
    with pytest.raises(EngineError, match=r"damaged \(flavour\)"):
        load_sidecar(plan_path)


def test_a_sidecar_of_a_newer_format_asks_for_an_upgrade(plan_path, sealed):
    edit(plan_path, lambda values: values.update(format=99))
    with pytest.raises(EngineError, match="upgrade at-infer"):
        load_sidecar(plan_path)


def test_another_version_of_the_runtime_is_refused(plan_path, sealed):
    check_version(sealed, "1.7.1.116", plan_path)
    with pytest.raises(EngineError, match=r"built by TensorRT-RTX 1\.7\.1\.116, installed is 1\.8\.0\.1; install that"):
        check_version(sealed, "1.8.0.1", plan_path)


@pytest.mark.parametrize(("installed", "runs"), [("10.9.0", False), ("10.16.1.11", True), ("11.4.0.106", True)])
def test_a_portable_plan_runs_on_later_versions_and_not_on_earlier_ones(plan_path, sealed, installed, runs):
    portable = replace(sealed, engine=sealed.engine | {"portable": True, "version": "10.13.3.9"})
    if runs:
        check_version(portable, installed, plan_path)
    else:
        with pytest.raises(EngineError, match="install that version"):
            check_version(portable, installed, plan_path)


def test_a_portable_plan_runs_on_every_gpu_from_ampere_on(plan_path, sealed):
    portable = replace(sealed, engine=sealed.engine | {"portable": True})
    check_compute_capability(portable, 120, plan_path)
    with pytest.raises(EngineError, match="this GPU has 75"):
        check_compute_capability(portable, 75, plan_path)


def test_another_gpu_architecture_is_refused(plan_path, sealed):
    check_compute_capability(sealed, 89, plan_path)
    with pytest.raises(
        EngineError, match=r"built for compute capability 86, 89, this GPU has 120; run at-infer export .* 120$"
    ):
        check_compute_capability(sealed, 120, plan_path)
