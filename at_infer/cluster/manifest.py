"""The manifest of a folder of splits: which model, options and files they belong to, and which of them are done."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from at_infer.errors import ConfigError, OutputError
from at_infer.output import atomic_path, check_writable
from at_infer.scoring.identity import differences
from at_infer.tables.columns import Place
from at_infer.untrusted import read_json, shown, typed

FORMAT = 1
NAME = "manifest.json"
SPLIT_FILE = re.compile(r"\d{6,}-\d{12,}\.parquet")
Status = Literal["waiting", "done", "failed"]
START_AGAIN = "choose another folder, or pass `overwrite` to start again"


def split_file(file: int, row: int) -> str:
    """Name of the split that starts in this row of this file: names sort like the rows of the input."""
    return f"{file:06}-{row:012}.parquet"


@dataclass(slots=True)
class InputEntry:
    """One input file, as it was."""

    name: str
    size: int
    mtime_ns: int
    rows: int | None = None
    error: str | None = None
    """Why it, or a split that reads it, could not be scored: such a file may change."""

    @classmethod
    def of(cls, place: Place) -> Self:
        """As it is now."""
        return cls(place.name, place.size, place.mtime_ns)

    def is_same(self, other: "InputEntry") -> bool:
        """Nobody has written to it since."""
        return (self.name, self.size, self.mtime_ns) == (other.name, other.size, other.mtime_ns)


@dataclass(slots=True)
class SplitEntry:
    """One split."""

    file: str
    """Its own name; it says where the split starts."""
    key: str
    pieces: int
    """Series, or parts of one, in it."""
    rows: int
    first: list[int]
    """File of the input and row in it that it starts with."""
    read_rows: list[int]
    """Rows read before and behind its own, so that windows at its ends are whole."""
    status: Status = "waiting"
    error: str | None = None
    result: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if SPLIT_FILE.fullmatch(self.file) is None:  # a path could lead anywhere
            raise ConfigError(f"file: {shown(self.file)} is not the name of a split")


@dataclass(slots=True)
class Manifest:
    """Of one folder."""

    folder: Path
    identity: dict[str, Any]
    """Version, model, options and key columns."""
    inputs: list[InputEntry]
    split_rows: int | None = None
    splits: dict[str, SplitEntry] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    """Of a complete run."""

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """None if the folder is empty or not there yet; a folder of anything else is refused."""
        path = folder / NAME
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder}: is a file; with `ray` the output is a folder")
        try:
            values = read_json(path, OutputError, f"; {START_AGAIN}")
        except FileNotFoundError:
            if folder.is_dir() and any(not name.name.startswith(".") for name in folder.iterdir()):
                raise OutputError(f"{folder}: holds files but no {NAME}; choose an empty or a new folder") from None
            return None
        try:
            found = values["format"]
            if found != FORMAT:
                raise OutputError(f"{path}: has format {shown(found)}, this at-infer knows {FORMAT}; {START_AGAIN}")
            splits = [typed(SplitEntry, entry, "splits") for entry in typed(list[Any], values["splits"], "splits")]
            return cls(
                folder,
                _identity(values["identity"]),
                typed(list[InputEntry], values["inputs"], "inputs"),
                typed(int | None, values["split_rows"], "split_rows"),
                {entry.file: entry for entry in splits},
                typed(dict[str, Any] | None, values["summary"], "summary"),
            )
        except (KeyError, TypeError, ConfigError) as error:
            raise OutputError(f"{path}: is damaged ({error}); {START_AGAIN}") from None

    def check(self, identity: Mapping[str, Any], inputs: Sequence[InputEntry]) -> None:
        """Refuse to mix the splits of this folder with those of another run."""
        theirs, ours = self.identity, json.loads(json.dumps(identity))
        if theirs["model"] != ours["model"]:
            raise OutputError(
                f"{self.folder}: holds scores of another model, {theirs['model']['file']} with sha256 "
                f"{theirs['model']['sha256'][:12]}; {START_AGAIN}"
            )
        odd = differences(theirs, ours)
        if odd:
            raise OutputError(f"{self.folder}: holds scores of a run with other {', '.join(odd)}; {START_AGAIN}")
        before, now = ({entry.name: entry for entry in entries} for entries in (self.inputs, inputs))
        for name in sorted(before.keys() | now.keys()):
            if name not in now or name not in before:
                what = "is no longer there" if name not in now else "was not there when the run in this folder began"
                raise OutputError(f"{self.folder}: the input has changed, {name} {what}; {START_AGAIN}")
            if before[name].error is None and not before[name].is_same(now[name]):
                raise OutputError(
                    f"{self.folder}: the input has changed, {name} was written since the run in this folder began; "
                    f"{START_AGAIN}"
                )

    def save(self) -> None:
        """Write it, atomically."""
        values = {
            "format": FORMAT,
            "identity": self.identity,
            "inputs": [asdict(entry) for entry in self.inputs],
            "split_rows": self.split_rows,
            "splits": [asdict(self.splits[name]) for name in sorted(self.splits)],
            "summary": self.summary,
        }
        with atomic_path(self.folder / NAME) as temporary:
            temporary.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @property
    def done(self) -> list[SplitEntry]:
        """Splits whose files are there, in order."""
        return [entry for _, entry in sorted(self.splits.items()) if entry.status == "done"]


def _identity(values: Any) -> dict[str, Any]:
    """Of the model, file and digest; the rest is only compared."""
    identity: dict[str, Any] = typed(dict[str, Any], values, "identity")
    model = typed(dict[str, str], identity["model"], "model")
    options = typed(dict[str, Any], identity["options"], "options")
    return identity | {"model": {name: model[name] for name in ("file", "sha256")}, "options": options}


def prepare_folder(folder: Path) -> None:
    """Make the folder, and fail if nothing can be written to it."""
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise OutputError(f"{folder}: folder {folder.parent} does not exist; create it or choose another") from None
    except OSError as error:
        raise OutputError(f"{folder}: cannot be created ({error.strerror or error})") from None
    check_writable(folder / NAME, overwrite=True)


def remove_splits(folder: Path, *, keep: set[str]) -> None:
    """Remove splits that do not belong to the run, and what killed workers left half written."""
    try:
        for path in folder.iterdir():
            half = path.name.startswith(".") and path.name.endswith(".tmp")
            if half or (SPLIT_FILE.fullmatch(path.name) and path.name not in keep):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be tidied up ({error.strerror or error})") from None
