"""Kills on a Ray cluster of this machine: a worker is replaced, and after the end of the head a run goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.attack.command import LIMIT_S, Said, judge, start
from benchmarks.attack.kills import Outcome

FILES, ROWS = 8, 6_000
POLL_S = 0.1


def of_ray(seeds: Path, work: Path, rng: random.Random, count: int) -> Iterator[Outcome]:
    """In turns, after some splits: a worker, then the head; the scores are those of the plain command."""
    source, out = work / "in", work / "out"
    source.mkdir(parents=True)
    _make(seeds, source)
    words = ["score", str(source), "--engine", str(seeds / "model.onnx"), "--series-per-file"]
    words += ["--threads", "1", "--batch-size", "1"]
    plain = start([*words, "-o", str(work / "plain.parquet")], limit_s=10 * LIMIT_S)
    assert plain is not None, plain
    assert plain.code == 0, plain.err
    on_ray = [*words, "-o", str(out), "--ray", "local", "--workers", "1", "--split-rows", str(ROWS), "--overwrite"]
    for number in range(count):
        whom = "worker" if number % 2 else "head"
        for left in out.glob("*"):
            left.unlink()
        killed, said = _killed(on_ray, out, whom, splits=rng.randrange(1, FILES - 2))
        if not killed:
            yield f"kill of a Ray {whom}, too late", judge(said), "" if said is None else said.err
            continue
        outcome = judge(said)
        if whom == "worker" or outcome == "accepted":  # a run may end before it misses the head
            outcome = outcome if outcome != "accepted" or _same(work) else "wrong output"
            yield f"kill of a Ray {whom}", outcome, "" if said is None else said.err
            continue
        yield "kill of a Ray head", outcome, "" if said is None else said.err
        again = start([word for word in on_ray if word != "--overwrite"], limit_s=10 * LIMIT_S)
        outcome = judge(again)
        outcome = outcome if outcome != "accepted" or _same(work) else "wrong output"
        yield "the same command after the head was killed", outcome, "" if again is None else again.err


def _killed(words: list[str], out: Path, whom: str, *, splits: int) -> tuple[bool, Said | None]:
    """Run until so many splits are there, kill, and wait for the end."""
    name = {"worker": "ray::Actor", "head": "gcs_server"}[whom]
    process = subprocess.Popen(
        [sys.executable, "-m", "at_infer", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    killed, end = False, time.monotonic() + 10 * LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        if not killed and sum(1 for _ in out.glob("0*.parquet")) >= splits:
            for pid in _descendants(process.pid, name)[:1]:
                _kill(pid)
                killed = True
        time.sleep(POLL_S)
    if process.poll() is None:
        for pid in [*_descendants(process.pid, ""), process.pid]:
            _kill(pid)
        process.communicate()
        return killed, None
    printed, told = process.communicate()
    return killed, Said(process.returncode, printed, told.decode(errors="replace"))


def _descendants(of: int, name: str) -> list[int]:
    """Processes that this one has started, and those have, whose name begins like that."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            head, _, rest = entry.read_text(errors="replace").rpartition(")")
            pid, _, command = head.partition(" (")
            parents[int(pid)] = int(rest.split()[1]), command
    found, above = [], [of]
    while above:
        parent = above.pop()
        below = [pid for pid, (by, _) in parents.items() if by == parent]
        above += below
        found += [pid for pid in below if parents[pid][1].startswith(name)]
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _make(seeds: Path, source: Path) -> None:
    """The rows of the seed, changed a little in each file; in a process of its own, as this one forks."""
    script = (
        "import sys, polars as pl\n"
        "rows = pl.concat([pl.read_parquet(sys.argv[1])] * 20)\n"
        f"for i in range({FILES}):\n"
        "    rows.with_columns(pl.col(pl.Float32) * (1 + i / 100)).write_parquet(f'{sys.argv[2]}/{i:02}.parquet')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(seeds / "data.parquet"), str(source)], check=True)


def _same(work: Path) -> bool:
    """Are the splits, in the order of their names, the rows of the plain command?"""
    script = (
        "import sys, glob, polars as pl\n"
        "splits = pl.concat([pl.read_parquet(one) for one in sorted(glob.glob(sys.argv[1] + '/out/0*.parquet'))])\n"
        "sys.exit(not splits.equals(pl.read_parquet(sys.argv[1] + '/plain.parquet')))\n"
    )
    return subprocess.run([sys.executable, "-c", script, str(work)], check=False).returncode == 0
