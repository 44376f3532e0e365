"""The console in a real Chromium, over a real quorum: healthy, one voter lost, nobody leading.

Screenshots go to QUORATE_SCREENSHOTS (default: the test's own folder).
"""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from quorate.cli.local.local_cluster import LocalCluster
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.metadata import requests as r
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.metadata_version import SUPPORTED
from quorate.rpc.metadata_client import MetadataClient

from tests.console.chrome import picture
from tests.integration.metadata_support import brokers
from tests.processes import free_ports, quorate_process
from tests.tools.documents import block

pytest.importorskip("selenium", reason="needs the extra `console-test`")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

WAIT_S = 90.0
HOSTILE = "<img src=x onerror=window.owned=1>"
BROKERS = (101, 102, 103)


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
    last = block("docs/console.md", "quorate console").splitlines()[-1]
    _, *documented, _ = shlex.split(last, comments=True)
    arguments = (*documented, ",".join(cluster.addresses), "--port", port)
    options = getattr(request, "param", ["--allow-changes"])
    log_file = tmp_path / "console.log"
    with quorate_process("console", log_file, *arguments, *options) as console:
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
    """The visible text of an element, read in one step: the page may be drawn meanwhile."""
    script = 'return document.querySelector(`[data-testid="${arguments[0]}"]`).innerText'
    return str(browser.execute_script(script, name)).strip().lower()


def follow(browser: webdriver.Chrome, label: str) -> None:
    """Follow a link, whatever is drawn anew meanwhile, and wait for the next page."""
    before = browser.current_url
    script = """
        const found = [...document.querySelectorAll("a")].find((a) => a.innerText === arguments[0]);
        if (found) found.click();
        return Boolean(found);
    """
    until(lambda: bool(browser.execute_script(script, label)), f"a link {label}")
    until(lambda: browser.current_url != before and bool(text(browser, "health")), label)


def words(browser: webdriver.Chrome, name: str) -> str:
    """The text of an element on one line: cells of a table are separated by one space."""
    return " ".join(text(browser, name).split())


def open_page(browser: webdriver.Chrome, url: str) -> None:
    def answers() -> bool:
        browser.get(url)
        return bool(browser.find_elements(By.CSS_SELECTOR, '[data-testid="health"]'))

    until(answers, "the page")


def buttons(browser: webdriver.Chrome) -> list[WebElement]:
    return browser.find_elements(By.TAG_NAME, "button")


def offered(browser: webdriver.Chrome) -> list[str]:
    """The labels of buttons that can be pressed."""
    return [each.text.lower() for each in buttons(browser) if each.is_enabled() and each.text]


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    """Make the browser report that its user prefers light or dark pages."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def brightness(browser: webdriver.Chrome, selector: str, what: str) -> float:
    """The mean of a computed colour's parts, 0 (black) to 255; that of white if transparent."""
    element = browser.find_element(By.CSS_SELECTOR, selector)
    script = "return getComputedStyle(arguments[0])[arguments[1]]"
    colour = str(browser.execute_script(script, element, what))
    parts = [float(part) for part in re.findall(r"[\d.]+", colour)]
    return 255.0 if parts[3:] == [0] else sum(parts[:3]) / 3


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
    picture(browser, "console-healthy", tmp_path)

    # Leadership moves when a person says so, and only after a confirmation.
    before = text(browser, "leader")
    press(browser, "make leader")
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
    picture(browser, "console-one-lost", tmp_path)

    # Nobody can lead: the page says why.
    cluster.kill(other)
    until(lambda: text(browser, "health") == "no leader", "no leader")
    assert "2 of" in text(browser, "verdict")
    # No change is offered, and the page says why. Once there is a leader again, they are back.
    until(lambda: "no leader" in text(browser, "no-changes"), "the reason")
    until(lambda: offered(browser) == [], "no actions")
    time.sleep(2)
    picture(browser, "console-no-leader", tmp_path)

    # It recovers by itself.
    cluster.start([lost, other])
    until(lambda: text(browser, "health") == "healthy", "health again")
    until(lambda: "there is no leader" in text(browser, "events"), "the history")
    until(lambda: "make leader" in offered(browser), "actions again")
    assert text(browser, "no-changes") == ""


