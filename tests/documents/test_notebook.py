"""The notebook in examples/: it runs, what it keeps is small and whole, and a browser shows it."""

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import browser as browsers

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

pytestmark = [pytest.mark.documents, pytest.mark.filterwarnings("ignore")]  # warnings of the kernel's own modules
NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"

QUICK = """
import sys
sys.path.insert(0, {root!r})
import export.pipeline, tests.once
export.pipeline.trace = tests.once.trace_quickly
"""
"""What its kernel does first: exports trace as in other tests."""


def outputs(notebook: Any, kind: str) -> list[str]:
    """What its cells show of a kind, such as text/html."""
    shown = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    return [one.data[kind] for one in shown if kind in one.get("data", {})]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("max_steps=150", "max_steps=20")
    startup = tmp_path_factory.mktemp("ipython") / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "quick.py").write_text(QUICK.format(root=str(NOTEBOOK.parents[1])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(startup.parents[1]))
        nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook, folder


def test_the_notebook_runs(executed: tuple[Any, Path]) -> None:
    notebook, folder = executed
    assert outputs(notebook, "text/plain")[-1] == "(['model.onnx', 'model.associations.onnx'], True)"
    assert (folder / "scores.svg").read_text(encoding="utf-8") in outputs(notebook, "text/html")
    assert any("<progress" in shown and "20 of 20 steps" in shown for shown in outputs(notebook, "text/html"))


def test_what_is_kept_is_whole_and_small() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert NOTEBOOK.stat().st_size < 1_000_000
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum("<svg" in shown for shown in outputs(notebook, "text/html")) == 2
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert "/home/" not in text
    assert "src=" not in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    with browsers.open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.browser
@pytest.mark.skipif(browsers.CHROMIUM is None or browsers.DRIVER is None, reason="no chromium with its driver")
@pytest.mark.parametrize(("width", "dark"), [(1000, False), (1000, True), (400, False)])
def test_a_browser_shows_pictures_and_incidents(
    browser: browsers.Browser, executed: tuple[Any, Path], tmp_path: Path, width: int, dark: bool
) -> None:
    shown = "<hr>".join(outputs(executed[0], "text/html"))
    style = "<style>:root { color-scheme: light dark }</style><meta name=viewport content=width=device-width>"
    page = f'<!doctype html><html data-ready="true"><meta charset="utf-8">{style}<body>{shown}</body></html>'
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    browser.open(tmp_path / "page.html", width=width, dark=dark)
    assert browser.messages() == []
    pictures = browser.all("svg")
    assert len(pictures) == 2
    for picture in pictures:
        assert 300 < picture.size["width"] <= min(720, width)
        assert picture.size["height"] > 50
    assert {"pump 1", "pump 2"} <= {text.text for text in browser.all("svg text")}
    box = browser.find("svg rect")
    assert box.size["width"] >= 1
    tip = browser.run("return arguments[0].querySelector('title').textContent", box)
    assert "peak score" in html.unescape(str(tip))
    colour = browser.run("return getComputedStyle(arguments[0]).fill", browser.find("svg text"))
    assert (sum(map(int, colour[4:-1].split(","))) > 380) == dark
    names = [cell.text for cell in browser.all("table th")]
    assert {"series", "begin", "peak score", "cause"} <= {*names}
