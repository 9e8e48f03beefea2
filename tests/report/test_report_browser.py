"""Reports in a real browser, opened from disk with the network off: what a person sees, clicks and types."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer import InputOptions
from at_infer.cli import app
from at_infer.evaluation.metrics.runs import runs, runs_touched
from tests import browser as browsers
from tests.browser import Browser, open_browser
from tests.checkpoints import checkpoint
from tests.report_pages import NASTY, minutes, noisy_scores, write_scores
from tests.scored import COLUMNS, rows

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        browsers.CHROMIUM is None or browsers.DRIVER is None,
        reason="no chromium with its driver; on Debian: apt-get install chromium chromium-driver",
    ),
]
ROWS = 6000


def write_report(*words: object) -> None:
    with pytest.raises(SystemExit) as done:
        app(["report", *(str(word) for word in words)])
    assert done.value.code in (0, None)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A report on one series with dates and labels, its scores and its labels."""
    folder = tmp_path_factory.mktemp("labelled")
    score = noisy_scores(ROWS, seed=5)
    labels = (np.arange(ROWS) % 500 < 25) | (score > 2)
    labels[3000:3020] = True
    score[3000:3020] = 0.01  # one that is missed for sure
    path = write_scores(folder / "s.parquet", {"time": minutes(ROWS), "score": score, "label": labels})
    write_report(path, "--labels", path, "-o", folder / "r.html")
    return folder / "r.html", score, labels


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Path:
    """A report with features, reconstructions and associations."""
    from at_infer import ScoreOptions, score_file

    folder = tmp_path_factory.mktemp("explained")
    frame = rows(400, seed=3).with_columns(machine=pl.Series(np.repeat(["pump", NASTY], 200)))
    frame = frame.with_columns(f01=pl.when(pl.int_range(400).is_between(205, 209)).then(40.0).otherwise(pl.col("f01")))
    frame.write_parquet(folder / "data.parquet")
    options = ScoreOptions(explain="all")
    score_file(
        folder / "data.parquet",
        models / "model.onnx",
        folder / "s.parquet",
        options,
        InputOptions(series_column="machine"),
    )
    associations = models / "model.associations.onnx"
    write_report(
        folder / "s.parquet", "--data", folder / "data.parquet", "--engine", associations, "-o", folder / "r.html"
    )
    return folder / "r.html"


@pytest.fixture(autouse=True)
def _no_script_errors(browser: Browser) -> Iterator[None]:
    browser.messages()
    yield
    assert browser.messages() == []


def at_threshold(score: np.ndarray, labels: np.ndarray, threshold: float) -> dict[str, int]:
    alarms, truth = runs(score > threshold), runs(labels)
    return {
        "rows": alarms.rows,
        "segments": len(alarms),
        "found": int((runs_touched(truth, alarms) > 0).sum()),
        "false": int((runs_touched(alarms, truth) == 0).sum()),
    }


def shown(browser: Browser) -> dict[str, int]:
    return {name: int(browser.number(f"#value-{name}")) for name in ("rows", "segments", "found", "false")}


def cut(browser: Browser) -> int:
    return int(browser.run("return Number(document.getElementById('threshold').value)"))


def grid(browser: Browser) -> dict[str, Any]:
    found: dict[str, Any] = browser.run("return JSON.parse(document.getElementById('description').textContent).grid")
    return found


def incidents(browser: Browser) -> dict[str, Any]:
    found: dict[str, Any] = browser.run(
        "return JSON.parse(document.getElementById('description').textContent).incidents"
    )
    return found


def open_segments(browser: Browser) -> None:
    browser.find("#segments-panel summary").click()


def test_it_says_what_happened(browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray]) -> None:
    page, score, labels = labelled
    browser.open(page)
    expected = at_threshold(score, labels, np.float32(0.5))
    assert shown(browser) == expected
    told = incidents(browser)
    assert browser.text("#headline") == f"{told['count']} incidents in 6,000 rows"
    assert browser.number("#tile-incidents b") == told["count"] == len(browser.all("#incidents tbody tr"))
    assert browser.number("#tile-incidents-false b") == told["false"] < expected["false"]
    assert browser.number("#tile-segments b") == expected["segments"]
    assert browser.number("#tile-day b") == pytest.approx(expected["segments"] / (ROWS / 1440), rel=1e-3)
    assert browser.text("#subline").startswith("Worst: 2024-03-0")


