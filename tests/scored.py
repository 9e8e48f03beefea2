"""Rows to score, and models that differ in what they recorded."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from at_infer import Summary, open_engine
from at_infer.models.metadata import DIGEST, PREFIX
from tests.checkpoints import FEATURES, SCALER, WINDOW

COLUMNS = [f"f{i:02}" for i in range(FEATURES)]


def rows(count: int, seed: int = 0, **more: Any) -> pl.DataFrame:
    """So many rows of what the model was trained on, and other columns."""
    z = np.random.default_rng(seed).normal(size=(count, FEATURES))
    values = (np.asarray(SCALER.mean) + np.asarray(SCALER.scale) * z).astype(np.float32)
    return pl.DataFrame(values, schema=COLUMNS).with_columns(**{name: pl.Series(of) for name, of in more.items()})


def values(frame: pl.DataFrame) -> np.ndarray:
    return frame.select(COLUMNS).to_numpy().astype(np.float32)


def windows(frame: pl.DataFrame, starts: list[int]) -> np.ndarray:
    return np.stack([values(frame)[start : start + WINDOW] for start in starts])


def by_hand(models: Path, of_windows: np.ndarray, output: str = "score") -> np.ndarray:
    """What the engine itself says of windows."""
    with open_engine(models / "model.onnx") as engine:
        return engine.run(of_windows)[output]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@dataclass(frozen=True)
class Scored:
    """What a run wrote and what it said."""

    frame: pl.DataFrame
    summary: Summary
    path: Path

    @property
    def score(self) -> np.ndarray:
        return self.frame["score"].to_numpy()

    @property
    def unscored(self) -> list[int]:
        return self.frame["score"].is_null().arg_true().to_list()


Score = Callable[..., Scored]
Edit = Callable[..., Path]


def variant(model: Path, target: Path, *, outputs: list[str] | None = None, **metadata: Any) -> Path:
    """The same network as if it had been trained or exported otherwise."""
    import onnx

    edited = onnx.load(model)
    for entry in [entry for entry in edited.metadata_props if entry.key == PREFIX + DIGEST]:
        edited.metadata_props.remove(entry)  # as of a version that kept none
    for entry in edited.metadata_props:
        name = entry.key.removeprefix(PREFIX)
        if name in metadata:
            new, old = metadata.pop(name), json.loads(entry.value)
            entry.value = json.dumps((old or {}) | new if isinstance(new, dict) else new)
    assert not metadata, "no such metadata"
    if outputs is not None:
        kept = [output for output in edited.graph.output if output.name in outputs]
        del edited.graph.output[:]
        edited.graph.output.extend(kept)
    onnx.save(edited, target)
    return target
