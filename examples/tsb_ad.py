"""The detector as a function, as TSB-AD and other benchmarks call one: python examples/tsb_ad.py"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer import Detector, ScoreOptions


def run_at_infer(data_train: NDArray[Any], data_test: NDArray[Any], **parameters: Any) -> NDArray[np.float32]:
    """Scores of the rows of `data_test` (n,F), high for anomalies; `data_train` should be normal, or nearly so."""
    detector = Detector(options=ScoreOptions(short_series="pad"), **parameters)
    return detector.fit(data_train).score(data_test).score


def main() -> None:
    """Two noisy sines, one of which stops for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-steps", type=int, default=400, help="budget of the training")
    args = parser.parse_args()
    t, rng = np.arange(6_000), np.random.default_rng(0)
    rows = np.stack([np.sin(t / 10), np.cos(t / 15)], axis=1) + rng.normal(scale=0.05, size=(len(t), 2))
    rows[5_000:5_040, 0] = 0
    score = run_at_infer(rows[:4_000], rows[4_000:], max_steps=args.max_steps)
    print(f"highest score in row {4_000 + int(score.argmax())}; the sine stops in rows 5000 to 5039")


if __name__ == "__main__":
    main()
