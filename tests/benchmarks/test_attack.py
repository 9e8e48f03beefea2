"""A short, seeded part of the attack."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.attack.command import table
from benchmarks.attack.merged import merge, with_table
from benchmarks.attack.mutations import mutate


def test_mutations_are_those_of_the_seed() -> None:
    import random

    content = bytes(range(256)) * 4
    first, second = ([mutate(content, random.Random(seed)) for seed in range(20)] for _ in range(2))
    assert first == second
    assert all(one != content for one in first[:5])


def test_the_document_shows_the_table_of_the_result() -> None:
    root = Path(__file__).parents[2]
    result = json.loads((root / "benchmarks" / "results" / "attack.json").read_text())
    assert table(result) in (root / "docs" / "security.md").read_text(encoding="utf-8")


def test_results_of_separate_runs_are_added_or_replace_each_other() -> None:
    def part(tried: int, *findings: str) -> dict[str, Any]:
        row = {"accepted": tried - len(findings), "wrong output": len(findings)}
        return {"tried": tried, "seconds": 1, "runs": [{"tried": tried}], "table": {"x": row}, "findings": [*findings]}

    whole = {"benchmark": "attack", "names": part(3), "full disks": part(4, "an error of the comparison")}
    merged = merge(whole, {"names": part(2), "full disks": part(5), "bomb": part(1)}, ["full disks"])
    assert merged["names"]["table"] == {"x": {"accepted": 5}}
    assert [run["tried"] for run in merged["names"]["runs"]] == [3, 2]
    assert merged["full disks"] == part(5)
    assert merged["bomb"] == part(1)
    page = f"before\n\n{table(whole)}\n\nafter\n"
    assert with_table(page, merged) == f"before\n\n{table(merged)}\n\nafter\n"


@pytest.mark.slow
def test_a_short_attack_finds_nothing(tmp_path: Path, warm: Path) -> None:
    found = tmp_path / "attack.json"
    words = ["--mutations", "8", "--kills", "1", "--watch-kills", "1", "--output", str(found)]
    # A process of its own: threads of this one would be forked.
    command = [warm / "python", "-m", "benchmarks.attack", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(found.read_text())
    assert list(result) == ["mutations", "kills of score", "kills of watch"]
    assert all(part["findings"] == [] for part in result.values()), result
    assert json.loads(done.stdout.splitlines()[-1]) == result
