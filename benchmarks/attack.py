"""Attack the real commands: mutated files, hostile metadata and names, kills, failing writes, a bomb.

    nice -n 10 python -m benchmarks.attack --mutations 20000 --kills 1000 --full-disks 200 --output attack.json

A case is a command in a forked child of a process that has imported everything and used nothing. It ends in one line
(exit code 1), is accepted (exit code 0, and the output is what it must be), or is a finding: traceback, hang, crash by
a signal, or wrong output. Writes fail by a limit on the size of files: an error of the system, as a full disk is.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars: a child makes its own threads
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

OUTCOMES = ("one-line error", "accepted", "traceback", "hang", "crash", "wrong output")
FINDINGS = OUTCOMES[2:]
LIMIT_S, START_S = 30.0, 5.0
STARTED = "started\n"
KINDS = 15
MOST_SHOWN = 5
GRAMMAR: tuple[str, ...] = (
    *(
        "null",
        "true",
        "NaN",
        "Infinity",
        "-1",
        "0",
        "1e308",
        "1e999",
        "100.0",
        '"0.1"',
        '""',
        "[]",
        "{}",
        "[null]",
        "[[]]",
    ),
    *("9" * 400, "9" * 5_000, "[" * 30_000, '"\\ud800"', '"\\u001b[2J"', '{"value": NaN}', "[0.1, 0.0]", "1000000000"),
)
NAMES = (
    "run[1].parquet",
    "run*.parquet",
    "-.parquet",
    "a\nb.parquet",
    "\x1b[2J.parquet",
    "é.parquet",
    " .parquet",
    "%s{}.parquet",
)


@dataclass
class Case:
    """A command, and what must hold afterwards."""

    kind: str
    words: list[str]
    stdin: Path | None = None
    output: Path | None = None
    """Must be absent after an error."""
    check: Callable[[], bool] = field(default=lambda: True)
    """Is the output of an accepted input what it must be?"""
    before: Callable[[], None] = field(default=lambda: None)
    """In the child."""
    kill_after_s: float | None = None


def run(case: Case, *, tries: int = 3) -> tuple[str, str]:
    """What became of a case, and what it said."""
    if case.output is not None:
        case.output.unlink(missing_ok=True)
    reads, writes = os.pipe()  # a limit on the size of files is none on what is said
    child, began = os.fork(), time.monotonic()
    if child == 0:
        _child(case, writes)
    os.close(writes)
    os.set_blocking(reads, False)
    said, status = b"", 0
    with os.fdopen(reads, "rb", buffering=0) as pipe:
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            said += pipe.read() or b""
            if done:
                break
            # Threads of the libraries may hold a lock when the process forks: such a child never comes to its command.
            limit_s = START_S if not said else case.kill_after_s or LIMIT_S
            if time.monotonic() - began > limit_s:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                if said and case.kill_after_s is not None:
                    return "killed", ""
                return run(case, tries=tries - 1) if tries > 1 else ("hang", said.decode(errors="replace"))
            time.sleep(0.002)
    text = said.decode(errors="replace").removeprefix(STARTED)
    if os.WIFSIGNALED(status):
        return "crash", f"signal {os.WTERMSIG(status)}: {text}"
    code = os.WEXITSTATUS(status)
    if "Traceback" in text or "panicked" in text or code not in (0, 1):
        return "traceback", text
    if code == 1:
        kept = case.output is not None and case.output.exists()
        lines = [line for line in text.splitlines() if line.startswith("error: ")]
        single = len(lines) == 1 or case.words[0] == "inspect"
        return ("wrong output", f"kept: {text}") if kept else ("one-line error" if single else "traceback", text)
    return ("accepted" if case.check() else "wrong output"), text


def _child(case: Case, said: int) -> None:
    code = 70
    try:
        os.setsid()
        for number, opened in (
            (0, os.open(case.stdin or os.devnull, os.O_RDONLY)),
            (1, os.open(os.devnull, os.O_WRONLY)),
            (2, said),
        ):
            os.dup2(opened, number)
        os.write(2, STARTED.encode())
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - descriptors
        from at_infer.cli import app

        case.before()
        try:
            app(case.words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)  # nothing of the parent's may be tidied up here


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
                data[at : at + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\x00" * 4, b"\xff" * 4, b"\x80\x80\x80\x80"))
            case _:
                data[at:at] = rng.choice(
                    (b"\x00", b"\n", b'"', b"{", b"[" * 2000, b"9" * 500, b"\xff\xfe", b",,", b"nan")
                )
    return bytes(data)


class Seeds:
    """Valid files of every kind, and the commands that read them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, Path] = {}
        child = os.fork()  # what uses polars or torch may not be forked later
        if child == 0:
            try:
                _make_seeds(folder)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise SystemExit("seeds could not be made")
        self.reference = (folder / "scores.parquet").read_bytes()

    def cases(self, work: Path, rng: random.Random) -> Iterator[Case]:
        """First every file as it is, which must be accepted; then mutated files without end."""
        seeds, out = self.folder, work / "out.parquet"
        model, data = str(seeds / "model.onnx"), str(seeds / "data.parquet")

        def same() -> bool:
            return out.read_bytes() == self.reference

        def exists() -> bool:
            return out.read_bytes()[:4] == b"PAR1"

        score = ["--engine", model, "-o", str(out), "--overwrite", "--threads", "1", "--batch-size", "8"]
        watch = ["watch", "--engine", model, "--no-time", "--threads", "1"]
        table: list[tuple[str, str, Callable[[str], list[str]], Callable[[], bool]]] = [
            ("Parquet", "data.parquet", lambda p: ["score", p, *score], exists),
            ("Parquet", "data.parquet", lambda p: ["inspect", p], lambda: True),
            ("CSV", "data.csv", lambda p: ["score", p, *score], exists),
            ("JSON lines", "lines.jsonl", lambda _: watch, lambda: True),
            ("CSV lines", "lines.csv", lambda _: watch, lambda: True),
            ("ONNX", "model.onnx", lambda p: ["score", data, "--engine", p, *score[2:]], same),
            ("ONNX without digest", "plain.onnx", lambda p: ["score", data, "--engine", p, *score[2:]], exists),
            ("ONNX without digest", "plain.onnx", lambda p: ["inspect", p], lambda: True),
            ("sidecar", "model.trt.json", lambda p: ["inspect", p.removesuffix(".json")], lambda: True),
            ("checkpoint", "ckpt.pt", lambda p: ["inspect", p], lambda: True),
            (
                "scores",
                "scores.parquet",
                lambda p: ["evaluate", p, "--labels", str(seeds / "labels.parquet")],
                lambda: True,
            ),
            ("scores", "scores.parquet", lambda p: ["threshold", model, "--scores", p], lambda: True),
            (
                "scores",
                "scores.parquet",
                lambda p: ["report", p, "-o", str(work / "r.html"), "--overwrite"],
                lambda: True,
            ),
            (
                "labels",
                "labels.parquet",
                lambda p: ["evaluate", str(seeds / "scores.parquet"), "--labels", p],
                lambda: True,
            ),
            ("state", "state", lambda p: [*watch, "--state", p], lambda: True),
        ]
        assert len(table) == KINDS
        number = 0
        while True:
            kind, name, words, check = table[number % len(table)]
            path = work / name
            if kind == "sidecar":
                shutil.copy(seeds / "model.trt", work / "model.trt")
            whole = (seeds / name).read_bytes()
            path.write_bytes(whole if number < KINDS else mutate(whole, rng))
            lines = path if "lines" in kind else None
            yield Case(kind, words(str(path)), lines, out if check in (same, exists) else None, check)
            number += 1

    def metadata(self, work: Path, rng: random.Random) -> Iterator[Case]:
        """Values of a grammar in the place of metadata, whole or inside."""
        import onnx

        graph = onnx.load(self.folder / "plain.onnx")
        entries = [(entry, entry.value) for entry in graph.metadata_props]
        path, out, data = work / "hostile.onnx", work / "out.parquet", self.folder / "data.parquet"
        while True:
            entry, text = rng.choice(entries)
            value, hostile = json.loads(text), rng.choice(GRAMMAR)
            entry.value = hostile
            if isinstance(value, dict | list) and value and rng.random() < 0.8:
                entry.value = json.dumps(_inside(value, rng)).replace('"@"', hostile)
            path.write_bytes(graph.SerializeToString())
            entry.value = text
            words = ["score", str(data), "--engine", str(path), "-o", str(out), "--overwrite", "--threads", "1"]
            yield Case("hostile metadata", words, output=out)


