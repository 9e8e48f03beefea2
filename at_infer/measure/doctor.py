"""What this machine has and which commands will work on it. Nothing here fails because something is absent."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from at_infer import __version__
from at_infer.installed import GPU_RUNTIME, find_conflicts, install_extra, installed_version, runtime_packages
from at_infer.measure.machine import Cpu, Examined, Extra, Gpus, Machine, Tried, TriedCommand
from at_infer.threads import cpu_count

PROBE = Path(__file__).with_name("load_probe.py")
TIMEOUT_S = 60

CORE = ("numpy", "polars", "onnxruntime")
EXTRAS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {"torch": ("torch",)},
    "export": {"torch": ("torch",), "onnx": ("onnx",), "onnxscript": ("onnxscript",)},
    "tensorrt": {"tensorrt": ("tensorrt",), "cuda-bindings": ("cuda.bindings",)},
    "rtx": {"tensorrt-rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"), "cuda-bindings": ("cuda.bindings",)},
    "rtx-provider": {"onnxruntime-ep-nv-tensorrt-rtx": ("onnxruntime_ep_nv_tensorrt_rtx",)},
    "ray": {"ray": ("ray",)},
    "report": {"matplotlib": ("matplotlib",)},
    "openvino": {"openvino": ("openvino",)},
}
"""Packages of each extra, and the modules that show that a package is there."""
FLAVOURS = {"tensorrt": EXTRAS["tensorrt"]["tensorrt"], "rtx": EXTRAS["rtx"]["tensorrt-rtx"]}
PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rtx": "NvTensorRTRTXExecutionProvider",
}
"""By the name that `--provider` takes."""

FEATURES = {
    "avx2": {"avx2"},
    "avx512": {"avx512f"},
    "vnni": {"avx512_vnni", "avx_vnni"},
    "amx": {"amx_tile"},
}
ARM_FEATURES = {"neon": {"asimd", "neon"}, "dotprod": {"asimddp"}, "i8mm": {"i8mm"}, "bf16": {"bf16"}, "sve": {"sve"}}
"""What decides how fast matrix products are, and the kernel's names for it."""


