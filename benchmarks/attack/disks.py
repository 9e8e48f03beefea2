"""Full disks: the n-th write of a command fails, and all after it or none, for every n until all succeed."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path

from benchmarks.attack.command import LIMIT_S, judge
from benchmarks.attack.forked import Forked
from benchmarks.attack.kills import Outcome, in_small_parts, keep_every_step
from benchmarks.attack.mutations import TINY

SOURCE = Path(__file__).with_name("full_disk.c")


def preload() -> None:
    """Start this process again with the library that lets writes fail; it has to be there before all others."""
    if hasattr(ctypes.CDLL(None), "full_disk_after"):
        Path(os.environ.pop("LD_PRELOAD")).unlink()  # it is loaded, and for no process of ours
        return
    library = Path(tempfile.gettempdir()) / f"full_disk_{os.getpid()}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.attack", *sys.argv[1:]], environment)


def of_all(seeds: Path, work: Path, most: int) -> Iterator[Outcome]:
    """Every command that writes, over an output that exists, which must stay or be replaced as a whole."""
    model, data = str(seeds / "model.onnx"), str(seeds / "data.parquet")
    scores, engine = str(seeds / "scores.parquet"), ["--threads", "1", "--batch-size", "8"]
    small = ["--threads", "1", "--batch-size", "1"]
    commands: list[tuple[list[str], list[str]]] = [
        (["score", data, "--engine", model, "-o", "out.parquet", "--overwrite", *small], ["out.parquet"]),
        (["score", data, "--engine", model, "-o", "out.parquet", "--overwrite", *engine], ["out.parquet"]),
        (
            ["score", data, "--engine", model, "-o", "out.parquet", "--incidents", "i.jsonl", "--overwrite", *engine],
            ["out.parquet", "i.jsonl"],
        ),
        (["report", scores, "-o", "page.html", "--overwrite"], ["page.html"]),
        (["threshold", model, "--method", "ratio", "-o", "copy.onnx", "--overwrite"], ["copy.onnx"]),
        (
            ["generate", "-o", ".", "--rows", "300", "300", "300", "--overwrite"],
            ["train.parquet", "validation.parquet", "test.parquet"],
        ),
        (["watch", "--engine", model, "--no-time", "--state", "state", "--threads", "1"], []),
        (["train", data, "-o", "new.pt", "--overwrite", *TINY], ["new.pt"]),
        (["export", str(seeds / "ckpt.pt"), "-o", ".", "--engine", "none", "--overwrite"], ["model.onnx"]),
    ]
    tried = 0
    for (words, outputs), once in product(commands, (False, True)):
        _try(seeds, work, words, outputs, -1, {}, once=False)
        whole = {name: (work / name).read_bytes() for name in outputs}
        for writes in count():
            if tried >= most:
                return
            outcome, said = _try(seeds, work, words, outputs, writes, whole, once=once)
            if outcome == "not full":
                break
            tried += 1
            kind = "one failed write" if once else "full disk"
            yield f"{kind} in {words[0]}", outcome, f"write {writes} of {' '.join(words)}: {said}"


def _try(
    seeds: Path, work: Path, words: list[str], outputs: list[str], writes: int, whole: dict[str, bytes], *, once: bool
) -> tuple[str, str]:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name in outputs:
        (work / name).write_bytes(b"old")
    told = work.with_name("failed")

    def before() -> None:
        os.chdir(work)
        at_end = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        real = os._exit

        def leave(code: int) -> None:
            failed = ctypes.CDLL(None).full_disk_failed()
            ctypes.CDLL(None).full_disk_after(ctypes.c_long(-1))
            os.write(at_end, str(failed).encode())
            real(code)

        os._exit = leave  # type: ignore[assignment]
        in_small_parts()
        keep_every_step()
        library = ctypes.CDLL(None)
        (library.full_disk_once if once else library.full_disk_after)(ctypes.c_long(writes))

    said = Forked(words, seeds / "lines.jsonl", before=before).wait(3 * LIMIT_S)
    outcome, text = judge(said), "" if said is None else said.err
    failed = told.read_bytes()
    if outcome == "accepted" and failed == b"0":
        return "not full", ""
    left = sorted(path.name for path in work.rglob("*.tmp"))
    if left:
        return "wrong output", f"left {left}: {text}"
    new = [name for name in outputs if (work / name).read_bytes() != b"old"]
    complete = {name: (work / name).read_bytes() for name in new} == {name: whole[name] for name in new}
    scores = new == ["out.parquet"] and complete  # they stay where their incidents cannot be written
    if outcome == "one-line error" and new and not scores:
        return "wrong output", f"{new} replaced: {text}"
    if outcome == "accepted" and not (new == outputs and complete):  # a write failed, and nobody said so
        return "wrong output", f"{failed!r} writes failed in silence: {text}"
    return outcome, text
