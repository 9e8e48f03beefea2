"""What operators set: completion of shells, environment variables, messages as JSON lines."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer

from at_infer.cli import app
from at_infer.cli.completion import COMPLETE_VARIABLE
from at_infer.cli.terminal import logs_json
from at_infer.scoring import score_file
from tests.checkpoints import FEATURES
from tests.conftest import Answer, WriteParquet

Cli = Callable[..., Answer]
ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
RUN = [sys.executable, "-c", "import sys; sys.argv[0] = 'at-infer'; from at_infer.cli import main; main()"]
"""As the installed script does it."""


@pytest.fixture
def rows(write_parquet: WriteParquet) -> Path:
    values = {f"f{i:02}": [float(k % (7 + i)) for k in range(60)] for i in range(FEATURES)}
    return write_parquet("rows.parquet", pl.DataFrame(values))


def messages(text: str) -> list[dict[str, str]]:
    found = [json.loads(line) for line in text.splitlines()]
    for message in found:
        assert message.keys() == {"time", "level", "message"}
        assert datetime.fromisoformat(message["time"]).utcoffset() is not None
    return found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_asks_at_infer(run_cli: Cli, shell: str) -> None:
    answer = run_cli("completion", shell)
    assert (answer.code, answer.err) == (0, "")
    assert f"{COMPLETE_VARIABLE}=complete_{shell}" in answer.out


def test_another_shell_is_a_usage_error(run_cli: Cli) -> None:
    assert run_cli("completion", "csh").code == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("at-infer sc", {"score"}),
        ("at-infer score --provi", {"--provider"}),
        ("at-infer score --provider ", {"cpu", "cuda", "tensorrt", "rtx"}),
    ],
)
def test_commands_options_and_values_are_completed(words: str, expected: set[str]) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), COMPLETE_VARIABLE: "complete_bash"}
    done = subprocess.run(
        RUN, env=os.environ | asked | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (set(done.stdout.split()), done.stderr) == (expected, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_accepts_the_script(run_cli: Cli) -> None:
    script = run_cli("completion", "bash").out
    done = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p at-infer"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "_at_infer_completion at-infer" in done.stdout


@pytest.fixture
def shell_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file to complete, and `at-infer` on the path."""
    command = tmp_path / "bin" / "at-infer"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.join(RUN)} "$@"\n')
    command.chmod(0o755)
    (tmp_path / "data.parquet").touch()
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("at-infer score --provider ", {"cpu", "cuda", "tensorrt", "rtx"}),
        ("at-infer score d", {"data.parquet"}),
    ],
)
def test_fish_completes_values_and_files(run_cli: Cli, shell_folder: Path, words: str, expected: set[str]) -> None:
    (shell_folder / "at-infer.fish").write_text(run_cli("completion", "fish").out)
    asked = f"source at-infer.fish; complete -C {shlex.quote(words)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", asked], cwd=shell_folder, capture_output=True, text=True, check=True
    )
    assert {line.partition("\t")[0] for line in done.stdout.splitlines()} == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.parametrize("words", ["at-infer exp", "at-infer export --prec", "at-infer score d"])
def test_zsh_completes_at_the_first_tab(run_cli: Cli, shell_folder: Path, words: str) -> None:
    """As its users do: the script in a folder of fpath, one Tab at a terminal, and the line that this leaves."""
    (shell_folder / "_at-infer").write_text(run_cli("completion", "zsh").out)
    typed = f"""
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell 'fpath=({shell_folder} $fpath); autoload -Uz compinit; compinit -u -D'
        zpty -w shell 'keep() {{ print -r -- $BUFFER > line; exit }}; zle -N keep; bindkey ^K keep'
        zpty -w -n shell {shlex.quote(words)}$'\\t\\v'
        while zpty -r shell said; do :; done
    """
    subprocess.run(["zsh", "-f", "-c", typed], cwd=shell_folder, capture_output=True, check=False, timeout=300)
    line = {"at-infer exp": "at-infer export", "at-infer score d": "at-infer score data.parquet"}
    assert (shell_folder / "line").read_text().strip() == line.get(words, "at-infer export --precision")


