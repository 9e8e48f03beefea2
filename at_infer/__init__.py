"""Find anomalies in time series with an Anomaly Transformer: tables and Parquet files in, scores out.

>>> import at_infer as ai
>>> with ai.Scorer("model.onnx") as scorer:
...     result = scorer.score(frame)  # polars, pandas, pyarrow, DuckDB: by column name
>>> summary = ai.score_file("data.parquet", "model.onnx", "scores.parquet")

`Detector` trains (with torch), `StreamScorer` scores rows as they come, `open_engine` runs windows.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from at_infer.api.detector import Detector as Detector
    from at_infer.api.picture import Plot as Plot
    from at_infer.api.result import Result as Result
    from at_infer.api.scorer import Scorer as Scorer
    from at_infer.engines import open_engine as open_engine
    from at_infer.errors import AtInferError as AtInferError
    from at_infer.incidents.incident import Incident as Incident
    from at_infer.live.scorer import StreamScorer as StreamScorer
    from at_infer.models.statistics import IncidentOptions as IncidentOptions
    from at_infer.scoring.options import EngineOptions as EngineOptions
    from at_infer.scoring.options import InputOptions as InputOptions
    from at_infer.scoring.options import ScoreOptions as ScoreOptions
    from at_infer.scoring.score_file import Summary as Summary
    from at_infer.scoring.score_file import score_file as score_file

__version__ = "0.1.0"
__all__ = [
    "AtInferError",
    "Detector",
    "EngineOptions",
    "Incident",
    "IncidentOptions",
    "InputOptions",
    "Plot",
    "Result",
    "ScoreOptions",
    "Scorer",
    "StreamScorer",
    "Summary",
    "__version__",
    "open_engine",
    "score_file",
]

_HOMES = {
    "AtInferError": "at_infer.errors",
    "Detector": "at_infer.api.detector",
    "Incident": "at_infer.incidents.incident",
    "Plot": "at_infer.api.picture",
    "IncidentOptions": "at_infer.models.statistics",
    "Result": "at_infer.api.result",
    "open_engine": "at_infer.engines",
    "score_file": "at_infer.scoring.score_file",
    "Summary": "at_infer.scoring.score_file",
    "Scorer": "at_infer.api.scorer",
    "ScoreOptions": "at_infer.scoring.options",
    "InputOptions": "at_infer.scoring.options",
    "EngineOptions": "at_infer.scoring.options",
    "StreamScorer": "at_infer.live.scorer",
}


def __getattr__(name: str) -> _typing.Any:
    """Load the public API on first use: `at-infer --help` needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Exactly the public names."""
    return __all__