def _inside(value: Any, rng: random.Random) -> Any:
    """The same with "@" somewhere."""
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        copy = value.copy()
        copy[key] = _inside(value[key], rng)
        return copy
    return "@"


def _make_seeds(folder: Path) -> None:
    import hashlib

    import numpy as np
    import onnx
    import polars as pl

    from at_infer import ScoreOptions, StreamScorer, score_file
    from at_infer.config import DiscrepancyConfig, ModelConfig, ScoreConfig
    from at_infer.models.metadata import DIGEST, PREFIX, Metadata
    from at_infer.models.sidecar import seal
    from at_infer.scoring.options import EngineOptions
    from benchmarks.models import untrained
    from export.config import ExportConfig
    from export.pipeline import export_model

    config = ModelConfig(features=3, window=20, width=16, heads=2, layers=1, feed_forward=16)
    made = untrained(config, ScoreConfig(), DiscrepancyConfig(), windows=40, ratio=0.05)
    made.save(folder / "ckpt.pt")
    export_model(made, "0" * 64, folder, ExportConfig(engine="none"), overwrite=True)
    graph = onnx.load(folder / "model.onnx")
    known = Metadata.from_properties({entry.key: entry.value for entry in graph.metadata_props}, "model.onnx")
    assert known is not None
    for entry in [entry for entry in graph.metadata_props if entry.key == PREFIX + DIGEST]:
        graph.metadata_props.remove(entry)
    onnx.save(graph, folder / "plain.onnx")
    (folder / "model.trt").write_bytes(b"ftrt" + bytes(20) + bytes([10, 9, 0, 34]) + b"kernels")
    facts = {
        "flavour": "tensorrt",
        "version": "10.9.0.34",
        "compute_capabilities": [89],
        "plan_sha256": hashlib.sha256((folder / "model.trt").read_bytes()).hexdigest(),
        "onnx_sha256": "1" * 64,
        "inputs": [{"name": "window", "shape": [-1, 20, 3]}],
        "outputs": [{"name": "reconstruction", "shape": [-1, 20, 3]}],
    }
    from dataclasses import replace

    described = seal(replace(known, batch=[1, 8, 32], engine=facts))
    (folder / "model.trt.json").write_text(json.dumps(described.to_dict()))
    frame = pl.DataFrame(np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32), schema=known.columns)
    frame.write_parquet(folder / "data.parquet")
    frame.write_csv(folder / "data.csv")
    frame.write_csv(folder / "lines.csv")
    frame.write_ndjson(folder / "lines.jsonl")
    pl.DataFrame({"row": range(300), "label": [0] * 290 + [1] * 10}).write_parquet(folder / "labels.parquet")
    score_file(
        folder / "data.parquet", folder / "model.onnx", folder / "scores.parquet",
        engine_options=EngineOptions(threads=1, batch_size=8),
    )  # fmt: skip
    with StreamScorer(folder / "model.onnx", ScoreOptions()) as stream:
        stream.push_many(frame.to_numpy(), ["a"] * 150 + ["b"] * 150)
        stream.save(folder / "state", {"row": 300, "position": None})


