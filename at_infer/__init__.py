"""Score Parquet files with an exported Anomaly Transformer: numpy, polars and an engine, no torch.

>>> from at_infer import score_file
>>> summary = score_file("data.parquet", "model.onnx", "scores.parquet")   # doctest: +SKIP

`Scorer` does the same for rows in memory, `StreamScorer` for rows as they come, `open_engine` for windows.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from at_infer.engines import open_engine as open_engine
    from at_infer.live.scorer import StreamScorer as StreamScorer
    from at_infer.scoring.options import EngineOptions as EngineOptions
    from at_infer.scoring.options import InputOptions as InputOptions
    from at_infer.scoring.options import ScoreOptions as ScoreOptions
    from at_infer.scoring.score_file import Summary as Summary
    from at_infer.scoring.score_file import score_file as score_file
    from at_infer.scoring.scorer import Scorer as Scorer

__version__ = "0.1.0"
__all__ = [
    "EngineOptions",
    "InputOptions",
    "ScoreOptions",
    "Scorer",
    "StreamScorer",
    "Summary",
    "__version__",
    "open_engine",
    "score_file",
]

_HOMES = {
    "open_engine": "at_infer.engines",
    "score_file": "at_infer.scoring.score_file",
    "Summary": "at_infer.scoring.score_file",
    "Scorer": "at_infer.scoring.scorer",
    "ScoreOptions": "at_infer.scoring.options",
    "InputOptions": "at_infer.scoring.options",
    "EngineOptions": "at_infer.scoring.options",
    "StreamScorer": "at_infer.live.scorer",
}


def __getattr__(name: str) -> Any:
    """Load the public API when it is asked for: `at-infer --help` needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
