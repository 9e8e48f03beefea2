"""How at-infer is installed: the command that adds an extra, and packages that are in each other's way.

Every command imports this; what it needs is imported inside.
"""

from collections.abc import Mapping
from pathlib import Path

from at_infer.errors import AtInferError, MissingExtraError

ROOT = Path(__file__).resolve().parents[1]
"""Where `at_infer`, `training` and `export` stand side by side: a clone, or site-packages."""
OWN = ("training", "export")
RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-rocm")
"""Packages that are all imported as `onnxruntime`, from one folder."""
PLUGINS = ("onnxruntime-ep-nv-tensorrt-rtx-cu12", "onnxruntime-ep-nv-tensorrt-rtx-cu13")
LEARNING = {"train": ("torch",), "export": ("onnx", "onnxscript", "torch")}
"""Packages that extras bring for `training` and `export`."""
GPU_RUNTIME = "pip uninstall -y onnxruntime && pip install onnxruntime-gpu"


def install_extra(*extras: str) -> str:
    """The command that adds extras, by the way at-infer came here: an index, a file, a repository or a clone."""
    import json
    import shlex
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(metadata.distribution("at-infer").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {"url": ROOT.as_uri(), "dir_info": {"editable": True}}  # run from a clone, never installed
    wanted = f"[{','.join(extras)}]"
    if "url" not in origin:
        return f"pip install 'at-infer{wanted}'"
    address = urlsplit(origin["url"])
    if address.scheme == "file" and "vcs_info" not in origin:
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(unquote(address.path) + wanted)}"
    where = origin["url"]
    if (vcs := origin.get("vcs_info")) is not None:
        where = f"{vcs['vcs']}+{where}@{vcs['commit_id']}"
    return f"pip install {shlex.quote(f'at-infer{wanted} @ {where}')}"


def load_extra(extra: str, what: str) -> None:
    """Import the packages of an extra that train and export models, or say that `what` needs them."""
    from importlib import import_module

    from at_infer.threads import let_threads_sleep

    let_threads_sleep()
    for package in LEARNING[extra]:
        try:
            import_module(package)
        except ImportError as error:
            name = {"torch": "PyTorch"}.get(str(error.name), error.name)
            raise MissingExtraError(f"{what}: needs {name}, which is not installed; {install_extra(extra)}") from None
    check_own_packages()


def check_own_packages() -> None:
    """`training` and `export` are common names: another package, or a file beside a script, may be found first."""
    from importlib.util import find_spec

    for name in OWN:
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found == ROOT / name / "__init__.py":
            continue
        if found is None:
            raise AtInferError(f"{name}: at-infer's own package {name!r} is missing; install at-infer again")
        raise AtInferError(
            f"{name}: {found} is found instead of at-infer's own package {name!r}; rename it, run from another folder, "
            "or take its folder out of PYTHONPATH"
        )


def runtime_packages() -> dict[str, str]:
    """Installed packages that provide the module `onnxruntime`, with their versions."""
    return {name: version for name in RUNTIMES if (version := installed_version(name)) is not None}


def find_conflicts(runtimes: Mapping[str, str] | None = None) -> list[str]:
    """Installed packages that overwrite or exclude each other, a line each with what to do."""
    runtimes = runtime_packages() if runtimes is None else runtimes
    found = []
    if len(runtimes) > 1:
        names = " ".join(runtimes)
        found.append(
            f"{' and '.join(runtimes)} are both installed, and one has overwritten files of the other; "
            f"pip uninstall -y {names}, then pip install onnxruntime for CPUs or onnxruntime-gpu for CUDA"
        )
    plugin = next((name for name in PLUGINS if installed_version(name)), None)
    if plugin is not None and "onnxruntime-gpu" in runtimes:
        found.append(f"{plugin} is a plugin of onnxruntime, not of onnxruntime-gpu; pip uninstall -y one of them")
    for kind in ("libs", "bindings"):
        if all(installed_version(f"tensorrt-rtx-{cuda}-{kind}") for cuda in ("cu12", "cu13")):
            both = f"tensorrt-rtx-cu12-{kind} tensorrt-rtx-cu13-{kind}"
            found.append(f"{both} share their modules; pip uninstall -y {both}, then {install_extra('rtx')}")
    return found


def check_one_runtime(provider: str) -> None:
    """Before a GPU is asked for: of two ONNX Runtimes in one folder, the CPU's may have won."""
    runtimes = runtime_packages()
    if len(runtimes) > 1:
        raise AtInferError(f"{provider}: {find_conflicts(runtimes)[0]}")


def installed_version(package: str) -> str | None:
    """None if it is absent."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