@pytest.mark.parametrize(
    ("variable", "option", "commands"),
    [
        ("AT_INFER_THREADS", "--threads", {"train", "distil", "score", "watch", "bench", "drift"}),
        ("AT_INFER_PROVIDER", "--provider", {"score", "watch", "bench", "drift"}),
        ("AT_INFER_LOG_FORMAT", "--log-format", {"train", "distil", "export", "score", "watch", "drift"}),
    ],
)
def test_a_variable_stands_for_the_option_of_every_command_that_has_it(
    variable: str, option: str, commands: set[str]
) -> None:
    having = {
        name: parameter.envvar
        for name, command in COMMANDS.items()
        for parameter in command.params
        if option in parameter.opts
    }
    assert having == dict.fromkeys(commands, variable)


def test_variables_hold_unless_an_option_says_otherwise(
    run_cli: Cli, rows: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def remember(*words: Any, **_: Any) -> None:
        asked.append(words[5])
        raise SystemExit(0)

    monkeypatch.setattr(score_file, "score_file", remember)
    monkeypatch.setenv("AT_INFER_THREADS", "3")
    monkeypatch.setenv("AT_INFER_PROVIDER", "cuda")
    words = ["score", rows, "--engine", models / "model.onnx", "-o", tmp_path / "s.parquet"]
    run_cli(*words)
    run_cli(*words, "--threads", 1, "--provider", "cpu")
    assert [(options.threads, options.provider) for options in asked] == [(3, "cuda"), (1, "cpu")]
    monkeypatch.setenv("AT_INFER_THREADS", "many")
    answer = run_cli(*words)
    assert answer.code == 2
    assert "AT_INFER_THREADS" in answer.err


def test_messages_of_score_are_json_lines(run_cli: Cli, rows: Path, models: Path, tmp_path: Path) -> None:
    scores = tmp_path / "s.parquet"
    words = ["score", rows, "--engine", models / "model.onnx", "--log-format", "json"]
    answer = run_cli(*words, "-o", scores)
    assert answer.code == 0, answer
    assert str(scores) in answer.out
    assert all(message["level"] == "info" for message in messages(answer.err))
    (error,) = messages(run_cli(*words, "-o", scores).err)
    assert error["level"] == "error"
    assert error["message"].startswith(f"{scores}: ")
    assert "--overwrite" in error["message"]


@pytest.mark.parametrize("command", [("export", "absent.pt"), ("drift", "absent.onnx", "absent.parquet")])
def test_an_error_of_export_and_drift_is_a_json_line(run_cli: Cli, command: tuple[str, ...]) -> None:
    answer = run_cli(*command, "--log-format", "json")
    (error,) = messages(answer.err)
    assert (answer.code, error["level"]) == (1, "error")


def test_the_next_command_of_the_process_speaks_text_again(run_cli: Cli, rows: Path, tmp_path: Path) -> None:
    run_cli("score", rows, "--engine", tmp_path / "absent.onnx", "--log-format", "json")
    assert logs_json()
    answer = run_cli("inspect", tmp_path / "absent.onnx")
    assert answer.err.startswith("error: ")


def test_messages_of_train_are_json_lines(
    run_cli: Cli, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AT_INFER_LOG_FORMAT", "json")
    small = ["--width", "8", "--heads", "2", "--layers", "1", "--window", "10", "--max-steps", "2", "--threads", "1"]
    answer = run_cli("train", rows, "-o", tmp_path / "ckpt.pt", *small)
    assert answer.code == 0, answer
    said = [message["message"] for message in messages(answer.err)]
    assert said[0].startswith("48 training and 12 validation rows")
    assert any(line.startswith("network: 8 wide") for line in said)
    assert any("validation" in line and "windows/s" in line for line in said)
    assert "best weights" in answer.out


@pytest.mark.slow
def test_messages_of_watch_are_json_lines(rows: Path, models: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in pl.read_parquet(rows).to_dicts())
    command = [sys.executable, "-m", "at_infer", "watch", "--engine", models / "model.onnx", "--log-format", "json"]
    done = subprocess.run(
        command, input=lines + "no row\n", capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [message["message"] for message in messages(done.stderr)]
    assert any("line 61" in line for line in said)
    assert said[-1].startswith("60 rows of 1 series")
    assert len(done.stdout.splitlines()) == 60
