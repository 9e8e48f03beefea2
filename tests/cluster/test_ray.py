"""`at-infer score --ray` on a real cluster of two workers.

Tests that start Ray stay in one process: some count what is left of a cluster, so no two may run side by side.
"""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.cli import app
from at_infer.cluster import connect
from at_infer.cluster.actors import Placement, RayWorkers, placements, ray_workers
from at_infer.cluster.connect import ray_cluster
from at_infer.cluster.head import Head
from at_infer.cluster.manifest import NAME
from at_infer.cluster.run import score_on_workers
from at_infer.cluster.worker import WorkerSettings
from at_infer.errors import ClusterError
from at_infer.installed import install_extra
from at_infer.scoring.score_file import score_file
from benchmarks.scale_out import Measured
from tests.conftest import Answer
from tests.in_process import read_splits
from tests.options import by_kind
from tests.scored import rows

pytestmark = pytest.mark.ray
Cli = Callable[..., Answer]
HANGS_S = 600  # longer than anything takes on a busy machine
KEYS = ["--series-column", "s", "--time-column", "t"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two CPUs that this program is connected to; every run gets workers of its own."""
    with ray_cluster("local", local_cpus=2, say=lambda _: None) as ray:
        yield ray


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files; series 'long' has three quarters of all rows and lies in two of them."""
    series = ["a"] * 130 + ["long"] * 1805 + ["b"] * 45 + ["c"] * 217 + ["d"] * 33
    frame = rows(len(series), s=series, t=np.arange(len(series)))
    folder = tmp_path_factory.mktemp("in")
    for number, (first, end) in enumerate([(0, 900), (900, 1990), (1990, len(series))]):
        frame[first:end].write_parquet(folder / f"{number}.parquet", row_group_size=250)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def one_line(answer: Answer) -> str:
    assert answer.code == 1, answer
    assert answer.out == ""
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, answer.err
    assert "Traceback" not in answer.err
    return errors[0].removeprefix("error: ")


def without_waiting(said: str) -> list[str]:
    """Lines, but for the one that a cluster on a busy machine adds."""
    return [line for line in said.splitlines() if not line.startswith("waiting for a worker")]


def actors() -> list[int]:
    """Processes of workers that are busy with a job."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if b"ray::Actor.call" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


# The same scores: tests/cluster/test_splits.py and test_manifest.py have other options, and workers in this process


@dataclass(frozen=True)
class Spread:
    """A run on two workers, and the same without."""

    command: list[object]
    out: Path
    plain: Path
    said: str
    told: dict[str, Any]
    told_plain: dict[str, Any]


@pytest.fixture(scope="module")
def spread(cluster: Any, models: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Spread:
    folder = tmp_path_factory.mktemp("spread")
    # Batches of one window: whatever a batch does to the last bit of a score is out of the way.
    command = ["score", source, "--engine", models / "model.onnx", "--threads", 1, "--batch-size", 1, *KEYS]
    command += ["--stride", 7, "--threshold", 1.5, "--explain", "all"]
    plain, _ = by_app(*command, "-o", folder / "plain.parquet", "--json")
    command += ["-o", folder / "out", "--ray", "auto", "--split-rows", 150]
    told, said = by_app(*command, "--json")
    return Spread(command, folder / "out", folder / "plain.parquet", said, json.loads(told), json.loads(plain))


def by_app(*words: object) -> tuple[str, str]:
    """Output and errors of a command in this process, for fixtures of a module, which cannot ask for `run_cli`."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err, suppress(SystemExit):
        app([str(word) for word in words])
    return out.getvalue(), err.getvalue()


def test_scores_equal_those_of_the_plain_command_row_for_row(spread: Spread) -> None:
    assert read_splits(spread.out).equals(pl.read_parquet(spread.plain))
    told, found = spread.told_plain, spread.told
    for name in ("rows", "series", "windows", "anomalies", "segments", "unscored_rows", "bad_windows", "short_series"):
        assert found[name] == told[name], name
    assert (found["workers"], found["engine"]) == (2, f"2 x {told['engine']}")
    assert "on the cluster that this program is connected to, 1 machine, 2 CPUs, 0 GPUs" in spread.said
    splits = json.loads((spread.out / NAME).read_text())["splits"]
    assert sum(split["read_rows"] != [0, 0] for split in splits) >= 10  # the long series is cut
    assert all(split["rows"] <= 160 for split in splits)


def test_a_second_run_skips_what_is_done(run_cli: Cli, spread: Spread) -> None:
    first, out = spread.told, spread.out
    splits = sorted(out.glob("*.parquet"))
    times = {path: path.stat().st_mtime_ns for path in splits}
    again = run_cli(*spread.command)
    assert again.code == 0
    assert f"{out}: all {first['splits']} splits are done already" in again.err
    splits[1].unlink()
    third = json.loads(run_cli(*spread.command, "--workers", 1, "--json").out)
    assert (third["skipped_splits"], third["splits"]) == (first["splits"] - 1, first["splits"])
    assert (third["anomalies"], third["segments"]) == (first["anomalies"], first["segments"])
    assert sum(path.stat().st_mtime_ns != times[path] for path in splits) == 1


def test_another_model_and_changed_input_are_refused_before_anything_starts(
    run_cli: Cli, spread: Spread, models: Path, source: Path
) -> None:
    out, first = spread.out, source / "0.parquet"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    message = one_line(run_cli(*spread.command, "--engine", models / "model.associations.onnx"))
    assert message.startswith(f"{out}: holds scores of another model, model.onnx")
    written = first.stat()
    os.utime(first)
    message = one_line(run_cli(*spread.command))
    os.utime(first, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert message.startswith(f"{out}: the input has changed, {first} was written since")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


# Trouble


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_doubled(
    cluster: Any, models: Path, source: Path, out: Path, tmp_path: Path
) -> None:
    running: list[RayWorkers] = []
    killed: list[int] = []

    @contextmanager
    def watched(settings: WorkerSettings) -> Iterator[RayWorkers]:
        with ray_workers(settings, address="auto") as workers:
            running.append(workers)
            yield workers

    def kill(done: int, _all: int) -> None:
        """In the middle: some splits are done, others under way."""
        if done and not killed:
            killed.append(running[0].opened[-1].pid)
            os.kill(killed[0], signal.SIGKILL)

    given: dict[str, Any] = {"series_column": "s", "time_column": "t", "batch_size": 1}
    score_file(source, models / "model.onnx", tmp_path / "plain.parquet", **by_kind(threads=1, **given))
    summary = score_on_workers(
        source,
        models / "model.onnx",
        out,
        open_workers=watched,
        split_rows=100,
        observe=kill,
        **by_kind(**given),
    )
    assert len(killed) == 1
    assert summary.lost_workers == 1
    assert summary.rows == 2230
    assert read_splits(out).equals(pl.read_parquet(tmp_path / "plain.parquet"))
    assert not list(out.glob(".*"))


def test_a_poisoned_file_is_named_and_the_others_are_kept(
    run_cli: Cli, cluster: Any, plain_models: Path, source: Path, out: Path, tmp_path: Path
) -> None:
    """Once it is mended, the next run scores only what is missing: tests/cluster/test_manifest.py."""
    folder = shutil.copytree(source, tmp_path / "in")
    bad = pl.read_parquet(folder / "1.parquet")
    bad.with_columns(f01=pl.when(pl.int_range(pl.len()) == 7).then(float("inf")).otherwise("f01")).write_parquet(
        folder / "1.parquet"
    )
    (folder / "3.parquet").write_bytes((folder / "2.parquet").read_bytes()[:-300])
    command = ["score", folder, "--engine", plain_models / "model.onnx", "--series-per-file", "--time-column", "t"]
    command += ["--threads", "1", "--batch-size", "1"]
    message = one_line(run_cli(*command, "-o", out, "--ray", "auto", "--workers", 1, "--split-rows", "200"))
    assert f"{folder}/1.parquet: column 'f01' is infinite" in message
    assert "in row 7" in message
    assert f"{folder}/3.parquet: cannot be read as Parquet" in message
    assert "splits are kept in" in message
    kept = read_splits(out)
    assert kept.filter(file=f"{folder}/0.parquet").height == 900
    assert kept.filter(file=f"{folder}/2.parquet").height == 240
    assert 0 < kept.filter(file=f"{folder}/1.parquet").height < 1090  # its healthy end


@pytest.mark.parametrize("what", ["gone", "another"])
def test_workers_without_the_engine_file_are_noticed(
    cluster: Any, models: Path, source: Path, out: Path, tmp_path: Path, what: str
) -> None:
    engine = tmp_path / "model.onnx"
    engine.write_bytes((models / "model.onnx").read_bytes())

    @contextmanager
    def elsewhere(settings: WorkerSettings) -> Iterator[Any]:
        """As on machines where the folder holds something else."""
        if what == "gone":
            engine.unlink()
        else:
            engine.write_bytes((models / "model.associations.onnx").read_bytes())
        with ray_workers(settings, address="auto", most=1) as workers:
            yield workers

    expected = {
        "gone": "no such file; every machine must find the engine under this path",
        "another": "is another file than where the run was started; copy it to every machine",
    }[what]
    with pytest.raises(ClusterError, match=rf"worker on {re.escape(socket.gethostname())}: .*model.onnx: {expected}"):
        score_on_workers(source, engine, out, open_workers=elsewhere)
    assert not out.exists()


def test_without_ray_the_extra_is_named(
    run_cli: Cli, models: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    message = one_line(run_cli("score", source, "--engine", models / "model.onnx", "-o", out, "--ray", "auto"))
    assert message == f"--ray: Ray is not installed; {install_extra('ray')}"
    assert not out.exists()


def test_options_that_make_no_sense_are_refused(run_cli: Cli, models: Path, source: Path, out: Path) -> None:
    command = ["score", source, "--engine", models / "model.onnx", "-o", out]
    for words, expected in (
        (["--workers", "2"], "score: --workers and --split-rows need --ray; add it, or leave them out"),
        (
            ["--ray", "auto", "--resume"],
            "--resume: a run with --ray always continues from its output folder; leave it out",
        ),
        (["--ray", "auto", "--workers", "0"], "--workers: 0 is too small; at least 1"),
        (["--ray", "auto", "--split-rows", "0"], "--split-rows: 0 is too small; at least 1"),
        (["--ray", "auto", "--threads", "0"], "--threads: 0 is too small; at least 1"),
    ):
        assert one_line(run_cli(*command, *words)) == expected
    assert not out.exists()


def test_the_benchmark_runs(cluster: Any, models: Path, tmp_path: Path) -> None:
    rows(2400).write_parquet(tmp_path / "data.parquet")
    measured = Measured(tmp_path / "data.parquet", models / "model.onnx", tmp_path, 2400)
    assert min(measured.run(1, 2)) > 0
    assert measured.driver(5) > 0


# Where workers sit


def node(name: str, cpus: int, gpus: int = 0, *, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "Resources": {"CPU": float(cpus), "GPU": float(gpus)}}


def test_there_is_one_worker_per_gpu_and_elsewhere_one_per_cpu() -> None:
    nodes = [node("cpu", 4), node("gpu", 16, 2), node("dead", 8, alive=False), node("storage", 0)]
    found = placements(nodes, threads=1, provider="cpu", most=None)
    assert sorted(found) == sorted([Placement("cpu", 0)] * 4 + [Placement("gpu", 1)] * 2)
    assert placements(nodes, threads=3, provider="cpu", most=None) == [
        Placement("gpu", 1),
        Placement("cpu", 0),
        Placement("gpu", 1),
    ]
    assert placements(nodes, threads=1, provider="cuda", most=None) == [Placement("gpu", 1)] * 2
    assert placements(nodes[:1], threads=1, provider="cuda", most=None) == []


def test_few_workers_are_spread_over_many_machines() -> None:
    nodes = [node("a", 4), node("b", 4), node("g", 4, 1)]
    assert [placement.node for placement in placements(nodes, threads=1, provider="cpu", most=4)] == [
        "g",
        "a",
        "b",
        "a",
    ]


# Clusters


@contextmanager
def listener(*, answers: bool) -> Iterator[int]:
    """A port that nobody serves, or one that accepts and stays silent."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if answers:
            server.listen()
        yield server.getsockname()[1]


def run_at_infer(programs: Path, *words: object, **environment: str) -> Answer:
    """In a process of its own, as a user does."""
    command = [str(programs / "at-infer"), *map(str, words)]
    unset = {"RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_TMPDIR"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(command, capture_output=True, text=True, env=inherited | environment, timeout=HANGS_S)
    return Answer(done.returncode, done.stdout, done.stderr)


def test_an_address_that_cannot_be_reached_is_one_line(warm: Path, models: Path, source: Path, out: Path) -> None:
    with listener(answers=False) as port:
        address = f"ray://127.0.0.1:{port}"
        answer = run_at_infer(warm, "score", source, "--engine", models / "model.onnx", "-o", out, "--ray", address)
    message = one_line(answer)
    assert answer.err == f"error: {message}\n"
    assert message.startswith(f"{address}: ")
    assert message.endswith("start one there with ray start --head, or pass --ray local")
    assert not out.exists()


def test_an_address_where_nobody_answers_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "ANSWER_S", 0.1)
    with (
        listener(answers=True) as port,
        pytest.raises(ClusterError, match=f"{port}: the server there is not Ray; start"),
    ):
        connect._connect(SimpleNamespace(), f"ray://127.0.0.1:{port}")


def test_a_program_that_is_connected_stays_where_it_is(
    run_cli: Cli, cluster: Any, models: Path, source: Path, out: Path
) -> None:
    message = one_line(run_cli("score", source, "--engine", models / "model.onnx", "-o", out, "--ray", "ray://other"))
    assert message == "--ray: this program is connected to a cluster already, not to ray://other; pass auto"


@pytest.mark.parametrize("address", ["ray://", "ray://host:port", "http://host:1", "somewhere"])
def test_an_address_that_is_none_is_refused(models: Path, source: Path, out: Path, address: str, run_cli: Cli) -> None:
    message = one_line(run_cli("score", source, "--engine", models / "model.onnx", "-o", out, "--ray", address))
    assert message.startswith("--ray: ")
    assert "ray://host:port" in message


def test_a_cluster_of_its_own_leaves_nothing_behind(
    warm: Path, models: Path, source: Path, out: Path, tmp_path: Path
) -> None:
    before = set(Path("/tmp").glob("at-infer-*"))
    home = tmp_path / "home"
    home.mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as temporary:
        answer = run_at_infer(
            *[warm, "score", source, "--engine", models / "model.onnx", "-o", out, "--ray", "auto", "--workers", 1],
            HOME=str(home),
            RAY_TMPDIR=temporary,  # where no other cluster of this machine has left word
        )
    assert answer.code == 0, answer.err
    how = "no Ray cluster is running; started a Ray cluster on this machine"
    assert without_waiting(answer.err) == [f"{how}, 1 machine, 1 CPU, 0 GPUs"]
    assert "by 1 worker" in answer.out
    assert not (home / ".ray").exists()  # no token
    assert set(Path("/tmp").glob("at-infer-*")) <= before


def test_ctrl_c_ends_the_workers_and_says_what_is_kept(models: Path, source: Path, out: Path) -> None:
    """As a terminal sends it: to every process of the group."""
    command = ["score", source, "--engine", models / "model.onnx", "--align", "last", "--threads", "1"]
    command += ["-o", out, "--ray", "local", "--workers", "1", "--split-rows", "20", "--batch-size", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "at_infer", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + HANGS_S
    while not list(out.glob("0*.parquet")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130, errors
    assert errors.startswith("started a Ray cluster on this machine, 1 machine, 1 CPU, 0 GPUs\n")
    assert re.search(r"interrupted: \d+ of 112 splits are kept in .*, the same command continues from there\n$", errors)
    assert "Traceback" not in errors
    assert actors() == []


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_cluster_that_could_not_serve_a_client_is_asked_again(
    gives_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    failures = len(connect.CLIENT_PAUSES_S) + gives_up
    trace = (
        "Traceback (most recent call last):\n  File x.py, line 765\nRuntimeError: Starting Ray client server failed.\n"
    )

    def init(address: str, **_: object) -> None:
        calls.append(address)
        if len(calls) <= failures:
            raise ConnectionAbortedError(f"{connect.NOT_STARTED}:\n{trace}")

    monkeypatch.setattr(connect, "_ask", lambda *_: "yes")
    monkeypatch.setattr("time.sleep", lambda _: None)
    with listener(answers=True) as port:
        address = f"ray://127.0.0.1:{port}"
        if gives_up:
            with pytest.raises(
                ClusterError, match=r"reached \(RuntimeError: Starting Ray client server failed\.\); start"
            ):
                connect._connect(SimpleNamespace(init=init), address)
        else:
            connect._connect(SimpleNamespace(init=init), address)
    assert calls == [address] * (len(connect.CLIENT_PAUSES_S) + 1)


def test_a_cluster_that_cannot_be_started_is_one_line() -> None:
    """On a busy machine Ray gives up after half a minute, with an exception of no kind of its own."""

    def init(**_: object) -> None:
        raise Exception("The current node timed out during startup. This could happen\nbecause")

    ray = SimpleNamespace(init=init, shutdown=lambda: None)
    with pytest.raises(ClusterError, match=r"no cluster could be started .*timed out .*; try again"):
        connect._own_cluster(ray, 1).__enter__()


def test_a_head_that_does_not_answer_any_more_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("at_infer.cluster.head.ASK_S", 0.0)
    monkeypatch.setattr("at_infer.cluster.head.PATIENCE_S", 0.0)
    with listener(answers=True) as port:
        there = Head(f"127.0.0.1:{port}")
        there.check()
    with pytest.raises(ClusterError, match=rf"the head of the cluster at 127.0.0.1:{port} has not answered"):
        there.check()
    assert there.is_lost
    Head(None).check()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def head() -> Iterator[dict[str, str]]:
    """A cluster that runs on its own, as `ray start --head` leaves it, and requires a token."""
    with listener(answers=False) as gcs_port, listener(answers=False) as client_port:
        ports = [gcs_port, client_port]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r", ignore_cleanup_errors=True) as temporary:
        known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2, "RAY_TMPDIR": temporary}
        words = ["--head", "--block", "--num-cpus=1", f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}"]
        words += ["--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=80000000"]
        log = Path(temporary) / "start.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [str(Path(sys.executable).parent / "ray"), "start", *words],
                env=os.environ | known,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + HANGS_S
            # Its word comes before the server for clients listens, on a busy machine seconds before.
            while "--block" not in log.read_text() or not listens(ports[1]):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield known | {"address": f"ray://127.0.0.1:{ports[1]}"}
        finally:
            process.terminate()
            process.wait(timeout=HANGS_S)


def test_a_running_cluster_is_found_and_used(
    warm: Path, head: dict[str, str], models: Path, source: Path, out: Path, tmp_path: Path
) -> None:
    command = ["score", source, "--engine", models / "model.onnx", *KEYS, "--threads", 1]
    address = head["address"]
    environment = {name: value for name, value in head.items() if name != "address"}
    by_address = run_at_infer(warm, *command, "--batch-size", 1, "-o", out, "--ray", address, **environment)
    assert by_address.code == 0, by_address.err
    assert without_waiting(by_address.err) == [f"connected to {address}, 1 machine, 1 CPU, 0 GPUs"]
    assert re.search(r"out: 2230 rows of 5 series, \d+ anomalous rows", by_address.out)
    assert re.search(r"^\d+ splits? of about \d+ rows, by 1 worker$", by_address.out, re.MULTILINE)
    found = run_at_infer(warm, *command, "-o", tmp_path / "auto", "--ray", "auto", "--workers", 1, **environment)
    assert found.code == 0, found.err
    assert without_waiting(found.err) == ["connected to the running Ray cluster, 1 machine, 1 CPU, 0 GPUs"]
    score_file(
        source,
        models / "model.onnx",
        tmp_path / "plain.parquet",
        **by_kind(series_column="s", time_column="t", threads=1, batch_size=1),
    )
    expected = pl.read_parquet(tmp_path / "plain.parquet")
    assert read_splits(out).equals(expected)
    by_any_batch = read_splits(tmp_path / "auto")  # which changes no score by more than rounding
    np.testing.assert_allclose(by_any_batch["score"].to_numpy(), expected["score"].to_numpy(), rtol=1e-6, atol=1e-6)
    assert by_any_batch.drop("score").equals(expected.drop("score"))


def test_a_cluster_that_wants_a_token_says_so(
    warm: Path, head: dict[str, str], models: Path, source: Path, out: Path
) -> None:
    command = ["score", source, "--engine", models / "model.onnx", "-o", out, "--ray"]
    answer = run_at_infer(warm, *command, head["address"])
    assert answer.err == f"error: {one_line(answer)}\n"
    assert "the cluster requires a token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in answer.err
    answer = run_at_infer(warm, *command, "auto", RAY_TMPDIR=head["RAY_TMPDIR"])
    assert answer.err == f"error: {one_line(answer)}\n"
    assert re.search(r"--ray auto: the cluster at .* requires a token; .*or pass --ray local", answer.err)
