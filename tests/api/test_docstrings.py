"""Every public name has a docstring with an example, and the examples run."""

import doctest
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import at_infer
from at_infer import Detector, Plot, Scorer
from tests.checkpoints import WINDOW
from tests.scored import rows

EXAMPLE = ">>> "
NAMES = [name for name in at_infer.__all__ if name != "__version__"]
METHODS = [
    f"{name}.{method}"
    for name in ("Detector", "Plot", "Result", "Scorer")
    for method, _ in inspect.getmembers(getattr(at_infer, name))
    if not method.startswith("_") and EXAMPLE in (inspect.getdoc(getattr(getattr(at_infer, name), method)) or "")
]


def named(text: str) -> Any:
    found: Any = at_infer
    for word in text.split(".") if text else ():
        found = getattr(found, word)
    return found


def examples(shown: Any, known: dict[str, Any]) -> doctest.DocTest:
    text = (shown.__doc__ if isinstance(shown, ModuleType) else inspect.getdoc(shown)) or ""
    return doctest.DocTestParser().get_doctest(text, known, str(shown), None, None)


@pytest.fixture
def place(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.onnx").symlink_to(models / "model.onnx")
    rows(10 * WINDOW).write_parquet(tmp_path / "data.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def fitted() -> Callable[[], Detector]:
    known = []

    def fit() -> Detector:
        if not known:
            small: dict[str, Any] = {"width": 8, "heads": 2, "max_steps": 3, "device": "cpu"}
            known.append(Detector(window=20, **small).fit(rows(10 * WINDOW)))
        return known[0]

    return fit


def run(shown: str, known: dict[str, Any]) -> None:
    test = examples(named(shown), {"frame": rows(10 * WINDOW), "Scorer": Scorer, "Plot": Plot, **known})
    assert test.examples, f"{shown}: has no example"
    assert not any(one.options for one in test.examples), f"{shown}: an example is not run as it is"
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow if one == "Detector" else ()) for one in ["", *NAMES]]
)
@pytest.mark.slow
def test_every_public_name_has_an_example_that_runs(name: str, place: Path) -> None:
    run(name, {})


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow if one.startswith("Detector") else ()) for one in METHODS]
)
def test_examples_of_methods_run(name: str, place: Path, fitted: Callable[[], Detector]) -> None:
    run(name, {"detector": fitted(), "Detector": Detector} if name.startswith("Detector") else {})


def test_every_method_of_the_api_says_what_it_does() -> None:
    for name in ("Detector", "Plot", "Result", "Scorer"):
        own = {
            method: of
            for kind in named(name).__mro__
            if kind.__module__.startswith("at_infer")
            for method, of in vars(kind).items()
        }
        for method, of in own.items():
            if not method.startswith("_") and (callable(of) or isinstance(of, property | classmethod)):
                assert inspect.getdoc(getattr(named(name), method)), f"{name}.{method}"
