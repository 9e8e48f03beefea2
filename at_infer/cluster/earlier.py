"""What an earlier run has left in the folder of splits: refused if it is of another run, gone on from otherwise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from at_infer.cluster.manifest import NAME, START_AGAIN, InputEntry, Manifest, SplitEntry, prepare_folder
from at_infer.cluster.scoring import PROPERTY, SplitResult
from at_infer.cluster.summary import ClusterSummary
from at_infer.errors import ConfigError, OutputError
from at_infer.tables.columns import Place
from at_infer.tables.ranges import read_properties
from at_infer.untrusted import load_json, typed, typed_fields


def open_folder(folder: Path, identity: dict[str, Any], places: Sequence[Place], *, overwrite: bool) -> Manifest:
    """Make the folder if need be; the manifest of an earlier run in it, or a new one."""
    inputs = [InputEntry.of(place) for place in places]
    start_again = overwrite and (folder / NAME).is_file()
    manifest = None if start_again else Manifest.load(folder)
    if manifest is not None:
        manifest.check(identity, inputs)
        manifest.identity, manifest.inputs = identity, inputs
    prepare_folder(folder)
    manifest = manifest or Manifest(folder, identity, inputs)
    for entry in manifest.splits.values():
        look_for_file(folder, entry)
    return manifest


def look_for_file(folder: Path, entry: SplitEntry) -> None:
    """A split is done if its file is there and says so, whatever the manifest knew when it was written last."""
    properties = read_properties(folder / entry.file)
    try:
        told: dict[str, Any] = typed(dict[str, Any], load_json((properties or {}).get(PROPERTY, "{}")), PROPERTY)
        is_done = told.pop("key", None) == entry.key
        result = typed_fields(SplitResult, told) if is_done else None
    except ValueError as error:
        raise OutputError(
            f"{folder / entry.file}: its metadata are damaged ({error}); remove it, or pass overwrite=True"
        ) from None
    if result is not None:
        entry.status, entry.error, entry.result = "done", None, result
    elif entry.status == "done":
        entry.status = "waiting"


def finished_summary(manifest: Manifest, seconds: float) -> ClusterSummary | None:
    """The summary of a run without remaining work, after `seconds`; None if something is left to do."""
    if manifest.summary is None or not manifest.splits or len(manifest.done) < len(manifest.splits):
        return None
    told = manifest.summary | {
        "resumed_rows": manifest.summary.get("rows"),
        "skipped_splits": len(manifest.splits),
        "lost_workers": 0,
        "workers": 0,
        "seconds": seconds,
        "rows_per_s": 0.0,
    }
    try:
        return ClusterSummary(**typed_fields(ClusterSummary, told))
    except ConfigError as error:
        raise OutputError(f"{manifest.folder / NAME}: is damaged ({error}); {START_AGAIN}") from None
