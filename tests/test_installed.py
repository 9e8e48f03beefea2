"""How at-infer is installed: hints that work, and packages that are in each other's way."""

import json
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from at_infer import installed
from at_infer.errors import AtInferError, MissingExtraError
from at_infer.installed import check_one_runtime, check_own_packages, find_conflicts, install_extra, load_extra

ROOT = Path(__file__).parents[1]


class Distribution:
    """An installed at-infer with, or without, a record of where it came from."""

    def __init__(self, origin: dict[str, Any] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'at-infer[rtx]'"),
        (
            {"url": "https://host/at_infer.whl", "archive_info": {}},
            "pip install 'at-infer[rtx] @ https://host/at_infer.whl'",
        ),
        ({"url": "file:///home/me/at_infer.whl", "archive_info": {}}, "pip install '/home/me/at_infer.whl[rtx]'"),
        (
            {"url": "https://host/me/at-infer", "vcs_info": {"vcs": "git", "commit_id": "1234"}},
            "pip install 'at-infer[rtx] @ git+https://host/me/at-infer@1234'",
        ),
        ({"url": "file:///home/me/a%20b", "dir_info": {}}, "pip install '/home/me/a b[rtx]'"),
        ({"url": "file:///home/me/clone", "dir_info": {"editable": True}}, "pip install -e '/home/me/clone[rtx]'"),
    ],
    ids=["index", "wheel of a server", "wheel", "repository", "folder", "editable clone"],
)
def test_a_hint_names_where_at_infer_came_from(monkeypatch, origin, command):
    monkeypatch.setattr(metadata, "distribution", lambda _: Distribution(origin))
    assert install_extra("rtx") == command


def test_a_clone_that_was_never_installed_names_itself(monkeypatch):
    def absent(_: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", absent)
    assert shlex.split(install_extra("train", "rtx")) == ["pip", "install", "-e", f"{ROOT}[train,rtx]"]


def test_the_packages_of_this_project_are_its_own():
    check_own_packages()


@pytest.mark.parametrize("name", ["training", "export"])
@pytest.mark.parametrize("kind", ["package", "file"])
def test_a_foreign_package_of_that_name_is_one_line(tmp_path, name, kind):
    foreign = tmp_path / (f"{name}.py" if kind == "file" else f"{name}/__init__.py")
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("raise SystemExit('the foreign code ran')")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; "
        "from at_infer.installed import check_own_packages; check_own_packages()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    *_, last = done.stderr.splitlines()
    assert last.endswith(
        f"{name}: {foreign} is found instead of at-infer's own package {name!r}; rename it, run from another folder, "
        "or take its folder out of PYTHONPATH"
    )


@pytest.mark.slow
def test_a_command_with_a_foreign_package_is_one_line(tmp_path, models):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text("")
    checkpoint = tmp_path / "ckpt.pt"
    checkpoint.write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "at_infer", "export", str(checkpoint)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: training: {tmp_path}/training/__init__.py is found instead")
    assert done.stderr.count("\n") == 1


def test_a_missing_part_is_named(monkeypatch):
    monkeypatch.setattr(installed, "OWN", ("no_such_part",))
    with pytest.raises(AtInferError, match="no_such_part: at-infer's own package 'no_such_part' is missing"):
        check_own_packages()


@pytest.mark.parametrize(("extra", "absent", "named"), [("train", "torch", "PyTorch"), ("export", "onnx", "onnx")])
def test_a_missing_package_of_an_extra_is_one_line(monkeypatch, extra, absent, named):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError) as caught:
        load_extra(extra, "ckpt.pt")
    assert str(caught.value) == f"ckpt.pt: needs {named}, which is not installed; {install_extra(extra)}"


def have(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(installed, "installed_version", lambda name: "1.31.1" if name in packages else None)


def test_one_runtime_is_no_conflict(monkeypatch):
    have(monkeypatch, "onnxruntime", "tensorrt-rtx-cu12-libs", "tensorrt-rtx-cu12-bindings")
    assert find_conflicts() == []
    check_one_runtime("cuda")


def test_two_runtimes_in_one_folder_are_a_conflict(monkeypatch):
    have(monkeypatch, "onnxruntime", "onnxruntime-gpu")
    (line,) = find_conflicts()
    assert line.startswith("onnxruntime and onnxruntime-gpu are both installed")
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in line
    with pytest.raises(AtInferError, match="cuda: onnxruntime and onnxruntime-gpu are both installed"):
        check_one_runtime("cuda")


def test_two_builds_of_tensorrt_rtx_are_a_conflict(monkeypatch):
    have(monkeypatch, "tensorrt-rtx-cu12-libs", "tensorrt-rtx-cu13-libs")
    (line,) = find_conflicts()
    assert "tensorrt-rtx-cu12-libs tensorrt-rtx-cu13-libs share their modules" in line


def test_a_plugin_of_the_cpu_wheel_beside_the_gpu_wheel_is_a_conflict(monkeypatch):
    have(monkeypatch, "onnxruntime-gpu", "onnxruntime-ep-nv-tensorrt-rtx-cu12")
    (line,) = find_conflicts()
    assert "is a plugin of onnxruntime, not of onnxruntime-gpu" in line