def test_keys_on_the_slider_change_every_count(browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray]) -> None:
    page, score, labels = labelled
    browser.open(page)
    slider, values = browser.find("#threshold"), grid(browser)["values"]
    begin = cut(browser)
    for key, step in (
        ("\ue014", 1),
        ("\ue014", 1),
        ("\ue012", -1),
        ("\ue00e", None),
        ("\ue010", None),
        ("\ue011", None),
    ):
        before = cut(browser)
        slider.send_keys(key)
        assert step is None or cut(browser) == before + step
        assert shown(browser) == at_threshold(score, labels, values[cut(browser)])
    assert cut(browser) == 0  # the last key was Home: everything is above
    assert shown(browser)["rows"] == ROWS
    browser.find("#threshold-reset").click()
    assert (cut(browser), values[begin]) == (begin, 0.5)
    assert shown(browser) == at_threshold(score, labels, np.float32(0.5))


def test_the_line_in_the_chart_can_be_dragged(browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray]) -> None:
    page, score, labels = labelled
    browser.open(page)
    over = browser.find("#score .u-over")
    browser.run("arguments[0].scrollIntoView({ block: 'center' })", over)
    box = browser.run("const b = arguments[0].getBoundingClientRect(); return [b.left, b.top, b.width, b.height]", over)
    y = 0.0
    for y in np.arange(box[1], box[1] + box[3], 3):  # where the pointer says that it can be dragged
        browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 300, y=float(y))
        if browser.run("return arguments[0].style.cursor", over) == "ns-resize":
            break
    else:
        pytest.fail("no line to drag")
    before = cut(browser)
    y = float(y) + 5
    mouse = {"x": box[0] + 300, "button": "left", "buttons": 1, "clickCount": 1}
    browser.command("Input.dispatchMouseEvent", type="mousePressed", y=y, **mouse)
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", y=y - 20, **mouse)
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", y=y - 45, **mouse)
    browser.command("Input.dispatchMouseEvent", type="mouseReleased", y=y - 45, **mouse)
    assert cut(browser) > before
    assert shown(browser) == at_threshold(score, labels, grid(browser)["values"][cut(browser)])


ODD_SCORES: dict[str, list[float | None]] = {
    "one row": [0.7],
    "one row without a score": [None],
    "two rows": [0.1, 0.9],
    "no score": [None] * 300,
    "constant": [0.5] * 300,
    "constant and above": [0.7] * 300,
    "one score": [None] * 150 + [0.9] + [None] * 149,
    "huge": [3e38, 1e-38] * 150,
    "huge and zero": [0.0, 3e38],
    "negative": [-3.0, -0.1, 2.0],
}


def test_real_clicks_drags_and_double_clicks_anywhere_in_the_charts_raise_no_error(
    browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray], explained: Path
) -> None:
    for page in (labelled[0], explained):
        browser.open(page)
        click_everywhere(browser)


