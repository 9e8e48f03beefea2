"""The detector as a function, the interface of TSB-AD and other benchmarks: python examples/tsb_ad.py"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer import Detector, ScoreOptions


def run_at_infer(data_train: NDArray[Any], data_test: NDArray[Any], **parameters: Any) -> NDArray[np.float32]:
    """Scores of the rows of `data_test` (n,F), high for anomalies; `data_train` should have few or no anomalies."""
    detector = Detector(options=ScoreOptions(short_series="pad"), **parameters)
    return detector.fit(data_train).score(data_test).score


def main() -> None:
    """Two noisy sines, one of which is constant for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-steps", type=int, default=400, help="training budget")
    args = parser.parse_args()
    t, rng = np.arange(6_000), np.random.default_rng(0)
    rows = np.stack([np.sin(t / 10), np.cos(t / 15)], axis=1) + rng.normal(scale=0.05, size=(len(t), 2))
    rows[5_000:5_040, 0] = 0
    score = run_at_infer(rows[:4_000], rows[4_000:], max_steps=args.max_steps)
    print(f"highest score in row {4_000 + int(score.argmax())}; the sine is constant in rows 5000 to 5039")


if __name__ == "__main__":
    main()
