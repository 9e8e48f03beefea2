"""`benchmarks/edge.sh`: its options, and that one failing step does not take the others with it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from at_infer.errors import EngineError
from benchmarks.edge import QUICK, Run

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "edge.sh"


def edge(*words, **options):
    return subprocess.run(["bash", SCRIPT, *words], capture_output=True, text=True, **options)


def test_help_tells_the_options():
    answer = edge("--help")
    assert answer.returncode == 0
    assert all(option in answer.stdout for option in ("--quick", "--no-install", "-o FILE"))


@pytest.mark.parametrize("words", [["--fast"], ["-o"]])
def test_bad_options_get_one_line(words):
    answer = edge(*words)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1


def test_options_reach_the_program(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    answer = edge(
        "--quick", "--no-install", "-o", "x.json", env={"PYTHON": str(python), "PATH": "/usr/bin:/bin"}, cwd=tmp_path
    )
    assert answer.stdout.split() == ["-m", "benchmarks.edge", "--quick", "-o", str(tmp_path / "x.json")]


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    command = [sys.executable, "-m", "benchmarks.edge", "-o", str(tmp_path / "absent" / "edge.json")]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent.parent)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")


def test_a_step_that_fails_is_named_and_the_others_go_on(tmp_path):
    run = Run(tmp_path, QUICK, quick=True)

    def fail():
        raise EngineError("model.trt: is closed")

    def fail_apart():
        raise subprocess.CalledProcessError(1, ["at-infer"], stderr="note\nerror: no engine runs here\n")

    run.step("machine", lambda: {"gpu": {"works": False, "reason": "no driver"}})
    run.step("bench", fail)
    run.step("score", fail_apart)
    run.step("live", lambda: {"rows_per_s": 3.0})
    assert run.report == {"machine": {"gpu": {"works": False, "reason": "no driver"}}, "live": {"rows_per_s": 3.0}}
    assert run.skipped == [
        {"step": "bench", "reason": "model.trt: is closed"},
        {"step": "score", "reason": "error: no engine runs here"},
    ]
    assert not run.has_gpu
    json.dumps(run.report)
