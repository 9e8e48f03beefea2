"""The conventions of scikit-learn for outlier detectors, which does not have to be installed."""

import inspect
import sys
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.api.result import Result
from at_infer.errors import ConfigError, NotFittedError
from at_infer.tables.frames import ArrowTable


class OutlierDetector(ABC):
    """What scikit-learn asks of a detector: parameters by name, and low values for anomalies."""

    fill: str | None

    @abstractmethod
    def fit(self, X: ArrowTable | ArrayLike, y: object = None) -> Self:  # noqa: N803 -- the name that scikit-learn gives it
        """Learn from rows."""

    @abstractmethod
    def score(self, X: ArrowTable | ArrayLike, y: object = None) -> Result:  # noqa: N803
        """Scores of rows: high for anomalies."""

    @property
    @abstractmethod
    def threshold_(self) -> float:
        """A row with a higher score is anomalous."""

    def score_samples(self, X: ArrowTable | ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """The negative score of each row: low for anomalies, as in scikit-learn; NaN without a score.

        >>> bool(detector.score_samples(frame).argmin() == detector.score(frame).score.argmax())
        True
        """
        return -self.score(X).score.astype(np.float64)

    def decision_function(self, X: ArrowTable | ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Threshold minus score: negative for anomalies, as in scikit-learn (PyOD has the opposite sign).

        >>> below = detector.decision_function(frame) < 0
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrowTable | ArrayLike) -> NDArray[np.int64]:  # noqa: N803
        """-1 for an anomalous row, 1 for any other, as in scikit-learn (PyOD has 1 and 0).

        >>> anomalous = detector.predict(frame) == -1
        """
        return np.where(self.score(X).is_anomaly, -1, 1)

    def fit_predict(self, X: ArrowTable | ArrayLike, y: object = None) -> NDArray[np.int64]:  # noqa: N803
        """`fit` and `predict` on the same rows.

        >>> verdict = detector.fit_predict(frame)
        """
        return self.fit(X, y).predict(X)

    @property
    def offset_(self) -> float:
        """`decision_function` is `score_samples` minus this."""
        return -float(np.float32(self.threshold_))  # as scores are compared with it

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Parameters by name, as they were given.

        >>> detector.get_params()["window"]
        20
        """
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters for the next fit; those of scoring take effect at once.

        >>> detector = detector.set_params(max_steps=30)
        """
        names = self._parameters()
        for name, value in parameters.items():
            if name not in names:
                raise ConfigError(f"detector: has no parameter {name}; there are {', '.join(names)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = {name: entry.default for name, entry in inspect.signature(type(self)).parameters.items()}
        said = {name: value for name, value in self.get_params().items() if value is not usual[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags  # only scikit-learn asks

        return Tags(
            estimator_type="outlier_detector",
            target_tags=TargetTags(required=False),
            input_tags=InputTags(allow_nan=self.fill not in (None, "error")),
        )

    @classmethod
    def _parameters(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)


def not_fitted() -> NotFittedError:
    """The error; one of scikit-learn too, where it is in use."""
    theirs = sys.modules.get("sklearn.exceptions")
    kind = NotFittedError if theirs is None else type("NotFittedError", (NotFittedError, theirs.NotFittedError), {})
    error: NotFittedError = kind("detector: is not fitted; call fit or Detector.load first")
    return error
