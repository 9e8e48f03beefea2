"""The HTML page: scripts, styles and numbers in one file that needs no network."""

import base64
import hashlib
import html
from importlib import resources
from pathlib import Path
from typing import Any

from at_infer.output import atomic_path
from at_infer.report.payload import Arrays, safe_json

SCRIPTS = (
    "decode.js",
    "format.js",
    "levels.js",
    "charts.js",
    "threshold.js",
    "overview.js",
    "table.js",
    "incidents.js",
    "detail.js",
    "associations.js",
    "training.js",
    "main.js",
)


def render(title: str, description: dict[str, Any], arrays: Arrays) -> str:
    """A page that shows `description` and `arrays`; its scripts know what to do with them."""
    library = _asset("uPlot.iife.min.js")
    own = "(() => {\n'use strict';\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();"
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {_hash(library)} {_hash(own)}; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{_asset("uPlot.min.css")}</style>
<style>{_asset("report.css")}</style>
</head>
<body>
<header>
<p class="eyebrow">at-infer · <span id="source"></span></p>
<h1 id="headline"></h1>
<p id="subline" class="lead"></p>
</header>
<main>
{_asset(f"{description['kind']}.html")}
<section class="panel">
<h2>About this report</h2>
<dl id="facts" class="facts"></dl>
<ul id="notes" class="notes"></ul>
</section>
</main>
<!-- uPlot:
{_asset("uPlot.LICENSE")}
-->
<script type="application/json" id="description">{safe_json(description | {"arrays": arrays.index})}</script>
<script type="text/plain" id="arrays">{arrays.encode()}</script>
<script>{library}</script>
<script>{own}</script>
</body>
</html>
"""


def write_page(path: Path, page: str) -> None:
    """The whole page, or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _asset(name: str) -> str:
    return (resources.files("at_infer.report") / "assets" / name).read_text(encoding="utf-8").strip()


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
