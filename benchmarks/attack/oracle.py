"""What an accepted input must lead to: scores of the rows it holds, or exactly what the sound file leads to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.attack.command import call


class Oracle:
    """Answers for the files of one folder of seeds; used in the process that runs the commands."""

    def __init__(self, seeds: Path, work: Path) -> None:
        self.seeds, self.work = seeds, work
        self.clean = work / "clean"
        self.known: dict[str, bytes] = {}

    def anything(self, _path: Path, _words: list[str], _out: bytes) -> bool:
        """Nothing is known of what it says; that it ends is enough."""
        return True

    def reference(self, *_: Any) -> bool:
        """The scores of the sound file, byte by byte."""
        return (self.work / "out.parquet").read_bytes() == (self.seeds / "scores.parquet").read_bytes()

    def finite_scores(self, *_: Any) -> bool:
        """A score that is finite or null for each row."""
        import polars as pl

        found = pl.read_parquet(self.work / "out.parquet")
        return found.height == 300 and found["score"].drop_nulls().is_finite().all() is True

    def scores_of_table(self, path: Path, words: list[str], _out: bytes) -> bool:
        """Those of the same rows in a file that is written anew."""
        import polars as pl

        out = self.work / "out.parquet"
        found = pl.read_parquet(out)
        self._rewrite(path)
        clean = self.clean / path.with_suffix(".parquet").name
        again = [str(clean) if word == str(path) else word for word in words]
        said = call(again, self.work)
        return said.code == 0 and found.equals(pl.read_parquet(out)) and found.height == pl.read_parquet(clean).height

    def same_as_rewritten(self, path: Path, words: list[str], out: bytes) -> bool:
        """The command prints the same for the same rows and metadata in a file that is written anew."""
        self._rewrite(path)
        clean = self.clean / path.name
        said = call([str(clean) if word == str(path) else word for word in words], self.work)
        return _without(said.out, clean) == _without(out, path)

    def printed_as_of_seed(self, path: Path, words: list[str], out: bytes) -> bool:
        """The command prints the same for the sound file."""
        return _without(out, path) == self._once(path, words)

    def same_until_damaged(self, path: Path, words: list[str], out: bytes) -> bool:
        """Lines before the first damaged byte give what they give in the sound file; all output is JSON."""
        whole, damaged = (self.seeds / path.name).read_bytes(), path.read_bytes()
        same = next((at for at, (a, b) in enumerate(zip(whole, damaged, strict=False)) if a != b), len(damaged))
        rows = max(0, whole[:same].count(b"\n") - path.name.endswith(".csv"))
        lines = out.splitlines()
        for line in lines:
            json.loads(line, parse_constant=_refuse)
        expected = self._once(path, words, stdin=self.seeds / path.name).splitlines()
        return damaged[: whole.find(b"\n")] != whole[: whole.find(b"\n")] or lines[:rows] == expected[:rows]

    def same_weights(self, path: Path, _words: list[str], _out: bytes) -> bool:
        """A checkpoint that loads is the one that was saved."""
        import torch

        return _equal(*(torch.load(one, weights_only=True) for one in (path, self.seeds / path.name)))

    def same_bytes(self, path: Path, _words: list[str], _out: bytes) -> bool:
        """Only the sound file is accepted."""
        return path.read_bytes() == (self.seeds / path.name).read_bytes()

    def same_state(self, path: Path, words: list[str], _out: bytes) -> bool:
        """The state that is left is the one that the sound state leaves."""
        left = path.read_bytes()
        path.write_bytes((self.seeds / path.name).read_bytes())
        return call(words, self.work).code == 0 and left == path.read_bytes()

    def same_training(self, path: Path, words: list[str], _out: bytes) -> bool:
        """A training that goes on ends with the weights that it ends with from the sound state."""
        import torch

        trained = self.work / "trained.pt"
        found = torch.load(trained, weights_only=True)["state_dict"]
        if "trained" not in self.known:
            path.write_bytes((self.seeds / path.name).read_bytes())
            assert call(words, self.work).code == 0
            self.known["trained"] = trained.read_bytes()
        trained.write_bytes(self.known["trained"])
        return _equal(found, torch.load(trained, weights_only=True)["state_dict"])

    def _once(self, path: Path, words: list[str], stdin: Path | None = None) -> bytes:
        key = " ".join(words)
        if key not in self.known:
            sound = self.seeds / path.name
            said = call([str(sound) if word == str(path) else word for word in words], self.work, stdin)
            self.known[key] = _without(said.out, sound)
        return self.known[key]

    def _rewrite(self, path: Path) -> None:
        import polars as pl

        self.clean.mkdir(exist_ok=True)
        if path.suffix == ".csv":
            pl.read_csv(path, glob=False, infer_schema_length=10_000, try_parse_dates=True).write_parquet(
                self.clean / path.with_suffix(".parquet").name
            )
            return
        properties = pl.read_parquet_metadata(path)
        properties.pop("ARROW:schema", None)
        readable, rows = [], pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()  # as the file says
        for name in pl.scan_parquet(path, glob=False).collect_schema():  # a command need not read all
            try:
                readable.append(pl.read_parquet(path, glob=False, columns=[name], n_rows=rows))
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
                continue
        pl.concat(readable, how="horizontal").write_parquet(self.clean / path.name, metadata=properties)


def _without(out: bytes, path: Path) -> bytes:
    return out.replace(str(path).encode(), b"FILE")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _equal(one: Any, other: Any) -> bool:
    import torch

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


Check = Callable[[Path, list[str], bytes], bool]
