"""The console in a real Chromium, over a real quorum: healthy, one voter lost, nobody leading.

Screenshots go to QUORATE_SCREENSHOTS (default: the test's own folder).
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from quorate.cli.local_cluster import LocalCluster

from tests.integration.support import quorate
from tests.processes import free_ports, quorate_process

pytest.importorskip("selenium", reason="needs the extra `console-test`")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

WAIT_S = 90.0
BROKERS = (101, 102, 103)


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (apt-get install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1300"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three controllers, and the brokers that a test asks for."""
    found = LocalCluster(tmp_path / "quorum")
    found.create([1, 2, 3], getattr(request, "param", ()))
    found.start()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def url(cluster: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL that a console prints; its options are a test's parameter."""
    (port,) = free_ports(1)
    arguments = ("--port", port, "--bootstrap-controller", ",".join(cluster.addresses))
    options = getattr(request, "param", ["--allow-changes"])
    log_file = tmp_path / "console.log"
    with quorate_process("console", log_file, "console", *arguments, *options) as console:
        console.start()
        console.wait_said("token=", WAIT_S)
        yield console.said().split()[0]
        # Uvicorn shuts down and then lets the signal end the process.
        assert console.stop() == -signal.SIGTERM


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except Exception:  # the page is being drawn
            pass
        time.sleep(0.2)
    pytest.fail(f"{what}: not within {WAIT_S:.0f} s")


def text(browser: webdriver.Chrome, name: str) -> str:
    return str(browser.find_element(By.CSS_SELECTOR, f'[data-testid="{name}"]').text).lower()


def picture(browser: webdriver.Chrome, name: str, folder: Path) -> None:
    target = Path(os.environ.get("QUORATE_SCREENSHOTS", folder))
    target.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(target / f"console-{name}.png"))


def open_page(browser: webdriver.Chrome, url: str) -> None:
    def answers() -> bool:
        browser.get(url)
        return bool(browser.find_elements(By.CSS_SELECTOR, '[data-testid="health"]'))

    until(answers, "the page")


def buttons(browser: webdriver.Chrome) -> list[WebElement]:
    return browser.find_elements(By.TAG_NAME, "button")


def press(browser: webdriver.Chrome, label: str) -> None:
    """The first button with that label, whatever is drawn anew meanwhile."""
    script = """
        const wanted = arguments[0];
        const found = [...document.querySelectorAll("button")].find(
            (button) => button.innerText.trim().toLowerCase() === wanted);
        if (found) found.click();
        return Boolean(found);
    """
    until(lambda: bool(browser.execute_script(script, label)), f"a button {label}")


def test_the_page_tells_the_quorums_story(
    browser: webdriver.Chrome, cluster: LocalCluster, url: str, tmp_path: Path
) -> None:
    open_page(browser, url)
    until(lambda: text(browser, "health") == "healthy" and text(browser, "voters") == "3", "health")
    time.sleep(5)  # some points for the plots
    picture(browser, "healthy", tmp_path)

    # Leadership moves when a person says so, and only after a confirmation.
    before = text(browser, "leader")
    press(browser, "lead")
    until(lambda: bool(browser.find_elements(By.CSS_SELECTOR, '[data-testid="confirm"]')), "asking")
    time.sleep(1)
    assert text(browser, "leader") == before
    browser.find_element(By.CSS_SELECTOR, '[data-testid="confirm"]').click()
    until(lambda: text(browser, "leader") not in (before, "none"), "another leader")
    until(lambda: "leads epoch" in text(browser, "events"), "the event")

    # One voter is lost: commits go on, and the page says that no other may fail.
    leader = int(text(browser, "leader"))
    lost, other = (node_id for node_id in (1, 2, 3) if node_id != leader)
    cluster.kill(lost)
    # Another voter may lag for a moment after the change of leader.
    until(lambda: f"voter {lost} has not" in text(browser, "verdict"), "the loss")
    assert text(browser, "health") == "at risk"
    picture(browser, "one-lost", tmp_path)

    # Nobody can lead: the page says why.
    cluster.kill(other)
    until(lambda: text(browser, "health") == "no leader", "no leader")
    assert "2 of" in text(browser, "verdict")
    time.sleep(2)
    picture(browser, "no-leader", tmp_path)

    # It recovers by itself.
    cluster.start([lost, other])
    until(lambda: text(browser, "health") == "healthy", "health again")
    until(lambda: "there is no leader" in text(browser, "events"), "the history")


