"""`benchmarks/edge.sh`: its options, and that one failing step does not take the others with it."""

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from at_infer.errors import EngineError
from benchmarks import edge_table
from benchmarks.edge import QUICK, Run, without_paths
from benchmarks.edge_table import ResultError, check, merge, rows, table

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
def test_a_folder_that_is_not_there_is_one_line(tmp_path, warm):
    command = [warm / "python", "-m", "benchmarks.edge", "-o", tmp_path / "absent" / "edge.json"]
    answer = subprocess.run(command, capture_output=True, text=True)
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


def test_an_error_that_nobody_expected_is_a_skipped_step_too(tmp_path):
    run = Run(tmp_path, QUICK, quick=True)
    run.step("live", lambda: {}["score"])
    assert run.skipped == [{"step": "live", "reason": "KeyError: 'score'"}]


def figure(batch, median_ms, windows_per_s, *, name="fp16.trt fp16", variation=0.01):
    return {
        "name": name,
        "batch": batch,
        "median_ms": median_ms,
        "p99_ms": 2 * median_ms,
        "variation": variation,
        "windows_per_s": windows_per_s,
    }


def result(**changes):
    """What a board would send; the figures are made up."""
    gpu = {"works": True, "driver": "595.1", "devices": [{"name": "Orin", "memory_gb": 8, "compute_capability": "8.7"}]}
    cpu = {"model": "ARM", "architecture": "aarch64", "cores": 6}
    versions = {"at_infer": "x", "system": "x", "python": {}, "core": {}, "providers": {}, "tensorrt": {}}
    return {
        "benchmark": "edge",
        "format": 1,
        "quick": False,
        "settings": {"width": 512, "layers": 3, "rows": 9, "seconds": 5.0, "batch": "1,8", "live_rows": 3},
        "machine": {**versions, "cpu": cpu, "gpu": gpu},
        "bench": {
            "contestants": [],
            "could_not_run": [],
            "threads": 6,
            "figures": [figure(1, 1.5, 600.0), figure(32, 9.0, 3500.0)],
        },
        "score": [{"engine": "fp16.trt", "peak_mb": 300, "summary": {"rows": 9, "rows_per_s": 123456.7}}],
        "skipped": [],
        **changes,
    }


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(json.loads(edge_table.SCHEMA.read_text()))


def test_a_result_is_a_line_per_engine():
    assert rows("orin-nano", check(result(), "x")) == [
        "| orin-nano | Orin | fp16.trt fp16 | 1.5 / 3 | 3500 (32) | 123457 | 300 |"
    ]


def test_a_busy_board_and_a_board_without_a_gpu_are_called_so():
    found = result()
    found["machine"]["gpu"]["devices"] = []
    found["bench"]["figures"] = [figure(8, 9.0, 100.0, name="fp32.onnx fp32", variation=0.3)]
    assert rows("pi", check(found, "x")) == ["| pi | ARM (CPU) | fp32.onnx fp32 |  | 100 (8, busy) |  |  |"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quick": True}, "was measured with --quick"),
        ({"format": 2}, "format"),
        ({"comment": "hello"}, "Additional properties"),
        ({"skipped": [{"step": "live"}]}, "'reason' is a required property"),
        ({"bench": {"contestants": [], "could_not_run": [], "threads": 1, "figures": [{"name": "x"}]}}, "batch"),
    ],
)
def test_a_file_that_cannot_go_into_the_table_is_named(changes, reason):
    with pytest.raises(ResultError, match=rf"board\.json: .*{reason}"):
        check(result(**changes), "board.json")


def test_the_path_of_a_user_is_not_accepted():
    found = result()
    found["machine"]["python"] = {"version": "3.12", "executable": "/home/me/python"}
    with pytest.raises(ResultError, match="python"):
        check(found, "board.json")


def test_a_result_names_no_folder_of_its_machine():
    get = "pip install -e '/home/me/clone[ray]'"
    machine = {
        "python": {"version": "3.12.1", "executable": "/home/me/venv/bin/python"},
        "extras": {"ray": {"get": get}, "openvino": {"get": "pip install openvino"}},
        "commands": [{"reason": f"no ray; {get}"}],
    }
    shown = without_paths(machine)
    assert "/home" not in json.dumps(shown)
    assert shown["commands"][0]["reason"] == "no ray; pip install 'at-infer[ray]'"
    assert shown["extras"]["openvino"]["get"] == "pip install openvino"


def test_files_are_merged_by_name(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps(result()))
    assert [line.split(" | ")[0] for line in table(list(tmp_path.iterdir())).splitlines()[2:]] == ["| a", "| b"]
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(ResultError, match=r"c\.json: cannot be read"):
        table([tmp_path / "c.json"])


def test_the_page_has_the_table_of_the_results_that_are_here():
    page = edge_table.PAGE.read_text(encoding="utf-8")
    assert merge(page, table(sorted(edge_table.RESULTS.glob("*.json")))) == page


def test_a_page_without_marks_is_refused():
    with pytest.raises(ResultError, match="no place for the table"):
        merge("# Edge", "table")