@pytest.mark.parametrize("name", ODD_SCORES)
def test_odd_scores_are_shown_and_real_clicks_in_their_charts_raise_no_error(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    scores = ODD_SCORES[name]
    when = {"row": np.arange(len(scores))} if len(scores) < 4 else {"time": minutes(len(scores))}
    path = write_scores(tmp_path / "s.parquet", {**when, "score": scores})
    write_report(path, "-o", tmp_path / "r.html")
    browser.open(tmp_path / "r.html")
    flagged = sum(score is not None and score > 0.5 for score in scores)
    assert browser.number("#value-rows") == flagged
    assert browser.text("#headline").startswith("Nothing") == (flagged == 0)
    click_everywhere(browser, (0.0, 0.999))
    browser.find("#threshold").send_keys("\ue012")


def click_everywhere(browser: Browser, shares: Sequence[float] = (0.0, 0.5, 0.999)) -> None:
    """Click, double-click and drag at these places of a chart of each kind: beyond its end, and back."""
    charts = browser.all(".u-over")  # all scores, those of a segment, and its features, which are drawn alike
    for over in [*charts[:2], *charts[2:][-1:]]:
        browser.run("arguments[0].scrollIntoView({block: 'center'})", over)
        box = browser.run("const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]", over)
        for share in shares:
            at = {"x": box[0] + share * box[2], "y": box[1] + share * box[3], "button": "left"}
            for count in (1, 2):
                for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
                    browser.command("Input.dispatchMouseEvent", type=kind, clickCount=count, **at)
            for beyond in (at | {"x": box[0] + box[2] + 40}, at | {"x": at["x"] + 1}):
                for kind, where in (
                    ("mousePressed", at),
                    ("mouseMoved", beyond),
                    ("mouseMoved", beyond | {"x": at["x"]} if share else beyond),
                    ("mouseReleased", beyond),
                ):
                    browser.command("Input.dispatchMouseEvent", type=kind, clickCount=1, buttons=1, **where)


def test_a_click_or_enter_shows_a_segment(browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray]) -> None:
    page, score, _ = labelled
    browser.open(page)
    assert not browser.find("#segments").is_displayed()
    open_segments(browser)
    second = browser.all("#segments tbody tr")[1]
    second.click()
    assert second.get_attribute("aria-selected") == "true"
    start = second.text.split()[1]
    assert browser.text("#detail-title").startswith(start)
    peaks = np.sort([score[a:b].max() for a, b in zip(*(lambda r: (r.starts, r.ends))(runs(score > 0.5)), strict=True)])
    assert f"peak score {float(f'{peaks[-2]:.4g}'):g}" in browser.text("#detail-text")
    second.send_keys("\ue015")  # down: the next row has the focus
    third = browser.all("#segments tbody tr")[2]
    assert browser.run("return document.activeElement === arguments[0]", third)
    third.send_keys("\ue007")
    assert third.get_attribute("aria-selected") == "true"
    browser.find("#detail-next").click()
    assert browser.all("#segments tbody tr")[3].get_attribute("aria-selected") == "true"


def test_a_click_on_an_incident_shows_its_worst_rows(
    browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    page, score, _ = labelled
    browser.open(page)
    told = incidents(browser)["shown"]
    rows = browser.all("#incidents tbody tr")
    assert rows[0].get_attribute("aria-selected") == "true"
    rows[1].click()
    assert rows[1].get_attribute("aria-selected") == "true"
    peak = score[told[1]["first"] : told[1]["end"]].max()
    assert f"peak score {float(f'{peak:.4g}'):g}" in browser.text("#detail-text")
    rows[1].send_keys("\ue015")
    assert browser.run("return document.activeElement === arguments[0]", rows[2])
    browser.find("#incidents th button").click()
    assert browser.find("#incidents th").get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("width", [360, 1280])
def test_incidents_fit_the_screen(browser: Browser, explained: Path, width: int) -> None:
    browser.open(explained, width=width)
    inside, visible = browser.run(
        "const s = document.getElementById('incidents').parentElement; return [s.scrollWidth, s.clientWidth]"
    )
    assert inside <= visible
    assert browser.run("return document.documentElement.scrollWidth") <= width
    texts = browser.run(
        "return Object.fromEntries(Array.from(document.querySelectorAll('#incidents tbody tr:first-child td'), "
        "(cell) => [cell.dataset.column, cell.innerText]))"
    )
    assert texts.keys() >= {"Series", "Begin", "End", "Rows", "Peak", "Causes"}
    assert all(texts.values())


def test_the_table_sorts_and_filters(browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray]) -> None:
    page, score, labels = labelled
    browser.open(page)
    open_segments(browser)

    def column(name: str) -> list[float]:
        at = [text.split()[0] for text in browser.texts("#segments th")].index(name)
        cells = browser.texts(f"#segments td:nth-child({at + 1})")
        return [float(text.split("\n")[0].replace(",", "")) for text in cells]

    assert column("Peak") == sorted(column("Peak"), reverse=True)
    browser.find("#segments th[data-key=Rows] button").click()
    assert column("Rows") == sorted(column("Rows"), reverse=True)
    browser.find("#segments th[data-key=Rows] button").click()
    assert column("Rows") == sorted(column("Rows"))
    assert browser.find("#segments th[data-key=Rows]").get_attribute("aria-sort") == "ascending"
    expected = at_threshold(score, labels, np.float32(0.5))
    missed = len(runs(labels)) - expected["found"]
    browser.find("#filters [data-verdict=missed]").click()
    assert [text.split()[0] for text in browser.texts("#segments tbody tr")] == ["missed"] * missed
    assert f"False alarms {expected['false']}" in browser.text("#filters")


