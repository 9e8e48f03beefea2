"""Names, paragraphs and tables of docs/reproduction.md."""

import textwrap
from collections.abc import Sequence

NAMES = {
    "msl": "MSL",
    "smap": "SMAP",
    "smd": "SMD",
    "asd": "ASD",
    "psm": "PSM",
    "swat": "SWaT",
    "generated": "NeurIPS-TS",
}
MODES = {
    "published": "published: softmax(-50 AssDis) x error",
    "paper": "paper: softmax(-AssDis) x error",
    "reconstruction": "reconstruction: error",
    "discrepancy": "discrepancy: softmax(-AssDis)",
    "addition": "addition: softmax(-AssDis) + error",
}


def paragraph(text: str) -> str:
    """Lines of the length of the other documents."""
    return textwrap.fill(text, 120) + "\n"


def counted(count: int, noun: str) -> str:
    """With its plural."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def listed(words: Sequence[str]) -> str:
    """With commas, and an "and" before the last."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Numbers to the right, the first column and one of scores to the left."""
    words = 2 if headings[1] == "score" else 1
    rows = [headings, ["---"] * words + ["---:"] * (len(headings) - words), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
