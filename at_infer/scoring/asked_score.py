"""The score that options ask for, and whether an engine can give it."""

from dataclasses import replace

from at_infer.config import ScoreConfig, check_temperature, head_rule
from at_infer.engines import Engine
from at_infer.errors import ConfigError
from at_infer.models.criterion import NO_STATISTICS, view_statistics
from at_infer.models.metadata import Metadata
from at_infer.scoring.options import ScoreOptions


def asked_score(known: Metadata, options: ScoreOptions) -> ScoreConfig:
    """The model's, with what the options override."""
    names = ("mode", "temperature", "smooth", "normalise_errors", "level")
    config = known.score.override(**{name: getattr(options, name) for name in names})
    if config.temperature != known.score.temperature:
        check_temperature(config.mode, config.temperature)
    rule = head_rule(config.mode, known.discrepancy)
    if rule != known.discrepancy.head_rule:
        raise ConfigError(
            f"mode: {config.mode} compares associations by the {rule} rule, the engine by the "
            f"{known.discrepancy.head_rule} one; run at-infer export --score-mode {config.mode}"
        )
    if known.normal is None and (config.mode == "calibrated" or config.error_kind.normalised):
        raise ConfigError(f"mode: {config.mode} {NO_STATISTICS}")
    if config.mode == "fusion":
        view_statistics(known)
    return config


def check_outputs(engine: Engine, known: Metadata, config: ScoreConfig, options: ScoreOptions) -> None:
    """The engine must have the outputs that the options need."""
    has = set(engine.outputs)
    if options.explain != "none" and "reconstruction" not in has:
        raise ConfigError(f"explain: {engine.path} has no output reconstruction; export it with all outputs")
    same_error = config.error_kind == known.score.error_kind
    has_error = "reconstruction" in has or ("error" in has and same_error and config.mode != "fusion")
    has_discrepancy = "discrepancy" in has or {"prior_0", "series_0"} <= has or not config.uses_discrepancy
    changed = replace(config, smooth=known.score.smooth) != known.score
    if options.on_missing_feature == "mask" and not ("reconstruction" in has and has_discrepancy):
        raise ConfigError(
            f"on_missing_feature: {engine.path} has only {', '.join(engine.outputs)}, which does not "
            f"tell features apart; export it with all outputs"
        )
    if not (has_error and has_discrepancy) and (changed or "score" not in has):
        raise ConfigError(
            f"mode: {engine.path} has only {', '.join(engine.outputs)}, too little for mode "
            f"{config.mode}; use the associations graph, or run at-infer export --score-mode "
            f"{config.mode}"
        )
