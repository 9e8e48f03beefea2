"""Other detectors beside the network, from the maintained libraries of requirements.txt.

Each learns from the same training rows as the network, scaled alike, and gets its threshold from its scores of the same
validation rows. Where the time of an algorithm grows with the square of the rows it learns from a sample of them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from at_infer.errors import MissingExtraError
from at_infer.output import atomic_path
from at_infer.thresholds.ratio import ratio_threshold
from benchmarks.reproduce import paper
from benchmarks.reproduce.measures import Truth, measure
from benchmarks.reproduce.sources import KEYS, prepare
from benchmarks.reproduce.trainings import features

Floats = NDArray[np.float32]
Score = Callable[[Floats], Floats]
"""Consecutive rows (rows, F) -> scores (rows,)."""

WINDOW = 100
"""Of the networks beside them; it does not change which rows belong to which part."""
MOVING_AVERAGE_ROWS = 51
VAR_LAGS = 5
LSTM_HIDDEN, LSTM_WINDOW, LSTM_EPOCHS = 64, 100, 5


class Method(NamedTuple):
    """How a detector is fitted."""

    fit: Callable[[Floats], Score]
    most_rows: int | None = None
    """Learns from at most this many rows, drawn at random."""
    least_columns: int = 1
    """Says nothing about fewer."""


def pca(train: Floats) -> Score:
    """Squared error of what the components that hold 90 % of the variance leave over."""
    from sklearn.decomposition import PCA

    model = PCA(n_components=0.9, svd_solver="full").fit(train)
    return lambda rows: np.square(rows - model.inverse_transform(model.transform(rows))).mean(axis=1)


def moving_average(_: Floats) -> Score:
    """Squared distance to the centred moving mean."""
    kernel = np.ones(MOVING_AVERAGE_ROWS)

    def score(rows: Floats) -> Floats:
        count = np.convolve(np.ones(len(rows)), kernel, "same")
        errors = [np.square(column - np.convolve(column, kernel, "same") / count) for column in rows.T]
        mean: Floats = np.mean(errors, axis=0).astype(np.float32)
        return mean

    return score


def isolation_forest(train: Floats) -> Score:
    """scikit-learn's, with its defaults."""
    from sklearn.ensemble import IsolationForest

    model = IsolationForest(random_state=0).fit(train)
    return lambda rows: -model.score_samples(rows)


def local_outlier_factor(train: Floats) -> Score:
    """scikit-learn's, 20 neighbours."""
    from sklearn.neighbors import LocalOutlierFactor

    model = LocalOutlierFactor(novelty=True).fit(train)
    return lambda rows: -model.score_samples(rows)


def one_class_svm(train: Floats) -> Score:
    """scikit-learn's, radial kernel, nu = 0.01."""
    from sklearn.svm import OneClassSVM

    model = OneClassSVM(nu=0.01).fit(train)
    return lambda rows: -model.score_samples(rows)


def deep_svdd(train: Floats) -> Score:
    """pyod's, with its defaults but for the epochs."""
    from pyod.models.deep_svdd import DeepSVDD

    model = DeepSVDD(n_features=train.shape[1], epochs=10, random_state=0, verbose=0)
    model.fit(train)
    return lambda rows: model.decision_function(rows)


def vector_autoregression(train: Floats) -> Score:
    """statsmodels' VAR of the columns that vary, AR of a single one: squared error of the forecast one row ahead."""
    from statsmodels.tsa.api import VAR, AutoReg

    varying = np.flatnonzero(np.ptp(train, axis=0) > 0)
    noise = np.random.default_rng(0).normal(0, 1e-4, (len(train), len(varying)))  # columns that say the same
    if len(varying) == 1:
        intercept, *of_lags = AutoReg(train[:, varying[0]].astype(np.float64), VAR_LAGS).fit().params
        lags = np.reshape(of_lags, (VAR_LAGS, 1, 1))
    else:
        model = VAR(train[:, varying] + noise).fit(VAR_LAGS)
        lags, intercept = np.asarray(model.coefs), np.asarray(model.intercept)

    def score(rows: Floats) -> Floats:
        known = rows[:, varying]
        forecast = intercept + sum(known[VAR_LAGS - 1 - i : len(known) - 1 - i] @ lags[i].T for i in range(VAR_LAGS))
        error = np.square(known[VAR_LAGS:] - forecast).mean(axis=1)
        return np.concatenate([np.full(VAR_LAGS, np.median(error)), error]).astype(np.float32)

    return score


