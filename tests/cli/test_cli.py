"""The command line: what it loads, what it says, what it leaves behind."""

import json
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import typer

from at_infer.cli import app
from at_infer.cli.messages import in_options, on_command_line
from at_infer.config import PRESETS, ScoreConfig
from at_infer.errors import AtInferError, ConfigError, DataError, ExportError
from at_infer.models.kinds import file_sha256
from tests.conftest import Answer, WriteParquet
from tests.once import Once
from tests.programs import programs
from training import data as data_module
from training.checkpoint import Checkpoint

Cli = Callable[..., Answer]

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
HEAVY = {"torch", "onnx", "onnxruntime", "onnxscript", "ray", "polars", "numpy", "tensorrt", "training", "export"}
TINY = ["--width", "8", "--heads", "2", "--layers", "1", "--window", "10", "--threads", "1"]
SHORT = [*TINY, "--max-steps", "60"]  # evaluated after 48, 50 and 60


@pytest.fixture
def train_file(write_parquet: WriteParquet, waves: pl.DataFrame) -> Path:
    return write_parquet("in/train.parquet", waves)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder for output only."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(answer: Answer) -> str:
    """The one line of a command that failed as it should."""
    assert answer.code == 1, answer
    assert answer.out == ""
    assert re.fullmatch(r"error: [^\n]+\n", answer.err), answer.err
    return answer.err.removeprefix("error: ").rstrip("\n")


# Help