@pytest.mark.parametrize("url", [[]], indirect=True)
def test_without_permission_there_is_nothing_to_press(
    browser: webdriver.Chrome, cluster: LocalCluster, url: str
) -> None:
    assert len(cluster.running) == 3
    open_page(browser, url)
    until(lambda: text(browser, "health") == "healthy", "health")
    assert "token" not in browser.current_url
    assert not buttons(browser)
    assert not [line for line in browser.get_log("browser") if "violates" in line["message"]]


SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport="
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def test_pages_of_other_sites_reach_nothing(url: str) -> None:
    """DNS rebinding sends a foreign Host; a cross-site WebSocket a foreign Origin."""
    place = urlsplit(url).netloc

    def ask(path: str, **headers: str) -> tuple[int, Message]:
        connection = HTTPConnection(place, timeout=10)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers
        finally:
            connection.close()

    until(lambda: ask("/")[0] == 403, "the console")
    status, headers = ask("/?" + urlsplit(url).query)
    assert status == 303
    known = {"Cookie": headers["Set-Cookie"].split(";")[0]}
    assert ask("/", **known)[0] == 200
    for path, more in (("/", {}), (f"{SOCKET}polling", {}), (f"{SOCKET}websocket", UPGRADE)):
        granted = 101 if more else 200
        assert ask(path, Origin=f"http://{place}", **known, **more)[0] == granted
        assert ask(path, Origin=f"http://{place}", **more)[0] == 403
        assert ask(path, Origin="http://attacker.example", **known, **more)[0] == 403
        foreign = {"Host": "attacker.example", "Origin": "http://attacker.example"}
        status, headers = ask(path, **foreign, **known, **more)
        assert status == 403
        if not more:
            assert headers["X-Frame-Options"] == "DENY"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_a_wrong_address_is_refused_in_the_dialog(
    browser: webdriver.Chrome, cluster: LocalCluster, url: str
) -> None:
    assert len(cluster.running) == 3
    open_page(browser, url)
    until(lambda: text(browser, "health") == "healthy", "health")
    press(browser, "add a controller …")
    until(lambda: "add" in [b.text.lower() for b in buttons(browser)], "the dialog")
    time.sleep(0.5)
    press(browser, "add")
    until(lambda: "a number of 0 or more" in browser.page_source, "the reason")


@pytest.mark.parametrize("cluster", [BROKERS], indirect=True)
def test_the_page_shows_brokers_and_their_isrs(
    browser: webdriver.Chrome, cluster: LocalCluster, url: str, tmp_path: Path
) -> None:
    open_page(browser, url)
    until(lambda: text(browser, "brokers") == "3", "three brokers")
    created = quorate(
        *("topics", "create", "--topic", "orders", "--partitions", 6, "--replication-factor", 3),
        *("--bootstrap-controller", ",".join(cluster.addresses)),
    )
    assert created.status == 0, created
    until(lambda: "every replica" in text(browser, "isr"), "all in sync")
    assert text(browser, "partitions") == "6"
    rows = text(browser, "replicas")
    assert rows.count("broker") == 3
    assert "add" not in rows.split(), "a broker must not be made a voter"

    # A broker dies: it is fenced, and what it held is listed by name.
    cluster.kill(BROKERS[0])
    until(lambda: text(browser, "brokers") == "3 (1 fenced)", "the fenced broker")
    until(lambda: text(browser, "not-fully-in-sync") == "6", "the partitions")
    assert "6: under-replicated" in text(browser, "isr")
    assert "orders-5" in text(browser, "unhealthy-partitions")
    assert text(browser, "without-a-leader") == "0"
    picture(browser, "broker-lost", tmp_path)

    cluster.start([BROKERS[0]])
    until(lambda: "every replica" in text(browser, "isr"), "all in sync again")
