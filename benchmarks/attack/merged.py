"""Add results of separate runs to benchmarks/results/attack.json, and write its table into docs/security.md.

    python -m benchmarks.attack.merged [--instead PART] [RESULT ...]

Parts of a result are added to those of the same name; a part that is named after `--instead` replaces the earlier one,
for example after the comparison was corrected. Run it in the clone whose files it changes.
"""

import argparse
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks.attack.command import table
from benchmarks.attack.results import added

ROOT = Path(__file__).resolve().parents[2]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "attack.json", ROOT / "docs" / "security.md"


def merge(whole: Mapping[str, Any], more: Mapping[str, Any], instead: Collection[str] = ()) -> dict[str, Any]:
    """All parts of both."""
    merged = dict(whole)
    for part, found in more.items():
        if part != "benchmark":
            merged[part] = found if part in instead else added(merged.get(part, {}), found)
    return merged


def with_table(page: str, result: Mapping[str, Any]) -> str:
    """The page with the table of this result in place of its earlier one."""
    head = table({}).splitlines()[0]
    changed, count = re.subn(rf"{re.escape(head)}\n(\|.*\n)*", lambda _: table(result) + "\n", page)
    if count != 1:
        raise SystemExit(f"error: {PAGE.name}: has {count} tables of the attack")
    return changed


def main() -> None:
    """Merge and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--instead", action="append", default=[], metavar="PART")
    given = parser.parse_args()
    whole = json.loads(RESULT.read_text(encoding="utf-8"))
    for path in given.results:
        whole = merge(whole, json.loads(path.read_text(encoding="utf-8")), given.instead)
    RESULT.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), whole), encoding="utf-8")
    for name, part in whole.items():
        if name != "benchmark":
            print(f"{name}: {part['tried']} tried, {len(part['findings'])} findings")


if __name__ == "__main__":
    main()
