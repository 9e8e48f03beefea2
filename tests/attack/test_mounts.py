"""A mount that stalls: `score` waits, publishes nothing meanwhile, and then ends as ever or in one line."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from at_infer import score_file
from at_infer.tables.files import FOOTER_GUESS
from tests.attack.stalling_mount import StallingMount, can_mount
from tests.programs import programs
from tests.scored import rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_mount(), reason="needs root and /dev/fuse"),
]
ROWS = 40_000
WAIT_S = 120
PAGE = 4096
"""Whole pages are read."""


@pytest.fixture
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file as it is on a disk."""
    if "csv" in request.node.name:
        rows(ROWS // 10).write_csv(tmp_path / "local.csv")
        return tmp_path / "local.csv"
    path = tmp_path / "local.parquet"
    rows(ROWS).write_parquet(path, compression="uncompressed", row_group_size=ROWS // 8)
    return path


@pytest.fixture(params=["head", "rows", "footer", "csv"])
def mount(request: pytest.FixtureRequest, tmp_path: Path, local: Path) -> Iterator[StallingMount]:
    """It stalls when the file is opened, while its rows are read, or at its end."""
    folder = tmp_path / "mnt"
    folder.mkdir()
    content = local.read_bytes()
    end = (len(content) - FOOTER_GUESS) // PAGE * PAGE
    held = {"head": range(PAGE), "rows": range(PAGE, end), "footer": range(end, len(content))}
    held["csv"] = range(PAGE, len(content))
    with StallingMount(folder, f"data{local.suffix}", content, held[request.param]) as found:
        yield found


def start(mount: StallingMount, models: Path, out: Path) -> subprocess.Popen[str]:
    words = ["score", str(mount.folder / mount.name), "--engine", str(models / "model.onnx"), "-o", str(out)]
    return subprocess.Popen([programs() / "at-infer", *words], stderr=subprocess.PIPE, text=True)


def wait_until_stalled(mount: StallingMount, process: subprocess.Popen[str], out: Path) -> None:
    assert mount.stalled.wait(WAIT_S)
    time.sleep(0.5)
    assert process.poll() is None, "it waits"
    assert not out.exists(), "nothing is published meanwhile"


def test_a_mount_that_comes_back_changes_nothing(
    mount: StallingMount, models: Path, local: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    process = start(mount, models, out)
    wait_until_stalled(mount, process, out)
    mount.go_on()
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said
    score_file(local, models / "model.onnx", tmp_path / "expected.parquet")
    assert pl.read_parquet(out).equals(pl.read_parquet(tmp_path / "expected.parquet"))


def test_a_mount_that_gives_up_is_one_line(mount: StallingMount, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    process = start(mount, models, out)
    wait_until_stalled(mount, process, out)
    mount.fail()
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1, said
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in said
    assert f"mnt/{mount.name}: " in line
    assert not out.exists()


def test_ctrl_c_takes_effect_when_the_read_returns(mount: StallingMount, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    process = start(mount, models, out)
    wait_until_stalled(mount, process, out)
    process.send_signal(signal.SIGINT)
    mount.go_on()
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert not out.exists()
