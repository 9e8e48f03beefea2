"""One contestant of benchmarks/peers.py in a process of its own, with the libraries of whichever Python runs it.

    python -m benchmarks.peer_worker NAME FOLDER

Loads what was prepared in FOLDER, scores the first window and says "ready". Then scores a file for every line on
standard input, and at the end of input tells its peak memory. Each answer is one JSON line.
"""

import json
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peak_memory import peak_mb

THREADS = 2
WINDOW = 100
Score = Callable[[Path], Any]


def rows_of(path: Path) -> Any:
    """The features of a file, as an array."""
    import polars as pl

    return pl.read_parquet(path).drop("timestamp").to_numpy()


def published(folder: Path) -> Score:
    """The PyTorch script in the manner of the published code."""
    import torch

    from benchmarks.published import published_script
    from training.checkpoint import Checkpoint

    torch.set_num_threads(THREADS)
    network = Checkpoint.load(folder / "ckpt.pt").network()
    return lambda path: published_script(path, network, 8)


def at_infer(folder: Path, *, precision: str, stride: int) -> Score:
    """`score_file` from file to file, as `at-infer score` does it."""
    from at_infer.threads import let_threads_sleep

    let_threads_sleep()
    from at_infer import open_engine, score_file
    from at_infer.scoring.options import EngineOptions, ScoreOptions

    engine = open_engine(folder / f"{precision}.onnx", threads=THREADS)
    options = ScoreOptions(stride=stride)
    output = folder / f"{precision}-{stride}.parquet"

    def score(path: Path) -> Any:
        import polars as pl

        score_file(path, engine, output, options, overwrite=True, engine_options=EngineOptions(batch_size=8))
        return pl.read_parquet(output)["score"].to_numpy()

    return score


def fitted(folder: Path, name: str, **settings: object) -> Score:
    """A detector that was fitted and pickled by its own library."""
    if name != "isolation_forest":
        import torch

        torch.set_num_threads(THREADS)
    detector = pickle.loads((folder / f"{name}.pickle").read_bytes())
    for key, value in settings.items():
        setattr(detector, key, value)
    sign = -1 if name == "isolation_forest" else 1  # scikit-learn's is lower for what is more abnormal
    return lambda path: sign * detector.decision_function(rows_of(path))


CONTESTANTS: dict[str, Callable[[Path], Score]] = {
    "published": published,
    "fp32": lambda folder: at_infer(folder, precision="fp32", stride=WINDOW),
    "int8": lambda folder: at_infer(folder, precision="int8-dynamic", stride=WINDOW),
    "fp32-overlap": lambda folder: at_infer(folder, precision="fp32", stride=1),
    "int8-overlap": lambda folder: at_infer(folder, precision="int8-dynamic", stride=1),
    "pyod": lambda folder: fitted(folder, "pyod", step=WINDOW),
    "pyod-overlap": lambda folder: fitted(folder, "pyod"),
    "deepod": lambda folder: fitted(folder, "deepod"),
    "isolation_forest": lambda folder: fitted(folder, "isolation_forest"),
}


def fit(name: str, folder: Path) -> None:
    """Fit a library's detector for as short as it allows, and keep it: only the speed of scoring is asked for."""
    rows = rows_of(folder / "first.parquet")
    if name == "pyod":
        from pyod.models.ts_anomaly_transformer import AnomalyTransformer

        detector = AnomalyTransformer(step=WINDOW, epochs=1, device="cpu")
        detector.fit(rows)
        detector.step = 1  # its default
    elif name == "deepod":
        from deepod.models.time_series import AnomalyTransformer as DeepodTransformer

        detector = DeepodTransformer(stride=WINDOW, epochs=1, device="cpu", verbose=0)
        detector.fit(rows)
    else:
        from sklearn.ensemble import IsolationForest

        detector = IsolationForest(random_state=0).fit(rows_of(folder / "rows.parquet"))
    (folder / f"{name}.pickle").write_bytes(pickle.dumps(detector))


def main() -> None:
    """Fit, or score on request."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name.startswith("fit:"):
        fit(name.removeprefix("fit:"), folder)
        return
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print what they like

    def say(**answer: object) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    score = CONTESTANTS[name](folder)
    score(folder / "first.parquet")
    say(ready=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        found = score(Path(line.strip()))
        say(seconds=time.perf_counter() - begin, scores=[float(value) for value in found])
    say(peak_mb=peak_mb())


if __name__ == "__main__":
    main()