def test_keys_zoom_in_to_single_rows_and_out_again(
    browser: Browser, labelled: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    browser.open(labelled[0])
    chart = browser.find("#score")
    assert chart.get_attribute("data-exact") == "false"
    for _ in range(4):
        chart.send_keys("+")
    assert chart.get_attribute("data-exact") == "true"
    chart.send_keys("\ue014")
    chart.send_keys("0")
    assert chart.get_attribute("data-exact") == "false"


def test_features_reconstructions_and_associations_are_drawn(browser: Browser, explained: Path) -> None:
    browser.open(explained)
    titles = browser.texts("#detail-charts h3")
    assert titles[0] == "Score"
    assert titles[1].startswith("f01 ")
    assert {title.split()[0] for title in titles[1:]} <= set(COLUMNS)
    assert "as the model reconstructs it" in browser.text("#detail-hint")
    assert browser.texts("#windows .window:first-child figcaption") == [
        "prior association P",
        "series association S",
    ]
    before = browser.text("#point-text")
    browser.find("#point").send_keys("\ue014")
    assert browser.text("#point-text") != before
    colours = browser.run(
        "const c = document.querySelector('.maps canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return new Set(Array.from({length: d.length / 4}, (_, i) => d.slice(4 * i, 4 * i + 3).join())).size"
    )
    assert colours > 5


def test_series_are_chosen_and_their_names_are_only_text(browser: Browser, explained: Path) -> None:
    browser.open(explained)
    buttons = browser.all("#fleet button")
    names = [button.get_attribute("title") for button in buttons]
    assert set(names) == {"pump", NASTY}
    pump = names.index("pump")
    buttons[pump].click()
    assert buttons[pump].get_attribute("aria-pressed") == "true"
    assert "In pump:" in browser.text("#readout")
    assert browser.driver.title == "s.parquet: anomalies"
    assert not browser.all("img")


@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_light_dark_and_phone(
    browser: Browser, explained: Path, labelled: tuple[Path, np.ndarray, np.ndarray], width: int
) -> None:
    for page, dark in itertools.product((explained, labelled[0]), (False, True)):
        if dark:
            browser.resize(width, dark=True)
        else:
            browser.open(page, width=width)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        paper = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, paper[4:-1].split(","))) < 380) == dark


def test_a_phone_shows_peak_and_cause_of_a_segment_without_scrolling_sideways(
    browser: Browser, explained: Path, labelled: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    width = 360
    for page, columns in (
        (explained, {"Peak score", "Top features", "Series"}),
        (labelled[0], {"Peak score", "Verdict"}),
    ):
        browser.open(page, width=width)
        open_segments(browser)
        inside, visible = browser.run(
            "const s = document.getElementById('segments').parentElement; return [s.scrollWidth, s.clientWidth]"
        )
        assert inside <= visible
        boxes = browser.run(
            "return Array.from(document.querySelectorAll('#segments tbody tr:first-child td'), (cell) => {"
            "const b = cell.getBoundingClientRect();"
            "return [cell.dataset.column, cell.innerText, b.left, b.right, b.width, b.height] })"
        )
        shown_columns = {
            name for name, text, left, right, *size in boxes if text and left >= 0 and right <= width and min(size) > 9
        }
        assert columns <= shown_columns, boxes
        assert shown_columns >= {"Start", "End", "Rows"}


def test_training_is_shown(browser: Browser, tmp_path: Path) -> None:
    kept = checkpoint()
    evaluations = [
        {"step": 5 * k, "reconstruction": 1 / k, "discrepancy": 3.0 * k}
        | {"validation_reconstruction": 1.1 / k, "validation_discrepancy": 3.1 * k}
        for k in (1, 2, 3)
    ]
    steps = {"reconstruction": torch.linspace(1, 0.3, 15), "discrepancy": torch.linspace(3, 9, 15)}
    scales = [[[0.1, 0.2, 0.3, 0.4, 0.5]] * 2] * 2
    kept.train.update(evaluations=evaluations, best_step=15, ended="budget", steps=steps, scales=scales)
    kept.save(tmp_path / "ckpt.pt")
    write_report(tmp_path / "ckpt.pt", "-o", tmp_path / "t.html")
    browser.open(tmp_path / "t.html")
    assert browser.text("#headline") == "Validation loss 0.3667 after step 15 of 15"
    assert len(browser.all(".uplot canvas")) == 2
    assert "layer 2: medians 0.3, 0.3" in str(browser.find("#scales").get_attribute("aria-label"))
