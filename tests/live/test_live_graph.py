"""The graph for live rows: the last row of a window by itself, with the scores that the whole window gives it."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from at_infer import EngineOptions, ScoreOptions, Scorer, StreamScorer, open_engine
from at_infer.errors import EngineError
from at_infer.models.metadata import LIVE_GRAPH
from tests.checkpoints import FEATURES, WINDOW
from tests.scored import rows, values, variant

pytestmark = pytest.mark.slow

LIVE = ScoreOptions(align="last", threshold=1.0)


def test_it_reconstructs_the_last_row_as_the_whole_window_does(models: Path) -> None:
    windows = np.random.default_rng(3).normal(size=(5, WINDOW, FEATURES)).astype(np.float32)
    with open_engine(models / "model.onnx") as engine:
        assert engine.has_last
        np.testing.assert_allclose(engine.run_last(windows), engine.run(windows)["reconstruction"][:, -1], atol=1e-5)


def test_networks_of_several_layers_have_none(two_layer_models: Path) -> None:
    with open_engine(two_layer_models / "model.onnx") as engine:
        assert not engine.has_last


@pytest.mark.parametrize("delay", [0, 5])
def test_scores_are_those_of_engines_without_it(models: Path, delay: int) -> None:
    given = values(rows(300))
    options = ScoreOptions(align="last", threshold=1.0, delay=delay)
    scorers = [Scorer(models / f"model{kind}.onnx", options) for kind in ("", ".associations")]
    found, expected = (scorer.score(given).score for scorer in scorers)
    assert np.isfinite(found).sum() == 300 - WINDOW + 1
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("series", [1, 7])
def test_a_stream_scores_as_a_file_is_scored(models: Path, series: int) -> None:
    given, names = values(rows(150 * series)), list(range(series)) * 150
    with StreamScorer(models / "model.onnx", LIVE, EngineOptions(batch_size=4)) as stream:
        found = np.concatenate(
            [stream.push_many(given[i : i + series], names[i : i + series]).score for i in range(0, len(given), series)]
        )
    with Scorer(models / "model.onnx", LIVE) as scorer:
        for name in range(series):
            np.testing.assert_allclose(found[name::series], scorer.score(given[name::series]).score, rtol=1e-5)


def test_a_live_graph_that_is_damaged_is_refused(models: Path, tmp_path: Path) -> None:
    path = variant(models / "model.onnx", tmp_path / "edited.onnx")
    for content in ("no base64!", "Z3JhcGg="):
        edited = onnx.load(path)
        next(entry for entry in edited.metadata_props if entry.key == LIVE_GRAPH).value = content
        onnx.save(edited, path)
        with (
            Scorer(path, LIVE) as scorer,
            pytest.raises(EngineError, match=r"live graph is damaged|not an ONNX model"),
        ):
            scorer.score(values(rows(50)))