def lstm(train: Floats) -> Score:
    """An LSTM that forecasts the next row; squared error."""
    torch.manual_seed(0)
    features_ = train.shape[1]
    network = torch.nn.LSTM(features_, LSTM_HIDDEN, num_layers=2, batch_first=True)
    out = torch.nn.Linear(LSTM_HIDDEN, features_)
    optimizer = torch.optim.Adam([*network.parameters(), *out.parameters()], lr=1e-3)
    windows = torch.from_numpy(train).unfold(0, LSTM_WINDOW, LSTM_WINDOW).transpose(1, 2)  # (windows, N, F)
    for _ in range(LSTM_EPOCHS):
        for batch in windows[torch.randperm(len(windows))].split(32):
            loss = (out(network(batch[:, :-1])[0]) - batch[:, 1:]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.inference_mode()
    def score(rows: Floats) -> Floats:
        x, state, errors = torch.from_numpy(rows).unsqueeze(0), None, [torch.zeros(1)]
        for part in x[:, :-1].split(10_000, dim=1):  # the state is carried on
            hidden, state = network(part, state)
            done = sum(len(error) for error in errors)
            errors.append((out(hidden)[0] - x[0, done : done + part.shape[1]]).square().mean(-1))
        errors[0] = errors[1][:1]
        found: Floats = torch.cat(errors).numpy()
        return found

    return score


METHODS: dict[str, Method] = {
    "PCA": Method(pca, least_columns=2),
    "moving average": Method(moving_average),
    "IsolationForest": Method(isolation_forest),
    "LOF": Method(local_outlier_factor, 20_000),
    "OC-SVM": Method(one_class_svm, 10_000),
    "Deep-SVDD": Method(deep_svdd, 50_000),
    "VAR": Method(vector_autoregression),
    "LSTM": Method(lstm),
}


def run_baselines(dataset: str, data: Path, work: Path) -> dict[str, Any]:
    """Every method on one data set; scores are kept in the work folder."""
    folder = prepare(dataset, data, work)
    truth, ratio = Truth.read(folder), paper.ratio_of(dataset)
    rows = []
    columns = len(pl.read_parquet_schema(folder / "train.parquet")) - len(KEYS)
    for name, method in METHODS.items():
        if columns < method.least_columns:
            continue
        validation, test = _scores(name, method, dataset, folder, work)
        threshold = ratio_threshold(validation, ratio)
        found = measure(test, test > np.float32(threshold), truth)
        rows.append(
            {"variant": name, "most_rows": method.most_rows, "figures": {k: round(v, 2) for k, v in found.items()}}
        )
    data_ = features(folder, WINDOW)
    split = {"train": data_.train.rows, "validation": data_.validation.rows}
    return {"ratio": ratio, "split": split, "test": truth.describe(), "rows": rows}


def _scores(name: str, method: Method, dataset: str, folder: Path, work: Path) -> tuple[Floats, Floats]:
    path = work / "baselines" / f"{dataset}-{name}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"fitting {name} on {dataset}", file=sys.stderr, flush=True)
        train, validation, test = _parts(folder)
        if method.most_rows is not None and len(train) > method.most_rows:
            train = train[np.sort(np.random.default_rng(0).choice(len(train), method.most_rows, replace=False))]
        try:
            score = method.fit(train)
        except ImportError as error:
            package = str(error.name).partition(".")[0]
            raise MissingExtraError(
                f"{name}: needs {package}; pip install -r benchmarks/reproduce/requirements.txt"
            ) from None
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, validation=score(validation), test=score(test))
    with np.load(path) as kept:
        return kept["validation"].astype(np.float32), kept["test"].astype(np.float32)


def _parts(folder: Path) -> tuple[Floats, Floats, Floats]:
    """Scaled rows to learn from, to find the threshold on, and to judge."""
    data = features(folder, WINDOW)
    rows = pl.read_parquet(folder / "test.parquet").drop(*KEYS, "label").to_numpy().astype(np.float32)
    mean, scale = (np.asarray(v, np.float32) for v in (data.scaler.mean, data.scaler.scale))
    test = (rows - mean) / scale
    if data.validation.values is data.train.values:
        cut = data.train.rows
        return data.train.values[:cut], data.train.values[cut:], test
    return data.train.values, data.validation.values, test
