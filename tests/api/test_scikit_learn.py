"""What scikit-learn itself checks of an estimator, and how it uses one."""

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import base as sklearn_base
from sklearn import exceptions
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from at_infer import Detector

pytestmark = pytest.mark.slow

WORDS = "the error says it in words of at-infer: where, what, and what to do"
ORDER = "rows are a time series: a score depends on the rows around it"
EXPECTED = {
    "check_methods_sample_order_invariance": ORDER,
    "check_methods_subset_invariance": ORDER,
    "check_n_features_in_after_fitting": WORDS,
    "check_dtype_object": WORDS,
    "check_estimators_empty_data_messages": WORDS,
    "check_estimators_nan_inf": WORDS,
    "check_fit2d_1sample": WORDS,
    "check_fit2d_predict1d": WORDS,
}
"""Checks that must fail, and why; docs/python.md names them."""


def tiny(**more: Any) -> Detector:
    return Detector(window=2, width=4, heads=1, layers=1, max_steps=1, learning_rate=1e-30, device="cpu", **more)


@pytest.mark.filterwarnings("ignore")  # that it does not inherit from BaseEstimator, and of the checks themselves
def test_check_estimator_finds_nothing_but_what_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.pipeline.parity.check", lambda *_, **__: {})  # of 38 networks
    # Some checks want a verdict of each kind on 300 rows, which 1 % of 60 validation rows does not promise.
    done = estimator_checks.check_estimator(
        tiny(ratio=0.1), expected_failed_checks=EXPECTED, on_fail=None, on_skip=None
    )
    assert len(done) > 40
    assert [(one["check_name"], one["exception"]) for one in done if one["status"] == "failed"] == []
    failed = {one["check_name"]: one["exception"] for one in done if one["status"] == "xfail"}
    assert failed.keys() == EXPECTED.keys()
    for name, why in EXPECTED.items():
        if why is WORDS:  # an error it is, and one that callers of scikit-learn expect
            assert isinstance(failed[name], ValueError) or isinstance(failed[name].__cause__, ValueError)


def test_the_exceptions_are_named_in_the_documents() -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    for name in EXPECTED:
        assert f"`{name}`" in page


def rows(count: int = 240) -> NDArray[np.float64]:
    t = np.arange(count)
    return np.stack([np.sin(t / 4), np.cos(t / 6)], axis=1) + np.random.default_rng(0).normal(
        scale=0.1, size=(count, 2)
    )


@pytest.fixture(scope="module")
def fitted() -> Detector:
    return tiny().fit(rows())


def test_it_is_cloned_and_fitted_inside_a_pipeline(fitted: Detector) -> None:
    copy = sklearn_base.clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not copy.__sklearn_is_fitted__()
    assert sklearn_base.is_outlier_detector(copy)
    line = make_pipeline(StandardScaler(), copy)
    line.set_params(detector__ratio=0.2)
    assert copy.ratio == 0.2
    assert line.fit(rows()).predict(rows()).shape == (240,)
    assert line.score_samples(rows()).shape == (240,)
    with pytest.raises(exceptions.NotFittedError, match="detector: is not fitted"):
        sklearn_base.clone(copy).predict(rows())


def test_splits_in_time_order_are_scored_by_any_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.pipeline.parity.check", lambda *_, **__: {})  # of 7 networks
    labels = np.ones(240)
    labels[::40] = -1
    table = rows()
    table[::40] += 9

    def area(detector: Any, table: Any, labels: Any) -> float:
        return float(roc_auc_score(labels, detector.decision_function(table)))

    found = cross_val_score(tiny(), table, labels, scoring=area, cv=TimeSeriesSplit(2))
    assert found.shape == (2,)
    assert np.isfinite(found).all()
    search = GridSearchCV(tiny(), {"ratio": [0.05, 0.2]}, scoring=area, cv=TimeSeriesSplit(2)).fit(table, labels)
    assert search.best_params_["ratio"] in (0.05, 0.2)


def test_joblib_carries_a_fitted_detector_to_files_and_processes(fitted: Detector, tmp_path: Path) -> None:
    expected = fitted.score_samples(rows())
    joblib.dump(fitted, tmp_path / "detector.joblib")
    again: Detector = joblib.load(tmp_path / "detector.joblib")
    np.testing.assert_array_equal(again.score_samples(rows()), expected)
    threads = joblib.Parallel(n_jobs=2, prefer="threads")(
        joblib.delayed(fitted.score_samples)(rows()) for _ in range(4)
    )
    for found in threads:
        np.testing.assert_array_equal(found, expected)
