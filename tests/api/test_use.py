"""How the Python API behaves in programs: threads, interruptions, progress, and the process around it."""

import io
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import training.loop
from at_infer import Detector, Scorer
from at_infer.api import progress
from at_infer.api.progress import Bar
from at_infer.errors import ConfigError
from tests.api.test_detector import SMALL, pumps
from tests.scored import Edit, rows

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fitted() -> Detector:
    return Detector(**SMALL).fit(pumps(), time="ts", series="machine")


def test_threads_share_a_scorer(models: Path) -> None:
    tables = [rows(300 + 10 * k, seed=k) for k in range(8)]
    with Scorer(models / "model.onnx") as scorer:
        expected = [scorer.score(table).score for table in tables]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda k: scorer.score(tables[k]).score, [*range(8)] * 3))
            streams = list(pool.map(lambda k: [*scorer.stream(tables[k].iter_slices(50))], range(4)))
    for k, score in enumerate(found):
        np.testing.assert_array_equal(score, expected[k % 8])
    for k, parts in enumerate(streams):
        np.testing.assert_array_equal(np.concatenate([part.score for part in parts]), expected[k])


def test_an_interrupted_score_leaves_a_scorer_that_works(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows(2000)
    with Scorer(models / "model.onnx") as scorer:
        expected, run, calls = scorer.score(table).score, scorer.engine.run, []

        def interrupted(windows: Any) -> Any:
            calls.append(len(windows))
            if len(calls) == 3:
                raise KeyboardInterrupt
            return run(windows)

        monkeypatch.setattr(scorer.engine, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scorer.score(table)
        np.testing.assert_array_equal(scorer.score(table).score, expected)


@pytest.mark.slow
def test_an_interrupted_fit_leaves_the_detector_as_it_was(fitted: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, objective, calls = fitted.score(pumps()).score, training.loop.objective, []

    def pressed(*values: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return objective(*values, **more)

    monkeypatch.setattr(training.loop, "objective", pressed)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(pumps(300), time="ts", series="machine")
    assert signal.getsignal(signal.SIGINT) is handler
    np.testing.assert_array_equal(fitted.score(pumps()).score, expected)
    fresh = Detector(**SMALL)
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(pumps(), time="ts", series="machine")
    assert not fresh.__sklearn_is_fitted__()
    calls.extend([1, 1])
    assert fresh.fit(pumps(), time="ts", series="machine").__sklearn_is_fitted__()


@pytest.mark.slow
def test_a_fit_starts_from_a_detector_or_a_checkpoint(fitted: Detector, tmp_path: Path) -> None:
    fitted.save(tmp_path / "ckpt.pt")
    moved = pumps().with_columns(flow="heat", heat="flow")
    mine = Detector(max_steps=2, device="cpu").fit(moved, from_=fitted)
    same = Detector(**{**SMALL, "max_steps": 2}).fit(moved, from_=tmp_path / "ckpt.pt")
    assert mine.scorer.metadata.parent_sha256 == same.scorer.metadata.parent_sha256 is not None
    assert mine.scorer.metadata.model == fitted.scorer.metadata.model
    assert (mine.scorer.metadata.time_column, mine.scorer.metadata.series_column) == ("ts", "machine")
    np.testing.assert_array_equal(mine.score(moved).score, same.score(moved).score)
    with pytest.raises(ConfigError, match="`window`: the network is that of from_; leave `window` or `from_` out"):
        Detector(window=20).fit(moved, from_=fitted)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_a_line_elsewhere(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with Scorer(models / "model.onnx", verbose=True) as scorer:
        scorer.score(rows(300))
        assert plain.getvalue() == "score: 300 of 300 rows\n"
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        scorer.score(rows(300))
        assert "300/300" in terminal.getvalue()
        monkeypatch.setattr(scorer, "verbose", False)
        monkeypatch.setattr(sys, "stderr", quiet := Terminal())
        scorer.score(rows(300))
    assert quiet.getvalue() == ""


def test_progress_in_a_notebook_is_an_element_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []

    class Element:
        def update(self, data: dict[str, str], **_: bool) -> None:
            shown.append(data)

    class Display:
        @staticmethod
        def display(data: dict[str, str], **_: bool) -> Element:
            shown.append(data)
            return Element()

    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.setattr(progress, "import_module", lambda _: Display)
    with Bar("fit", "steps", shown=True) as bar:
        bar.show(1, 4)
        bar.show(4, 4)
    assert [one["text/plain"] for one in shown] == ["", "fit: 1 of 4 steps", "fit: 4 of 4 steps"]
    assert shown[-1]["text/html"] == '<progress value="4" max="4"></progress> fit: 4 of 4 steps'


@pytest.mark.slow
def test_fit_and_export_say_how_far_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    detector = Detector(**SMALL, verbose=True).fit(pumps(), time="ts", series="machine")
    detector.export(tmp_path / "out", engine="none")
    lines = said.getvalue().splitlines()
    assert lines[0] == "fit: 6 of 6 steps"
    assert lines[1].startswith("export: tracing model.onnx")


def run_program(text: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_program_keeps_its_own_settings(edited: Edit, tmp_path: Path) -> None:
    rows(100).write_parquet(tmp_path / "data.parquet")
    (tmp_path / "model.onnx").symlink_to(edited())
    program = """
import ctypes, os, signal, threading
import polars  # it sets variables of its own
before = dict(os.environ), signal.getsignal(signal.SIGINT)
tuned = []
library, open_library = ctypes.CDLL(None), ctypes.CDLL
ctypes.CDLL = lambda *given, **more: tuned.append(given) or open_library(*given, **more)
import at_infer
with at_infer.Scorer("model.onnx") as scorer:
    scorer.score(polars.read_parquet("data.parquet"))
assert (dict(os.environ), signal.getsignal(signal.SIGINT)) == before
assert (None,) not in tuned, tuned
print(threading.active_count())
"""
    assert run_program(program, tmp_path) == "1\n"