@pytest.mark.parametrize("url", [[]], indirect=True)
def test_without_permission_there_is_nothing_to_press(
    browser: webdriver.Chrome, cluster: LocalCluster, url: str
) -> None:
    assert len(cluster.running) == 3
    open_page(browser, url)
    until(lambda: text(browser, "health") == "healthy", "health")
    assert "token" not in browser.current_url
    assert not buttons(browser)

    # The quorum serves no cluster: each table says that it is empty.
    until(lambda: text(browser, "isr").startswith("no broker is registered"), "no cluster")
    assert text(browser, "events")
    check_colours(browser)
    follow(browser, "Topics")
    until(lambda: "there are no topics" in text(browser, "topics"), "no topics")
    follow(browser, "Configs")
    until(lambda: "is set for any broker" in text(browser, "broker-configs"), "no configs")
    until(lambda: "is set for any topic" in text(browser, "topic-configs"), "no configs")
    assert browser.current_url.endswith("/configs?theme=light"), "links keep the choice"
    browser.get(url.partition("?")[0] + "topic?name=" + quote(HOSTILE))
    until(lambda: "there is no topic" in text(browser, "partitions"), "no such topic")
    assert HOSTILE.lower() in text(browser, "topic")
    with brokers(",".join(cluster.addresses), 7):
        asyncio.run(create_many(cluster.addresses))
        check_paging(browser, url)
    check_console(browser)


async def create_many(addresses: Sequence[str]) -> None:
    topics = tuple(r.NewTopic(f"topic-{n:03}", 1, 1) for n in range(120))
    async with MetadataClient(addresses) as client:
        created = await client.ask(r.CreateTopics((*topics, r.NewTopic("wide", 250, 1))))
        assert all(each.error is ErrorCode.NONE for each in created.topics), created


def check_paging(browser: webdriver.Chrome, url: str) -> None:
    """Lists show a part of many rows, say which part, and reach all of the rest."""
    browser.get(url.partition("?")[0] + "topics")
    until(lambda: text(browser, "topics-range") == "1–50 of 121 topics", "the first topics")
    assert words(browser, "topics").count("topic-") == 50
    press(browser, "next")
    press(browser, "next")
    until(lambda: text(browser, "topics-range") == "101–121 of 121 topics", "the last topics")
    assert "wide" in text(browser, "topics")
    fill_in(browser, "topics-filter", "C-01")
    until(lambda: text(browser, "topics-range") == "1–10 of 10 topics", "the topics that match")
    browser.find_element(By.CSS_SELECTOR, '[data-testid="only-problems"]').click()
    until(lambda: "none of the 121 topics has" in text(browser, "topics"), "no problems")
    browser.get(url.partition("?")[0] + "topic?name=wide")
    until(lambda: text(browser, "range").startswith("0–99 of 250 partitions"), "partitions")
    fill_in(browser, "from-partition", "240")
    until(lambda: text(browser, "range").startswith("240–249 of 250"), "the last partitions")
    assert "244 in sync 7 7 7" in words(browser, "partitions")


def fill_in(browser: webdriver.Chrome, name: str, value: str) -> None:
    """Type into the field whose element, or whose parent, has that name."""
    found = browser.find_element(By.CSS_SELECTOR, f'[data-testid="{name}"]')
    if found.tag_name != "input":
        found = found.find_element(By.TAG_NAME, "input")
    found.send_keys(Keys.CONTROL, "a")
    found.send_keys(value)


def check_console(browser: webdriver.Chrome) -> None:
    """Nothing violates the policy, no script failed, and no hostile one ran."""
    assert browser.execute_script("return window.owned") is None
    for line in browser.get_log("browser"):
        for fault in ("violates", "Uncaught", "TypeError", "ReferenceError"):
            assert fault not in line["message"], line


def await_colours(browser: webdriver.Chrome, *, is_dark: bool) -> None:
    """Wait until the page is dark or light, with texts, also those of plots, that contrast."""
    until(lambda: (brightness(browser, "body", "backgroundColor") < 60) == is_dark, "background")
    until(lambda: (brightness(browser, "body", "color") > 128) == is_dark, "text")
    plots = ".nicegui-echart text"
    until(lambda: (brightness(browser, plots, "fill") > 128) == is_dark, "text of plots")


