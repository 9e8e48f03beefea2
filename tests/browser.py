"""A real browser without a window and without a network."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking --no-first-run "
    "--disable-extensions --disable-sync --disable-component-update --hide-scrollbars --force-color-profile=srgb"
)


class Browser:
    """One tab."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, *, width: int = 1280, height: int = 1000, dark: bool = False) -> None:
        """Open a page from disk and wait until it is drawn."""
        self.resize(width, height=height, dark=dark)
        self.driver.get(page.as_uri())
        self.wait(lambda: self.run("return document.documentElement.dataset.ready === 'true'"))

    def resize(self, width: int, *, height: int = 1000, dark: bool = False) -> None:
        """A window of another size or scheme; the page, if there is one, has been drawn for it."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=scheme)
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def command(self, name: str, **values: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, values)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        """As shown, of all elements at once."""
        found: list[str] = self.run(
            "return Array.from(document.querySelectorAll(arguments[0]), (one) => one.innerText)", selector
        )
        return found

    def number(self, selector: str) -> float:
        return float(self.text(selector).replace(",", ""))

    def wait(self, true: Callable[[], Any], seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "the page did not get there"
            time.sleep(0.02)

    def messages(self) -> list[str]:
        """What scripts, or the browser about them, wrote to the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        browser = Browser(driver)
        browser.command("Network.enable")
        browser.command(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        yield browser
    finally:
        driver.quit()
