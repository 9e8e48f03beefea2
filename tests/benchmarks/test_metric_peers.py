"""What benchmarks/metric_peers.py found, against the tests' own definitions and the document that quotes it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.metric_peers import example
from tests import metric_oracles as oracle

ROOT = Path(__file__).parents[2]
RUNS = json.loads((ROOT / "benchmarks" / "results" / "metric_peers.json").read_text(encoding="utf-8"))["runs"]
ANOTHER = "VUS of TSB-AD"
NAMES = {
    "VUS of its authors": "VUS-ROC and VUS-PR of its authors (`vus` 0.0.6)",
    "VUS of aeon": "VUS-ROC and VUS-PR of aeon 1.6.0",
    "affiliation of TSB-AD": "affiliation of TSB-AD 1.5",
    "ranges of aeon": "range-based precision and recall of aeon 1.6.0",
    "rows of TSB-AD": "AUC-ROC, AUC-PR, F1, point-adjusted F1 of TSB-AD 1.5",
    "PA%K of tadpak": "PA%K of its authors (`tadpak` 0.3.3)",
    ANOTHER: "**VUS of TSB-AD 1.5**",
}


def test_all_agree_but_one() -> None:
    for one in RUNS:
        differences = {name: of["largest_difference"] for name, of in one["against"].items()}
        assert set(differences) == set(NAMES)
        assert differences.pop(ANOTHER) > 0.05
        assert max(differences.values()) < 1e-12


@pytest.mark.slow
def test_vus_of_tsb_ad_is_the_other_definition_to_the_last_digit() -> None:
    labels, scores = example(RUNS[0]["rows"])
    roc, pr = np.mean([oracle.areas_of_tsb_ad(scores, labels, width) for width in range(101)], axis=0)
    theirs = RUNS[0]["against"][ANOTHER]["values"]
    assert (roc, pr) == pytest.approx((theirs["vus_roc"], theirs["vus_pr"]), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_document_quotes_what_is_stored(name: str) -> None:
    one = RUNS[-1]
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert f"| {one['rows']:,} rows |".replace(",", " ") in page
    of = one["against"][name]
    cells = [_difference(of), *(_milliseconds(of[key]) for key in ("our_cpu_ms", "their_cpu_ms"))]
    assert f"| {NAMES[name]} | {' | '.join(cells)} |" in page


def _difference(of: dict[str, Any]) -> str:
    value = of["largest_difference"]
    if value > 1e-3:
        return f"**{value:.3f}**"
    return f"{value:.0e}".replace("e-0", "e-") if value else "0"


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms".replace(",", " ")