def examine() -> Examined:
    """Everything, as JSON values. Takes a second or two: each runtime is loaded by a process of its own."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        core = {name: pool.submit(probe, "module", name) for name in CORE if name != "onnxruntime"}
        runtime = pool.submit(probe, "providers")
        gpu = pool.submit(find_gpu)
        flavours = {name: pool.submit(_flavour, modules) for name, modules in FLAVOURS.items()}
        onnxruntime = runtime.result()
        names = [name for name in onnxruntime.pop("providers", []) if name != "AzureExecutionProvider"]  # remote
        providers = dict(zip(names, pool.map(lambda name: probe("provider", name), names), strict=True))
        machine: Machine = {
            "at_infer": __version__,
            "python": {"version": platform.python_version(), "executable": sys.executable},
            "system": platform.platform(),
            "cpu": find_cpu(_read("/proc/cpuinfo")),
            "memory_gb": _memory_gb(),
            "gpu": gpu.result(),
            "core": {name: found.result() for name, found in core.items()} | {"onnxruntime": onnxruntime},
            "runtime_packages": runtime_packages(),
            "conflicts": find_conflicts(),
            "providers": providers,
            "tensorrt": {name: found.result() for name, found in flavours.items()},
            "extras": {extra: _extra(extra) for extra in EXTRAS},
        }
    return {**machine, "commands": commands(machine), "broken": broken(machine)}


def broken(machine: Machine) -> str | None:
    """What keeps at-infer from working at all, in one line."""
    for name, found in machine["core"].items():
        if not found["works"]:
            return f"{name} cannot be loaded ({found['reason']}); install at-infer again"
    absent: Tried = {"works": False, "reason": "not in this build"}
    cpu = machine["providers"].get(PROVIDERS["cpu"], absent)
    return None if cpu["works"] else f"ONNX Runtime does not run on this CPU ({cpu['reason']}); install at-infer again"


def commands(machine: Machine) -> list[TriedCommand]:
    """Which commands will work here, and what the others lack."""
    extras, tensorrt, gpu = machine["extras"], machine["tensorrt"], machine["gpu"]
    no_gpu = None if gpu["works"] else f"needs an NVIDIA GPU with its driver ({gpu['reason']})"
    no_bindings = None if extras["rtx"]["packages"]["cuda-bindings"] else f"needs cuda-bindings; {extras['rtx']['get']}"
    lacking = {name: _lacking(name, extras[name], found) for name, found in tensorrt.items()}
    if gpu["jetson"] and lacking["tensorrt"]:
        lacking["tensorrt"] = "comes with JetPack; make the environment with --system-site-packages"
    any_flavour = None if None in lacking.values() else " or ".join(str(reason) for reason in lacking.values())
    rows = {
        "generate": None,
        "train": _needs(extras["train"]),
        "export": _needs(extras["export"]),
        "export --engine rtx": _needs(extras["export"]) or lacking["rtx"],
        "export --engine tensorrt": _needs(extras["export"]) or no_gpu or lacking["tensorrt"],
        "score model.onnx": None,
        "score model.onnx --provider cuda": no_gpu or _provider(machine, "cuda"),
        "score model.onnx --provider tensorrt": no_gpu or _provider(machine, "tensorrt"),
        "score model.onnx --provider rtx": no_gpu or _provider(machine, "rtx"),
        "score model.trt": no_gpu or any_flavour or no_bindings,
    }
    return [{"command": name, "works": reason is None, "reason": reason} for name, reason in rows.items()]


def find_cpu(cpuinfo: str | None) -> Cpu:
    """Model, cores and instructions; `cpuinfo` is the text of /proc/cpuinfo, None where there is none."""
    facts: dict[str, str] = {}
    for line in (cpuinfo or "").splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip().lower(), value.strip())  # of the first processor
    model = facts.get("model name") or _device_tree() or platform.processor() or platform.machine()
    known = ARM_FEATURES if "features" in facts else FEATURES
    flags = set(facts.get("flags", facts.get("features", "")).split())
    usable = cpu_count()
    return {
        "model": model,
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "core_quota": _core_quota(_read("/sys/fs/cgroup/cpu.max")),
        "features": {name: bool(flags & names) for name, names in known.items()} if flags else None,
    }


def find_gpu() -> Gpus:
    """GPUs as the CUDA driver tells them."""
    found = probe("gpus")
    devices, reason = found.get("devices", []), found["reason"]
    if reason is not None and re.search("libcuda|nvcuda", reason):
        reason = "no CUDA driver here"
    elif found["works"] and not devices:
        reason = "the CUDA driver finds no GPU"
    return {
        "devices": devices,
        "works": found["works"] and bool(devices),
        "reason": reason,
        "driver": _driver_version(),
        "jetson": "jetson" in (_device_tree() or "").lower(),
    }


def probe(*arguments: str) -> Tried:
    """Load something in a separate process: `works`, `reason` if not, and the output of the process."""
    command = [sys.executable, "-P", str(PROBE), *arguments]  # -P: at_infer's files must not shadow packages
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=TIMEOUT_S,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return {"works": False, "reason": f"no answer within {TIMEOUT_S} s"}
    if done.returncode == 0:
        return cast("Tried", {"works": True, "reason": None, **json.loads(done.stdout.splitlines()[-1])})
    return {"works": False, "reason": explain(done.returncode, done.stderr)}


def explain(returncode: int, stderr: str) -> str:
    """Why a process failed, in a few words."""
    if returncode < 0:
        name = signal.Signals(-returncode).name
        return f"crashed with {name}" + (", this CPU lacks instructions it uses" if name == "SIGILL" else "")
    if missing := re.search(r"([\w.+-]+): cannot open shared object file", stderr):
        needs = re.search(r"Require (.+?)\. Please", stderr)
        return f"{missing[1]} is missing" + (f"; it needs {needs[1]}" if needs else "")
    lines = [line for line in stderr.splitlines() if line.strip()] or ["unknown"]
    return re.sub(r"^\w+(\.\w+)*(Error|Exception|Fail): ", "", lines[-1].strip())[:200]


def _flavour(modules: tuple[str, ...]) -> Tried:
    """A TensorRT that can really be loaded: bindings may be there without their libraries; and a plan made with it."""
    for module in modules:
        if _has(module):
            found = probe("module", module)
            if found["works"]:
                found["plan"] = probe("plan", module)
            return found
    return {"works": False, "reason": None, "version": None}


def _lacking(name: str, extra: Extra, found: Tried) -> str | None:
    if found["works"]:
        return None
    return f"{name} cannot be loaded ({found['reason']})" if found["reason"] else extra["get"]


def _needs(extra: Extra) -> str | None:
    return None if all(extra["packages"].values()) else extra["get"]


def _provider(machine: Machine, name: str) -> str | None:
    found = machine["providers"].get(PROVIDERS[name])
    if found is None and name == "rtx":
        return machine["extras"]["rtx-provider"]["get"]
    if found is None:
        return f"not in this build of ONNX Runtime; {GPU_RUNTIME}"
    return None if found["works"] else found["reason"]


def _extra(extra: str) -> Extra:
    """Versions of the packages of an extra, None for those that are absent."""
    packages = {package: _version(package, modules) for package, modules in EXTRAS[extra].items()}
    get = f"pip install {' '.join(packages)}" if extra == "openvino" else install_extra(extra)  # at-infer has none
    return {"installed": all(packages.values()), "packages": packages, "get": get}


def _version(package: str, modules: tuple[str, ...]) -> str | None:
    if not any(map(_has, modules)):
        return None
    names = _distributions()
    found = map(installed_version, [package, *(name for module in modules for name in names.get(module, ()))])
    return next(filter(None, found), "unknown version")


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _has(module: str) -> bool:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # its parent is absent
        return False
    return spec is not None and (spec.origin is not None or "." in module)  # a bare folder in the way is no package


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def _device_tree() -> str | None:
    """Name of an embedded board."""
    return (_read("/proc/device-tree/model") or "").strip("\0\n ") or None


def _driver_version() -> str | None:
    version = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", _read("/proc/driver/nvidia/version") or "")
    return version[1] if version else None


def _core_quota(cpu_max: str | None) -> float | None:
    """Cores that a container may use at a time, None for no limit."""
    quota, _, period = (cpu_max or "max").strip().partition(" ")
    return None if quota == "max" or not period else round(int(quota) / int(period), 2)


def _memory_gb() -> float | None:
    """Memory of the machine, or of the container if it has less."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    limit = (_read("/sys/fs/cgroup/memory.max") or "max").strip()
    return round(min(total, int(limit) if limit.isdigit() else total) / 2**30, 1)