def kill_storm(seeds: Seeds, work: Path, rng: random.Random, count: int) -> Iterator[tuple[str, str, str]]:
    """Kill a run of score in the middle, go on with --resume until it ends: the output must be that of one run."""
    out = work / "killed.parquet"
    words = ["score", str(seeds.folder / "data.parquet"), "--engine", str(seeds.folder / "model.onnx"), "-o", str(out)]
    words += ["--overwrite", "--threads", "1", "--batch-size", "8"]

    def slowly() -> None:  # so that there is something to resume
        import at_infer.scoring.score_file as scoring
        import at_infer.tables.row_stream as stream
        from at_infer.tables.parts import Parts

        scoring.PART_ROWS, stream.CHUNK_CELLS = 1, 60
        write = Parts.write

        def wait(*given: Any) -> None:
            write(*given)
            time.sleep(0.02)

        setattr(Parts, "write", wait)  # noqa: B010 - mypy knows what a method is

    began = time.monotonic()
    run(Case("kill", words, before=slowly))
    whole_s, kills = time.monotonic() - began, 0
    while kills < count:
        shutil.rmtree(work / ".killed.parquet.parts", ignore_errors=True)
        out.unlink(missing_ok=True)
        again: list[str] = []
        for _ in range(20):
            case = Case("kill", [*words, *again], before=slowly, kill_after_s=rng.uniform(0.2, 1.0) * whole_s)
            outcome, said = run(case)
            if outcome != "killed":
                break
            kills += 1
            kept = any((work / ".killed.parquet.parts").glob("0*.parquet"))
            if out.exists():  # complete, or absent
                whole = out.read_bytes() == seeds.reference
                yield "kill of score after its last write", "accepted" if whole else "wrong output", ""
                break
            yield f"kill of score, {'parts' if kept else 'nothing'} to resume", "accepted", ""
            again = ["--resume"]
        if outcome == "killed" and not out.exists():
            outcome, said = run(Case("kill", [*words, "--resume"]))
        if outcome == "accepted" and out.read_bytes() != seeds.reference:
            outcome = "wrong output"
        if outcome != "killed":
            yield "end of a killed score", outcome, said