def check_colours(browser: webdriver.Chrome) -> None:
    """The page is light or dark as the browser prefers, unless a link in the header chooses."""
    prefer(browser, "dark")
    await_colours(browser, is_dark=True)
    prefer(browser, "light")
    await_colours(browser, is_dark=False)
    follow(browser, "dark")
    until(lambda: brightness(browser, "body", "backgroundColor") < 60, "dark although light")
    prefer(browser, "dark")
    follow(browser, "light")
    until(lambda: brightness(browser, "body", "backgroundColor") > 200, "light although dark")


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


async def prepare(addresses: Sequence[str]) -> None:
    """Create a topic, and configs: of the topic, and of a broker, one hostile and one secret."""
    ops = (r.ConfigOp("ssl.keystore.location", HOSTILE), r.ConfigOp("ssl.key.password", "sesame"))
    topic = r.NewTopic("orders", 6, 3, configs=(("retention.ms", "3600000"),))
    async with MetadataClient(addresses) as client:
        (created,) = (await client.ask(r.CreateTopics((topic,)))).topics
        assert created.error is ErrorCode.NONE, created
        broker = r.ConfigResource(ConfigResourceType.BROKER, str(BROKERS[1]))
        change = r.IncrementalAlterConfigs((r.ConfigChange(broker, ops),))
        (altered,) = (await client.ask(change)).resources
        assert altered.error is ErrorCode.NONE, altered


async def register_hostile(addresses: Sequence[str]) -> None:
    """Register a broker whose host and rack are markup; it stays fenced."""
    features = tuple(r.BrokerFeature(*each) for each in SUPPORTED.items())
    registration = r.RegisterBroker(
        *(999, random_uuid(), (Endpoint("PLAINTEXT", HOSTILE, 1),)),
        rack=HOSTILE, log_dirs=(random_uuid(),), features=features,
    )  # fmt: skip
    async with MetadataClient(addresses) as client:
        registered = await client.ask(registration)
        assert registered.error is ErrorCode.NONE, registered


@pytest.mark.parametrize("cluster", [BROKERS], indirect=True)
def test_the_page_shows_brokers_and_their_isrs(
    browser: webdriver.Chrome, cluster: LocalCluster, url: str, tmp_path: Path
) -> None:
    open_page(browser, url)
    until(lambda: text(browser, "brokers") == "3", "three brokers")
    # A connection that breaks is made again, and the page goes on.
    browser.execute_script("window.socket.io.engine.close()")
    asyncio.run(prepare(cluster.addresses))
    until(lambda: "every replica" in text(browser, "isr"), "all in sync")
    assert text(browser, "partitions") == "6"
    rows = text(browser, "replicas")
    assert rows.count("broker") == 3
    assert "make voter" not in rows, "a broker must not be made a voter"

    # A broker dies: it is fenced, and what it held is listed by name.
    cluster.kill(BROKERS[0])
    until(lambda: text(browser, "brokers") == "3 (1 fenced)", "the fenced broker")
    until(lambda: text(browser, "not-fully-in-sync") == "6", "the partitions")
    assert "6: under-replicated" in text(browser, "isr")
    assert "orders-5" in text(browser, "unhealthy-partitions")
    assert text(browser, "without-a-leader") == "0"
    picture(browser, "console-broker-lost", tmp_path)

    # The pages of topics and configs show it too.
    asyncio.run(register_hostile(cluster.addresses))
    follow(browser, "Topics")
    until(lambda: re.search(r"orders under-replicated 6 3 6 0", words(browser, "topics")), "topic")
    picture(browser, "console-topics", tmp_path)
    follow(browser, "orders")
    until(lambda: words(browser, "partitions").count("under-replicated") == 6, "its partitions")
    assert "6 under-replicated, 0 without a leader" in text(browser, "topic-note")
    assert "retention.ms 3600000" in words(browser, "topic-configs")
    picture(browser, "console-topic", tmp_path)
    follow(browser, "Configs")
    until(lambda: HOSTILE.lower() in text(browser, "broker-configs"), "the config of a broker")
    assert "ssl.key.password (hidden)" in words(browser, "broker-configs")
    assert "sesame" not in browser.page_source
    assert "orders retention.ms 3600000" in words(browser, "topic-configs")
    picture(browser, "console-configs", tmp_path)
    follow(browser, "Overview")

    cluster.start([BROKERS[0]])
    until(lambda: "every replica" in text(browser, "isr"), "all in sync again")
    until(lambda: "broker 101" in browser.page_source, "the legend")
    assert "controller 101" not in browser.page_source
    assert HOSTILE.lower() in text(browser, "broker-list")
    check_console(browser)
