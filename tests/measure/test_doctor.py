"""`at-infer doctor`: what it says of this machine, and of machines it is told about."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import onnx
import onnxruntime
import pytest

from at_infer.measure import doctor as machine
from at_infer.measure import load_probe
from at_infer.measure.doctor import broken, commands, examine, explain, find_cpu, probe

X86 = """processor : 0
model name : Intel(R) Xeon(R) Platinum 8480+
flags : fpu sse avx2 avx512f avx512_vnni amx_tile amx_int8

processor : 1
model name : another
flags : fpu
"""
ARM = "processor : 0\nFeatures : fp asimd asimddp i8mm\nCPU part : 0xd42\n"
RTX_4090 = {"name": "NVIDIA GeForce RTX 4090", "memory_gb": 24.0, "compute_capability": "8.9"}


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return examine()


def with_gpu(here: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """This machine with a GPU, CUDA and TensorRT."""
    fine = {"works": True, "reason": None, "version": "10.9"}
    return here | {
        "gpu": {"works": True, "reason": None, "devices": [RTX_4090], "driver": "570.86", "jetson": False},
        "providers": dict.fromkeys(machine.PROVIDERS.values(), fine),
        "tensorrt": {"tensorrt": fine, "rtx": fine},
        "extras": {
            name: {"installed": True, "packages": dict.fromkeys(packages, "1.0"), "get": f"pip install {name}"}
            for name, packages in machine.EXTRAS.items()
        },
        **changes,
    }


def reasons(found: dict[str, Any]) -> dict[str, str | None]:
    return {row["command"]: row["reason"] for row in commands(found)}


@pytest.mark.slow
def test_it_knows_the_runtimes_that_are_installed(here):
    assert here["core"]["onnxruntime"] == {"works": True, "reason": None, "version": onnxruntime.__version__}
    assert here["core"]["polars"]["works"]
    assert here["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert here["extras"]["export"]["packages"]["onnx"] == onnx.__version__
    assert here["extras"]["export"]["installed"]
    assert here["broken"] is None


def test_every_provider_that_onnx_runtime_lists_was_tried(here):
    assert here["providers"].keys() == set(onnxruntime.get_available_providers()) - {"AzureExecutionProvider"}
    assert here["providers"]["CPUExecutionProvider"]["works"]


def test_a_provider_works_exactly_where_a_session_without_fall_back_does(here):
    for name, found in here["providers"].items():
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(load_probe.MODEL, options, providers=[name], enable_fallback=False)
            works = session.get_providers()[0] == name
        except Exception:
            works = False
        assert found["works"] == works
        assert found["works"] or found["reason"]


def test_the_probe_model_is_valid_onnx():
    onnx.checker.check_model(onnx.load_from_string(load_probe.MODEL), full_check=True)


def test_an_answer_that_differs_from_the_cpu_is_an_error():
    (right,) = onnxruntime.InferenceSession(load_probe.MODEL, providers=[load_probe.CPU]).run(
        None, {"x": load_probe.question()}
    )
    assert load_probe.compare(right) == {"difference": 0.0}
    with pytest.raises(RuntimeError, match=r"computes something else than the CPU: differs by 0\.1"):
        load_probe.compare(right + 0.1)
    with pytest.raises(RuntimeError, match="differs by nan"):
        load_probe.compare(right * float("nan"))


@pytest.mark.tensorrt
def test_a_flavour_that_loads_builds_a_plan_of_the_small_model(here):
    found = here["tensorrt"]["rtx"]
    assert found["works"]
    assert found["plan"]["built"]
    assert found["plan"]["ran"] == here["gpu"]["works"]


@pytest.mark.gpu
def test_a_plan_of_the_small_model_computes_what_the_cpu_does(here):
    for found in here["tensorrt"].values():
        if found["works"]:
            assert found["plan"]["ran"]
            assert found["plan"]["difference"] <= load_probe.TOLERANCE


def test_packages_in_each_others_way_are_listed(run_cli, monkeypatch, here):
    monkeypatch.setenv("COLUMNS", "200")
    both = {"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}
    line = "onnxruntime and onnxruntime-gpu are both installed"
    monkeypatch.setattr(machine, "examine", lambda: here | {"runtime_packages": both, "conflicts": [line]})
    answer = run_cli("doctor")
    assert answer.code == 0
    assert f"Conflicts\n{line}" in "\n".join(row.rstrip() for row in answer.out.splitlines())
    assert "onnxruntime 1.31.1 and onnxruntime-gpu 1.31.1" in answer.out


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"works": True, "reason": None, "ran": False}, "1.7; builds a plan (not run: no GPU)"),
        ({"works": True, "reason": None, "ran": True, "difference": 1e-4}, "runs one like the CPU (within 0.0001)"),
        ({"works": False, "reason": "builds no plan"}, "1.7; a small plan fails: builds no plan"),
    ],
)
def test_what_became_of_a_small_plan_is_told(run_cli, monkeypatch, here, plan, words):
    monkeypatch.setenv("COLUMNS", "200")
    flavour = {"works": True, "reason": None, "version": "1.7", "plan": plan}
    monkeypatch.setattr(machine, "examine", lambda: here | {"tensorrt": {"tensorrt": flavour, "rtx": flavour}})
    assert words in run_cli("doctor").out


@pytest.mark.slow
def test_the_command_prints_one_json_document_and_nothing_else(run_cli):
    answer = run_cli("doctor", "--json")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert {"cpu", "gpu", "providers", "tensorrt", "extras", "commands"} <= document.keys()


def test_the_command_prints_a_table_with_extras_in_brackets(run_cli, monkeypatch, here):
    monkeypatch.setenv("COLUMNS", "200")
    lacking = {"installed": False, "packages": {"ray": None}, "get": "pip install 'at-infer[ray]'"}
    monkeypatch.setattr(machine, "examine", lambda: here | {"extras": here["extras"] | {"ray": lacking}})
    answer = run_cli("doctor")
    assert (answer.code, answer.err) == (0, "")
    assert "CPUExecutionProvider" in answer.out
    assert "pip install 'at-infer[ray]'" in answer.out


def test_only_commands_that_exist_are_listed(run_cli, monkeypatch, here):
    rows = [{"command": name, "works": True, "reason": None} for name in ("train", "inspect x", "levitate --high")]
    monkeypatch.setattr(machine, "examine", lambda: here | {"commands": rows})
    assert [row["command"] for row in json.loads(run_cli("doctor", "--json").out)["commands"]] == ["train", "inspect x"]


def test_a_broken_core_is_an_error_after_the_report(run_cli, monkeypatch, here):
    monkeypatch.setattr(machine, "examine", lambda: here | {"broken": "polars cannot be loaded (crashed)"})
    answer = run_cli("doctor", "--json")
    assert answer.code == 1
    assert json.loads(answer.out)["broken"]
    assert answer.err == "error: doctor: polars cannot be loaded (crashed)\n"


@pytest.mark.slow
def test_it_loads_nothing_heavy_itself():
    code = (
        "import sys\nfrom at_infer.cli import app\ntry:\n    app(['doctor', '--json'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'polars', 'onnxruntime', 'torch', 'onnx', 'tensorrt_rtx_bindings'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_with_a_gpu_and_everything_installed_every_command_works(here):
    assert set(reasons(with_gpu(here)).values()) == {None}


def test_without_a_gpu_only_what_needs_one_does_not_work(here):
    no_gpu = {"works": False, "reason": "no CUDA driver here", "devices": [], "driver": None, "jetson": False}
    failing = {name for name, reason in reasons(with_gpu(here, gpu=no_gpu)).items() if reason}
    assert failing == {
        "export --engine tensorrt",
        "score model.onnx --provider cuda",
        "score model.onnx --provider tensorrt",
        "score model.onnx --provider rtx",
        "score model.trt",
    }


def test_a_missing_extra_says_how_to_get_it(here):
    found = with_gpu(here)
    found["extras"]["train"]["packages"]["torch"] = None
    assert reasons(found)["train"] == "pip install train"
    assert reasons(found)["export"] is None


def test_either_tensorrt_runs_a_plan(here):
    absent = {"works": False, "reason": None, "version": None}
    fine = {"works": True, "reason": None, "version": "1"}
    assert reasons(with_gpu(here, tensorrt={"tensorrt": absent, "rtx": fine}))["score model.trt"] is None
    neither = reasons(with_gpu(here, tensorrt={"tensorrt": absent, "rtx": absent}))
    assert neither["score model.trt"] == "pip install tensorrt or pip install rtx"


def test_a_tensorrt_that_does_not_load_tells_why(here):
    half = {"works": False, "reason": "libnvinfer.so.10 is missing"}
    found = with_gpu(here, tensorrt={"tensorrt": half, "rtx": half})
    assert "libnvinfer.so.10 is missing" in str(reasons(found)["export --engine tensorrt"])


def test_on_a_jetson_tensorrt_comes_with_jetpack(here):
    absent = {"works": False, "reason": None, "version": None}
    found = with_gpu(here, tensorrt={"tensorrt": absent, "rtx": absent})
    found["gpu"] |= {"jetson": True}
    assert "JetPack" in str(reasons(found)["export --engine tensorrt"])


def test_a_build_of_onnx_runtime_without_cuda_says_so(here):
    found = with_gpu(here)
    del found["providers"]["CUDAExecutionProvider"]
    assert "not in this build" in str(reasons(found)["score model.onnx --provider cuda"])


def test_the_plugin_of_tensorrt_rtx_is_an_extra(here):
    found = with_gpu(here)
    del found["providers"]["NvTensorRTRTXExecutionProvider"]
    assert reasons(found)["score model.onnx --provider rtx"] == "pip install rtx-provider"


def test_a_core_package_that_crashes_is_named(here):
    crash = {"works": False, "reason": "crashed with SIGILL"}
    assert "polars cannot be loaded (crashed with SIGILL)" in str(broken(here | {"core": {"polars": crash}}))
    assert "does not run on this CPU" in str(broken(here | {"providers": {}}))


@pytest.mark.parametrize(
    ("cpuinfo", "features"),
    [
        (X86, {"avx2": True, "avx512": True, "vnni": True, "amx": True}),
        ("model name : old\nflags : fpu sse2\n", {"avx2": False, "avx512": False, "vnni": False, "amx": False}),
        (ARM, {"neon": True, "dotprod": True, "i8mm": True, "bf16": False, "sve": False}),
        (None, None),
    ],
    ids=["x86", "old x86", "arm", "no /proc"],
)
def test_cpu_features_come_from_the_first_processor(cpuinfo, features):
    assert find_cpu(cpuinfo)["features"] == features


def test_the_cpu_has_a_name_even_where_the_kernel_tells_none():
    assert find_cpu(X86)["model"] == "Intel(R) Xeon(R) Platinum 8480+"
    assert find_cpu(None)["model"]


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", None), ("150000 100000\n", 1.5), (None, None), ("", None)]
)
def test_the_core_quota_of_a_container_is_read(text, cores):
    assert machine._core_quota(text) == cores


def test_a_process_that_crashes_is_only_a_reason(monkeypatch, tmp_path):
    crash = tmp_path / "crash.py"
    crash.write_text(f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    monkeypatch.setattr(machine, "PROBE", crash)
    assert probe("module", "x") == {"works": False, "reason": "crashed with SIGSEGV"}


def test_a_process_that_hangs_is_only_a_reason(monkeypatch, tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(machine, "PROBE", slow)
    monkeypatch.setattr(machine, "TIMEOUT_S", 0.5)
    assert probe("module", "x") == {"works": False, "reason": "no answer within 0.5 s"}


def test_a_module_that_is_not_there_is_only_a_reason():
    assert probe("module", "no_such_module") == {"works": False, "reason": "No module named 'no_such_module'"}


def test_a_missing_library_is_named():
    stderr = (
        "[E:onnxruntime] Failed to load library /x/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: "
        "cannot open shared object file: No such file\n[W] Failed to create CUDAExecutionProvider. Require cuDNN 9.* "
        "and CUDA 13.*. Please install all dependencies\nTraceback\nFail: fallback to CPU EP has been disabled\n"
    )
    assert explain(1, stderr) == "libcublasLt.so.13 is missing; it needs cuDNN 9.* and CUDA 13.*"
    assert explain(1, "Traceback\nRuntimeError: CUDA error 100 in cuInit\n") == "CUDA error 100 in cuInit"
    assert explain(1, "") == "unknown"
    assert "lacks instructions" in explain(-signal.SIGILL, "")


class FakeDriver:
    """libcuda with two GPUs, or with an error."""

    def __init__(self, error: int = 0) -> None:
        self.error = error

    def cuInit(self, _: int) -> int:  # noqa: N802
        return self.error

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def cuDeviceGetName(self, name: Any, _: int, device: int) -> int:  # noqa: N802
        name.value = f"GPU {device}".encode()
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, _: int) -> int:  # noqa: N802
        memory._obj.value = 24 << 30
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, _: int) -> int:  # noqa: N802
        value._obj.value = {75: 8, 76: 9}[attribute]
        return 0


def test_gpus_are_told_by_the_driver():
    expected = {"memory_gb": 24.0, "compute_capability": "8.9"}
    assert load_probe.list_gpus(FakeDriver())["devices"] == [{"name": f"GPU {i}", **expected} for i in range(2)]


def test_a_driver_that_does_not_start_is_an_error_with_its_code():
    with pytest.raises(RuntimeError, match="CUDA error 100 in cuInit"):
        load_probe.list_gpus(FakeDriver(error=100))


def test_the_probe_answers_every_question_without_crashing_the_caller(here):
    assert probe("providers")["providers"]
    assert isinstance(probe("gpus")["works"], bool)


@pytest.mark.parametrize("found", [{"devices": []}, {"devices": [RTX_4090]}], ids=["no GPU", "a GPU"])
def test_a_driver_without_a_gpu_is_no_gpu(monkeypatch, found):
    monkeypatch.setattr(machine, "probe", lambda *_: {"works": True, "reason": None} | found)
    gpu = machine.find_gpu()
    assert gpu["works"] == bool(found["devices"])
    assert gpu["works"] or gpu["reason"] == "the CUDA driver finds no GPU"


def test_a_folder_that_is_named_like_a_package_is_not_one(tmp_path, monkeypatch):
    (tmp_path / "ray_of_light").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not machine._has("ray_of_light")
    assert machine._has("os")
    assert not machine._has("ray_of_light.inside")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24\n", "535.161.08"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.3.0  Release Build\n", "540.3.0"),
        (None, None),
    ],
)
def test_the_driver_version_is_read_from_the_kernel(monkeypatch, text, version):
    monkeypatch.setattr(machine, "_read", lambda _: text)
    assert machine._driver_version() == version


def test_memory_is_that_of_the_container_if_it_has_less(monkeypatch):
    assert machine._memory_gb() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 + 0.1
    monkeypatch.setattr(machine, "_read", lambda _: f"{2**29}\n")
    assert machine._memory_gb() == 0.5
