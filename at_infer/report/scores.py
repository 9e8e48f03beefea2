"""A report on scores: everything that is shown of them, as plain values and arrays."""

from dataclasses import dataclass, replace
from pathlib import Path

from at_infer.engines import Engine
from at_infer.errors import ConfigError, DataError
from at_infer.incidents.defaults import rules_of_scores
from at_infer.models.metadata import Metadata
from at_infer.models.scored_by import ScoredBy
from at_infer.report.attention import SeenWindow, look_inside
from at_infer.report.details import Details, look_closer
from at_infer.report.grid import ThresholdGrid, choose_threshold_grid
from at_infer.report.overview import Observe, Overview, look
from at_infer.report.windows import Reconstructor, open_associations
from at_infer.scoring.options import ScoreOptions
from at_infer.tables.scores import ScoredFile

MOST_SERIES = 500
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class ScoresReport:
    """What figures and page are drawn from."""

    file: ScoredFile
    threshold: float
    overview: Overview
    grid: ThresholdGrid
    details: Details
    windows: list[SeenWindow]
    days: float | None
    rows_per_day: float | None
    notes: list[str]
    """What could not be shown, and what to pass for it."""

    @property
    def facts(self) -> ScoredBy:
        """Metadata of the scores file."""
        return ScoredBy.of(self.file.properties, self.file.source)


def survey_scores(
    file: ScoredFile,
    *,
    data: str | None = None,
    engine: Path | None = None,
    threshold: float | None = None,
    rows_per_day: float | None = None,
    details: int | None = None,
    observe: Observe = lambda _done, _rows: None,
) -> ScoresReport:
    """Look at all scores, and closer at the worst of them."""
    if engine is not None and data is None:
        raise ConfigError("engine: associations are those of rows; pass the scored rows as `data`")
    rules = rules_of_scores(file.properties, source=str(file.source), threshold=threshold)
    opened = None if engine is None else open_associations(engine)
    try:
        reconstructor = None
        if opened is not None and opened.metadata is not None:
            _check_model(file, opened.metadata, engine)
            reconstructor = _reconstructor(file, opened, opened.metadata)
        columns = _columns(file) if reconstructor is None else reconstructor.metadata.columns
        if data is not None:
            file.pick_data(data, columns, [])  # says what is wrong with it before the long work
        overview = look(file, rules, observe)
        closer = look_closer(file, overview, count=details, data=data, columns=columns, reconstructor=reconstructor)
        windows: list[SeenWindow] = []
        if reconstructor is not None and data is not None:
            windows = look_inside(file, overview, reconstructor, data, closer.shares)
    finally:
        if opened is not None:
            opened.close()
    report = ScoresReport(
        file=file,
        threshold=rules.open_at,
        overview=overview,
        grid=choose_threshold_grid(overview.total, overview.cuts),
        details=closer,
        windows=windows,
        days=overview.days(rows_per_day),
        rows_per_day=rows_per_day,
        notes=[],
    )
    return replace(report, notes=_notes(report, data, reconstructor))


def _columns(file: ScoredFile) -> list[str] | None:
    return ScoredBy.of(file.properties, file.source).columns


def _reconstructor(file: ScoredFile, engine: Engine, metadata: Metadata) -> Reconstructor:
    """Windows and errors as the file of scores records them; the defaults of the model if it does not."""
    written = ScoredBy.of(file.properties, file.source)
    config = written.score or metadata.score
    usual = ScoreOptions().to_dict()
    known = usual | {name: value for name, value in (written.options or {}).items() if name in usual} | config.to_dict()
    try:
        return Reconstructor(engine, metadata, ScoreOptions.from_dict(known))
    except ConfigError as error:
        raise DataError(f"{file.source}: its metadata are damaged (at_infer.options: {error}); score again") from None


def _check_model(file: ScoredFile, metadata: Metadata, engine: Path | None) -> None:
    known = ScoredBy.of(file.properties, file.source).checkpoint_sha256
    if known not in (None, metadata.checkpoint_sha256):
        raise ConfigError(
            f"{engine}: is of another model than the one that scored {file.source}; pass the engine of that"
        )


def _notes(report: ScoresReport, data: str | None, reconstructor: Reconstructor | None) -> list[str]:
    notes = []
    overview, file = report.overview, report.file
    if file.explained is None and reconstructor is None:
        notes.append(
            "Which features are to blame is not known: run at-infer score --explain top, or give at-infer report "
            "--data and --engine."
        )
    if data is None:
        notes.append("Values of the features are not shown: give at-infer report --data the scored file.")
    elif reconstructor is None:
        notes.append(
            "Reconstructions and associations are not shown: give at-infer report --engine model.associations.onnx."
        )
    if reconstructor is not None and not report.windows:
        notes.append(f"Associations are not shown: no window of {reconstructor.window} rows, or too large for a page.")
    if report.days is None:
        notes.append(
            "Alarms per day are not known, the time column holds no dates: give at-infer report --rows-per-day or "
            "--interval."
        )
    if file.keys.time is not None and file.clock is None:
        notes.append(f"The time column {file.keys.time} holds text that is not a date; rows are numbered instead.")
    if overview.incidents.rules.look_ahead_rows and not file.has_onset:
        notes.append(
            "The scores look ahead, and an incident may seem to begin before its cause: score with --incidents or "
            "--explain top, which keep where a cause begins."
        )
    if overview.incidents.outages:
        features = sorted({one.incident.causes[0].feature for one in overview.incidents.outages})
        more = "" if len(features) <= MOST_NAMED else f" and {len(features) - MOST_NAMED} more"
        notes.append(
            f"{len(overview.incidents.outages)} incidents of missing features are not in the table: "
            f"{', '.join(features[:MOST_NAMED])}{more}; at-infer score --incidents writes them."
        )
    if overview.unscored:
        notes.append(f"{overview.unscored} rows have no score; they never count as flagged.")
    if overview.segment_count > len(overview.segments):
        notes.append(
            f"The table holds the {len(overview.segments)} worst of {overview.segment_count} segments; "
            "all of them are counted."
        )
    if len(overview.series) > MOST_SERIES:
        notes.append(
            f"Curves are kept of the {MOST_SERIES} worst of {len(overview.series)} series; all of them are counted."
        )
    return notes
