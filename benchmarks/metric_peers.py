"""Our metrics beside those of vus, TSB-AD, aeon and tadpak, on the same labels and scores: differences and CPU time.

    python -m benchmarks.metric_peers --peers PYTHON [--rows 2000,20000] [--out benchmarks/results/metric_peers.json]

PYTHON is the interpreter of an environment that has these packages; they do not fit beside the pinned numpy:

    python -m venv peers && peers/bin/pip install --no-deps vus==0.0.6 TSB-AD==1.5 aeon==1.6.0 tadpak==0.3.3
    peers/bin/pip install "numpy<2.3" scipy scikit-learn pandas numba deprecated packaging typing_extensions tqdm

VUS of TSB-AD is another quantity than that of its authors and of aeon: its number of anomalous rows depends on the
threshold, its edge is a row longer behind an anomaly, and its area is one of steps. tadpak is by the authors of PA%K;
it adjusts the alarms for one K, of which F1 and the area are computed here.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.affiliation import affiliation
from at_infer.evaluation.metrics.alarms import Figures, by_range, by_row, pa_k_area, pa_k_f1, point_adjusted
from at_infer.evaluation.metrics.ranking import rank
from at_infer.evaluation.metrics.runs import Runs, runs
from at_infer.evaluation.metrics.vus import THRESHOLDS, volumes

WORKER = Path(__file__).with_name("metric_worker.py")
DELTA = 1.5


def example(rows: int, seed: int = 0) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """A tenth of the rows anomalous, in segments; scores that know a little of them."""
    rng = np.random.default_rng(seed)
    labels = np.zeros(rows, np.bool_)
    while labels.mean() < 0.1:
        at = rng.integers(rows)
        labels[at : at + rng.integers(1, 100)] = True
    return labels, (rng.normal(size=rows) + labels).astype(np.float32)


def ours(labels: NDArray[np.bool_], scores: NDArray[np.float32]) -> dict[str, Callable[[], Figures]]:
    """What answers each question of the worker; all begin with the runs, which cost next to nothing."""
    truth, alarms = runs(labels), runs(scores > DELTA)

    def volume(truth: Runs = truth) -> Figures:
        found = volumes(scores, labels, truth, rank(scores, labels, THRESHOLDS).samples)
        return {"vus_roc": found.roc, "vus_pr": found.pr}

    def by_rows() -> Figures:
        ranking = rank(scores, labels, THRESHOLDS)
        areas: Figures = {"auc_roc": ranking.auc_roc, "auc_pr": ranking.auc_pr}
        return areas | by_row(truth, alarms) | point_adjusted(truth, alarms)

    def adjusted_from_k() -> Figures:
        f1 = pa_k_f1(truth, alarms)
        return pa_k_area(truth, alarms) | {f"pa_{k}_f1": float(f1[k]) for k in (20, 50)}

    return {
        "VUS of its authors": volume,
        "VUS of TSB-AD": volume,
        "VUS of aeon": volume,
        "affiliation of TSB-AD": lambda: affiliation(truth, alarms, len(labels)),
        "ranges of aeon": lambda: by_range(truth, alarms),
        "rows of TSB-AD": by_rows,
        "PA%K of tadpak": adjusted_from_k,
    }


def compared(rows: int, peers: Path) -> dict[str, Any]:
    """Largest difference and both times, per question."""
    labels, scores = example(rows)
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "given.npz")
        np.savez(given, labels=labels, scores=scores, threshold=np.float32(DELTA))
        answer = subprocess.run([peers, WORKER, given], check=True, capture_output=True, text=True).stdout
    theirs = json.loads(answer.splitlines()[-1])
    found: dict[str, Any] = {}
    for name, compute in ours(labels, scores).items():
        begin = time.process_time()
        values = compute()
        cpu_s = time.process_time() - begin
        differences = {metric: abs(float(values[metric] or 0) - of) for metric, of in theirs[name]["values"].items()}
        found[name] = {
            "largest_difference": max(differences.values()),
            "values": theirs[name]["values"],
            "our_cpu_ms": round(1e3 * cpu_s, 2),
            "their_cpu_ms": round(1e3 * theirs[name]["cpu_s"], 2),
        }
    return {"rows": rows, "against": found}


def main() -> None:
    """Compare, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--rows", default="2000,20000")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    runs_ = [compared(int(rows), args.peers) for rows in args.rows.split(",")]
    for one in runs_:
        for name, of in one["against"].items():
            times = f"{of['our_cpu_ms']:>9.1f} ms{of['their_cpu_ms']:>12.1f} ms"
            print(f"{one['rows']:>8} rows  {name:<24}{times}  differs by {of['largest_difference']:.1e}")
    report = {"benchmark": "metric_peers", "runs": runs_}
    if args.out is not None:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
