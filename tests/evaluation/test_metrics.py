"""Every metric against an oracle that was written apart: scikit-learn, or the definition row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_auc_score,
)

from at_infer.evaluation.metrics.affiliation import affiliation
from at_infer.evaluation.metrics.alarms import by_event, by_range, by_row, pa_k_area, pa_k_f1, point_adjusted, rates
from at_infer.evaluation.metrics.baselines import baseline, nth
from at_infer.evaluation.metrics.ranking import rank
from at_infer.evaluation.metrics.runs import first_shared, rows_shared, runs, runs_touched
from at_infer.evaluation.metrics.vus import THRESHOLDS, volumes
from tests import metric_oracles as oracle

masks = st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=2, max_size=12).map(
    lambda parts: np.repeat([value for value, _ in parts], [length for _, length in parts])
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Labels of both kinds, and alarms of the same length."""
    labels = draw(masks.filter(lambda mask: mask.any() and not mask.all()))
    alarms = np.resize(draw(masks), len(labels))
    return labels, alarms


def example(seed: int, rows: int = 700, share: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Labels in segments, and scores that know a little of them."""
    rng = np.random.default_rng(seed)
    labels = np.zeros(rows, np.bool_)
    while labels.mean() < share:
        at = rng.integers(rows)
        labels[at : at + rng.integers(1, 2 + rows // 20)] = True
    return labels, (rng.normal(size=rows) + labels).astype(np.float32)


# Runs


@given(pairs())
def test_runs_are_the_segments_of_a_mask(pair: tuple[np.ndarray, np.ndarray]) -> None:
    for mask in pair:
        found = runs(mask)
        assert list(zip(found.starts, found.ends - 1, strict=True)) == oracle.segments(mask)
        assert found.rows == mask.sum()


@given(pairs())
def test_what_runs_share_is_what_their_rows_share(pair: tuple[np.ndarray, np.ndarray]) -> None:
    labels, alarms = pair
    truth, flagged = runs(labels), runs(alarms)
    rows = [alarms[a:b] for a, b in zip(truth.starts, truth.ends, strict=True)]
    assert rows_shared(truth, flagged).tolist() == [int(part.sum()) for part in rows]
    assert first_shared(truth, flagged).tolist() == [int(part.argmax()) if part.any() else -1 for part in rows]
    assert runs_touched(truth, flagged).tolist() == [len(oracle.segments(part)) for part in rows]


# Ranking


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [7, 1, 0], ids=["distinct", "ties", "many ties"])
def test_ranking_agrees_with_scikit_learn(seed: int, digits: int) -> None:
    labels, scores = example(seed)
    scores = scores.round(digits)
    found = rank(scores, labels, THRESHOLDS)
    precision, recall, _ = precision_recall_curve(labels, scores)
    f1 = (2 * precision * recall / np.maximum(precision + recall, 1e-12))[:-1]
    assert found.auc_roc == pytest.approx(roc_auc_score(labels, scores))
    assert found.auc_pr == pytest.approx(average_precision_score(labels, scores))
    assert found.best_f1 == pytest.approx(f1.max())
    at = np.linspace(0, len(scores) - 1, THRESHOLDS).astype(int)
    assert (found.samples == np.sort(scores)[::-1][at]).all()


def test_scores_of_any_sign_and_size_are_ordered_as_numbers() -> None:
    scores = np.array([-3e38, -1, -1e-45, -0.0, 0.0, 1e-45, 1, 3e38], np.float32)
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.bool_)
    found = rank(scores, labels, 8)
    assert (found.samples == scores[::-1]).all()
    assert found.auc_roc == roc_auc_score(labels, scores)  # -0 and 0 are equal


def test_a_constant_score_ranks_nothing() -> None:
    labels, scores = example(0)
    found = rank(np.zeros_like(scores), labels, THRESHOLDS)
    assert found.auc_roc == 0.5
    assert found.auc_pr == pytest.approx(labels.mean())


# Alarms


@given(pairs())
@pytest.mark.slow
def test_rows_are_counted_as_by_scikit_learn(pair: tuple[np.ndarray, np.ndarray]) -> None:
    labels, alarms = pair
    for kind, figures in (
        (alarms, by_row(runs(labels), runs(alarms))),
        (oracle.adjusted(alarms, labels), point_adjusted(runs(labels), runs(alarms))),
    ):
        expected = precision_recall_fscore_support(labels, kind, average="binary", zero_division=0)[:3]
        assert list(figures.values()) == pytest.approx(list(expected))


@given(pairs())
def test_rates_are_those_of_a_roc_curve(pair: tuple[np.ndarray, np.ndarray]) -> None:
    labels, alarms = pair
    found = rates(runs(labels), runs(alarms), len(labels))
    assert found["tpr"] == pytest.approx(alarms[labels].mean())
    assert found["pa_tpr"] == pytest.approx(oracle.adjusted(alarms, labels)[labels].mean())
    assert found["fpr"] == pytest.approx(alarms[~labels].mean())


# What tadpak 0.3.3, by the authors of PA%K, answers for example(seed) and scores > 1.5: the area over K = 0 to 100 of
# the F1 of its alarms, and F1 at K = 0, 20, 50 and 100. `python -m benchmarks.metric_peers` asks it again.
TADPAK = [
    (0, 0.411504984511, (0.834782608696, 0.646464646465, 0.282051282051, 0.282051282051)),
    (1, 0.532825639823, (0.855855855856, 0.855855855856, 0.382165605096, 0.382165605096)),
    (2, 0.430257002651, (0.776595744681, 0.776595744681, 0.296296296296, 0.296296296296)),
    (3, 0.452557007965, (0.781250000000, 0.607142857143, 0.316546762590, 0.316546762590)),
]


@pytest.mark.parametrize(("seed", "area", "f1"), TADPAK)
def test_pa_k_agrees_with_tadpak(seed: int, area: float, f1: tuple[float, ...]) -> None:
    labels, scores = example(seed)
    truth, alarms = runs(labels), runs(scores > 1.5)
    assert pa_k_f1(truth, alarms)[[0, 20, 50, 100]].tolist() == pytest.approx(f1, abs=1e-11)
    assert pa_k_area(truth, alarms)["pa_k_f1_area"] == pytest.approx(area, abs=1e-11)


@given(pairs())
def test_pa_k_adjusts_what_is_flagged_by_more_than_k_percent(pair: tuple[np.ndarray, np.ndarray]) -> None:
    labels, alarms = pair
    expected = [oracle.f1(oracle.adjusted(alarms, labels, k), labels) for k in range(101)]
    found = pa_k_f1(runs(labels), runs(alarms))
    assert found.tolist() == pytest.approx(expected)
    assert found[0] == pytest.approx(point_adjusted(runs(labels), runs(alarms))["pa_f1"])
    assert found[100] == pytest.approx(by_row(runs(labels), runs(alarms))["f1"])
    area = (sum(expected) - (expected[0] + expected[100]) / 2) / 100
    assert pa_k_area(runs(labels), runs(alarms))["pa_k_f1_area"] == pytest.approx(area)


@given(pairs())
def test_ranges_are_rewarded_by_overlap_and_cardinality(pair: tuple[np.ndarray, np.ndarray]) -> None:
    labels, alarms = pair
    found = by_range(runs(labels), runs(alarms))
    assert found["range_precision"] == pytest.approx(oracle.range_reward(alarms, labels))
    assert found["range_recall"] == pytest.approx(oracle.range_reward(labels, alarms))


@given(pairs())
def test_events_are_found_by_any_alarm_inside(pair: tuple[np.ndarray, np.ndarray]) -> None:
    labels, alarms = pair
    found = by_event(runs(labels), runs(alarms))
    hit = [alarms[a : b + 1].any() for a, b in oracle.segments(labels)]
    true = [labels[a : b + 1].any() for a, b in oracle.segments(alarms)]
    delays = [alarms[a : b + 1].argmax() for a, b in oracle.segments(labels) if alarms[a : b + 1].any()]
    assert found["event_recall"] == pytest.approx(np.mean(hit))
    precision = labels[alarms].mean() if alarms.any() else 0
    expected = 2 * precision * np.mean(hit) / (precision + np.mean(hit)) if any(hit) else 0
    assert found["event_f1"] == pytest.approx(expected)
    assert found["false_alarms"] == len(true) - sum(true)
    assert found["detection_delay_rows"] == (pytest.approx(np.mean(delays)) if delays else None)


@settings(max_examples=40)
@given(pairs())
@pytest.mark.slow
def test_affiliation_agrees_with_its_integrals_sampled_finely(pair: tuple[np.ndarray, np.ndarray]) -> None:
    labels, alarms = pair
    found = affiliation(runs(labels), runs(alarms), len(labels))
    precision, recall = oracle.affiliation(alarms, labels)
    assert found["affiliation_precision"] == pytest.approx(precision, abs=0.03)
    assert found["affiliation_recall"] == pytest.approx(recall, abs=0.03)


def test_affiliation_of_cases_worked_out_by_hand() -> None:
    # One anomaly of one row in the middle of eleven, zone 0..11.
    labels = np.zeros(11, np.bool_)
    labels[5] = True
    exact = affiliation(runs(labels), runs(labels), 11)
    assert exact["affiliation_precision"] == exact["affiliation_recall"] == 1
    last = np.zeros(11, np.bool_)
    last[10] = True
    # x from 10 to 11 is 4 to 5 away from the anomaly; nearer are 1 + 2 d of 11: mean of (10 - 2 d) / 11 is 1 / 11.
    # y from 5 to 6 is 10 - y away from the alarm: nearer are 2 (10 - y) of 11 while that is less than y and 11 - y,
    # else (10 - y) + the shorter side; from 5 to 5.5: y < 10 - y, all of the left side and 10 - y of the right one.
    found = affiliation(runs(labels), runs(last), 11)
    assert found["affiliation_precision"] == pytest.approx(1 / 11)
    y = (np.arange(100_000) + 0.5) / 100_000 + 5
    expected = 1 - (np.minimum(10 - y, y) + np.minimum(10 - y, 11 - y)) / 11
    assert found["affiliation_recall"] == pytest.approx(expected.mean())
    assert affiliation(runs(labels), runs(np.zeros(11, np.bool_)), 11)["affiliation_recall"] == 0


def test_affiliation_of_the_papers_example() -> None:
    """Its second zone: from minute 30 to 120, anomaly from 50 to 70, alarms from 40 to 60 and from 115 on."""
    minute = np.arange(30, 120)
    labels = (minute >= 50) & (minute < 70)
    alarms = ((minute >= 40) & (minute < 60)) | (minute >= 115)
    found = affiliation(runs(labels), runs(alarms), len(minute))
    assert found["affiliation_precision"] == pytest.approx(0.672222222)
    assert found["affiliation_recall"] == pytest.approx(0.944444444)
    # The same between the neighbouring anomalies, which end and begin the zones.
    minute = np.arange(180)
    labels = (minute < 10) | ((minute >= 50) & (minute < 70)) | ((minute >= 170) & (minute < 175))
    alarms = ((minute >= 40) & (minute < 60)) | ((minute >= 115) & (minute < 120))
    found = affiliation(runs(labels), runs(alarms), len(minute))
    assert found["affiliation_precision"] == pytest.approx(0.672222222)
    assert found["affiliation_recall"] == pytest.approx(0.944444444 / 3)


def test_affiliation_does_not_depend_on_how_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, scores = example(3)
    whole = affiliation(runs(labels), runs(scores > 1.5), len(labels))
    monkeypatch.setattr("at_infer.evaluation.metrics.affiliation.CHUNK_ROWS", 7)
    assert affiliation(runs(labels), runs(scores > 1.5), len(labels)) == pytest.approx(whole)


# VUS


def surface(labels: np.ndarray, scores: np.ndarray, buffer: int) -> tuple[float, float]:
    return volumes(scores, labels, runs(labels), rank(scores, labels, THRESHOLDS).samples, buffer)


@pytest.mark.parametrize("rows", [40, 300])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("digits", [7, 1, 0], ids=["distinct", "ties", "many ties"])
@pytest.mark.slow
def test_vus_is_the_mean_over_buffers_of_areas_computed_threshold_by_threshold(
    rows: int, share: float, digits: int
) -> None:
    labels, scores = example(rows, rows, share)
    scores = scores.round(digits)
    expected = np.mean([oracle.range_areas(scores, labels, width) for width in range(13)], axis=0)
    assert surface(labels, scores, 12) == pytest.approx(tuple(expected))


@settings(max_examples=15)
@given(pairs(), st.integers(0, 9))
@pytest.mark.slow
def test_vus_where_edges_meet_and_at_both_ends(pair: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    labels, _ = pair
    scores = np.random.default_rng(seed).integers(0, 20, len(labels)).astype(np.float32)
    expected = np.mean([oracle.range_areas(scores, labels, width) for width in range(9)], axis=0)
    assert surface(labels, scores, 8) == pytest.approx(tuple(expected))


# What aeon 1.6.0 answers for example(seed). It cannot be installed beside the pinned numpy, so its answers are kept:
# range_roc_vus_score and range_pr_vus_score with max_buffer_size=100, range_precision and range_recall of scores > 1.5.
AEON = [
    (0, (0.829009079740, 0.615957861448), (0.326530612245, 0.042215634607)),
    (1, (0.816271787474, 0.526183199426), (0.431372549020, 0.076380683852)),
    (2, (0.781651122677, 0.446490402000), (0.290909090909, 0.075946969697)),
    (3, (0.812676538465, 0.498232711074), (0.301724137931, 0.135198412698)),
    (4, (0.775470678415, 0.419181012852), (0.310344827586, 0.047352040231)),
    (5, (0.762494064587, 0.375132601367), (0.196428571429, 0.079787591584)),
]


@pytest.mark.parametrize(("seed", "areas", "of_ranges"), AEON)
def test_vus_and_ranges_agree_with_aeon(seed: int, areas: tuple[float, float], of_ranges: tuple[float, float]) -> None:
    labels, scores = example(seed)
    assert surface(labels, scores, 100) == pytest.approx(areas, abs=1e-11)
    found = by_range(runs(labels), runs(scores > 1.5))
    assert (found["range_precision"], found["range_recall"]) == pytest.approx(of_ranges, abs=1e-11)


# What TSB-AD 1.5 answers for the same, kept for the same reason: affiliation precision and recall, F1 plain and
# point-adjusted, AUC-ROC and AUC-PR. `python -m benchmarks.metric_peers` asks it again, and aeon and vus.
TSB_AD = [
    (0, (0.708768170807, 0.963108325489), (0.282051282051, 0.834782608696), (0.734398897460, 0.347687287211)),
    (1, (0.645255326147, 0.990839140929), (0.382165605096, 0.855855855856), (0.773936494128, 0.414748262291)),
    (2, (0.680403650913, 0.990107121645), (0.296296296296, 0.776595744681), (0.723143475126, 0.264504171259)),
    (3, (0.635459949086, 0.989678932179), (0.316546762590, 0.781250000000), (0.756458666667, 0.314050780624)),
]


@pytest.mark.parametrize(("seed", "affiliated", "f1", "areas"), TSB_AD)
def test_affiliation_rows_and_ranking_agree_with_tsb_ad(
    seed: int, affiliated: tuple[float, float], f1: tuple[float, float], areas: tuple[float, float]
) -> None:
    labels, scores = example(seed)
    truth, alarms = runs(labels), runs(scores > 1.5)
    found = affiliation(truth, alarms, len(labels)) | by_row(truth, alarms) | point_adjusted(truth, alarms)
    assert (found["affiliation_precision"], found["affiliation_recall"]) == pytest.approx(affiliated, abs=1e-11)
    assert (found["f1"], found["pa_f1"]) == pytest.approx(f1, abs=1e-11)
    ranking = rank(scores, labels, THRESHOLDS)
    assert (ranking.auc_roc, ranking.auc_pr) == pytest.approx(areas, abs=1e-11)


def test_vus_of_a_constant_score_is_no_better_than_chance() -> None:
    labels, scores = example(0)
    roc, pr = surface(labels, np.zeros_like(scores), 100)
    soft = np.mean([oracle.soft_labels(labels, width).mean() for width in range(101)])
    assert pr == pytest.approx(soft)
    assert 0.5 < roc < 0.65  # soft edges lower the false positive rate of any score


# Baselines


@pytest.mark.parametrize("ratio", [0.005, 0.01, 0.3])
def test_baselines_alarm_at_the_rate_they_are_given(ratio: float) -> None:
    for name in ("random", "every_nth"):
        scores, threshold = baseline(name, 100_000, ratio, seed=0)
        assert (scores > threshold).mean() == pytest.approx(ratio, rel=0.15)
    constant = baseline("constant", 10, ratio, seed=0)
    assert (constant.scores > constant.threshold).all()
    assert nth(0.01) == 100


def test_a_rate_of_nothing_leaves_a_single_alarm() -> None:
    assert baseline("every_nth", 1000, 0.0, seed=0).scores.sum() == 1