def full_disks(seeds: Seeds, work: Path, rng: random.Random, count: int) -> Iterator[tuple[str, str, str]]:
    """Every write beyond so many bytes of a file fails."""
    out = work / "full.parquet"
    model, data = str(seeds.folder / "model.onnx"), str(seeds.folder / "data.parquet")
    commands = [
        ["score", data, "--engine", model, "-o", str(out), "--overwrite", "--threads", "1", "--batch-size", "8"],
        ["report", str(seeds.folder / "scores.parquet"), "-o", str(out), "--overwrite"],
        ["threshold", model, "--method", "ratio", "-o", str(work / "full.onnx"), "--overwrite"],
        ["generate", "-o", str(work / "generated"), "--rows", "300", "300", "300", "--overwrite"],
        ["watch", "--engine", model, "--no-time", "--state", str(work / "full.state"), "--threads", "1"],
    ]
    targets = [out, out, work / "full.onnx", work / "generated" / "test.parquet", work / "full.state"]
    for number in range(count):
        words, target = commands[number % 5], targets[number % 5]
        most = rng.choice((0, 1, 100, 1_000, 4_096, rng.randrange(20_000)))

        def limit(most: int = most) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        shutil.rmtree(work / "generated", ignore_errors=True)
        outcome, said = run(Case("full", words, seeds.folder / "lines.jsonl", target, before=limit))
        left = [path.name for path in work.rglob("*.tmp")]
        yield f"failing write in {words[0]}", "wrong output" if left else outcome, f"{left} {said}"


def bomb(seeds: Seeds, work: Path) -> Iterator[tuple[str, str, str]]:
    """A small Parquet file of 60 million rows, for 30 seconds of scoring within 1.5 GB."""
    path = work / "bomb.parquet"
    child = os.fork()
    if child == 0:
        import polars as pl

        frame = pl.select(pl.repeat(0.0, 60_000_000, dtype=pl.Float32).alias("f00"))
        frame.with_columns(f01="f00", f02="f00").write_parquet(path, compression="zstd")
        os._exit(0)
    os.waitpid(child, 0)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (3 << 29, 3 << 29))

    words = ["score", str(path), "--engine", str(seeds.folder / "model.onnx"), "-o", str(work / "b"), "--threads", "1"]
    outcome, said = run(Case("bomb", words, before=limit, kill_after_s=30.0))
    yield f"bomb of {path.stat().st_size >> 10} KB", "accepted" if outcome == "killed" else outcome, said
    path.unlink()


