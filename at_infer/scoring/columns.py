"""Output of scored rows: columns, and key-value metadata with engine and options."""

import json
from dataclasses import replace
from typing import Any

import numpy as np

from at_infer import __version__
from at_infer.models.fusion import LABELS
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.windows import Floats
from at_infer.tables.columns import Columns

OF_INPUT = ("time_column", "series_column", "on_bad_time")
"""Of `Columns`, kept in the output: what its keys are, and whether times may fall."""


def added_columns(scorer: Scorer) -> list[str]:
    """Columns of the output beside the carried ones."""
    explain = scorer.options.explain
    top = ["top_feature", "top_feature_share", "error"] if explain != "none" else []
    top += ["top_view"] if explain != "none" and scorer.config.mode == "fusion" else []
    onset = ["onset"] if scorer.has_onset else []
    errors = [f"error_{name}" for name in scorer.metadata.columns] if explain == "all" else []
    return ["score", "is_anomaly", *top, *onset, *errors]


def scored_columns(scorer: Scorer, scores: Floats) -> dict[str, Any]:
    """The channels of scored rows (r,C) as columns of the output."""
    score = scores[:, 0]
    found: list[Any] = [score, scorer.verdict(score)]
    explain, names = scorer.options.explain, scorer.metadata.columns
    if explain != "none":
        errors = scores[:, 1 : 1 + len(names)]
        total = errors.sum(axis=1)
        known = total > 0  # neither NaN nor a perfect reconstruction
        top = np.where(known, np.nan_to_num(errors).argmax(axis=1), -1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = errors[np.arange(len(errors)), top] / total
        found += [
            np.array([*names, None], object)[top],
            np.where(known, share, np.nan).astype(np.float32),
            total / np.float32(len(names)),
        ]
        if scorer.config.mode == "fusion":
            views = np.nan_to_num(scores[:, 1 + len(names) : 1 + 2 * len(names)]).astype(np.int64)[
                np.arange(len(errors)), top
            ]
            found.append(np.array([*LABELS, None], object)[np.where(known, views, len(LABELS))])
    if scorer.has_onset:
        found.append(scores[:, -1])
    if explain == "all":
        found += list(errors.T)
    return dict(zip(added_columns(scorer), found, strict=True))


def scored_properties(scorer: Scorer, columns: Columns | None = None) -> dict[str, str]:
    """Key-value metadata of the output; `columns` are what was read of the input."""
    known, spacing, max_gap = scorer.metadata, scorer.spacing, scorer.options.max_gap
    if spacing is not None and max_gap is not None:
        spacing = replace(spacing, max_gap=max_gap)
    facts = {
        "version": __version__,
        "engine": scorer.engine.describe(),
        "engine_file": scorer.engine.path.name,
        "checkpoint_sha256": known.checkpoint_sha256,
        "precision": known.precision,
        "columns": known.columns,
        "score": scorer.config.to_dict(),
        "threshold": scorer.threshold,
        "validation": scorer.chosen.to_properties(),
        "false_alarms": {"asked": scorer.chosen.asked_rate, "expected_per_day": scorer.chosen.incidents_per_day},
        "incident_options": scorer.chosen.incidents.to_dict(),
        "alignment": scorer.layout.rule,
        "layout": scorer.layout.to_dict(),
        "delay": scorer.delay,
        "look_ahead": scorer.row_settings.lookahead,
        "options": scorer.options.to_dict(),
        "spacing": None if spacing is None else spacing.to_dict(),
        **{name: None if columns is None else getattr(columns, name) for name in OF_INPUT},
        "grid": None if scorer.grid is None else scorer.grid.to_dict(),
    }
    return {f"at_infer.{name}": json.dumps(value, sort_keys=True) for name, value in facts.items()}
