"""The documentation site in a real Chromium, light and dark."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.processes import HOST, ROOT

pytest.importorskip("selenium", reason="needs the extra `console-test`")
pytest.importorskip("material", reason="needs the extra `docs`")

from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.console.chrome import picture

DARK_MAX = 100
"""The brightness of a dark background, of 255."""
PAGES = {"": "Quorate", "operations/#a-lost-disk": "Operations"}
"""Addresses, and what their titles begin with: the home page and a runbook."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = ("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder)
    subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, check=True)
    server = ThreadingHTTPServer((HOST, 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_preferred_colours(
    site: str, browser: webdriver.Chrome, scheme: str, tmp_path: Path
) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    for page, title in PAGES.items():
        browser.get(f"{site}/{page}")
        assert browser.title.startswith(title)
        assert browser.find_element(By.TAG_NAME, "h1").is_displayed()
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        red, green, blue = map(int, colour.removeprefix("rgb(").rstrip(")").split(", ")[:3])
        assert (max(red, green, blue) < DARK_MAX) == (scheme == "dark"), colour
        name = page.partition("#")[2] or "home"
        picture(browser, f"site-{name}-{scheme}", tmp_path)
    wrong = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert not wrong
