"""What an earlier run has left in the folder of splits: refused if it is of another run, gone on from otherwise."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from at_infer.cluster.manifest import NAME, InputEntry, Manifest, SplitEntry, prepare_folder
from at_infer.cluster.scoring import PROPERTY
from at_infer.cluster.summary import ClusterSummary
from at_infer.tables.columns import Place
from at_infer.tables.ranges import read_properties


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
        _look_for_file(folder, entry)
    return manifest


def _look_for_file(folder: Path, entry: SplitEntry) -> None:
    """A split is done if its file is there and says so, whatever the manifest knew when it was written last."""
    properties = read_properties(folder / entry.file)
    result = json.loads((properties or {}).get(PROPERTY, "{}"))
    if result.pop("key", None) == entry.key:
        entry.status, entry.error, entry.result = "done", None, result
    elif entry.status == "done":
        entry.status = "waiting"


def finished_summary(manifest: Manifest, seconds: float) -> ClusterSummary | None:
    """The summary of a run without remaining work, after `seconds`; None if something is left to do."""
    if manifest.summary is None or len(manifest.done) < len(manifest.splits):
        return None
    told = manifest.summary | {
        "resumed_rows": manifest.summary["rows"],
        "skipped_splits": len(manifest.splits),
        "lost_workers": 0,
        "workers": 0,
        "seconds": seconds,
        "rows_per_s": 0.0,
    }
    return ClusterSummary(**{entry.name: told[entry.name] for entry in fields(ClusterSummary)})
