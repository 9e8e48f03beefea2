"""The examples in the docstrings of the Python API run."""

import doctest
import inspect
from pathlib import Path

import pytest

from at_infer import Detector, Result, Scorer
from tests.checkpoints import WINDOW
from tests.scored import rows


@pytest.mark.parametrize(
    "shown",
    [Scorer, Scorer.stream, Result, pytest.param(Detector, marks=pytest.mark.slow)],
    ids=lambda shown: shown.__qualname__,
)
def test_an_example_runs(shown: object, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").symlink_to(models / "model.onnx")
    rows(10 * WINDOW).write_parquet(tmp_path / "data.parquet")
    monkeypatch.chdir(tmp_path)
    known = {"frame": rows(10 * WINDOW), "Scorer": Scorer}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(shown) or "", known, str(shown), None, None)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
