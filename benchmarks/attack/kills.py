"""Kills at random moments: what is left is usable, and a run that goes on ends as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.attack.command import LIMIT_S, judge
from benchmarks.attack.forked import Forked
from benchmarks.attack.mutations import TINY

Outcome = tuple[str, str, str]
"""Kind, outcome, and what was said."""
MOST_KILLS = 6
"""Of one run, before it may end."""
BATCH = ["--threads", "1", "--batch-size", "1"]


def of_score(seeds: Path, work: Path, rng: random.Random, count: int) -> Iterator[Outcome]:
    """After so many parts, and a moment; the output is that of one run, byte by byte."""
    work.mkdir()
    out, parts = work / "out.parquet", work / ".out.parquet.parts"
    words = ["score", str(seeds / "data.parquet"), "--engine", str(seeds / "model.onnx"), "-o", str(out), *BATCH]
    assert Forked(words).wait() is not None
    whole, kills = out.read_bytes(), 0
    while kills < count:
        shutil.rmtree(parts, ignore_errors=True)
        out.unlink()
        again: list[str] = []
        for _ in range(MOST_KILLS):
            before = _count(parts)
            child, wanted = Forked([*words, *again], before=in_small_parts), before + rng.choice((0, 1, 1, 2, 3))
            _wait_for(lambda wanted=wanted: _count(parts) >= wanted or out.exists(), child)  # type: ignore[misc]
            child.poll(rng.random() * 0.05)
            child.kill(rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            said = child.wait()
            if said is None or said.code not in (-signal.SIGKILL, 130):
                break  # it had ended before, or does not end
            kills += 1
            told = "traceback" if "Traceback" in said.err else "accepted"
            if out.exists():
                same = out.read_bytes() == whole
                yield "kill of score, output complete", told if same else "wrong output", said.err
                break
            kept = _count(parts)
            yield f"kill of score, {'parts' if kept else 'nothing'} to resume", told, said.err
            again = ["--resume"]
        if not out.exists():
            said = Forked([*words, *again]).wait()
            outcome = judge(said)
            if outcome == "accepted" and out.read_bytes() != whole:
                outcome = "wrong output"
            yield "killed score, resumed to its end", outcome, "" if said is None else said.err


def in_small_parts() -> None:
    """Parts of one batch, and a moment after each: else a kill would come too early or too late."""
    import at_infer.scoring.score_file as scoring
    import at_infer.tables.row_stream as stream
    from at_infer.tables.parts import Parts

    scoring.PART_ROWS, stream.CHUNK_CELLS = 1, 60
    write = Parts.write

    def wait(*given: Any) -> None:
        write(*given)
        time.sleep(0.01)

    setattr(Parts, "write", wait)  # noqa: B010 - mypy knows what a method is


def of_train(seeds: Path, work: Path, rng: random.Random, count: int) -> Iterator[Outcome]:
    """The old checkpoint or a complete new one; a training that goes on ends with the same weights."""
    work.mkdir()
    out, state = work / "new.pt", work / "new.resume.pt"
    words = ["train", str(seeds / "data.parquet"), "-o", str(out), "--overwrite", *TINY]
    began = time.monotonic()
    assert Forked(words, before=keep_every_step).wait() is not None
    whole_s = time.monotonic() - began
    old = (seeds / "trained.pt").read_bytes()
    for _ in range(count):
        state.unlink(missing_ok=True)
        out.write_bytes(old)
        child = Forked(words, before=keep_every_step)
        child.poll(0.0)
        time.sleep(rng.random() * whole_s)
        child.kill(signal.SIGKILL)
        said = child.wait()
        resumable = state.exists()
        told = "accepted" if out.read_bytes() == old or _loads(seeds, out) else "wrong output"
        yield f"kill of train, {'state' if resumable else 'nothing'} to resume", told, ""
        if resumable:
            said = Forked([*words, "--resume"]).wait()
            outcome = judge(said)
            if outcome == "accepted" and not _loads(seeds, out):
                outcome = "wrong output"
            yield "train resumed to its end", outcome, "" if said is None else said.err


def keep_every_step() -> None:
    """The state of a training is written after each step."""
    import training.loop as loop

    loop.SAVE_EVERY_S = 0.0


def _loads(seeds: Path, path: Path) -> bool:
    """Is it complete, with the weights of a training that nobody has killed?"""
    child = os.fork()
    if child == 0:
        import torch

        from training.checkpoint import Checkpoint

        found, expected = (Checkpoint.load(one).state_dict for one in (path, seeds / "trained.pt"))
        os._exit(0 if all(torch.equal(found[name], expected[name]) for name in expected) else 1)
    return os.waitpid(child, 0)[1] == 0


def of_watch(seeds: Path, work: Path, rng: random.Random, count: int) -> Iterator[Outcome]:
    """A followed file, from state to state: every event comes, with the id that it has without kills."""
    work.mkdir()
    state, lines, out = work / "state", work / "lines.jsonl", work / "out"
    whole = (seeds / "lines.jsonl").read_bytes().splitlines(keepends=True)
    words = ["watch", "--engine", str(seeds / "model.onnx"), "--no-time", "--threads", "1", "--only", "incidents"]
    words += ["--threshold", "1.0", "--follow", str(lines), "--state", str(state), "--state-interval", "0"]

    def follow(feed: Callable[[Forked], None]) -> list[dict[str, Any]]:
        child = Forked(words, stdout=out)
        feed(child)
        child.kill(signal.SIGKILL)
        child.finish()
        return [_event(line) for line in out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def until_read(child: Forked) -> None:
        _wait_for(lambda: _position(state) == lines.stat().st_size, child)

    def kill_soon(child: Forked) -> None:
        _wait_for(state.exists, child)
        with lines.open("ab") as file:
            for _ in range(rng.randrange(1, 40)):
                if len(fed) < len(whole):
                    fed.append(whole[len(fed)])
                    file.write(fed[-1])
        child.poll(rng.random() * 0.15)

    lines.write_bytes(b"".join(whole))
    expected = follow(until_read)
    kills = 0
    while kills < count:
        state.unlink(missing_ok=True)
        lines.write_bytes(b"")
        fed: list[bytes] = []
        seen: list[dict[str, Any]] = []
        while len(fed) < len(whole) and kills < count:
            seen += follow(kill_soon)
            kills += 1
            yield "kill of watch with state", "accepted", ""
        lines.write_bytes(b"".join(whole))
        seen += follow(until_read)
        names = {json.dumps(event, sort_keys=True) for event in seen}
        outcome = "accepted" if names == {json.dumps(event, sort_keys=True) for event in expected} else "wrong output"
        yield "watch to the end of its file", outcome, f"{len(seen)} of {len(expected)} events"


def _event(line: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return {name: found[name] for name in ("event", "id", "begin", "end")}


def _position(state: Path) -> int:
    """How far a followed file was read, as the state says; a state is always whole."""
    try:
        head: dict[str, Any] = json.loads(state.read_bytes().partition(b"\n")[0])
    except FileNotFoundError:
        return -1
    position = head["extra"].get("position") or {}
    return int(position.get("offset", -1))


def _count(parts: Path) -> int:
    return sum(1 for _ in parts.glob("0*.parquet")) if parts.is_dir() else 0


def _wait_for(holds: Callable[[], bool], child: Forked, limit_s: float = LIMIT_S / 2) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end and not holds() and not child.poll(0.002):
        pass
