"""Pictures of the demo's report for the documents, taken in a real browser: make screenshots."""

import argparse
import base64
import io
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.browser import Browser, open_browser

SHOTS = {
    "report.png": {"width": 1240, "height": 1290, "dark": False},
    "report-dark.png": {"width": 1240, "height": 1290, "dark": True},
    "report-phone.png": {"width": 390, "height": 1500, "dark": False},
}


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `make demo` filled")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    page = (args.demo / "report.html").resolve()
    with tempfile.TemporaryDirectory() as profile, open_browser(Path(profile)) as browser:
        for name, look in SHOTS.items():
            browser.open(page, **look)  # type: ignore[arg-type]
            path = args.output / name
            take(browser, path)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def take(browser: Browser, path: Path) -> None:
    """What is in the window, in 256 colours."""
    time.sleep(0.5)  # charts follow the width of the window a frame later
    data = base64.b64decode(browser.command("Page.captureScreenshot", format="png")["data"])
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
