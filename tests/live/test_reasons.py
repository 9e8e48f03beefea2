"""Why a row is flagged, live: the same as in a file."""

import numpy as np
import polars as pl
import pytest

from at_infer import EngineOptions, ScoreOptions, StreamScorer
from at_infer.errors import ConfigError
from tests.checkpoints import WINDOW
from tests.live.test_watch import json_lines, parsed, watched
from tests.scored import COLUMNS, rows


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Two interleaved series, one of which has a feature that jumps."""
    count = 4 * WINDOW
    frame = rows(count, t=[i // 2 for i in range(count)], s=["x", "y"] * (count // 2))
    jumps = (pl.col("s") == "y") & (pl.col("t") > 1.5 * WINDOW)
    return frame.with_columns(f01=pl.col("f01") + pl.when(jumps).then(20.0).otherwise(0.0).cast(pl.Float32))


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--explain", "top"], ["--explain", "all", "--delay", "5"]])
def test_a_flagged_row_tells_feature_share_and_view_as_the_file_does(models, table, score, words):
    given = dict(zip([word.removeprefix("--") for word in words[::2]], words[1::2], strict=True))
    file = score(
        table.sort("s", "t"),
        align="last",
        series_column="s",
        time_column="t",
        threshold=1.5,
        explain=given["explain"],
        delay=int(given.get("delay", 0)),
    )
    answer = watched(models / "model.onnx", json_lines(table), "--threshold", 1.5, *words)
    assert answer.code == 0, answer.err
    found = {(one["s"], one["t"]): one for one in parsed(answer.out)}
    plain = {"row", "s", "t", "score", "is_anomaly"}
    flagged = 0
    for expected in file.frame.to_dicts():
        one = found[expected["s"], expected["t"]]
        if not one["is_anomaly"]:
            assert set(one) == plain
            continue
        flagged += 1
        assert set(one) == set(expected) | {"row"}
        for name, value in expected.items():
            assert one[name] == (pytest.approx(value, abs=1e-5, rel=1e-5) if isinstance(value, float) else value)
    assert 0 < flagged < len(table)
    assert any(one.get("top_feature") == "f01" and one["s"] == "y" for one in found.values())


def test_a_state_kept_without_reasons_is_refused_with_them_and_one_with_them_goes_on(models, tmp_path):
    values = rows(3 * WINDOW).select(COLUMNS).to_numpy()
    on = EngineOptions(threads=1)

    def stream(explain: str) -> StreamScorer:
        return StreamScorer(models / "model.onnx", ScoreOptions(explain=explain, threshold=0.1), on)

    with stream("none") as plain:
        plain.push_many(values)
        plain.save(tmp_path / "plain")
    with stream("top") as first, stream("all") as second, stream("all") as whole:
        with pytest.raises(ConfigError, match=r"plain: was written with reasons False, not True; give the same"):
            first.load(tmp_path / "plain")
        first.push_many(values[: 2 * WINDOW])
        first.save(tmp_path / "state", {"row": 5})
        assert second.load(tmp_path / "state") == {"row": 5}
        after, expected = second.push_many(values[2 * WINDOW :]), whole.push_many(values)
        np.testing.assert_allclose(after.channels, expected.channels[2 * WINDOW :], atol=1e-5, rtol=1e-5)
