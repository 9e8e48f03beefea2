"""Valid files of every kind that a command reads, made once; mutations start from them."""

import hashlib
import json
import os
import shutil
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.attack.mutations import TINY

ROWS = 300


def make(folder: Path) -> None:
    """Write the files in a process of its own: a process that has used polars or torch may not be forked later."""
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        try:
            _make(folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("seeds could not be made")


def _make(folder: Path) -> None:
    import numpy as np
    import onnx
    import polars as pl

    from at_infer.config import DiscrepancyConfig, ModelConfig, ScoreConfig
    from at_infer.models.metadata import DIGEST, PREFIX, Metadata
    from at_infer.models.sidecar import seal
    from benchmarks.models import untrained
    from export.config import ExportConfig
    from export.pipeline import export_model

    config = ModelConfig(features=3, window=20, width=16, heads=2, layers=1, feed_forward=16)
    made = untrained(config, ScoreConfig(), DiscrepancyConfig(), windows=40, ratio=0.05)
    made.save(folder / "ckpt.pt")
    export_model(made, "0" * 64, folder, ExportConfig(engine="none"), overwrite=True)
    graph = onnx.load(folder / "model.onnx")
    known = Metadata.from_properties({entry.key: entry.value for entry in graph.metadata_props}, "model.onnx")
    assert known is not None
    for entry in [entry for entry in graph.metadata_props if entry.key == PREFIX + DIGEST]:
        graph.metadata_props.remove(entry)
    onnx.save(graph, folder / "plain.onnx")

    (folder / "model.trt").write_bytes(b"ftrt" + bytes(20) + bytes([10, 9, 0, 34]) + b"kernels")
    facts = {
        "flavour": "tensorrt",
        "version": "10.9.0.34",
        "compute_capabilities": [89],
        "plan_sha256": hashlib.sha256((folder / "model.trt").read_bytes()).hexdigest(),
        "onnx_sha256": "1" * 64,
        "inputs": [{"name": "window", "shape": [-1, 20, 3]}],
        "outputs": [{"name": "reconstruction", "shape": [-1, 20, 3]}],
    }
    described = seal(replace(known, batch=[1, 8, 32], engine=facts))
    (folder / "model.trt.json").write_text(json.dumps(described.to_dict()))

    frame = pl.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32), schema=known.columns)
    frame.write_parquet(folder / "data.parquet")
    frame.write_csv(folder / "data.csv")
    frame.write_csv(folder / "lines.csv")
    frame.write_ndjson(folder / "lines.jsonl")
    series = ["a", "b", "c"] * (ROWS // 3)
    times = [f"2026-01-01T00:{row // 60:02}:{row % 60:02}" for row in range(ROWS)]
    strange = frame.with_columns(time=pl.Series(times), machine=pl.Series(series))
    strange.write_ndjson(folder / "series.jsonl")
    labels = [int(100 <= row < 120) for row in range(ROWS)]
    pl.DataFrame({"row": range(ROWS), "label": labels}).write_parquet(folder / "labels.parquet")
    _score(folder)
    _train(folder)


def _score(folder: Path) -> None:
    """Scores, an unfinished run, and the state of a stream."""
    import at_infer.scoring.score_file as scoring
    import at_infer.tables.row_stream as stream
    from at_infer import score_file
    from at_infer.scoring.options import EngineOptions
    from at_infer.tables.parts import Parts

    options = EngineOptions(threads=1, batch_size=8)
    score_file(folder / "data.parquet", folder / "model.onnx", folder / "scores.parquet", engine_options=options)
    scoring.PART_ROWS, stream.CHUNK_CELLS = 1, 60
    publish = Parts.publish

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    setattr(Parts, "publish", stop)  # noqa: B010 - mypy knows what a method is
    try:
        score_file(folder / "data.parquet", folder / "model.onnx", folder / "out.parquet", engine_options=options)
    except KeyboardInterrupt:
        setattr(Parts, "publish", publish)  # noqa: B010
    # Incidents are open at its end: a threshold this low is always exceeded.
    os.dup2(os.open(folder / "lines.jsonl", os.O_RDONLY), 0)
    live = ["--state", str(folder / "state"), "--no-time", "--only", "incidents", "--threshold", "0.5"]
    _run("watch", "--engine", str(folder / "model.onnx"), "--threads", "1", *live)


def _train(folder: Path) -> None:
    """A checkpoint of a training that may go on, with its state."""
    from training.resume import TrainingState

    save, state = TrainingState.save, folder / "trained.resume.pt"

    def keep(*given: Any) -> None:
        save(*given)
        shutil.copy(state, folder / "kept")

    setattr(TrainingState, "save", keep)  # noqa: B010
    _run("train", str(folder / "data.parquet"), "-o", str(folder / "trained.pt"), *TINY)
    (folder / "kept").rename(state)


def _run(*words: str) -> None:
    from at_infer.cli import app

    try:
        app(words)
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{words}: {end.code}") from None
