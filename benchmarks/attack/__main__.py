"""Run parts of the attack, print the table, and end in one JSON line; see `benchmarks.attack`."""

import argparse
import importlib
import json
import os
import pkgutil
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars: a child makes its own threads
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.attack import clusters, disks, kills, seeds, sizes
from benchmarks.attack.children import Attack
from benchmarks.attack.command import FINDINGS, OUTCOMES, table
from benchmarks.attack.kills import Outcome
from benchmarks.attack.results import added

EVERY_S = 20.0
"""Between two writes of the result: a run that is ended early has found what it has found."""
MOST_FINDINGS = 100


class Result:
    """Counts by kind and outcome of one part, written to the file of all parts."""

    def __init__(self, part: str, output: Path | None, facts: dict[str, Any], *, add: bool = False) -> None:
        self.part, self.output, self.facts = part, output, facts
        self.counts: dict[str, Counter[str]] = {}
        self.findings: list[dict[str, str]] = []
        self.earlier: dict[str, Any] = self._stored().get(part, {}) if add else {}
        self.began = self.written = time.monotonic()

    def take(self, found: Iterator[Outcome]) -> None:
        """Count everything; what is counted is in the file soon."""
        for kind, outcome, said in found:
            self.counts.setdefault(kind, Counter())[outcome] += 1
            if outcome in FINDINGS and len(self.findings) < MOST_FINDINGS:
                text = re.sub(r"/\S*/attack\w+", "", said[-1500:])
                self.findings.append({"kind": kind, "outcome": outcome, "said": text})
                print(f"{kind}: {outcome}: {said[-1500:]}", file=sys.stderr, flush=True)
            if time.monotonic() - self.written > EVERY_S:
                self.write()
        self.write()

    def write(self) -> None:
        """Merge with the other parts of the file."""
        self.written = time.monotonic()
        if self.output is None:
            return
        temporary = self.output.with_suffix(".tmp")
        whole = {**self._stored(), self.part: added(self.earlier, self.to_dict())}
        temporary.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.output)

    def _stored(self) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        if self.output is not None and self.output.exists():
            whole = json.loads(self.output.read_text())
        return whole

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        rows = {kind: {name: found[name] for name in OUTCOMES if found[name]} for kind, found in self.counts.items()}
        tried = sum(sum(found.values()) for found in self.counts.values())
        seconds = round(self.written - self.began)
        run = {**self.facts, "tried": tried, "seconds": seconds}
        return {"tried": tried, "seconds": seconds, "runs": [run], "table": rows, "findings": self.findings}


def _commit() -> str:
    """Of the code that is attacked."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def _mutations(valid: Path, work: Path, given: argparse.Namespace) -> Iterator[Outcome]:
    """Mutated files and hostile values."""
    attack = Attack(valid, work, given.seed, given.keep)
    attack.check_sound()
    for found in attack.run(given.first, given.mutations):
        yield found.kind, found.outcome, f"number {found.number}: {' '.join(found.words)}: {found.said}"
        if found.console:
            yield "of these by the console script", found.outcome, ""


def _import_everything() -> None:
    """Children are forked with all modules, of which none has been used."""
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import torch._dynamo  # noqa: F401 - optimizers load it at their first step

    import at_infer
    import training

    for package in (at_infer, training):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "tensorrt" not in module.name and "__main__" not in module.name:
                importlib.import_module(module.name)


def main() -> None:
    """Attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="Number of the first mutation.")
    parser.add_argument("--kills", type=int, default=0, help="Of score.")
    parser.add_argument("--train-kills", type=int, default=0)
    parser.add_argument("--watch-kills", type=int, default=0)
    parser.add_argument("--ray-kills", type=int, default=0, help="Of workers and heads in turn.")
    parser.add_argument("--full-disks", type=int, default=0, help="At most; takes gcc.")
    parser.add_argument("--names", action="store_true", help="Odd names of outputs.")
    parser.add_argument("--bomb", action="store_true", help="A small Parquet file of 60 million rows.")
    parser.add_argument("--stream", type=float, default=0.0, help="Seconds of live stream.")
    parser.add_argument("--keep", type=Path, help="Folder for files that led to findings.")
    parser.add_argument("--output", type=Path, help="Result; other parts that it holds stay.")
    parser.add_argument("--add", action="store_true", help="Add to the same parts of the result.")
    given = parser.parse_args()
    if given.full_disks:
        disks.preload()
    results = []
    with tempfile.TemporaryDirectory(prefix="attack") as place:
        folder, rng = Path(place), random.Random(given.seed)
        _import_everything()
        valid = folder / "seeds"
        seeds.make(valid)
        facts: dict[str, Any] = {}
        parts: list[tuple[str, Any, Callable[[], Iterator[Outcome]]]] = [
            ("mutations", given.mutations, lambda: _mutations(valid, folder / "work", given)),
            ("kills of score", given.kills, lambda: kills.of_score(valid, folder / "score", rng, given.kills)),
            (
                "kills of train",
                given.train_kills,
                lambda: kills.of_train(valid, folder / "train", rng, given.train_kills),
            ),
            (
                "kills of watch",
                given.watch_kills,
                lambda: kills.of_watch(valid, folder / "watch", rng, given.watch_kills),
            ),
            ("kills on Ray", given.ray_kills, lambda: clusters.of_ray(valid, folder / "ray", rng, given.ray_kills)),
            ("full disks", given.full_disks, lambda: disks.of_all(valid, folder / "full", given.full_disks)),
            ("names", given.names, lambda: sizes.names(valid, folder / "names")),
            ("bomb", given.bomb, lambda: sizes.bomb(valid, folder / "bomb", facts)),
            ("stream", given.stream, lambda: sizes.stream(valid, given.stream, facts)),
        ]
        for name, wanted, attack in parts:
            if wanted:
                facts = {"seed": given.seed, "commit": _commit()}
                if name == "mutations":
                    facts["first"] = given.first
                results.append(Result(name, given.output, facts, add=given.add))
                results[-1].take(attack())
    print(table({result.part: result.to_dict() for result in results}))
    print(json.dumps({result.part: result.to_dict() for result in results}))


if __name__ == "__main__":
    main()
