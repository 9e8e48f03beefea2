"""Recorded threshold and validation scores of a model or a scores file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from at_infer.config import Align, ScoreConfig
from at_infer.errors import DataError, EngineError
from at_infer.models.kinds import is_plan
from at_infer.models.metadata import Metadata
from at_infer.models.scored_by import ScoredBy
from at_infer.models.sidecar import load_sidecar
from at_infer.models.statistics import ValidationRecord
from at_infer.tables.labels import read_scores
from at_infer.thresholds.quantiles import ValidationScores

WHAT: dict[Align, str] = {"window": "whole windows", "last": "last rows of windows"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is known; None where it is not."""

    source: str
    threshold: float | None = None
    ratio: float | None = None
    """Share of the validation scores above the threshold."""
    scores: ValidationScores | None = None


def recorded_in_scores(properties: Mapping[str, str], source: str) -> Recorded:
    """What `at-infer score` wrote down."""
    known = ScoredBy.of(properties, source)
    kept = known.validation
    if kept is None:
        return Recorded(source, known.threshold)
    scores = ValidationScores(source, kept.rows, kept.levels, kept.quantiles)
    return Recorded(source, known.threshold, kept.ratio, scores)


def recorded_in_model(path: Path, properties: Mapping[str, str], source: str) -> Recorded:
    """What an exported model knows of the score that a file has, whose properties these are; needs no GPU."""
    metadata, written = read_model_metadata(path), ScoredBy.of(properties, source)
    config = written.score or metadata.score
    if (other := other_setting(metadata.score, config)) is not None:
        raise DataError(f"{path}: its validation scores belong to {other}; give scores of validation rows, or a delta")
    record = metadata.validation_of(*written.way())
    scores = kept_scores(metadata, record, config, str(path))
    if scores is None:
        raise DataError(
            f"{path}: has no validation scores of mode {config.mode}; give scores of validation rows, or a delta"
        )
    if config.mode != metadata.score.mode:
        return Recorded(str(path), scores=scores)
    return Recorded(str(path), record.threshold.value, record.threshold.ratio, scores)


def other_setting(recorded: ScoreConfig, config: ScoreConfig) -> str | None:
    """The recorded setting, in words, without which another score is formed, of this mode or of another one."""
    changed = {
        "smooth": config.smooth != recorded.smooth,
        "temperature": config.mode == "published" and config.temperature != recorded.temperature,
        "level": config.mode == "fusion" and config.level != recorded.level,
        "normalise_errors": config.error_kind != replace(config, normalise_errors=recorded.normalise_errors).error_kind,
    }
    name = next((name for name, is_changed in changed.items() if is_changed), None)
    if name is None:
        return None
    was = getattr(recorded, name)
    return f"`{name}` {was if isinstance(was, bool | str) else f'{was:g}'}"


def kept_scores(
    metadata: Metadata, record: ValidationRecord, config: ScoreConfig, source: str
) -> ValidationScores | None:
    """Quantiles of the validation scores of this mode; None if none were kept."""
    values = record.quantiles.get(config.mode)
    if values is None:
        return None
    return ValidationScores(source, record.threshold.validation_rows, metadata.quantile_levels, values)


def read_validation_scores(source: str) -> ValidationScores:
    """All scores of a file."""
    return ValidationScores.of_scores(source, read_scores(source).scores)


def check_written_by(properties: Mapping[str, str], metadata: Metadata, source: str, model: Path) -> ScoredBy:
    """A file of scores must be of this model, formed as the model has recorded it, as far as it says so."""
    known = ScoredBy.of(properties, source)
    if known.checkpoint_sha256 not in (None, metadata.checkpoint_sha256):
        raise DataError(f"{source}: has scores of another model; score with {model.name} as it is")
    if known.score not in (None, metadata.score):
        raise DataError(
            f"{source}: has scores of another score mode, temperature or smoothing; score with {model.name} as it is"
        )
    return known


def read_model_metadata(path: Path) -> Metadata:
    """Of an ONNX file or a plan, without running it."""
    if is_plan(path):
        metadata = load_sidecar(path)
    else:
        from at_infer.engines import open_engine

        with open_engine(path, threads=1) as engine:
            metadata = engine.metadata
    if metadata is None:
        raise EngineError(f"{path}: was not exported by at-infer and has no threshold; use at-infer export")
    return metadata
