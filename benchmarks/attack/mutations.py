"""Mutated files, each by its number: `--first N --mutations 1` is the N-th again."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attack.oracle import Check, Oracle

TINY = ["--width", "8", "--heads", "2", "--window", "10", "--max-steps", "4", "--threads", "1"]
"""Of a training that takes a second."""
FRAGMENTS = (b"\x00", b"\n", b'"', b"{", b"[" * 2000, b"9" * 500, b"\xff\xfe", b",,", b"nan")
NUMBERS = (b"\xff\xff\xff\x7f", b"\x00" * 4, b"\xff" * 4, b"\x80\x80\x80\x80")


@dataclass(frozen=True)
class Case:
    """A command, and what must hold afterwards."""

    kind: str
    words: list[str]
    check: Callable[[bytes], bool]
    """Is what an accepted input led to, and printed, what it must be?"""
    damaged: Path
    """The file that was mutated."""
    stdin: Path | None = None
    output: Path | None = None
    """Must be absent after an error."""
    codes: tuple[int, ...] = (0,)
    """Of success."""


@dataclass(frozen=True)
class Kind:
    """A file, and a command that reads it."""

    name: str
    file: str
    words: Callable[[str], list[str]]
    check: Check
    piped: bool = False
    writes: bool = False
    codes: tuple[int, ...] = (0,)
    beside: str | None = None
    """Copied next to the mutated file."""


Change = Callable[[bytes], bytes]


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One to four changes: bits, bytes, cuts, copies, and numbers that readers trip over."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        if rng.random() < 0.3:  # heads and footers hold what is believed
            at = rng.choice((rng.randrange(min(64, len(data) + 1)), max(0, len(data) - rng.randrange(1, 2048))))
        size = rng.choice((1, 1, 2, 4, 8, 64, 1024))
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + size] = rng.randbytes(size)
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size]
            case 4:
                del data[at:]
            case 5:
                data[at : at + 4] = rng.choice(NUMBERS)
            case _:
                data[at:at] = rng.choice(FRAGMENTS)
    return bytes(data)


class Mutations:
    """Every kind of file in turn."""

    def __init__(self, seeds: Path, work: Path) -> None:
        self.seeds, self.work = seeds, work
        self.kinds = kinds(seeds, work)

    def make(self, number: int, change: Change) -> Case:
        """The kind of this number, with the bytes of its file changed."""
        kind = self.kinds[number % len(self.kinds)]
        path, out = self.work / kind.file, self.work / "out.parquet"
        out.unlink(missing_ok=True)
        folder = self.work / ".out.parquet.parts"
        shutil.rmtree(folder, ignore_errors=True)
        if kind.beside is not None:
            shutil.copy(self.seeds / kind.beside, self.work / kind.beside)
        if kind.file.startswith("."):
            shutil.copytree(self.seeds / folder.name, folder)
        path.write_bytes(change((self.seeds / kind.file).read_bytes()))
        words = kind.words(str(path))
        return Case(
            kind.name,
            words,
            lambda printed: kind.check(path, words, printed),
            path,
            path if kind.piped else None,
            out if kind.writes else None,
            kind.codes,
        )


def kinds(seeds: Path, work: Path) -> list[Kind]:
    """All that a command reads, each as often as it has readers of its own."""
    oracle, out, page = Oracle(seeds, work), work / "out.parquet", str(work / "page.html")
    model, data, scores = (str(seeds / name) for name in ("model.onnx", "data.parquet", "scores.parquet"))
    written = ["-o", str(out), "--overwrite", "--threads", "1", "--batch-size", "8"]
    watch = ["watch", "--engine", model, "--threads", "1"]
    labels = ["--labels", str(seeds / "labels.parquet"), "--json"]
    timed = ["--time-column", "time", "--series-column", "machine", "--explain", "all"]
    state = ["--state", str(work / "state"), "--no-time", "--only", "incidents"]
    resumed = ["--resume", "-o", str(work / "trained.pt"), "--overwrite", *TINY]

    part = next((seeds / ".out.parquet.parts").glob("00000000.*.parquet")).name  # it holds a checksum

    def score(table: str, engine: str) -> list[str]:
        return ["score", table, "--engine", engine, *written]

    return [
        Kind("Parquet", "data.parquet", lambda path: score(path, model), oracle.scores_of_table, writes=True),
        Kind("Parquet", "data.parquet", lambda path: ["inspect", path], oracle.anything),
        Kind("Parquet", "data.parquet", lambda path: ["drift", model, path], oracle.same_as_rewritten, codes=(0, 3)),
        Kind("CSV", "data.csv", lambda path: score(path, model), oracle.scores_of_table, writes=True),
        Kind("JSON lines", "lines.jsonl", lambda _: [*watch, "--no-time"], oracle.same_until_damaged, piped=True),
        Kind("CSV lines", "lines.csv", lambda _: [*watch, "--no-time"], oracle.same_until_damaged, piped=True),
        Kind("lines of series", "series.jsonl", lambda _: [*watch, *timed], oracle.same_until_damaged, piped=True),
        Kind("ONNX", "model.onnx", lambda path: score(data, path), oracle.reference, writes=True),
        Kind("ONNX", "model.onnx", lambda path: ["threshold", path], oracle.printed_as_of_seed),
        Kind("ONNX without digest", "plain.onnx", lambda path: score(data, path), oracle.finite_scores, writes=True),
        Kind("ONNX without digest", "plain.onnx", lambda path: ["inspect", path], oracle.anything),
        Kind("plan", "model.trt", lambda path: ["inspect", path], oracle.same_bytes, beside="model.trt.json"),
        Kind("sidecar", "model.trt.json", lambda p: ["inspect", p[:-5]], oracle.anything, beside="model.trt"),
        Kind("checkpoint", "ckpt.pt", lambda path: ["inspect", path], oracle.same_weights),
        Kind("checkpoint", "trained.pt", lambda p: ["report", p, "-o", page, "--overwrite"], oracle.same_weights),
        Kind("scores", "scores.parquet", lambda path: ["evaluate", path, *labels], oracle.same_as_rewritten),
        Kind("scores", "scores.parquet", lambda p: ["threshold", model, "--scores", p], oracle.same_as_rewritten),
        Kind("scores", "scores.parquet", lambda p: ["report", p, "-o", page, "--overwrite"], oracle.anything),
        Kind(
            "labels",
            "labels.parquet",
            lambda p: ["evaluate", scores, "--labels", p, "--json"],
            oracle.same_as_rewritten,
        ),
        Kind("state of watch", "state", lambda _: [*watch, *state], oracle.same_state),
        Kind(
            "unfinished run",
            f".out.parquet.parts/{part}",
            lambda _: [*score(data, model), "--resume"],
            oracle.reference,
        ),
        Kind(
            "unfinished run",
            ".out.parquet.parts/journal.json",
            lambda _: [*score(data, model), "--resume"],
            oracle.reference,
        ),
        Kind("state of train", "trained.resume.pt", lambda _: ["train", data, *resumed], oracle.same_training),
    ]
