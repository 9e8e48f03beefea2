"""Small files that ask for much, odd names, and a stream that does not end."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.attack.command import LIMIT_S, judge
from benchmarks.attack.forked import Forked
from benchmarks.attack.kills import Outcome

BOMB_ROWS, BOMB_BYTES = 60_000_000, 3 << 29
NAMES = ("run[1].parquet", "run*.parquet", "-.parquet", "a\nb.parquet", "\x1b[2J.parquet", "é.parquet", " .parquet")


def names(seeds: Path, work: Path) -> Iterator[Outcome]:
    """Outputs of odd names are written under exactly these names."""
    work.mkdir()
    for name in (*NAMES, "%s{}.parquet", "'; rm -rf x.parquet", "day=1.parquet"):
        words = ["score", str(seeds / "data.parquet"), "--engine", str(seeds / "model.onnx"), "--threads", "1"]
        said = Forked([*words, f"--output={work / name}", "--batch-size", "8"]).wait()
        outcome = judge(said)
        same = (work / name).is_file() and (work / name).read_bytes() == (seeds / "scores.parquet").read_bytes()
        yield "hostile name", outcome if same or outcome != "accepted" else "wrong output", str(said)


def bomb(seeds: Path, work: Path, facts: dict[str, Any]) -> Iterator[Outcome]:
    """All rows of a small file are read as `score` reads them, and `score` runs on it for a while, within 1.5 GB."""
    work.mkdir()
    path = work / "bomb.parquet"
    child = os.fork()
    if child == 0:
        import polars as pl

        frame = pl.select(pl.repeat(0.0, BOMB_ROWS, dtype=pl.Float32).alias("f00"))
        frame.with_columns(f01="f00", f02="f00").write_parquet(path, compression="zstd", row_group_size=BOMB_ROWS)
        os._exit(0)
    os.waitpid(child, 0)
    facts |= {"bomb_bytes": path.stat().st_size, "bomb_rows": BOMB_ROWS, "limit_bytes": BOMB_BYTES}
    began, read = time.monotonic(), os.fork()
    if read == 0:
        _limit()
        from at_infer.scoring.options import InputOptions
        from at_infer.scoring.scorer import Scorer
        from at_infer.tables.row_stream import RowStream

        with Scorer(seeds / "model.onnx") as scorer:
            columns = InputOptions().columns(scorer.metadata, None)
            found = sum(len(chunk.values) for chunk in RowStream(str(path), columns).chunks())
        os._exit(0 if found == BOMB_ROWS else 1)
    _, status, used = os.wait4(read, 0)
    facts |= {"read_s": round(time.monotonic() - began, 1), "read_peak_bytes": used.ru_maxrss << 10}
    yield "bomb, read to its end", "accepted" if status == 0 else "crash", f"status {status}"
    words = ["score", str(path), "--engine", str(seeds / "model.onnx"), "-o", str(work / "b"), "--threads", "1"]
    scored = Forked(words, before=_limit)
    end = time.monotonic() + 60
    while time.monotonic() < end and not scored.poll(0.5):
        pass
    facts["score_peak_bytes"] = _peak(scored.pid)
    scored.kill(signal.SIGKILL)
    code = scored.finish()
    text = scored.said.decode(errors="replace")
    yield "bomb, scored for a minute", "accepted" if code in (0, -signal.SIGKILL) else "crash", f"{code} {text}"
    path.unlink()


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (BOMB_BYTES, BOMB_BYTES))


def stream(seeds: Path, seconds: float, facts: dict[str, Any]) -> Iterator[Outcome]:
    """As many lines as it takes, good and bad, for so long; memory is flat after the first tenth."""
    words = ["watch", "--engine", str(seeds / "model.onnx"), "--threads", "1", "--only", "incidents"]
    words += ["--series-column", "machine", "--no-time"]
    good = (seeds / "series.jsonl").read_bytes()
    block = good + b'{"f00": 1e999}\nnot json\n\xff\xfe\n' + good
    process = subprocess.Popen(
        [sys.executable, "-m", "at_infer", *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    began, lines, seen = time.monotonic(), 0, list[tuple[float, int]]()
    while (now := time.monotonic() - began) < seconds and process.poll() is None:
        process.stdin.write(block)
        lines += block.count(b"\n")
        if not seen or now - seen[-1][0] > seconds / 100:
            seen.append((now, _resident(process.pid)))
            facts |= {"lines": lines, "stream_s": round(now), "resident_mb": [size >> 20 for _, size in seen]}
    process.stdin.close()
    code = process.wait(timeout=2 * LIMIT_S)
    early = max(size for at, size in seen if at <= seconds / 5)
    flat = seen[-1][1] < 1.05 * early + (8 << 20)
    facts |= {"early_mb": early >> 20, "late_mb": seen[-1][1] >> 20}
    outcome = "accepted" if code == 0 and flat else "crash" if code < 0 else "wrong output"
    yield "live stream at full speed", outcome, json.dumps(facts)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak(pid: int) -> int:
    """Largest resident size of a process that runs."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0
