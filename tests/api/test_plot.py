"""Results as pictures."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from at_infer import Plot, ScoreOptions, Scorer
from at_infer.errors import OutputError
from tests.api.test_tables import KEYS, machines
from tests.scored import Edit, rows, values

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.svg)


def test_a_plot_shows_the_worst_series_with_threshold_incidents_and_times(edited: Edit) -> None:
    frame = machines(100, 60, 60, 60, 60).with_columns(machine=pl.col("machine") + "<&>")
    late = (pl.col("ts").dt.minute() == 30) & pl.col("machine").str.starts_with("b")
    frame = frame.with_columns(f01=pl.when(late).then(1e3).otherwise("f01"))
    with Scorer(edited(**KEYS), ScoreOptions(explain="top", threshold=20.0)) as scorer:
        result = scorer.score(frame)
    assert result.incidents
    page = drawn(result.plot())
    said = [text.text for text in page.iter(f"{SVG}text")]
    assert said[0] == "b<&>"
    assert {"2024-03-01T00:00:00+00:00", "2024-03-01T00:59:00+00:00", "and 1 more series with lower scores"} <= {*said}
    assert len(list(page.iter(f"{SVG}path"))) == 4
    told = [box.findtext(f"{SVG}title") for box in page.iter(f"{SVG}rect")]
    assert len(told) == len(result.incidents)
    assert "f01" in str(told[0])
    box = next(page.iter(f"{SVG}rect"))
    left, right = float(box.attrib["x"]), float(box.attrib["x"]) + float(box.attrib["width"])
    assert left <= 30.5 * 720 / 60 <= right


def test_a_part_of_a_stream_has_its_incidents_where_they_are(edited: Edit) -> None:
    frame = machines(200).with_columns(f01=pl.when(pl.int_range(pl.len()) == 130).then(1e3).otherwise("f01"))
    with Scorer(edited(**KEYS), ScoreOptions(threshold=20.0)) as scorer:
        _, part = scorer.stream(frame.iter_slices(100))
    boxes = list(drawn(part.plot()).iter(f"{SVG}rect"))
    at = [(float(box.attrib["x"]), float(box.attrib["x"]) + float(box.attrib["width"])) for box in boxes]
    assert any(left <= 30.5 * 7.2 <= right for left, right in at)


def test_rows_without_a_score_break_the_line(models: Path) -> None:
    array = values(rows(400))
    array[200] = np.nan
    with Scorer(models / "model.onnx", ScoreOptions(on_bad_rows="null")) as scorer:
        result = scorer.score(array)
        nothing = Scorer(scorer.engine, ScoreOptions(short_series="skip"))
        assert not list(drawn(nothing.score(array[:0]).plot()).iter(f"{SVG}path"))
        assert next(drawn(nothing.score(array[:3]).plot()).iter(f"{SVG}path")).attrib["d"] == ""
    path = next(drawn(result.plot(width=300, height=50)).iter(f"{SVG}path"))
    assert path.attrib["d"].count("M") == 2


def test_a_plot_is_small_asks_for_nothing_and_is_written_as_a_file(models: Path, tmp_path: Path) -> None:
    with Scorer(models / "model.onnx") as scorer:
        plot = scorer.score(rows(20_000)).plot()
    assert len(plot.svg) < 25_000
    assert not {"href", "src", "style"} & {name for part in list(drawn(plot))[0:] for name in part.attrib}
    assert plot._repr_html_() == plot.svg
    plot.save(tmp_path / "scores.svg")
    assert (tmp_path / "scores.svg").read_text() == plot.svg
    with pytest.raises(OutputError, match="overwrite=True"):
        plot.save(tmp_path / "scores.svg")