def test_help_of_every_command_loads_nothing_heavy() -> None:
    """One process for all: a command that loads something is the first whose line says so."""
    asked = [["--help"], *([command, "--help"] for command in COMMANDS), ["--version"], []]
    program = f"""
import contextlib, io, json, sys
from at_infer.cli import app
for words in {asked!r}:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        app(words)
    print(json.dumps([words, len(shown.getvalue()) > 10, sorted({HEAVY!r} & set(sys.modules))]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[words, True, []] for words in asked]


def test_usage_errors_exit_with_2(run_cli: Cli) -> None:
    for words in (
        ["train"],
        ["nonsense"],
        ["train", "x", "-o", "y", "--fill", "guess"],
        ["train", "x", "--window", "a"],
    ):
        answer = run_cli(*words)
        assert answer.code == 2
        assert "Traceback" not in answer.err


# Train


def test_training_ends_with_a_checkpoint_and_says_what_was_learnt(run_cli: Cli, train_file: Path, out: Path) -> None:
    answer = run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, "--score-mode", "paper", "--ratio", "0.05")
    assert answer.code == 0
    assert files(out) == ["ckpt.pt"]
    checkpoint = Checkpoint.load(out / "ckpt.pt")
    assert checkpoint.columns == ["a", "b"]
    assert (checkpoint.model.width, checkpoint.model.feed_forward, checkpoint.model.window) == (8, 8, 10)
    assert (checkpoint.score.mode, checkpoint.validation_of().threshold.ratio, checkpoint.fill) == (
        "paper",
        0.05,
        "error",
    )
    assert [at["step"] for at in checkpoint.train["evaluations"]] == [48, 50, 60]
    assert f"{out}/ckpt.pt: best weights after step {checkpoint.train['best_step']} of 60" in answer.out
    assert (
        f"threshold {checkpoint.validation_of().threshold.value:.4g}, exceeded by 0.05 of 60 validation rows"
        in answer.out
    )
    for mode in checkpoint.validation_of().quantiles:
        assert re.search(rf"^ *{mode}( \*)? +[\d.e-]+", answer.out, re.MULTILINE), mode


@pytest.mark.slow
def test_an_unnamed_score_is_of_mode_fusion(run_cli: Cli, train_file: Path, out: Path) -> None:
    def recorded(*words: object) -> ScoreConfig:
        assert run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, *words, "--overwrite").code == 0
        return Checkpoint.load(out / "ckpt.pt").score

    assert recorded() == ScoreConfig()
    assert recorded("--level", "fixed") == ScoreConfig(level="fixed")
    assert recorded("--score-mode", "paper") == ScoreConfig(mode="paper")
    named = recorded("--score-mode", "calibrated", "--normalise-errors", "--smooth", 3)
    assert named == ScoreConfig(mode="calibrated", smooth=3, normalise_errors=True)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_without_a_terminal_there_is_one_plain_line_per_evaluation(
    preset: str, run_cli: Cli, train_file: Path, out: Path
) -> None:
    budget = ["--max-steps", "60"] if preset == "default" else ["--epochs", "3"]
    answer = run_cli("train", train_file, "-o", out / "ckpt.pt", *TINY, "--preset", preset, *budget)
    assert "\x1b" not in answer.out + answer.err
    assert "\r" not in answer.err
    lines = answer.err.splitlines()
    windows, places, spent, longer = {
        "default": (231, ["step 48/60", "step 50/60", "step 60/60"], 60, "--max-steps 120"),
        "paper": (24, [f"epoch {i}/3  step {i}" for i in (1, 2, 3)], 3, "--epochs 6"),
    }[preset]
    assert lines[0] == f"240 training and 60 validation rows of 2 columns: {windows} and 6 windows of 10 rows"
    assert lines[1].startswith("season: none")
    assert lines[2] == "network: 8 wide, 2 heads, 1 layer, on cpu, 1 thread"
    number = r"\d+\.\d+"
    for place, line in zip(places, lines[3:6], strict=True):
        assert re.fullmatch(
            rf"{place}  reconstruction {number}  discrepancy {number}  validation {number}  "
            r"\d+ windows/s(  best so far)?",
            line,
        ), line
    assert lines[6:] == [
        f"note: the validation loss was still falling when the budget of {spent} steps ended; {longer} trains longer"
    ]


def test_json_lines_tell_the_same_to_machines(run_cli: Cli, train_file: Path, out: Path) -> None:
    answer = run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, "--log-json")
    assert (answer.code, answer.err) == (0, "")
    events = [json.loads(line) for line in answer.out.splitlines()]
    evaluations = [event for event in events if event["event"] == "evaluation"]
    assert [events[0]["event"], events[-1]["event"]] == ["start", "done"]
    assert {event["event"] for event in events} <= {"start", "step", "evaluation", "done"}
    assert events[0]["columns"] == ["a", "b"]
    assert events[0]["rows"] == {"train": 240, "validation": 60}
    assert events[0]["model"]["features"] == 2
    assert events[0]["resumed"] is False
    assert [(event["step"], event["steps"]) for event in evaluations] == [(48, 60), (50, 60), (60, 60)]
    assert evaluations[0].keys() >= {"reconstruction", "discrepancy", "validation", "windows_per_s", "best"}
    checkpoint = Checkpoint.load(out / "ckpt.pt")
    assert events[-1]["threshold"] == checkpoint.validation_of().threshold.value
    assert events[-1]["checkpoint"] == str(out / "ckpt.pt")
    assert (
        events[-1]["validation_scores"]["reconstruction"]["max"]
        == checkpoint.validation_of().quantiles["reconstruction"][-1]
    )


def test_options_reach_the_run(run_cli: Cli, write_parquet: WriteParquet, waves: pl.DataFrame, out: Path) -> None:
    frame = waves.with_columns(
        pl.when(pl.int_range(pl.len()) == 7).then(None).otherwise("a").alias("a"),
        t=pl.int_range(pl.len()) % 150,
        s=pl.int_range(pl.len()) // 150,
        more=pl.col("b") * 2,
    )
    words = ["--time-column", "t", "--series-column", "s", "--columns", "b, a ,more", "--exclude", "more"]
    words += ["--fill", "forward", "--validation", "0.3", "--stride", "5", "--batch-size", "16", "--max-steps", "3"]
    words += ["--distance", "js", "--head-rule", "published", "--layer", "0", "--prior", "power-law", "--seed", "4"]
    words += ["--strategy", "maximize", "--lambda", "2", "--patience", "9", "--learning-rate", "0.01", "--layers", "1"]
    words += ["--noise", "0.1"]
    answer = run_cli("train", write_parquet("in/x.parquet", frame), "-o", out / "c.pt", *TINY, *words)
    assert answer.code == 0, answer.err
    checkpoint = Checkpoint.load(out / "c.pt")
    config = checkpoint.train["config"]
    assert (checkpoint.columns, checkpoint.fill, checkpoint.model.prior) == (["b", "a"], "forward", "power-law")
    assert checkpoint.train["windows"] == {"train": 2 * 20, "validation": 2 * 5}
    assert checkpoint.discrepancy.to_dict() == {"head_rule": "published", "distance": "js", "layer": 0}
    expected = {"strategy": "maximize", "lambda_": 2.0, "max_steps": 3, "patience": 9, "batch_size": 16, "seed": 4}
    expected["noise"] = 0.1
    assert {name: config[name] for name in expected} == expected
    assert (config["learning_rate"], config["stride"]) == (0.01, 5)


@pytest.mark.slow
def test_epochs_take_the_place_of_steps_unless_both_are_given(run_cli: Cli, train_file: Path, out: Path) -> None:
    def steps(*words: object) -> int:
        answer = run_cli("train", train_file, "-o", out / "c.pt", *TINY, "--overwrite", *words)
        assert answer.code == 0, answer.err
        return Checkpoint.load(out / "c.pt").train["evaluations"][-1]["step"]

    assert steps("--epochs", 2) == 2 * 8  # 231 windows
    assert steps("--epochs", 2, "--max-steps", 5) == 5
    assert steps("--epochs", 2, "--stride", 10) == 2


@pytest.mark.slow
def test_the_papers_preset_trains_the_papers_network(run_cli: Cli, train_file: Path, out: Path) -> None:
    words = ["--preset", "paper", "--max-steps", 1, "--window", 10, "--threads", 1]
    assert run_cli("train", train_file, "-o", out / "c.pt", *words).code == 0
    kept = Checkpoint.load(out / "c.pt")
    assert kept.model == replace(PRESETS["paper"].model, features=2, window=10)
    assert kept.train["config"] == replace(PRESETS["paper"].train, max_steps=1).to_dict()
    assert kept.train["windows"]["train"] == 24


def test_presets_that_do_not_exist_are_refused_with_what_to_do(run_cli: Cli, train_file: Path, out: Path) -> None:
    def said(preset: str) -> str:
        return refused(run_cli("train", train_file, "-o", out / "c.pt", "--preset", preset))

    assert said("small").startswith("--preset: small is gone; leave --preset out")
    assert said("huge") == "--preset: 'huge' is not one of default, paper"


# Train, from a checkpoint


@pytest.fixture
def parent(run_cli: Cli, train_file: Path, out: Path) -> Path:
    words = ["--columns", "b,a", "--strategy", "maximize", "--score-mode", "paper", "--fill", "mean"]
    assert run_cli("train", train_file, "-o", out / "old.pt", *SHORT, *words).code == 0
    return out / "old.pt"


def test_training_from_a_checkpoint_keeps_what_is_known_and_renews_what_belongs_to_the_rows(
    run_cli: Cli, write_parquet: WriteParquet, waves: pl.DataFrame, parent: Path, out: Path
) -> None:
    moved = waves.select("a", "b", more="a") * 3 + 100
    path = write_parquet("in/new.parquet", moved)
    answer = run_cli("train", path, "--from", parent, "-o", out / "new.pt", "--max-steps", 20, "--threads", 1)
    assert answer.code == 0, answer.err
    said = f"starting from the weights of {parent}; scaler, validation statistics and thresholds are those of the new"
    assert f"{said} rows" in answer.err.splitlines()
    old, new = Checkpoint.load(parent), Checkpoint.load(out / "new.pt")
    assert (new.model, new.columns, new.score, new.fill) == (old.model, ["b", "a"], old.score, "mean")
    np.testing.assert_allclose(new.scaler.mean, np.array(old.scaler.mean) * 3 + 100, rtol=1e-5)
    np.testing.assert_allclose(new.scaler.scale, np.array(old.scaler.scale) * 3, rtol=1e-4)
    assert new.train["parent_sha256"] == file_sha256(parent)
    assert (new.train["config"]["strategy"], new.train["config"]["max_steps"]) == ("maximize", 20)
    assert new.train["config"]["learning_rate"] < old.train["config"]["learning_rate"]
    # Scaled by its own mean and deviation, the new file is the old one: known weights reconstruct it at once.
    assert new.train["steps"]["reconstruction"][0] < 0.7 * old.train["steps"]["reconstruction"][0]
    assert new.validation_of().threshold != old.validation_of().threshold


def test_a_checkpoint_that_does_not_fit_the_rows_or_options_is_one_line(
    run_cli: Cli, write_parquet: WriteParquet, waves: pl.DataFrame, parent: Path, train_file: Path, out: Path
) -> None:
    def said(*words: object, source: Path = train_file) -> str:
        return refused(run_cli("train", source, "--from", parent, "-o", out / "new.pt", *words))

    other = write_parquet("in/other.parquet", waves.select("a", c="b"))
    assert said(source=other) == f"{other}: column 'b' is missing; the file has a, c"
    assert said("--columns", "a").startswith(f"{parent}: was trained on the columns b, a, not on a; ")
    for option, value in (("--width", 16), ("--preset", "paper"), ("--window", 21), ("--feed-forward", 9)):
        assert said(option, value) == f"{option}: the network is that of {parent}; leave {option} or --from out"
    (out / "text.pt").write_text("no checkpoint")
    answer = run_cli("train", train_file, "--from", out / "text.pt", "-o", out / "new.pt")
    assert refused(answer) == f"{out}/text.pt: is not a checkpoint, or is damaged"


@pytest.mark.slow
def test_two_runs_with_one_seed_write_the_same_weights(run_cli: Cli, train_file: Path, out: Path) -> None:
    for name, seed in (("1.pt", 3), ("2.pt", 3), ("3.pt", 4)):
        assert run_cli("train", train_file, "-o", out / name, *SHORT, "--seed", seed).code == 0
    one, two, three = (Checkpoint.load(out / f"{i}.pt").state_dict for i in (1, 2, 3))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], three[name]) for name in one)


def test_notes_are_printed_as_they_are(
    run_cli: Cli, write_parquet: WriteParquet, waves: pl.DataFrame, out: Path
) -> None:
    odd = "[red]:heart:[/red] größe"
    path = write_parquet("in/[bold] :cat:.parquet", waves.with_columns(pl.lit("w").alias(odd)))
    answer = run_cli("train", path, "-o", out / ":dog:[b].pt", *SHORT)
    assert answer.code == 0
    assert f"note: not numeric, ignored: {odd}\n" in answer.err
    assert f"{out}/:dog:[b].pt: best weights" in answer.out


@pytest.mark.slow
def test_overwrite_replaces_an_existing_checkpoint(run_cli: Cli, train_file: Path, out: Path) -> None:
    (out / "ckpt.pt").write_text("precious")
    message = refused(run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT))
    assert message == f"{out}/ckpt.pt: exists already; pass --overwrite to replace it"
    assert (out / "ckpt.pt").read_text() == "precious"
    assert run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, "--overwrite").code == 0
    assert Checkpoint.load(out / "ckpt.pt").columns == ["a", "b"]


# Interruptions, with real processes

LONG = [*TINY, "--max-steps", "500", "--patience", "12", "--batch-size", "8", "--validation", "0.1"]
HELD = """
import os, sys, time
from training.resume import TrainingState
keep = TrainingState.save
with open(sys.argv[1] + ".pid", "w") as file:
    file.write(str(os.getpid()))
