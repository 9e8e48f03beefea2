"""Hostile values in the place of metadata, with every checksum made right again."""

import json
import random
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.attack.mutations import Case
from benchmarks.attack.oracle import Oracle

VALUES: tuple[str, ...] = (
    *("null", "true", "NaN", "Infinity", "-1", "0", "1e308", "1e999", "100.0", '"0.1"', '""', "[]", "{}", "[null]"),
    *("[[]]", "9" * 400, "9" * 5_000, "[" * 30_000, '"\\ud800"', '"\\u001b[2J"', '{"value": NaN}', "[0.1, 0.0]"),
    *("1000000000", "-9223372036854775808", "5e-324", '"\\u0000"', '"' + "x" * 70_000 + '"'),
)


class Grammar:
    """Each place of metadata in turn."""

    def __init__(self, seeds: Path, work: Path) -> None:
        self.seeds, self.work, self.oracle = seeds, work, Oracle(seeds, work)
        self.out = work / "out.parquet"
        self.makers: list[Callable[[random.Random], Case]] = [
            self._onnx,
            self._scores,
            self._sidecar,
            self._checkpoint,
            self._state,
            self._lines,
        ]

    def make(self, number: int, rng: random.Random) -> Case:
        """The case of a number."""
        self.out.unlink(missing_ok=True)
        return self.makers[number % len(self.makers)](rng)

    def _onnx(self, rng: random.Random) -> Case:
        import onnx

        graph, path = onnx.load(self.seeds / "plain.onnx"), self.work / "hostile.onnx"
        entry = rng.choice(graph.metadata_props)
        entry.value = hostile(_value(entry.value), rng)  # the digest is no JSON
        path.write_bytes(graph.SerializeToString())
        words = [
            "score",
            str(self.seeds / "data.parquet"),
            "--engine",
            str(path),
            "-o",
            str(self.out),
            "--threads",
            "1",
        ]
        return Case("metadata of ONNX", words, self.oracle.finite_scores, path, output=self.out)

    def _scores(self, rng: random.Random) -> Case:
        import polars as pl

        path, source = self.work / "hostile.parquet", self.seeds / "scores.parquet"
        known = pl.read_parquet_metadata(source)
        known.pop("ARROW:schema", None)
        name = rng.choice(sorted(known))
        pl.read_parquet(source).write_parquet(path, metadata={**known, name: hostile(_value(known[name]), rng)})
        command = rng.choice((
            ["evaluate", str(path), "--labels", str(self.seeds / "labels.parquet")],
            ["report", str(path), "-o", str(self.work / "page.html"), "--overwrite"],
            ["threshold", str(self.seeds / "model.onnx"), "--scores", str(path)],
        ))  # fmt: skip
        return Case("metadata of scores", command, lambda _: True, path)

    def _sidecar(self, rng: random.Random) -> Case:
        from at_infer.models.sidecar import SEAL, _digest

        (self.work / "model.trt").write_bytes((self.seeds / "model.trt").read_bytes())
        path = self.work / "model.trt.json"
        text = hostile(json.loads((self.seeds / "model.trt.json").read_bytes()), rng)
        try:  # sealed again, as someone would who can write the file
            values = json.loads(text)
            values["engine"][SEAL] = _digest(values)
            text = json.dumps(values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return Case("metadata of sidecar", ["inspect", str(self.work / "model.trt")], lambda _: True, path)

    def _checkpoint(self, rng: random.Random) -> Case:
        import torch

        content: dict[str, Any] = torch.load(self.seeds / "trained.pt", weights_only=True)
        plain = {name: value for name, value in content.items() if name != "state_dict"}
        path = self.work / "hostile.pt"
        torch.save({**_parsed(plain, rng), "state_dict": content["state_dict"]}, path)
        command = rng.choice((["inspect", str(path)], ["report", str(path), "-o", str(self.work / "p"), "--overwrite"]))
        return Case("metadata of checkpoint", command, lambda _: True, path)

    def _state(self, rng: random.Random) -> Case:
        line, _, rest = (self.seeds / "state").read_bytes().partition(b"\n")
        path = self.work / "state"
        changed = hostile(json.loads(line), rng).encode(errors="surrogatepass") + b"\n" + rest[:-4]
        path.write_bytes(changed + zlib.crc32(changed).to_bytes(4, "little"))
        words = [
            "watch",
            "--engine",
            str(self.seeds / "model.onnx"),
            "--state",
            str(path),
            "--threads",
            "1",
            "--no-time",
        ]
        words += ["--only", "incidents"]
        return Case("metadata of state", words, self._json_lines, path, stdin=self.seeds / "lines.jsonl")

    def _lines(self, rng: random.Random) -> Case:
        lines = (self.seeds / "series.jsonl").read_bytes().splitlines()
        for at in rng.sample(range(len(lines)), 20):
            lines[at] = hostile(json.loads(lines[at]), rng).encode(errors="surrogatepass")
        path = self.work / "hostile.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n")
        words = ["watch", "--engine", str(self.seeds / "model.onnx"), "--time-column", "time", "--threads", "1"]
        words += ["--series-column", "machine", "--on-bad-time", rng.choice(("error", "drop", "ignore"))]
        return Case("hostile lines", words, self._json_lines, path, stdin=path)

    def _json_lines(self, printed: bytes) -> bool:
        def refuse(constant: str) -> None:
            raise ValueError(constant)

        return all(json.loads(line, parse_constant=refuse) for line in printed.splitlines())


def hostile(value: Any, rng: random.Random) -> str:
    """JSON with one value of the grammar in the place of the whole or of a part."""
    text = rng.choice(VALUES)
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        return json.dumps(_inside(value, "@", rng)).replace('"@"', text)
    return text


def _parsed(value: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same as values; texts that are no JSON are tried again."""
    while True:
        try:
            found = _inside(value, json.loads(rng.choice(VALUES)), rng)
        except (ValueError, RecursionError):
            continue
        return dict(found) if isinstance(found, Mapping) else {"format": found}


def _inside(value: Any, what: Any, rng: random.Random) -> Any:
    """The same with something else somewhere."""
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        copy = value.copy()
        copy[key] = _inside(value[key], what, rng)
        return copy
    return what


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
