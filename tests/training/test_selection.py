"""Choosing a score by anomalies put into the validation part."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from at_infer.config import SCORE_MODES, DiscrepancyConfig, ModelConfig, ScoreConfig
from at_infer.datasets import clean, inject
from at_infer.errors import ConfigError
from training import selection
from training.model import AnomalyTransformer
from training.selection import SHARE, AutoScore, rate
from training.validation import smoothed, usual, window_parts, window_scores

WINDOW = 20


@pytest.fixture(scope="module")
def network() -> AnomalyTransformer:
    torch.manual_seed(0)
    shape = ModelConfig(features=2, window=WINDOW, width=8, heads=2, layers=1, feed_forward=8)
    return AnomalyTransformer(shape).eval()


def rows(count: int, seed: int = 0) -> np.ndarray:
    return clean(count, features=2, rng=np.random.default_rng(seed)).astype(np.float32)


def rated(network: AnomalyTransformer, *series: np.ndarray, auto: AutoScore | None = None, seed: int = 3) -> list[dict]:
    values = torch.from_numpy(np.concatenate(series))
    normal = usual(network, values, torch.arange(0, len(values) - WINDOW + 1, WINDOW), DiscrepancyConfig(), 8)
    chosen = (auto or AutoScore()).candidates()
    return rate(chosen, network, series, discrepancy=DiscrepancyConfig(), normal=normal, seed=seed)


def test_every_mode_and_smoothing_is_a_candidate_once() -> None:
    candidates = AutoScore().candidates()
    assert len(set(map(str, candidates))) == len(candidates)
    assert {c.mode for c in candidates} == set(SCORE_MODES)
    assert {c.smooth for c in candidates} == {1, 5, 10, 25}
    assert {c.mode for c in candidates if c.normalise_errors} == {"reconstruction", "centred", "calibrated", "addition"}


def test_what_is_given_is_not_up_for_choice() -> None:
    candidates = AutoScore(smooth=7, normalise_errors=True, temperature=9.0).candidates()
    assert {(c.smooth, c.normalise_errors, c.temperature) for c in candidates} == {(7, True, 9.0)}
    assert {c.mode for c in candidates} == set(SCORE_MODES)


def test_the_figures_are_average_precisions_on_the_injected_labels(network: AnomalyTransformer) -> None:
    series = [rows(130), rows(100, seed=1)]
    found = rated(network, *series)
    assert [choice["auc_pr"] for choice in found] == sorted((c["auc_pr"] for c in found), reverse=True)
    mixed = inject(np.concatenate(series), share=SHARE, rng=np.random.default_rng(3))
    values = torch.from_numpy(np.concatenate(series))
    normal = usual(network, values, torch.arange(0, 211, WINDOW), DiscrepancyConfig(), 8)
    starts = torch.tensor([*range(0, 101, 20), 110, *range(130, 211, 20)])
    parts = window_parts(network, torch.from_numpy(mixed.values), starts, DiscrepancyConfig(), normal, 8)
    for choice in found:
        score = ScoreConfig(**{name: value for name, value in choice.items() if name != "auc_pr"})
        of_windows = window_scores(parts, score, DiscrepancyConfig(), normal, 1)
        by_row: dict[int, float] = {}
        for start, of_window in zip(starts.tolist(), of_windows, strict=True):
            for step, value in enumerate(of_window.tolist()):
                by_row.setdefault(start + step, value)
        scores = smoothed(np.array([by_row[row] for row in range(230)], np.float32), [130, 100], score.smooth)
        assert choice["auc_pr"] == pytest.approx(average_precision_score(mixed.labels, scores), rel=1e-6)


def test_the_best_is_chosen_and_the_same_seed_chooses_the_same(network: AnomalyTransformer) -> None:
    found = rated(network, rows(300))
    assert found == rated(network, rows(300))
    assert found != rated(network, rows(300), seed=4)
    best = AutoScore(temperature=5.0).chosen(found)
    assert (best.mode, best.smooth) == (found[0]["mode"], found[0]["smooth"])
    assert best.temperature == 5.0


def test_the_rows_given_are_not_changed_and_huge_ones_are_no_obstacle(network: AnomalyTransformer) -> None:
    values = rows(200)
    values[50] = 1e35
    before = values.copy()
    found = rated(network, values)
    np.testing.assert_array_equal(values, before)
    assert np.isfinite([choice["auc_pr"] for choice in found]).all()


def test_of_many_rows_the_first_are_looked_at(network: AnomalyTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_ROWS", 150)
    normal = usual(network, torch.from_numpy(rows(150)), torch.arange(0, 131, WINDOW), DiscrepancyConfig(), 8)
    options = {"discrepancy": DiscrepancyConfig(), "normal": normal, "seed": 0}
    candidates = AutoScore(smooth=1).candidates()
    first = rate(candidates, network, [rows(100), rows(50, seed=1)], **options)  # type: ignore[arg-type]
    more = rate(candidates, network, [rows(100), rows(90, seed=1), rows(500, seed=2)], **options)  # type: ignore[arg-type]
    assert [c["mode"] for c in first] == [c["mode"] for c in more]


def test_too_few_rows_are_refused_with_the_way_out(network: AnomalyTransformer) -> None:
    with pytest.raises(ConfigError, match="auto needs 50 validation rows, there are 45; give more, or name a mode"):
        rated(network, rows(45))
