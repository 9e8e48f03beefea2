"""Mutations by the thousand: a child runs many commands; what it finds is repeated by the console script."""

import json
import os
import random
import resource
import select
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attack.command import FINDINGS, LIMIT_S, Said, call, judge, start
from benchmarks.attack.grammar import Grammar
from benchmarks.attack.mutations import Case, Mutations, mutate

PER_CHILD = 400
"""Commands of one process: what it keeps of one could hide what the next does."""
EVERY_GRAMMAR, EVERY_CONSOLE = 10, 500
MEMORY = 4 << 30


@dataclass(frozen=True)
class Found:
    """What became of a case."""

    number: int
    kind: str
    outcome: str
    words: list[str]
    said: str
    console: bool = False
    """As the console script ran it."""
    seconds: float = 0.0


class Attack:
    """Cases by number, in children of a process that has imported everything and used nothing."""

    def __init__(self, seeds: Path, work: Path, seed: int, keep: Path | None) -> None:
        self.seeds, self.seed, self.work, self.keep = seeds, seed, work, keep
        self.broken = work / "broken"
        """What went wrong with the attack itself."""
        work.mkdir()
        self.mutations, self.grammar = Mutations(seeds, work), Grammar(seeds, work)

    def check_sound(self) -> None:
        """Every file as it is must be accepted: else the attack would show nothing."""
        for found in self._child(range(-len(self.mutations.kinds), 0), console=False):
            if found.outcome != "accepted" and found.kind not in ("sidecar", "plan"):  # nothing runs its plan
                raise SystemExit(f"{found.kind}: sound file: {found.outcome}: {' '.join(found.words)}: {found.said}")

    def run(self, first: int, count: int) -> Iterator[Found]:
        """Cases of these numbers; a finding counts as the console script ends."""
        at, end = first, first + count
        # In a folder of its own: the child that found something goes on meanwhile.
        again = Attack(self.seeds, self.work.with_name("again"), self.seed, self.keep)
        while at < end:
            for found in self._child(range(at, min(end, at + PER_CHILD)), console=False):
                at = found.number + 1
                if found.outcome in FINDINGS:
                    yield next(again._child(range(found.number, at), console=True))
                else:
                    yield found

    def _child(self, numbers: range, *, console: bool) -> Iterator[Found]:
        """What a child says of each number; it ends early after a hang or a crash."""
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reads)
            _limit()
            try:
                for number in numbers:
                    self._one(number, writes, console=console)
            except BaseException:  # of the attack itself
                with self.broken.open("w") as file:
                    traceback.print_exc(file=file)
            finally:
                os._exit(0)  # nothing of the parent's may be tidied up here
        os.close(writes)
        kind, words, number, buffer = "", list[str](), numbers[0], b""
        try:
            while True:
                ready, _, _ = select.select([reads], [], [], LIMIT_S * (3 if console else 1))
                piece = os.read(reads, 1 << 20) if ready else b""
                if not piece:
                    os.kill(child, signal.SIGKILL)
                    _, status = os.waitpid(child, 0)
                    child = 0
                    if self.broken.exists():
                        raise SystemExit(self.broken.read_text())
                    if number <= numbers[-1]:
                        outcome = "crash" if ready else "hang"
                        self._keep(number, None)
                        yield Found(number, kind, outcome, words, f"status {status}", console)
                    return
                buffer += piece
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    told = json.loads(line)
                    if "outcome" not in told:
                        kind, words, number = told["kind"], told["words"], told["number"]
                        continue
                    number = told["number"] + 1
                    yield Found(**told)
        finally:
            os.close(reads)
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    def _one(self, number: int, writes: int, *, console: bool) -> None:
        console = console or number % EVERY_CONSOLE == EVERY_CONSOLE - 1
        case, began = self._case(number), time.monotonic()
        told = {"number": number, "kind": case.kind, "words": case.words}
        os.write(writes, json.dumps(told).encode() + b"\n")
        damaged = case.damaged.read_bytes()
        said = start(case.words, case.stdin) if console else call(case.words, self.work, case.stdin)
        outcome, text = judge(said, output=case.output, codes=case.codes), "" if said is None else said.err
        if outcome == "accepted":
            outcome, text = _checked(case, said, text)
        if outcome in FINDINGS:
            self._keep(number, case, damaged)
        found = {"outcome": outcome, "said": text[-3000:], "console": console, "seconds": time.monotonic() - began}
        os.write(writes, json.dumps(told | found).encode() + b"\n")

    def _case(self, number: int) -> Case:
        if number < 0:
            return self.mutations.make(number, lambda content: content)
        rng = random.Random(f"{self.seed}:{number}")
        if number % EVERY_GRAMMAR == EVERY_GRAMMAR - 1:
            return self.grammar.make(number // EVERY_GRAMMAR, rng)
        return self.mutations.make(number - number // EVERY_GRAMMAR, lambda content: mutate(content, rng))

    def _keep(self, number: int, case: Case | None, content: bytes = b"") -> None:
        if self.keep is not None and case is not None:
            self.keep.mkdir(exist_ok=True)
            (self.keep / f"{number}-{case.damaged.name.lstrip('.')}").write_bytes(content)


def _checked(case: Case, said: Said | None, text: str) -> tuple[str, str]:
    assert said is not None
    try:
        return ("accepted" if case.check(said.out) else "wrong output"), text
    except BaseException as error:
        return "wrong output", f"{text} {type(error).__name__}: {error}"


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
