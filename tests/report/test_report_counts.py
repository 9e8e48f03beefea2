"""What the report counts in one pass, against the same counted by brute force on whole arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from at_infer.evaluation.metrics.runs import runs, runs_touched
from at_infer.report.levels import Envelope, bucket_rows
from at_infer.report.segments import SegmentFinder
from at_infer.report.thresholds import Cuts, ThresholdCounts
from at_infer.tables.scores import ScoredChunk

FEW = st.sampled_from([0.0, -0.0, 0.25, 0.5, 0.5000001, 1.0, -3.0, 1e-30, float("nan")])
ANY = st.floats(width=32, allow_infinity=False)
SCORES = arrays.arrays(np.float32, st.integers(1, 60), elements=FEW | ANY)
BELOW_ALL, ABOVE_ALL = 128, 65_409  # cuts whose values are -inf and the largest float
quick = settings(max_examples=75)


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores and labels of one series, in parts."""
    scores = draw(SCORES)
    labels = draw(arrays.arrays(np.bool_, len(scores)))
    at = sorted(draw(st.sets(st.integers(1, max(1, len(scores) - 1)), max_size=4)))
    return np.split(scores, at), np.split(labels, at)


@quick
@given(SCORES, st.floats(width=32, allow_infinity=False, allow_nan=False))
def test_a_level_exceeds_a_cut_exactly_where_the_score_exceeds_its_value(scores: np.ndarray, threshold: float) -> None:
    cuts = Cuts(threshold)
    levels = cuts.levels(scores)
    near = np.unique(np.concatenate([levels, levels - 1, levels + 1, [cuts.at]]).clip(BELOW_ALL, ABOVE_ALL))
    values = cuts.values(near)
    assert (np.diff(values) >= 0).all()
    with np.errstate(invalid="ignore"):
        expected = scores[:, None].astype(np.float64) > values
    np.testing.assert_array_equal(levels[:, None] > near, expected)
    assert cuts.values(np.array([cuts.at]))[0] == np.float32(threshold)


@quick
@given(parts(), FEW)
@pytest.mark.slow
def test_every_threshold_flags_what_brute_force_finds(given: tuple[list, list], threshold: float) -> None:
    cuts = Cuts(0.5 if np.isnan(threshold) else threshold)
    counts = ThresholdCounts()
    for scores, labels in zip(*given, strict=True):
        counts.add(cuts.levels(scores), labels)
    counts.end()
    scores, labels = (np.concatenate(part) for part in given)
    levels = np.unique(cuts.levels(scores))
    at = np.unique(np.concatenate([levels, levels - 1, [cuts.at]]).clip(BELOW_ALL, ABOVE_ALL))
    for k, (cut, value) in enumerate(zip(at, cuts.values(at), strict=True)):
        above = np.nan_to_num(scores.astype(np.float64), nan=-np.inf) > value
        alarms, truth = runs(above), runs(labels)
        assert counts.rows.above(at)[k] == above.sum(), cut
        assert counts.runs.starts.above(at)[k] == len(alarms)
        assert counts.events.above(at)[k] == (runs_touched(truth, alarms) > 0).sum()
        assert counts.false_runs_above(at)[k] == (runs_touched(alarms, truth) == 0).sum()


def test_series_are_added_up() -> None:
    cuts, total = Cuts(0.5), ThresholdCounts()
    for scores in ([1.0, 0.0], [1.0, 1.0, 0.0, 2.0]):
        counts = ThresholdCounts()
        counts.add(cuts.levels(np.array(scores, np.float32)), np.ones(len(scores), np.bool_))
        counts.end()
        total.include(counts)
    at = np.array([cuts.at])
    assert (total.rows.above(at), total.runs.starts.above(at), total.events.above(at)) == (4, 3, 2)


@quick
@given(parts(), st.integers(0, 4))
@pytest.mark.slow
def test_no_peak_is_lost(given: tuple[list, list], exponent: int) -> None:
    envelope = Envelope(1 << exponent)
    series = [given[0], given[0][:1]]
    for of_series in series:
        envelope.start_series()
        for scores in of_series:
            envelope.add(scores, np.arange(len(scores), dtype=np.float64))
    envelope.end()
    low, high = np.concatenate(envelope.low), np.concatenate(envelope.high)
    first = 0
    for of_series, count in zip(series, envelope.counts, strict=True):
        scores = np.concatenate(of_series)
        assert count == -(-len(scores) // envelope.width)
        for k in range(count):
            rows = scores[k * envelope.width : (k + 1) * envelope.width]
            known = rows[~np.isnan(rows)]
            expected = (known.min(), known.max()) if len(known) else (np.nan, np.nan)
            np.testing.assert_array_equal((low[first + k], high[first + k]), expected)
        first += count
    assert len(np.concatenate(envelope.times)) == first
    assert all(kept.base is None for kept in envelope.times)  # a view would keep the times of every row


@pytest.mark.parametrize(
    ("rows", "most", "width"), [(1, 8, 1), (8, 8, 1), (9, 8, 2), (17, 8, 4), (10_000_000, 1 << 20, 16)]
)
def test_buckets_are_as_small_as_the_limit_allows(
    rows: int, most: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("at_infer.report.levels.MOST_BUCKETS", most)
    assert bucket_rows(rows) == width


@quick
@given(parts(), st.integers(1, 3))
@pytest.mark.slow
def test_segments_are_the_runs_above_the_threshold(given: tuple[list, list], keep: int) -> None:
    finder, row = SegmentFinder(2, keep), 10
    finder.start_series()
    for scores, labels in zip(*given, strict=True):
        with np.errstate(invalid="ignore"):
            above = scores > 0.4
        evidence = np.stack([np.ones(len(scores)), labels], axis=1).astype(np.float32)
        times = np.arange(row, row + len(scores), dtype=np.float64)
        finder.add(above, labels, ScoredChunk(row, scores, times, labels, evidence, []))
        row += len(scores)
    finder.end()
    scores, labels = (np.concatenate(part) for part in given)
    above = np.nan_to_num(scores, nan=-np.inf) > 0.4
    expected = runs(above)
    assert (finder.count, finder.rows) == (len(expected), above.sum())
    peaks = sorted((scores[a:b].max() for a, b in zip(expected.starts, expected.ends, strict=True)), reverse=True)
    worst = finder.worst()
    assert worst.peak.tolist() == peaks[:keep]
    for k in range(len(worst)):
        a, b = worst.first[k] - 10, worst.end[k] - 10
        assert above[a:b].all()
        assert not above[max(a - 1, 0) : a].any()
        assert not above[b : b + 1].any()
        assert worst.peak_row[k] - 10 == a + scores[a:b].argmax()
        assert worst.times[k].tolist() == [worst.first[k], worst.end[k] - 1]
        assert worst.touched[k] == labels[a:b].any()
        assert worst.evidence[k].tolist() == [b - a, labels[a:b].sum()]