def hostile_names(seeds: Seeds, work: Path) -> Iterator[tuple[str, str, str]]:
    """Outputs of odd names are written under exactly these names."""
    for name in NAMES:
        out = work / name
        words = ["score", str(seeds.folder / "data.parquet"), "--engine", str(seeds.folder / "model.onnx")]
        words += [f"--output={out}", "--threads", "1", "--batch-size", "8"]
        outcome, said = run(Case("name", words, output=out, check=lambda out=out: out.is_file()))  # type: ignore[misc]
        yield "hostile name", outcome, said


def attack(seed: int, mutations: int, kills: int, disks: int, *, with_bomb: bool) -> dict[str, Any]:
    """Everything; counts by kind and outcome, and the first findings."""
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import polars  # noqa: F401
    import torch  # noqa: F401

    import training.checkpoint  # noqa: F401

    began = time.monotonic()
    counts: dict[str, Counter[str]] = {}
    findings: list[dict[str, str]] = []

    def note(kind: str, outcome: str, said: str) -> None:
        counts.setdefault(kind, Counter())[outcome] += 1
        if outcome in FINDINGS and len(findings) < 200:
            findings.append({"kind": kind, "outcome": outcome, "said": re.sub(r"/\S*/attack\w+", "", said[-1500:])})

    with tempfile.TemporaryDirectory(prefix="attack") as place:
        folder, work = Path(place) / "seeds", Path(place) / "work"
        folder.mkdir()
        work.mkdir()
        seeds, rng = Seeds(folder), random.Random(seed)
        mutated, hostile = seeds.cases(work, rng), seeds.metadata(work, rng)
        for case in islice(mutated, KINDS):
            outcome, said = run(case)
            if outcome != "accepted" and case.kind != "sidecar":  # nothing runs its plan
                raise SystemExit(f"{case.kind}: {case.words[0]} of a sound file: {outcome}: {said}")
        for number in range(mutations):
            case = next(hostile if number % 10 == 9 else mutated)
            note(case.kind, *run(case))
            if number % 100 == 99:  # who ends the run early knows what was found
                found_so_far = {kind: dict(found) for kind, found in counts.items()}
                print(f"{number + 1} mutations: {json.dumps(found_so_far)}", file=sys.stderr, flush=True)
        for kind, outcome, said in (
            *hostile_names(seeds, work),
            *(bomb(seeds, work) if with_bomb else ()),
        ):
            note(kind, outcome, said)
        for found in kill_storm(seeds, work, rng, kills) if kills else ():
            note(*found)
        for found in full_disks(seeds, work, rng, disks):
            note(*found)
    return {
        "seed": seed,
        "mutations": mutations,
        "kills": kills,
        "failing_writes": disks,
        "seconds": round(time.monotonic() - began),
        "table": {kind: {name: found[name] for name in OUTCOMES} for kind, found in counts.items()},
        "findings": findings,
    }


def main() -> None:
    """Attack, print the table, and end in one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutations", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--full-disks", type=int, default=20)
    parser.add_argument("--no-bomb", action="store_true")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = attack(given.seed, given.mutations, given.kills, given.full_disks, with_bomb=not given.no_bomb)
    print(f"| {' | '.join(('what', 'tried', *OUTCOMES))} |\n|{' --- |' * (2 + len(OUTCOMES))}")
    for kind, row in found["table"].items():
        print(f"| {kind} | {sum(row.values())} | {' | '.join(str(row[name]) for name in OUTCOMES)} |")
    for one in found["findings"][:MOST_SHOWN]:
        print(f"{one['kind']}: {one['outcome']}: {one['said']}", file=sys.stderr)
    text = json.dumps(found)
    if given.output is not None:
        given.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
