"""What is installed, and what importing it loads."""

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import at_infer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, cwd="/")
    return done.stdout.strip()


def test_the_version_is_stated_once() -> None:
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "at_infer/__init__.py"
    assert "version" in PROJECT["project"]["dynamic"]
    assert version("at-infer") == at_infer.__version__


def test_the_module_is_the_command() -> None:
    assert python("-m", "at_infer", "--version") == f"at-infer {at_infer.__version__}"
    assert [e.value for e in entry_points(group="console_scripts", name="at-infer")] == ["at_infer.__main__:main"]


def test_every_package_of_the_repository_is_in_the_wheel_and_typed() -> None:
    not_shipped = {"tests", "benchmarks"}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - not_shipped
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == packages
    assert packages == {"at_infer", "training", "export"}
    assert all((ROOT / package / "py.typed").is_file() for package in packages)


@pytest.mark.parametrize("module", ["at_infer", "at_infer.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    heavy = {"torch", "onnx", "onnxruntime", "ray", "polars", "numpy", "tensorrt", "training", "export"}
    assert python("-c", f"import {module}, sys; print(sorted({heavy!r} & set(sys.modules)))") == "[]"


def test_the_runtime_never_imports_torch() -> None:
    """Every module of at_infer outside of the command line, with torch, training and export made unimportable."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "at_infer").rglob("*.py"))
        if path.name != "__main__.py"
    ]
    assert "at_infer.tables" in modules
    blocked = "for name in ('torch', 'onnx', 'training', 'export'): sys.modules[name] = None"
    # A module that exists only for one optional runtime may ask for that runtime, and for nothing else.
    program = f"""
import importlib, sys
{blocked}
for module in {modules!r}:
    try:
        importlib.import_module(module)
    except ImportError as error:
        if error.name in ('torch', 'onnx', 'training', 'export'):
            print(module, error)
"""
    assert python("-c", program) == ""
