"""Merge contributed results of `benchmarks/edge.sh` into docs/edge.md.

    python -m benchmarks.edge_table [--write] [FILE ...]

Without files: those of benchmarks/results/edge. Each is checked against benchmarks/edge.schema.json; results of
`--quick` are refused. Without `--write` the table is printed.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from at_infer.output import atomic_path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "edge.md"
RESULTS = ROOT / "benchmarks" / "results" / "edge"
SCHEMA = ROOT / "benchmarks" / "edge.schema.json"
BEGIN, END = "<!-- results of benchmarks/edge.sh -->", "<!-- end of results -->"
COLUMNS = (
    *("board", "device", "engine", "latency, batch 1, median / p99 ms"),
    *("windows/s, best batch", "rows/s, file to file", "peak MB"),
)
HEAD = (f"| {' | '.join(COLUMNS)} |", f"| {' | '.join('---' for _ in COLUMNS)} |")
NONE = "No result has been contributed yet."


class ResultError(Exception):
    """A file that cannot go into the table."""


def check(result: Any, name: str) -> dict[str, Any]:
    """The result, if it follows the schema and was measured in full."""
    import jsonschema

    try:
        jsonschema.validate(result, json.loads(SCHEMA.read_text(encoding="utf-8")))
    except jsonschema.ValidationError as error:
        raise ResultError(f"{name}: {error.json_path}: {error.message}") from None
    if result["quick"]:
        raise ResultError(f"{name}: was measured with --quick; measure without it")
    found: dict[str, Any] = result
    return found


def rows(name: str, result: dict[str, Any]) -> list[str]:
    """A line per engine."""
    machine = result.get("machine", {})
    gpus = [gpu["name"] for gpu in machine.get("gpu", {}).get("devices", [])]
    device = gpus[0] if gpus else f"{machine.get('cpu', {}).get('model', 'unknown')} (CPU)"
    scored = {one["engine"]: one for one in result.get("score", [])}
    figures: dict[str, list[dict[str, Any]]] = {}
    for figure in result.get("bench", {}).get("figures", []):
        figures.setdefault(figure["name"], []).append(figure)
    lines = []
    for engine, found in figures.items():
        single = next((figure for figure in found if figure["batch"] == 1), None)
        latency = "" if single is None else f"{single['median_ms']:.3g} / {single['p99_ms']:.3g}"
        best = max(found, key=lambda figure: float(figure["windows_per_s"]))
        busy = ", busy" if any(figure["variation"] > 0.025 for figure in found) else ""
        whole = next((one for file, one in scored.items() if engine.startswith(file)), None)
        speed = ("", "") if whole is None else (f"{whole['summary']['rows_per_s']:.0f}", f"{whole['peak_mb']:.0f}")
        lines.append(
            f"| {name} | {device} | {engine} | {latency} | {best['windows_per_s']:.0f} ({best['batch']}{busy}) | "
            f"{speed[0]} | {speed[1]} |"
        )
    return lines


def table(paths: Sequence[Path]) -> str:
    """The whole table; a board is called as its file."""
    lines = []
    for path in sorted(paths):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultError(f"{path.name}: cannot be read ({error})") from None
        lines += rows(path.stem, check(result, path.name))
    return "\n".join([*HEAD, *lines]) if lines else NONE


def merge(page: str, content: str) -> str:
    """The page with the table between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ResultError(f"{PAGE.name}: has no place for the table, {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="into docs/edge.md")
    args = parser.parse_args()
    try:
        content = table(args.files or sorted(RESULTS.glob("*.json")))
        page = merge(PAGE.read_text(encoding="utf-8"), content)
    except ResultError as error:
        sys.exit(f"error: {error}")
    if not args.write:
        print(content)
        return
    with atomic_path(PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
