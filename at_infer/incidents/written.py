"""`incidents.parquet` beside the scores: the incidents of a file, folder or glob of scores."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from at_infer.errors import OutputError
from at_infer.incidents.defaults import rules_of_scores
from at_infer.incidents.find import find_incidents
from at_infer.incidents.rules import IncidentRules
from at_infer.models.metadata import PREFIX
from at_infer.output import check_writable
from at_infer.tables.incident_file import check_incident_file, write_incident_file
from at_infer.tables.scores import ScoredFile


class Written(NamedTuple):
    """Content of an incidents file."""

    path: str
    incidents: int
    open: int
    """Those that had not closed when the rows ended."""
    rules: IncidentRules


def check_incidents_path(path: Path, scores: Path, *, overwrite: bool) -> None:
    """Fail before the long work: another file than the scores, and not in a folder of them."""
    check_incident_file(path)
    place = scores.resolve()
    if place in (path.resolve(), *path.resolve().parents):
        raise OutputError(f"{path}: is the scores file; choose another file for the incidents")
    check_writable(path, overwrite=overwrite)


def write_incidents(scores: str, path: Path) -> Written:
    """One pass over a file of scores; the rules are those that fit it."""
    file = ScoredFile(scores)
    rules = rules_of_scores(file.properties, source=scores)
    still_open = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal still_open
        for found in find_incidents(file, rules):
            still_open += found.incident.state == "open"
            yield found.incident.as_json()

    facts = {"incident_rules": rules.to_dict(), "scores": Path(scores).name}
    properties = {f"{PREFIX}{name}": json.dumps(value, sort_keys=True) for name, value in facts.items()}
    count = write_incident_file(path, rows(), file.time_type, properties)
    return Written(str(path), count, still_open, rules)
