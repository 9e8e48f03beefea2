"""at-infer demo: everything, one command after another."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from at_infer.cli import app
from at_infer.cli.demo import steps
from at_infer.installed import install_extra
from tests.conftest import Answer, Trace

Cli = Callable[..., Answer]


@pytest.mark.slow
def test_it_ends_with_a_report_and_three_commands(
    run_cli: Cli, tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.pipeline.trace", trace)  # a model of the default shape, as users have it exported
    folder = tmp_path / "my demo"
    answer = run_cli("demo", "-o", folder, "--quick")
    assert answer.code == 0, answer
    made = {path.name for path in folder.iterdir()}
    assert {"data", "ckpt.pt", "model.onnx", "model.associations.onnx", "scores.parquet", "report.html"} <= made
    shown = [shlex.split(line)[2] for line in answer.err.splitlines() if line.startswith("$ at-infer ")]
    assert shown == ["generate", "train", "export", "score", "evaluate", "report"]
    *_, path, one, two, three = answer.out.splitlines()
    assert path.startswith(f"{folder / 'report.html'}: ")
    assert all(line.startswith("  at-infer ") for line in (one, two, three))
    assert run_cli(*shlex.split(one)[1:]).code == 0
    assert run_cli(*shlex.split(two)[1:]).code == 0
    by_engine = run_cli("demo", "-o", tmp_path / "scored", "--quick", "--engine", folder / "model.onnx")
    assert by_engine.code == 0, by_engine
    shown = [shlex.split(line)[2] for line in by_engine.err.splitlines() if line.startswith("$ at-infer ")]
    assert shown == ["generate", "score", "evaluate", "report"]
    again = run_cli("demo", "-o", folder, "--quick")
    assert again.code == 1
    assert again.err.splitlines()[-1].startswith("error: ")
    assert "--overwrite" in again.err.splitlines()[-1]


def test_every_step_that_writes_can_replace(tmp_path: Path) -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, *_ in steps(tmp_path, quick=True):
        options = {word for parameter in commands[name].params for word in parameter.opts}
        assert ("--overwrite" in options) == (name != "evaluate")


def test_without_torch_it_says_what_to_install(run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    answer = run_cli("demo", "-o", tmp_path / "demo")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert install_extra("export") in answer.err
    assert not (tmp_path / "demo").exists()
