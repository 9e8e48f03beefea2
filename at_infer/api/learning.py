"""From a table in memory to a checkpoint and its engine; all that Python needs torch for."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from numpy.typing import ArrayLike

from at_infer.errors import ConfigError, DataError
from at_infer.installed import load_extra
from at_infer.output import check_folder
from at_infer.tables.files import InputFile
from at_infer.tables.frames import ArrowTable, array_frame, array_values, as_file, is_table, read_frame
from at_infer.training_options import NetworkOptions, RecordedScore, TrainingOptions

if TYPE_CHECKING:
    from training.checkpoint import Checkpoint

Said = TypeVar("Said", NetworkOptions, TrainingOptions, RecordedScore)


class Learnt(NamedTuple):
    """State of a fitted detector."""

    checkpoint: bytes
    """As `at-infer train` writes it."""
    model: bytes
    """The ONNX file that scores like it."""


class Rows(NamedTuple):
    """What to learn from."""

    table: ArrowTable | ArrayLike
    validation: ArrowTable | ArrayLike | None
    """None: a share of the table."""
    time: str | None
    series: str | None


def learn(
    rows: Rows,
    parameters: Mapping[str, Any],
    *,
    start: Learnt | str | Path | None,
    observe: Callable[[int, int], None],
) -> Learnt:
    """Train with the parameters of a detector, from the weights of `start` if there are any.

    `observe` receives the steps done and the total.
    """
    load_extra("export", "detector")
    from training.parent import Parent
    from training.request import Request

    keys = (rows.time, rows.series)
    columns = parameters["columns"]
    parent = None
    if isinstance(start, Learnt):
        parent = Parent("from_", hashlib.sha256(start.checkpoint).hexdigest(), _read(start.checkpoint))
    elif start is not None:
        parent = Parent.load(Path(start))
    request = Request(
        source=_input(rows.table, "table", keys),
        columns=None if columns is None else list(columns),
        learn_clocks=not is_table(rows.table),
        exclude=tuple(parameters["exclude"]),
        time_column=rows.time,
        series_column=rows.series,
        validation=parameters["validation"] if rows.validation is None else _input(rows.validation, "validation", keys),
        network=_said(NetworkOptions, parameters),
        training=_said(TrainingOptions, parameters),
        score=_said(RecordedScore, parameters),
        parent=parent,
        **{name: parameters[name] for name in ("fill", "season", "max_gap", "interval", "resample")},
        **{name: parameters[name] for name in ("ratio", "device", "threads")},
    )
    return _learnt(request.run(observe=lambda at: observe(at.step, at.steps)))


def read_checkpoint(path: Path) -> Learnt:
    """A checkpoint of `Detector.save` or `at-infer train`."""
    load_extra("export", "detector")
    from training.checkpoint import Checkpoint

    return _learnt(Checkpoint.load(path), path.read_bytes())


def export(
    learnt: Learnt,
    folder: Path,
    config: Mapping[str, Any],
    *,
    overwrite: bool,
    triton: Path | None,
    say: Callable[[str], None],
) -> list[Path]:
    """As `at-infer export` does; the files that were written."""
    load_extra("export", "detector")
    from export.config import ExportConfig
    from export.pipeline import export_model

    names = [entry.name for entry in fields(ExportConfig)]
    for name in config:
        if name not in names:
            raise ConfigError(f"export: there is no parameter {name}; there are {', '.join(names)}")
    check_folder(folder)
    report = export_model(
        _read(learnt.checkpoint),
        hashlib.sha256(learnt.checkpoint).hexdigest(),
        folder,
        ExportConfig(**config),
        triton=triton,
        overwrite=overwrite,
        say=say,
    )
    return [file.path for file in report.files]


def _said(kind: type[Said], parameters: Mapping[str, Any]) -> Said:
    return kind(**{entry.name: parameters[entry.name] for entry in fields(kind)})


def _learnt(checkpoint: "Checkpoint", written: bytes | None = None) -> Learnt:
    """A checkpoint with the ONNX file that scores like it."""
    from export.pipeline import score_graph

    if written is None:
        with TemporaryDirectory() as place:
            checkpoint.save(Path(place) / "ckpt.pt")
            written = (Path(place) / "ckpt.pt").read_bytes()
    return Learnt(written, score_graph(checkpoint, hashlib.sha256(written).hexdigest()))


def _read(checkpoint: bytes) -> "Checkpoint":
    from training.checkpoint import Checkpoint

    with TemporaryDirectory() as place:
        (Path(place) / "ckpt.pt").write_bytes(checkpoint)
        return Checkpoint.load(Path(place) / "ckpt.pt")


def _input(given: ArrowTable | ArrayLike, where: str, keys: Sequence[str | None]) -> InputFile:
    """Rows to learn from; columns of an array are called x0, x1, ..."""
    if is_table(given):
        return as_file(read_frame(given, [key for key in keys if key is not None]), where)
    values = array_values(given, where)
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(f"{where}: has shape {list(values.shape)}; give rows and columns")
    return as_file(array_frame(values, [f"x{j}" for j in range(values.shape[1])]), where)
