"""Chromium without a window, and its screenshots."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="needs the extra `console-test`")

from selenium import webdriver


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """Skips the test if the browser is not installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (apt-get install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1300"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def picture(browser: webdriver.Chrome, name: str, folder: Path) -> None:
    """Save what the browser shows, in QUORATE_SCREENSHOTS or `folder`."""
    target = Path(os.environ.get("QUORATE_SCREENSHOTS", folder))
    target.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(target / f"{name}.png"))
