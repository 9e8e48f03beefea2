"""Commands as processes: a standard output that is full, and signals while they start."""

import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.scored import rows

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.slow
def test_a_full_standard_output_is_one_line(models: Path, tmp_path: Path, warm: Path) -> None:
    data, scores = tmp_path / "data.parquet", tmp_path / "scores.parquet"
    rows(60).write_parquet(data)
    labelled = pl.DataFrame({"row": range(60), "score": [0.5] * 60, "label": [0, 1] * 30})
    labelled.write_parquet(scores)
    model = str(models / "model.onnx")
    for words in (
        ["inspect", model],
        ["inspect", model, "--json"],
        ["score", str(data), "--engine", model, "-o", str(tmp_path / "out.parquet"), "--json"],
        ["evaluate", str(scores), "--delta", "0.7"],
        ["--help"],
    ):
        with FULL.open("wb") as full:
            done = subprocess.run(
                [warm / "at-infer", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert (done.returncode, done.stderr) == (1, "error: stdout: could not be written (No space left on device)\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_command_starts_is_one_line(models: Path, tmp_path: Path, number: signal.Signals) -> None:
    rows(60).write_parquet(tmp_path / "data.parquet")
    model, output = str(models / "model.onnx"), str(tmp_path / "out.parquet")
    words = ["score", str(tmp_path / "data.parquet"), "--engine", model, "-o", output, "--overwrite"]
    # Before our first line runs, Python itself answers: from then on we do.
    program = [sys.executable, "-X", "importtime", "-m", "at_infer"]
    for count in (1, 5, 11):
        process = subprocess.Popen([*program, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if sum("at_infer" in one or "polars" in one or "onnxruntime" in one for one in said) > 7 * count:
                break
        process.send_signal(number)
        _, rest = process.communicate(timeout=600)
        text = [line for line in rest.splitlines() if not line.startswith("import time:")]
        assert process.returncode in (0, 130), (count, text)
        if process.returncode == 130:
            assert [line for line in text if line.startswith("interrupted")] == text[-1:] != [], (count, text)
        else:  # it was done before the signal came
            assert Path(output).exists()
        assert not any("Traceback" in line or "is not installed" in line for line in text)
