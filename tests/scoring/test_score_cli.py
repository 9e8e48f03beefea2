"""`at-infer score` as a user meets it: killed, interrupted, refused."""

import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.engines.ort import OnnxEngine
from at_infer.errors import EngineError
from tests.checkpoints import checkpoint
from tests.conftest import Answer, WriteParquet
from tests.engines.test_plan import write_plan
from tests.once import Once
from tests.programs import programs
from tests.scored import files, rows, variant

Cli = Callable[..., Answer]

SMALL = """
import at_infer.tables.row_stream, at_infer.scoring.score_file
at_infer.tables.row_stream.CHUNK_CELLS = 1500
at_infer.scoring.score_file.PART_ROWS = 100
"""
SCORE = checkpoint().score
PARTS = ".scores.parquet.parts"


@pytest.fixture
def data(write_parquet: WriteParquet) -> Path:
    return write_parquet("data.parquet", rows(205))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder for output only."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def refused(answer: Answer) -> str:
    """The one line of a command that failed as it should."""
    assert answer.code == 1, answer
    assert answer.out == ""
    assert re.fullmatch(r"error: [^\n]+\n", answer.err), answer.err
    return answer.err.removeprefix("error: ").rstrip("\n")


def start(*words: object, patch: str = SMALL, fresh: bool = False, **options: Any) -> subprocess.Popen[str]:
    """A process of its own, with small parts; if anything about its start matters, a fresh one."""
    python = sys.executable if fresh or options else str(programs() / "python")
    command = [python, "-c", f"{patch}\nfrom at_infer.cli import app\napp()", "score", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finished(process: subprocess.Popen[str]) -> Answer:
    out, err = process.communicate()
    return Answer(process.returncode, out, err)


def same(found: Path, expected: Path) -> bool:
    """The same rows, and the same words about them."""
    return pl.read_parquet(found).equals(pl.read_parquet(expected)) and pl.read_parquet_metadata(
        found
    ) == pl.read_parquet_metadata(expected)


# What it says


def test_the_summary_is_text_for_people_and_one_line_of_json_for_machines(
    run_cli: Cli, models: Path, data: Path, out: Path
) -> None:
    words = ["score", data, "--engine", models / "model.onnx", "-o", out / "scores.parquet", "--threshold", "0"]
    answer = run_cli(*words)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(
        f"{out}/scores.parquet: 205 rows of 1 series, 205 anomalous rows (100.00%) in 1 segment, score {SCORE.mode}"
    )
    answer = run_cli(*words, "--overwrite", "--json")
    assert (answer.code, answer.err, answer.out.count("\n")) == (0, "", 1)
    told = json.loads(answer.out)
    assert (told["rows"], told["windows"], told["anomalies"], told["threshold"]) == (205, 11, 205, 0.0)
    assert files(out) == {"scores.parquet"}


def test_rows_without_a_score_are_told(run_cli: Cli, models: Path, data: Path, out: Path) -> None:
    answer = run_cli("score", data, "--engine", models / "model.onnx", "-o", out / "s.parquet", "--align", "last")
    assert "19 rows have no score" in answer.out


def test_every_option_reaches_the_run(run_cli: Cli, plain_models: Path, out: Path, write_parquet: WriteParquet) -> None:
    frame = rows(100, t=[*range(45), *range(10), *range(45)], s=["a"] * 45 + ["b"] * 10 + ["c"] * 45)
    frame = frame.with_columns(f00=pl.when(pl.int_range(pl.len()) == 70).then(None).otherwise("f00"))
    words = ["--time-column", "t", "--series-column", "s", "--short-series", "skip", "--on-bad-rows", "null"]
    words += ["--stride", "10", "--score-mode", "paper", "--smooth", "3", "--threshold", "0.25"]
    words += ["--explain", "top", "--batch-size", "3", "--threads", "1", "--provider", "cpu", "--json"]
    words += ["--normalise-errors"]
    answer = run_cli(
        "score",
        write_parquet("d.parquet", frame),
        "--engine",
        plain_models / "model.associations.onnx",
        "-o",
        out / "s.parquet",
        *words,
    )
    told = json.loads(answer.out)
    assert (told["series"], told["short_series"], told["batch_size"]) == (3, 1, 3)
    assert (told["score_mode"], told["threshold"], told["bad_windows"]) == ("paper", 0.25, 2)
    assert pl.read_parquet(out / "s.parquet").columns == [
        *("s", "t", "score", "is_anomaly", "top_feature", "top_feature_share", "error", "onset"),
    ]
    recorded = pl.read_parquet_metadata(out / "s.parquet")
    expected = {"mode": "paper", "temperature": 50.0, "smooth": 3, "normalise_errors": True, "level": "recent"}
    assert json.loads(recorded["at_infer.score"]) == expected
    assert json.loads(recorded["at_infer.layout"])["stride"] == 10


def test_the_output_is_named_scores_parquet_unless_told_otherwise(
    run_cli: Cli, models: Path, data: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(out)
    assert run_cli("score", data, "--engine", models / "model.onnx").code == 0
    assert files(out) == {"scores.parquet"}


@pytest.mark.slow
def test_a_terminal_gets_a_progress_bar_and_a_log_file_does_not(models: Path, data: Path, out: Path) -> None:
    ours, theirs = pty.openpty()
    words = [data, "--engine", models / "model.onnx", "-o", out / "scores.parquet"]
    command = [sys.executable, "-m", "at_infer", "score", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        process.communicate()
    os.close(theirs)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", os.read(ours, 1 << 16).decode())
    os.close(ours)
    assert process.returncode == 0
    assert "scoring" in shown
    assert "205/205 rows" in shown
    log = finished(start(*words, "--overwrite"))
    assert (log.code, log.err) == (0, "")


@pytest.mark.slow
def test_scoring_loads_neither_torch_nor_onnx(models: Path, data: Path, out: Path) -> None:
    heavy = {"torch", "onnx", "onnxscript", "training", "export", "pandas", "pyarrow", "ray", "tensorrt"}
    report = f"import sys, atexit\natexit.register(lambda: print('loaded:', sorted({heavy!r} & set(sys.modules))))"
    words = [data, "--engine", models / "model.onnx", "-o", out / "s.parquet"]
    answer = finished(start(*words, patch=report, fresh=True))
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "loaded: []"


# Killed and interrupted, with real processes


LONG = ["--stride", "4", "--smooth", "5", "--threshold", "1", "--series-column", "s", "--batch-size", "4"]


@pytest.fixture(scope="module")
def long_run(plain_models: Path, once: Once) -> tuple[list[object], Path]:
    """The words of a run that takes a second, and what it writes when nobody disturbs it."""
    words = ["--engine", plain_models / "model.onnx", *LONG]

    def run(folder: Path) -> None:
        rows(8_000, s=["a"] * 3_333 + ["b"] * 4_667).write_parquet(folder / "data.parquet", row_group_size=1000)
        answer = finished(start(folder / "data.parquet", *words, "-o", folder / "whole.parquet"))
        assert answer.code == 0, answer.err

    folder = once("long_scoring", run)
    return [folder / "data.parquet", *words], folder / "whole.parquet"


def held(calls: int, go: Path) -> str:
    """A patch that lets the engine answer so often and then wait, until there is a file `go`; `go.pid` has its id."""
    return f"""{SMALL}
import os, time
with open({f"{go}.pid"!r}, "w") as file:
    file.write(str(os.getpid()))
from at_infer.engines.ort import OnnxEngine
real, left = OnnxEngine.run, [{calls}]
def run(self, windows):
    left[0] -= 1
    while left[0] < 0 and not os.path.exists({str(go)!r}):
        time.sleep(0.01)
    return real(self, windows)
OnnxEngine.run = run
"""


def send(number: signal.Signals, go: Path) -> None:
    """A signal to the program itself: who started it may only have asked for it."""
    os.kill(int(go.with_name(f"{go.name}.pid").read_text()), number)


def wait_for_parts(process: subprocess.Popen[str], out: Path, count: int) -> None:
    while process.poll() is None and len(list((out / PARTS).glob("*.parquet"))) < count:
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["incidents.parquet", "incidents.jsonl"])
def test_a_run_that_was_killed_has_the_same_incidents_to_the_last_byte(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path, tmp_path: Path, name: str
) -> None:
    words, _ = long_run
    words = [*words, "--threshold", "0.9"]
    whole = run_cli("score", *words, "-o", tmp_path / "scores.parquet", "--incidents", tmp_path / name)
    assert whole.code == 0, whole.err
    words += ["-o", out / "scores.parquet", "--incidents", out / name, "--resume"]
    process = start(*words, patch=held(100, out.parent / "never"))
    wait_for_parts(process, out, 3)
    send(signal.SIGKILL, out.parent / "never")
    assert finished(process).code == -signal.SIGKILL
    assert not (out / name).exists()
    answer = run_cli("score", *words, "--json")
    told = json.loads(answer.out)
    assert told["resumed_rows"] > 0
    assert told["incidents"] > 1
    assert (out / name).read_bytes() == (tmp_path / name).read_bytes()
    assert files(out) == {"scores.parquet", name}


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_file(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path
) -> None:
    words, whole = long_run
    chance, parts = random.Random(0), 0
    for _ in range(3):
        patch = held(100, out.parent / "never")
        process = start(*words, "-o", out / "scores.parquet", "--resume", patch=patch)
        wait_for_parts(process, out, parts + chance.randint(1, 6))
        time.sleep(chance.uniform(0, 0.02))
        send(signal.SIGKILL, out.parent / "never")
        assert finished(process).code == -signal.SIGKILL
        assert not (out / "scores.parquet").exists()
        parts = len(list((out / PARTS).glob("*.parquet")))
    answer = run_cli("score", *words, "-o", out / "scores.parquet", "--resume", "--json")
    assert json.loads(answer.out)["resumed_rows"] > 0
    assert same(out / "scores.parquet", whole)
    assert files(out) == {"scores.parquet"}


KILLED_WHILE_WRITING = """
import os, at_infer.output
real = at_infer.output.take_place
def take_place(temporary, path):
    if temporary.name.startswith({name!r}):
        os.kill(os.getpid(), 9)
    real(temporary, path)
at_infer.output.take_place = take_place
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [".00000003.", ".scores.parquet"], ids=["part", "output"])
def test_a_run_that_is_killed_while_it_writes_leaves_no_half_file(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path, name: str
) -> None:
    words, whole = long_run
    process = start(*words, "-o", out / "scores.parquet", patch=SMALL + KILLED_WHILE_WRITING.format(name=name))
    assert finished(process).code == -signal.SIGKILL
    assert not (out / "scores.parquet").exists()
    answer = run_cli("score", *words, "-o", out / "scores.parquet", "--resume")
    assert answer.code == 0, answer.err
    assert "rows were scored by an earlier run" in answer.out
    assert same(out / "scores.parquet", whole)
    assert files(out) == {"scores.parquet"}


@pytest.mark.slow
def test_a_run_that_is_killed_after_its_last_write_has_its_output(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path
) -> None:
    words, whole = long_run
    moment = "import os\nat_infer.scoring.score_file.Parts.discard = lambda _: (\n"
    moment += f"    os.path.exists({str(out / 'scores.parquet')!r}) and os.kill(os.getpid(), 9))\n"
    assert finished(start(*words, "-o", out / "scores.parquet", patch=SMALL + moment)).code == -signal.SIGKILL
    assert same(out / "scores.parquet", whole)
    answer = run_cli("score", *words, "-o", out / "scores.parquet", "--resume")
    assert "exists already; pass --overwrite" in refused(answer)
    assert run_cli("score", *words, "-o", out / "scores.parquet", "--resume", "--overwrite").code == 0
    assert same(out / "scores.parquet", whole)
    assert files(out) == {"scores.parquet"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_what_is_kept_and_goes_on_from_there(
    number: signal.Signals, run_cli: Cli, long_run: tuple[list[object], Path], out: Path
) -> None:
    words, whole = long_run
    process = start(*words, "-o", out / "scores.parquet", patch=held(100, out.parent / "never"))
    wait_for_parts(process, out, 2)
    send(number, out.parent / "never")
    answer = finished(process)
    assert (answer.code, answer.out) == (130, "")
    told = re.fullmatch(
        r"interrupted: (\d+) rows are kept, the same run with --resume continues from there\n", answer.err
    )
    assert told, answer.err
    assert files(out) == {PARTS}
    answer = run_cli("score", *words, "-o", out / "scores.parquet", "--resume", "--json")
    assert json.loads(answer.out)["resumed_rows"] == int(told[1])
    assert same(out / "scores.parquet", whole)


@pytest.mark.slow
def test_two_runs_never_write_the_same_output_at_once(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path, tmp_path: Path
) -> None:
    words, whole = long_run
    process = start(*words, "-o", out / "scores.parquet", patch=held(100, tmp_path / "go"))
    wait_for_parts(process, out, 1)
    answers = [run_cli("score", *words, "-o", out / "scores.parquet", *resume) for resume in ([], ["--resume"])]
    (tmp_path / "go").touch()
    for answer in answers:
        message = f"{out}/scores.parquet: another run is writing it; wait, or choose another output"
        assert refused(answer) == message
    assert finished(process).code == 0
    assert same(out / "scores.parquet", whole)
    assert files(out) == {"scores.parquet"}


def test_an_interruption_before_the_first_score_leaves_nothing(
    run_cli: Cli, models: Path, data: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> dict[str, np.ndarray]:
        during = signal.getsignal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)  # impatient
        while signal.getsignal(signal.SIGINT) == during:  # the engine is in a thread that hears no signals
            time.sleep(0.01)
        raise AssertionError("not reached, or not listened to")

    monkeypatch.setattr(OnnxEngine, "run", interrupted)
    answer = run_cli("score", data, "--engine", models / "model.onnx", "-o", out / "s.parquet")
    assert answer == Answer(130, "", "interrupted: nothing was written\n")
    assert files(out) == set()


# Failing in the middle


@pytest.mark.slow
def test_a_failing_engine_is_one_line_with_its_rows_and_the_run_resumable(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, whole = long_run
    real, left = OnnxEngine.run, [100]

    def fail(self: OnnxEngine, windows: np.ndarray) -> dict[str, np.ndarray]:
        left[0] -= 1
        if left[0] < 0:
            raise EngineError("model.onnx: ONNX Runtime failed (out of memory)")
        return real(self, windows)

    monkeypatch.setattr(OnnxEngine, "run", fail)
    message = refused(run_cli("score", *words, "-o", out / "scores.parquet"))
    assert re.fullmatch(
        r"rows \d+ to \d+: model.onnx: ONNX Runtime failed \(out of memory\); \d+ rows are kept, the same run "
        r"with --resume continues from there",
        message,
    )
    assert files(out) == {PARTS}
    monkeypatch.undo()
    assert run_cli("score", *words, "-o", out / "scores.parquet", "--resume").code == 0
    assert same(out / "scores.parquet", whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "part_rows", "message"),
    [
        (0, 100, r".*out/.scores.parquet.parts/journal.json: could not be written \(File too large\)"),
        (8_000, 2000, r"rows 0 to \d+: .*out/.scores.parquet.parts/00000000.*parquet: could not be written \(.*\)"),
        (8_000, 100, r".*out/scores.parquet: could not be written \(.*\); 8000 rows are kept, the same run .*"),
    ],
    ids=["at once", "part", "output"],
)
def test_a_full_disk_is_one_line_and_the_run_resumable(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path, limit: int, part_rows: int, message: str
) -> None:
    words, whole = long_run
    patch = f"{SMALL}\nat_infer.scoring.score_file.PART_ROWS = {part_rows}\n"
    patch += f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    answer = finished(start(*words, "-o", out / "scores.parquet", patch=patch))
    found = refused(answer)
    assert re.fullmatch(message, found), found
    assert files(out) == ({PARTS} if "kept" in message else set())
    assert run_cli("score", *words, "-o", out / "scores.parquet", "--resume").code == 0
    assert same(out / "scores.parquet", whole)


@pytest.mark.slow
def test_a_damaged_row_group_is_one_line_with_its_rows_and_the_run_resumable(
    run_cli: Cli, long_run: tuple[list[object], Path], out: Path, tmp_path: Path
) -> None:
    words, whole = long_run
    path = tmp_path / "damaged.parquet"
    original = Path(str(words[0])).read_bytes()
    path.write_bytes(original)
    stat = path.stat()
    middle = len(original) * 6 // 10
    path.write_bytes(original[:middle] + bytes(2_000) + original[middle + 2_000 :])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    words = [path, *words[1:]]
    message = refused(finished(start(*words, "-o", out / "scores.parquet")))
    assert re.fullmatch(
        rf"{path}: from row [45]\d\d\d on: cannot be read as Parquet; it is damaged or has another format \(.*\); "
        r"[45]\d\d\d rows are kept, the same run with --resume continues from there",
        message,
    ), message
    assert files(out) == {PARTS}
    path.write_bytes(original)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert run_cli("score", *words, "-o", out / "scores.parquet", "--resume").code == 0
    assert same(out / "scores.parquet", whole)


@pytest.fixture
def unfinished(
    run_cli: Cli, plain_models: Path, write_parquet: WriteParquet, out: Path, small_parts: None
) -> tuple[Path, list[object]]:
    """The data and words of a run that stopped at a bad row."""
    frame = rows(200).with_columns(f00=pl.when(pl.int_range(pl.len()) == 150).then(None).otherwise("f00"))
    data = write_parquet("data.parquet", frame)
    words: list[object] = ["-o", out / "scores.parquet", "--batch-size", "1"]
    message = refused(run_cli("score", data, "--engine", plain_models / "model.onnx", *words))
    assert message.endswith("140 rows are kept, the same run with --resume continues from there")
    return data, words


@pytest.mark.slow
def test_resume_with_another_engine_option_or_input_is_refused_and_keeps_what_is_there(
    run_cli: Cli, plain_models: Path, unfinished: tuple[Path, list[object]], tmp_path: Path, out: Path
) -> None:
    data, words = unfinished
    engine = plain_models / "model.onnx"
    other = variant(engine, tmp_path / "other.onnx", checkpoint_sha256="1" * 64)
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(data.read_bytes())
    kept = files(out / PARTS)
    for changed in (
        [data, "--engine", other],
        [data, "--engine", plain_models / "model.associations.onnx"],
        [data, "--engine", engine, "--threshold", "3"],
        [data, "--engine", engine, "--stride", "3"],
        [data, "--engine", engine, "--explain", "top"],
        [data, "--engine", engine, "--time-column", "f01"],
        [data, "--engine", engine, "--series-per-file"],
        [copy, "--engine", engine],
    ):
        message = refused(run_cli("score", *changed, *words, "--resume"))
        assert message == (
            f"{out}/scores.parquet: the unfinished run had another engine, other options or other input; start again "
            f"without --resume"
        )
        assert files(out / PARTS) == kept
    os.utime(data)
    assert "other input" in refused(run_cli("score", data, "--engine", engine, *words, "--resume"))
    assert files(out) == {PARTS}
    assert run_cli("score", data, "--engine", engine, *words, "--on-bad-rows", "null").code == 0
    assert files(out) == {"scores.parquet"}


def test_resume_goes_on_once_bad_rows_are_allowed(
    run_cli: Cli, plain_models: Path, unfinished: tuple[Path, list[object]], out: Path
) -> None:
    data, words = unfinished
    allowed = ["score", data, "--engine", plain_models / "model.onnx", "--on-bad-rows", "null", "--json"]
    answer = run_cli(*allowed, *words, "--resume")
    assert json.loads(answer.out)["resumed_rows"] == 140
    assert run_cli(*allowed, "-o", out / "whole.parquet").code == 0
    assert same(out / "scores.parquet", out / "whole.parquet")


def test_resume_without_an_unfinished_run_starts_one(run_cli: Cli, models: Path, data: Path, out: Path) -> None:
    words = ["score", data, "--engine", models / "model.onnx", "-o", out / "scores.parquet", "--resume"]
    assert run_cli(*words).code == 0
    (out / "scores.parquet").unlink()
    (out / PARTS).mkdir()
    (out / PARTS / "journal.json").write_text("{half")
    assert run_cli(*words).code == 0
    assert files(out) == {"scores.parquet"}


# Bad input: one line, exit code 1, nothing written


def at(row: int, value: float | None) -> pl.DataFrame:
    """Rows with one value that is not as it should be."""
    frame = rows(100).cast(pl.Float64)
    return frame.with_columns(f01=pl.when(pl.int_range(pl.len()) == row).then(value).otherwise("f01"))


BAD_FRAMES: dict[str, tuple[pl.DataFrame, list[str], str]] = {
    "no row": (rows(0), [], "has no rows"),
    "no column": (pl.DataFrame(), [], "has no rows"),
    "a missing column": (rows(100).drop("f01"), [], "column 'f01' is missing; the file has f00, f02"),
    "columns of another model": (
        pl.DataFrame({"x": [1.0], "y": [2.0]}),
        [],
        "column 'f00' is missing; the file has x, y; the model was trained on f00, f01, f02",
    ),
    "a column of text": (rows(100).cast({"f01": pl.String}), [], "column 'f01' is String, not numeric"),
    "a column of dates": (rows(100, f01=[None] * 99 + [0]).cast({"f01": pl.Date}), [], "column 'f01' is Date, not"),
    "a column of lists": (rows(100, f02=[[1.0]] * 100), [], "column 'f02' is List(Float64), not numeric"),
    "a null": (at(33, None), [], "column 'f01' has no value in row 33; fix the row, or pass --on-bad-rows null"),
    "a NaN": (at(34, float("nan")), [], "column 'f01' has no value in row 34"),
    "an infinity": (at(35, float("-inf")), [], "column 'f01' is infinite, or too large for float32, in row 35"),
    "a value beyond float32": (at(36, 1e200), [], "column 'f01' is infinite, or too large for float32, in row 36"),
    "a value beyond the model": (at(37, 1e30), [], "rows 20 to 39: the engine returned no finite score"),
    "fewer rows than a window": (rows(19), [], "the input: has 19 rows, fewer than the model's window of 20"),
    "a short series": (
        rows(100, s=["a"] * 97 + ["b"] * 3),
        ["--series-column", "s"],
        "series 'b': has 3 rows, fewer than the model's window of 20; pass --short-series skip or --short-series pad",
    ),
    "a series in two pieces": (
        rows(90, s=["a"] * 30 + ["b"] * 30 + ["a"] * 30),
        ["--series-column", "s"],
        "row 60: series 'a' starts again; sort the rows by s and time",
    ),
    "unsorted time": (rows(3, t=[1, 3, 2]), ["--time-column", "t"], "row 2: t 2 comes after 3"),
    "duplicate time": (rows(3, t=[1, 2, 2]), ["--time-column", "t"], "row 2: t 2 is there twice"),
    "time without a value": (rows(3, t=[1, None, 3]), ["--time-column", "t"], "row 1: column 't' has no value"),
    "an unknown time column": (rows(30), ["--time-column", "t"], "column 't' is missing"),
    "a time column named like ours": (
        rows(30, score=range(30)),
        ["--time-column", "score"],
        "column 'score': is the time or series column and a column of the output; rename it",
    ),
}


@pytest.mark.parametrize(("frame", "words", "message"), BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
@pytest.mark.slow
def test_bad_rows_are_refused(
    frame: pl.DataFrame,
    words: list[str],
    message: str,
    run_cli: Cli,
    models: Path,
    write_parquet: WriteParquet,
    out: Path,
) -> None:
    path = write_parquet("in/x.parquet", frame)
    answer = run_cli("score", path, "--engine", models / "model.onnx", "-o", out / "s.parquet", *words)
    assert message in refused(answer)
    assert files(out) == set()


@pytest.mark.slow
def test_sources_that_do_not_exist_are_refused(run_cli: Cli, models: Path, tmp_path: Path, out: Path) -> None:
    for source, expected in (
        (tmp_path / "no.parquet", f"{tmp_path}/no.parquet: no such file"),
        (tmp_path / "*.parquet", f"{tmp_path}/*.parquet: no file matches this pattern"),
        (out, f"{out}: no *.parquet file in this folder"),
        ("", "'': no such file"),
        (tmp_path / ("x" * 300), f"{tmp_path}/{'x' * 300}: cannot be read (File name too long)"),
    ):
        message = refused(run_cli("score", source, "--engine", models / "model.onnx", "-o", out / "s.parquet"))
        assert message == expected
    for url in (f"file://{tmp_path}/no.parquet", "nonsense://x/y.parquet"):
        message = refused(run_cli("score", url, "--engine", models / "model.onnx", "-o", out / "s.parquet"))
        assert message.startswith(f"{url}: cannot be read")
    assert files(out) == set()


def damaged(kind: str, content: bytes) -> bytes:
    match kind:
        case "empty":
            return b""
        case "cut in half":
            return content[: len(content) // 2]
        case "without footer":
            return content[:-100]
        case "text":
            return b"f00,f01,f02\n1,2,3\n" * 50
        case "zeros":
            return bytes(500)
        case "duplicate column":
            return content.replace(b"f01", b"f00")
    raise AssertionError


@pytest.mark.parametrize("kind", ["empty", "cut in half", "without footer", "text", "zeros", "duplicate column"])
def test_damaged_files_are_refused(kind: str, run_cli: Cli, models: Path, data: Path, out: Path) -> None:
    data.write_bytes(damaged(kind, data.read_bytes()))
    message = refused(run_cli("score", data, "--engine", models / "model.onnx", "-o", out / "s.parquet"))
    assert message.startswith(f"{data}: cannot be read as Parquet; it is damaged or has another format")
    if kind == "duplicate column":
        assert "f00" in message
    assert files(out) == set()


def test_a_csv_file_with_one_column_twice_or_no_rows_is_refused(
    run_cli: Cli, models: Path, tmp_path: Path, out: Path
) -> None:
    path = tmp_path / "x.csv"
    for content, message in (
        ("f00,f01,f01,f02\n" + "1,2,3,4\n" * 30, "column 'f01' occurs twice; rename one of them"),
        ("f00,f01,f02\n", "has no rows"),
        ("", "cannot be read as CSV"),
        ("f00,f01,f02\n" + "1,2,x\n" * 30, "column 'f02' is String, not numeric"),
    ):
        path.write_text(content)
        answer = run_cli("score", path, "--engine", models / "model.onnx", "-o", out / "s.parquet")
        assert message in refused(answer)
    assert files(out) == set()


@pytest.mark.parametrize(
    ("second", "words", "message"),
    [
        (rows(50).drop("f02"), [], "2.parquet: column 'f02' is missing"),
        (rows(50).cast({"f00": pl.String}), [], "2.parquet: column 'f00' is String, not numeric"),
        (
            rows(50, t=[f"{i:03}" for i in range(50)]),
            ["--time-column", "t"],
            "2.parquet: column 't' is String but in ",
        ),
        (rows(50, t=range(50)), ["--time-column", "t"], "2.parquet: row 0: t 0 comes after 49"),
        (rows(0), ["--series-per-file"], "2.parquet': has 0 rows, fewer than the model's window of 20; pass"),
    ],
    ids=["column missing", "column of text", "time of another type", "time starts again", "no rows"],
)
def test_files_that_do_not_fit_together_are_refused(
    second: pl.DataFrame,
    words: list[str],
    message: str,
    run_cli: Cli,
    models: Path,
    write_parquet: WriteParquet,
    tmp_path: Path,
    out: Path,
) -> None:
    write_parquet("many/1.parquet", rows(50, t=range(50)))
    write_parquet("many/2.parquet", second)
    words = [*words, "--batch-size", "64"]
    answer = run_cli("score", tmp_path / "many", "--engine", models / "model.onnx", "-o", out / "s.parquet", *words)
    assert message in refused(answer)
    assert files(out) == set()


def test_outputs_that_cannot_be_written_are_refused(
    run_cli: Cli, models: Path, data: Path, tmp_path: Path, out: Path
) -> None:
    engine = ["--engine", models / "model.onnx"]
    before = data.read_bytes()
    (out / "old.parquet").write_text("precious")
    for place, words, message in (
        (data, [], f"{data}: exists already; pass --overwrite to replace it"),
        (data, ["--overwrite"], f"{data}: is also the input; choose another output"),
        (out / "old.parquet", [], f"{out}/old.parquet: exists already; pass --overwrite to replace it"),
        (out, [], f"{out}: is a folder; give a file name"),
        (out / "no" / "s.parquet", [], f"{out}/no/s.parquet: folder {out}/no does not exist; create it or choose"),
        (Path("/proc/s.parquet"), [], "/proc/s.parquet: cannot write to folder /proc"),
    ):
        assert refused(run_cli("score", data, *engine, "-o", place, *words)).startswith(message)
    (tmp_path / "in").mkdir()
    data.rename(tmp_path / "in" / "data.parquet")
    message = refused(run_cli("score", tmp_path / "in", *engine, "-o", tmp_path / "in" / "s.parquet"))
    assert message.startswith(f"{tmp_path}/in/s.parquet: is in the input folder")
    assert files(tmp_path / "in") == {"data.parquet"}
    (tmp_path / "in" / "data.parquet").rename(data)
    assert data.read_bytes() == before
    assert files(out) == {"old.parquet"}
    assert (out / "old.parquet").read_text() == "precious"
    assert run_cli("score", data, *engine, "-o", out / "old.parquet", "--overwrite").code == 0
    assert len(pl.read_parquet(out / "old.parquet")) == 205


BAD_OPTIONS: dict[str, tuple[list[str], str]] = {
    "stride of zero": (["--stride", "0"], "--stride: 0 is not between 1 and the window's length, 20"),
    "negative stride": (["--stride", "-3"], "--stride: -3 is not between"),
    "stride beyond the window": (["--stride", "21"], "--stride: 21 is not between"),
    "stride of causal windows": (["--align", "last", "--stride", "5"], "--stride: --align last scores every row"),
    "padding of causal windows": (["--align", "last", "--short-series", "pad"], "--short-series: --align last"),
    "a threshold of nan": (["--threshold", "nan"], "--threshold: nan is not a finite number"),
    "an infinite threshold": (["--threshold", "inf"], "--threshold: inf is not a finite number"),
    "a threshold in words": (["--threshold", "high"], "--threshold: 'high' is neither a number nor auto"),
    "two thresholds": (
        ["--threshold", "1", "--ratio", "0.1"],
        "--threshold: --threshold and --ratio cannot be combined",
    ),
    "a ratio in percent": (["--ratio", "5"], "--ratio: 5 is not a fraction in [0, 1); 0.01 means one percent"),
    "no clusters": (["--threshold", "auto"], "--threshold: the validation scores do not form two clusters"),
    "no smoothing": (["--smooth", "0"], "--smooth: 0 is too small"),
    "another smoothing": (
        ["--score-mode", "reconstruction", "--smooth", "2"],
        "--threshold: the model's belongs to --smooth 1; with another one give a number as --threshold",
    ),
    "another mode": (["--score-mode", "published"], "--score-mode: published compares associations by the published"),
    "temperature": (["--temperature", "0"], "--temperature: 0.0 is not a positive number"),
    "batch size": (["--batch-size", "0"], "--batch-size: 0 is too small"),
    "threads": (["--threads", "0"], "--threads: 0 is too small"),
    "one series and many": (["--one-series", "--series-per-file"], "--one-series: excludes"),
}


@pytest.mark.parametrize(("words", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
@pytest.mark.slow
def test_options_that_cannot_work_are_refused(
    words: list[str], message: str, run_cli: Cli, models: Path, data: Path, out: Path
) -> None:
    answer = run_cli("score", data, "--engine", models / "model.onnx", "-o", out / "s.parquet", *words)
    assert refused(answer).startswith(message)
    assert files(out) == set()


def test_usage_errors_exit_with_2(run_cli: Cli, models: Path, data: Path) -> None:
    engine = ["--engine", models / "model.onnx"]
    for words in ([data], engine, [data, *engine, "--align", "first"], [data, *engine, "--ratio", "x"]):
        answer = run_cli("score", *words)
        assert (answer.code, answer.out) == (2, "")
        assert "Traceback" not in answer.err


def test_engines_that_are_none_are_refused(
    run_cli: Cli, plain_models: Path, data: Path, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    (tmp_path / "model.bin").write_text("hello")
    alone = variant(plain_models / "model.onnx", tmp_path / "alone.onnx", outputs=["score"])
    for engine, words, message in (
        (tmp_path / "no.onnx", [], "no.onnx: no such file"),
        (tmp_path / "text.onnx", [], "text.onnx: is not an ONNX model"),
        (tmp_path / "model.bin", [], "model.bin: the suffix '.bin' is not that of an engine"),
        (alone, ["--score-mode", "paper"], "alone.onnx has only score, too little for mode paper"),
        (alone, ["--explain", "top"], "alone.onnx has no output reconstruction"),
    ):
        answer = run_cli("score", data, "--engine", engine, "-o", out / "s.parquet", *words)
        assert message in refused(answer)
    assert files(out) == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plan", "cuda", "tensorrt"])
def test_an_engine_that_needs_a_gpu_says_so_where_there_is_none(
    kind: str, models: Path, data: Path, out: Path, tmp_path: Path
) -> None:
    words = ["--engine", write_plan(tmp_path)] if kind == "plan" else []
    words = words or ["--engine", models / "model.onnx", "--provider", kind]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    message = refused(finished(start(data, *words, "-o", out / "s.parquet", env=environment)))
    assert "model.trt: needs an NVIDIA GPU" in message if kind == "plan" else f"{kind} provider" in message
    assert files(out) == set()


def test_odd_names_are_told_in_one_printable_line(run_cli: Cli, models: Path, out: Path, tmp_path: Path) -> None:
    engine = ["--engine", models / "model.onnx", "-o", out / "s.parquet"]
    message = refused(run_cli("score", "no\n\x1b31mfile\x07.parquet", *engine))
    assert message == "no ?31mfile?.parquet: no such file"
    path = tmp_path / "größe [b] ✓.parquet"
    rows(60, **{"[red]s[/red]": ["ü"] * 60}).write_parquet(path)
    answer = run_cli("score", path, *engine, "--series-column", "[red]s[/red]")
    assert (answer.code, answer.err) == (0, "")
    assert pl.read_parquet(out / "s.parquet")["[red]s[/red]"].to_list() == ["ü"] * 60


def test_a_bug_keeps_its_traceback(
    run_cli: Cli, models: Path, data: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(OnnxEngine, "run", buggy)
    with pytest.raises(ZeroDivisionError):
        run_cli("score", data, "--engine", models / "model.onnx", "-o", out / "s.parquet")
    assert files(out) == set()