def held(self, path, *given):
    keep(self, path, *given)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
TrainingState.save = held
from at_infer.cli import app
app(sys.argv[2:])
"""


def at_infer(*words: object, held: Path | None = None) -> subprocess.Popen[str]:
    """Once it has kept a state, a held training waits until that file is there; one beside it has its process id."""
    program = ["-m", "at_infer"] if held is None else ["-c", HELD, str(held)]
    command = [str(programs() / "python"), *program, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def long_run(once: Once) -> tuple[Path, Checkpoint]:
    """Data for a run of several epochs, and what it ends with when nobody interrupts it."""

    def train(folder: Path) -> None:
        t = np.arange(3000)
        noise = np.random.default_rng(0).normal(scale=0.1, size=len(t))
        pl.DataFrame({"x": np.sin(t / 4) + noise}).write_parquet(folder / "train.parquet")
        process = at_infer("train", folder / "train.parquet", "-o", folder / "whole.pt", *LONG)
        _, err = process.communicate()
        assert process.returncode == 0, err

    folder = once("long_training", train)
    return folder / "train.parquet", Checkpoint.load(folder / "whole.pt")


def start_and_send(number: signal.Signals, train_file: Path, output: Path) -> tuple[int, str]:
    """Start a run, send a signal once it has kept a state, and return its exit code and stderr."""
    go = output.parent.with_name("go")
    process = at_infer("train", train_file, "-o", output, *LONG, held=go)
    kept = output.with_name("ckpt.resume.pt")
    while not kept.exists() and process.poll() is None:
        time.sleep(0.002)
    os.kill(int(go.with_name("go.pid").read_text()), number)
    go.touch()
    _, err = process.communicate()
    assert not output.exists(), "the run was not interrupted"
    return process.returncode, err


def resumes_to(whole: Checkpoint, answer: Answer, output: Path) -> None:
    assert answer.code == 0, answer.err
    assert "continuing where the last run was stopped" in answer.err
    resumed = Checkpoint.load(output)
    assert all(torch.equal(resumed.state_dict[name], tensor) for name, tensor in whole.state_dict.items())
    assert torch.equal(resumed.train["steps"]["reconstruction"], whole.train["steps"]["reconstruction"])
    assert resumed.train["evaluations"] == whole.train["evaluations"]
    assert resumed.validation == whole.validation
    assert not output.with_name("ckpt.resume.pt").exists()


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_weights_of_an_uninterrupted_one(
    run_cli: Cli, long_run: tuple[Path, Checkpoint], out: Path
) -> None:
    train_file, whole = long_run
    code, _ = start_and_send(signal.SIGKILL, train_file, out / "ckpt.pt")
    assert code == -signal.SIGKILL
    answer = run_cli("train", train_file, "-o", out / "ckpt.pt", *LONG, "--resume")
    resumes_to(whole, answer, out / "ckpt.pt")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on_and_does(
    number: signal.Signals, run_cli: Cli, long_run: tuple[Path, Checkpoint], out: Path
) -> None:
    train_file, whole = long_run
    code, err = start_and_send(number, train_file, out / "ckpt.pt")
    assert code == 130
    assert files(out) == ["ckpt.resume.pt"]
    message = f"interrupted: {out}/ckpt.resume.pt is kept; the same command with --resume continues"
    assert err.splitlines()[-1] == message
    assert [line for line in err.splitlines() if line.startswith(("interrupted", "error"))] == [message]
    assert "Traceback" not in err
    answer = run_cli("train", train_file, "-o", out / "ckpt.pt", *LONG, "--resume")
    resumes_to(whole, answer, out / "ckpt.pt")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_reading_leaves_nothing(
    number: signal.Signals, run_cli: Cli, train_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "read_table", lambda *_, **__: os.kill(os.getpid(), number))
    assert run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT) == Answer(
        130, "", "interrupted: nothing was written\n"
    )
    assert files(out) == []


def test_an_interruption_while_the_checkpoint_is_written_leaves_the_state(
    run_cli: Cli, train_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.save

    def interrupted(content: Any, path: Path) -> None:
        real(content, path)
        if "format" in content:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(torch, "save", interrupted)
    answer = run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT)
    assert answer.code == 130
    assert answer.err.splitlines()[-1].startswith(f"interrupted: {out}/ckpt.resume.pt is kept")
    assert files(out) == ["ckpt.resume.pt"]
    monkeypatch.undo()
    assert run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, "--resume").code == 0
    assert files(out) == ["ckpt.pt"]


@pytest.mark.slow
def test_resume_with_other_options_is_refused_and_keeps_the_state(
    run_cli: Cli, long_run: tuple[Path, Checkpoint], train_file: Path, out: Path
) -> None:
    start_and_send(signal.SIGTERM, long_run[0], out / "ckpt.pt")
    message = refused(run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, "--resume"))
    assert message.startswith(f"{out}/ckpt.resume.pt: belongs to a run with other model settings; resume with the same")
    assert files(out) == ["ckpt.resume.pt"]


# Bad input: one line, exit code 1, nothing written


def rows(count: int, **more: Any) -> pl.DataFrame:
    x = np.random.default_rng(0).normal(size=count)
    return pl.DataFrame({"x": x, **more})


BAD_FRAMES: dict[str, tuple[pl.DataFrame, list[str], str]] = {
    "no row": (rows(0), [], "has no rows"),
    "no numeric column": (pl.DataFrame({"w": ["a", "b"]}), [], "has no numeric column; it has w"),
    "no column": (pl.DataFrame(), [], "has no"),
    "one row": (rows(1), [], "the longest training part has 0 rows, fewer than a window of 10"),
    "fewer rows than a window": (rows(9), [], "the longest training part has 7 rows, fewer than a window of 10"),
    "too few validation rows": (rows(19), [], "the longest validation part has 4 rows, fewer than a window of 10"),
    "unsorted time": (rows(3, t=[1, 3, 2]), ["--time-column", "t"], "row 2: t 2 comes after 3"),
    "duplicate time": (rows(3, t=[1, 2, 2]), ["--time-column", "t"], "row 2: t 2 is there twice"),
    "null time": (rows(3, t=[1, None, 2]), ["--time-column", "t"], "row 1: column 't' has no value"),
    "a series in two pieces": (rows(3, s=["a", "b", "a"]), ["--series-column", "s"], "row 2: series 'a' starts again"),
    "missing values": (rows(60, y=[None, *range(59)]), [], "missing values in y (1); pass --fill forward or"),
    "an all-null column": (
        rows(60).with_columns(y=pl.lit(None, pl.Float64)),
        ["--fill", "mean"],
        "column 'y' has no value at all; leave it out with --exclude y",
    ),
    "an infinity": (rows(60, y=[float("inf"), *range(59)]), [], "column 'y' is infinite, or too large for float32"),
    "an unknown column": (rows(60), ["--columns", "x,z"], "column 'z' is missing; the file has x"),
    "a column named twice": (rows(60), ["--columns", "x,x"], "column 'x' is named twice"),
    "no column named": (rows(60), ["--columns", ","], "--columns and --exclude leave no feature"),
    "an unknown time column": (rows(60), ["--time-column", "z"], "column 'z' is missing"),
    "extreme validation values": (
        rows(100).with_columns(x=pl.when(pl.int_range(pl.len()) == 95).then(1e30).otherwise("x")),
        [],
        "the validation loss is not finite",
    ),
}


@pytest.mark.parametrize(("frame", "words", "message"), BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_bad_rows_are_refused(
    frame: pl.DataFrame,
    words: list[str],
    message: str,
    run_cli: Cli,
    write_parquet: WriteParquet,
    out: Path,
) -> None:
    path = write_parquet("in/x.parquet", frame)
    answer = run_cli("train", path, "-o", out / "ckpt.pt", *SHORT, *words)
    if "not finite" in message:  # found while training, so there are lines about it before
        answer = Answer(answer.code, answer.out, answer.err.splitlines(keepends=True)[-1])
    assert message in refused(answer)
    assert files(out) == []


BAD_FILES: dict[str, bytes] = {"an empty file": b"", "text": b"a,b\n1,2\n" * 50, "zeros": bytes(500)}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_files_that_are_not_parquet_are_refused(content: bytes, run_cli: Cli, tmp_path: Path, out: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    message = refused(run_cli("train", path, "-o", out / "ckpt.pt", *SHORT))
    assert message.startswith(f"{path}: cannot be read as Parquet; it is damaged or has another format")
    assert files(out) == []


def test_a_file_cut_in_half_is_refused(run_cli: Cli, train_file: Path, out: Path) -> None:
    content = train_file.read_bytes()
    train_file.write_bytes(content[: len(content) // 2])
    message = refused(run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT))
    assert message.startswith(f"{train_file}: cannot be read as Parquet")
    assert files(out) == []


def test_sources_that_do_not_exist_are_refused(run_cli: Cli, tmp_path: Path, train_file: Path, out: Path) -> None:
    for source, expected in (
        (tmp_path / "no.parquet", f"{tmp_path}/no.parquet: no such file"),
        (tmp_path / "*.parquet", f"{tmp_path}/*.parquet: no file matches this pattern"),
        (out, f"{out}: no *.parquet file in this folder"),
        ("", "'': no such file"),
    ):
        assert refused(run_cli("train", source, "-o", out / "ckpt.pt", *SHORT)) == expected
    message = refused(run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, "--validation", "no.parquet"))
    assert message == "no.parquet: no such file"
    assert files(out) == []


def test_outputs_that_cannot_be_written_are_refused_before_anything_is_read(
    run_cli: Cli, tmp_path: Path, out: Path
) -> None:
    unreadable = tmp_path / "no.parquet"
    places = {
        out / "no" / "ckpt.pt": f"{out}/no/ckpt.pt: folder {out}/no does not exist; create it or choose another",
        Path("/proc/ckpt.pt"): "/proc/ckpt.pt: cannot write to folder /proc",
        out: f"{out}: is a folder; give a file name",
    }
    for place, message in places.items():
        assert refused(run_cli("train", unreadable, "-o", place, *SHORT)).startswith(message)
    assert files(out) == []


BAD_OPTIONS: dict[str, list[str]] = {
    "--window": ["--window", "1"],
    "--heads": ["--heads", "3"],
    "--ratio": ["--ratio", "1"],
    "--threads": ["--threads", "0"],
    "--device": ["--device", "tpu"],
    "--layer": ["--layer", "5"],
    "--seed": ["--seed", "-1"],
    "--validation": ["--validation", "2"],
    "--learning-rate": ["--learning-rate", "nan"],
    "--temperature": ["--temperature", "0"],
    "training": ["--width", "1048576"],
}


@pytest.mark.parametrize(("where", "words"), BAD_OPTIONS.items(), ids=BAD_OPTIONS.keys())
def test_options_that_cannot_work_are_refused(
    where: str, words: list[str], run_cli: Cli, train_file: Path, out: Path
) -> None:
    message = refused(run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT, *words))
    assert message.startswith(f"{where}: ")
    assert files(out) == []


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("kind", ["text", "empty", "foreign", "pickle", "archive"])
@pytest.mark.parametrize("command", ["train", "inspect"])
def test_a_checkpoint_that_is_none_is_refused_and_never_executed(
    kind: str, command: str, run_cli: Cli, train_file: Path, out: Path, tmp_path: Path
) -> None:
    path, marker = out / "ckpt.resume.pt", tmp_path / "marker"
    match kind:
        case "text":
            path.write_text("hello\n" * 100)
        case "empty":
            path.touch()
        case "foreign":
            torch.save({"weight": torch.zeros(2)}, path)
        case "pickle":
            path.write_bytes(pickle.dumps(Malicious(marker), protocol=2))
        case "archive":
            torch.save({"identity": Malicious(marker)}, path)
    before = path.read_bytes()
    words = (
        ["train", train_file, "-o", out / "ckpt.pt", *SHORT, "--resume"] if command == "train" else ["inspect", path]
    )
    message = refused(run_cli(*words))
    assert message.startswith(f"{path}: ")
    if command == "train":
        assert ("could run code; refused" in message) == (kind in ("pickle", "archive"))
    assert not marker.exists()
    assert files(out) == ["ckpt.resume.pt"]
    assert path.read_bytes() == before


def test_a_disk_that_fills_up_is_refused_and_left_clean(run_cli: Cli, train_file: Path, out: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        answer = run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.code == 1
    assert answer.err.splitlines()[-1].startswith(f"error: {out}/ckpt.resume.pt: could not be written")
    assert files(out) == []


def test_a_message_is_one_printable_line_whatever_it_quotes(run_cli: Cli, out: Path) -> None:
    message = refused(run_cli("train", "no\n\x1b31mfile\x07.parquet", "-o", out / "ckpt.pt", *SHORT))
    assert message == "no ?31mfile?.parquet: no such file"


def test_a_bug_keeps_its_traceback(run_cli: Cli, train_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(data_module, "read_table", buggy)
    with pytest.raises(ZeroDivisionError):
        run_cli("train", train_file, "-o", out / "ckpt.pt", *SHORT)


@pytest.mark.slow
def test_an_error_of_a_real_process_is_one_line_and_exit_code_1(tmp_path: Path, out: Path) -> None:
    command = [sys.executable, "-m", "at_infer", "train", str(tmp_path / "no.parquet"), "-o", str(out / "ckpt.pt")]
    process = subprocess.Popen([*command, *SHORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stdout, err = process.communicate()
    assert refused(Answer(process.returncode, stdout, err)) == f"{tmp_path}/no.parquet: no such file"
    assert files(out) == []


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("a.parquet: exists already; pass overwrite=True to replace it", "pass --overwrite to replace it"),
        ("row 3: is bad; pass on_bad_rows='null'", "pass --on-bad-rows null"),
        ("a.parquet: name the features with columns=... or exclude=...", "with --columns or --exclude"),
        ("a.onnx: needs batch_size=8, or another file", "needs --batch-size 8, or another file"),
        ("stride: leave `stride` out", "leave --stride out"),
        ("mode: pass mode='centred'", "pass --score-mode centred"),
        ("the word `unknown` stays", "the word `unknown` stays"),
        ("year=2024/a.parquet: has no rows", "year=2024/a.parquet: has no rows"),
    ],
)
def test_parameters_in_errors_are_printed_as_options(message: str, printed: str) -> None:
    assert in_options(message).endswith(printed)


@pytest.mark.parametrize(
    ("command", "error", "printed"),
    [
        ("score", ConfigError("split_rows: 0 is too small"), "--split-rows: 0 is too small"),
        ("train", ConfigError("lambda_: -1 is negative"), "--lambda: -1 is negative"),
        ("score", ConfigError("mode: fusion is odd: leave it out"), "--score-mode: fusion is odd: leave it out"),
        ("bench", ConfigError("mode: fusion is odd"), "mode: fusion is odd"),
        ("score", ConfigError("rows: 0 is too small"), "rows: 0 is too small"),
        ("generate", ConfigError("rows: 0 is too small"), "--rows: 0 is too small"),
        ("generate", ConfigError("families: 'spike' is not known"), "--family: 'spike' is not known"),
        ("export", ExportError("outputs: x is unknown"), "--outputs: x is unknown"),
        ("report", DataError("data: no such file"), "data: no such file"),
        ("score", ConfigError("a.onnx: has no threshold: give one"), "a.onnx: has no threshold: give one"),
        (None, ConfigError("threshold: is odd"), "threshold: is odd"),
    ],
)
def test_an_error_that_begins_with_a_parameter_of_the_command_begins_with_its_option(
    command: str | None, error: AtInferError, printed: str
) -> None:
    assert on_command_line(error, command) == printed
