"""The operator's probes, metrics and log, and its lease while it hangs or is uninstalled."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from quorate.telemetry.logs import LogFormat, LogLevel
from quorate_operator import health, main
from quorate_operator.control.loop import Operator
from quorate_operator.health import Heartbeat, listener
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.lease import LeaderLease, LeaseTimes
from quorate_operator.metrics import OperatorMetrics

from tests.unit.operator.fake_api import RefusedError, Store, created
from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import KEY, Lab, rejecting

LEASE = "/apis/coordination.k8s.io/v1/namespaces/lab/leases/operator"

# --- pages ----------------------------------------------------------------------------------------


async def fetch(port: int, page: str) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=5) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(get)


async def test_a_pod_is_ready_while_the_api_server_answers(api: tuple[Store, Kube]) -> None:
    """Whether or not it is the active one."""
    store, kube = api
    now = 0.0
    active, standby = (LeaderLease(kube, "lab", "operator", n, clock=lambda: now) for n in "ab")
    pages = [listener(each, OperatorMetrics()) for each in (active, standby)]
    try:
        for each in pages:
            await each.start("127.0.0.1", 0)
        assert (await fetch(pages[0].port, "/readyz"))[0] == 503
        for lease in (active, standby):
            await asyncio.to_thread(lease.step)
        found = [await fetch(each.port, "/readyz") for each in pages]
        assert found == [(200, "active\n"), (200, "standby\n")]
        now += 11
        store.fail = 1
        with pytest.raises(KubeError):
            await asyncio.to_thread(standby.step)
        status, text = await fetch(pages[1].port, "/readyz")
        assert status == 503
        assert "the API server does not answer" in text
        assert (await fetch(pages[1].port, "/healthz"))[0] == 200
    finally:
        for each in pages:
            await each.stop()


async def test_the_metrics_have_passes_actions_requests_and_conditions(
    lab: Lab, nodes: FakeNodes
) -> None:
    metrics = OperatorMetrics()
    kube = Kube(lab.kube._api, metrics.requested)
    lab.operator = Operator(kube, lab.lease, ("lab",), metrics=metrics, locate=nodes.locate)
    metrics.watch_lease(lambda: lab.lease.is_held)
    metrics.watch_quorums(lab.operator.reported)
    lab.operator._workers[KEY] = lab.worker
    lab.store.reject = rejecting(("statefulsets/q", 422, "no"))
    lab.patch(image="quorate:2")
    await lab.step()
    nodes.disks[2] = None
    await lab.step()
    page = metrics.render().decode()
    for line in (
        'quorate_operator_actions_total{action="ApplyObjects",result="failed"} 1.0',
        'quorate_operator_actions_total{action="RemoveVoter",result="done"} 1.0',
        'quorate_operator_api_requests_total{code="422",method="PATCH"} 1.0',
        "quorate_operator_holds_lease 1.0",
        'quorate_quorum_condition{condition="Ready",namespace="lab",quorum="q",status="False"} 1.0',
    ):
        assert line in page.splitlines(), page
    assert 'condition="Ready",namespace="lab",quorum="q",status="True"' not in page
    (observed,) = (line for line in page.splitlines() if line.startswith("quorate_quorum_last_"))
    assert abs(float(observed.rpartition(" ")[2]) - time.time()) < 60
    lab.operator._workers.clear()  # the Quorum was deleted
    assert 'quorum="q"' not in metrics.render().decode()


async def test_passes_that_fail_are_counted(lab: Lab) -> None:
    metrics = OperatorMetrics()
    lab.operator = Operator(lab.kube, lab.lease, ("lab",), metrics=metrics)
    await asyncio.to_thread(created, lab.kube)
    lab.store.fail = 1
    task = asyncio.create_task(lab.operator._work(KEY, lab.worker))
    lab.operator._workers[KEY] = lab.worker

    def counted(result: str) -> bool:
        name = f'quorate_operator_passes_total{{result="{result}"}} '
        return name in metrics.render().decode()

    async with asyncio.timeout(20):
        while not (counted("failed") and counted("done")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# --- the lease ------------------------------------------------------------------------------------


def test_a_hung_event_loop_loses_the_lease(api: tuple[Store, Kube]) -> None:
    """Its thread goes on, but does not renew; another operator takes over."""
    store, kube = api
    heartbeat = Heartbeat()
    times = LeaseTimes(duration_s=0.6, renew_deadline_s=0.4, retry_s=0.02)
    hung = LeaderLease(kube, "lab", "operator", "a", times=times, is_alive=heartbeat.is_alive)
    thread = threading.Thread(target=hung.run, daemon=True)
    thread.start()
    assert hung.acquired.wait(10)
    heartbeat._at -= health.HUNG_S
    assert hung.lost.wait(10)
    assert not hung.confirm()
    other = LeaderLease(kube, "lab", "operator", "b", times=times)
    for _ in range(200):
        other.step()
        if other.is_held:
            break
        time.sleep(0.02)
    assert store.objects[LEASE]["spec"]["holderIdentity"] == "b"


async def test_a_loop_that_runs_beats() -> None:
    now = 0.0
    heartbeat = Heartbeat(lambda: now)
    now += health.HUNG_S
    assert not heartbeat.is_alive()
    task = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0)
    assert heartbeat.is_alive()
    task.cancel()


def test_the_lease_is_owned_by_the_pod_of_its_holder(api: tuple[Store, Kube]) -> None:
    """Kubernetes then deletes it with that pod, and no other operator waits for it."""
    store, kube = api
    now = 0.0

    def lease(name: str) -> LeaderLease:
        options = main.parse(["--identity", name, "--pod-uid", f"uid-{name}"])
        owner = main.owner_of_lease(options)
        return LeaderLease(kube, "lab", "operator", name, clock=lambda: now, owner=owner)

    one, two = lease("one"), lease("two")
    one.step()
    found = store.objects[LEASE]["metadata"]["ownerReferences"]
    assert found == [{"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "uid-one"}]
    two.step()
    assert store.objects[LEASE]["metadata"]["ownerReferences"] == found
    now += 16
    two.step()
    assert [each["uid"] for each in store.objects[LEASE]["metadata"]["ownerReferences"]] == [
        "uid-two"
    ]
    store.remove(LEASE)  # the pod is gone
    three = lease("three")
    three.step()
    assert three.confirm()
    two.step()
    assert two.lost.is_set()
    assert main.owner_of_lease(main.parse([])) is None


async def test_an_api_server_that_does_not_answer_ends_an_action_and_not_the_operator(
    lab: Lab, nodes: FakeNodes
) -> None:
    """The lease, which cannot be read before a change, may still be held."""
    leases_fail = True

    def reject(method: str, asked: str, _: object) -> None:
        if leases_fail and method == "GET" and "/leases" in asked:
            raise RefusedError(503, "etcdserver: request timed out")

    lab.store.reject = reject
    lab.patch(image="quorate:2")
    assert "PATCH q" not in await lab.step()
    assert "request timed out" in lab.condition("SpecApplied")[2]
    leases_fail = False
    lab.now += 60
    assert "PATCH q" in await lab.step()


# --- the process ----------------------------------------------------------------------------------


async def test_the_crd_is_applied_once_the_api_server_answers(api: tuple[Store, Kube]) -> None:
    """An operator that starts during an outage waits for its end."""
    store, kube = api
    store.fail = 2
    await main.apply_crd_when_possible(kube)
    assert any(
        path.endswith("customresourcedefinitions/quorums.quorate.dev") for path in store.objects
    )


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    names = ("", "quorate", "quorate_operator")
    levels, handlers = {n: logging.getLogger(n).level for n in names}, root.handlers[:]
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_the_log_has_the_level_and_the_format_of_the_options(
    capsys: pytest.CaptureFixture[str], logging_restored: None
) -> None:
    main.configure_logging(LogLevel.DEBUG, LogFormat.JSON)
    for name in ("quorate_operator.control.loop", "quorate.operator", "urllib3"):
        logging.getLogger(name).debug("of %s", name)
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in capsys.readouterr().err.splitlines()
    ]
    assert [each["message"] for each in lines] == [
        "of quorate_operator.control.loop",
        "of quorate.operator",
    ]
    assert set(lines[0]) == {"time", "level", "logger", "message"}
    main.configure_logging(LogLevel.ERROR, LogFormat.TEXT)
    logging.getLogger("quorate_operator.control.loop").warning("quiet")
    logging.getLogger("quorate_operator.control.loop").error("loud")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("ERROR loud")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("QUORATE_OPERATOR_LOG_LEVEL", "loud"),
        ("QUORATE_OPERATOR_LOG_FORMAT", "xml"),
        ("QUORATE_OPERATOR_HTTP_LISTENER", "9464"),
        ("QUORATE_OPERATOR_HTTP_LISTENER", ":port"),
        ("QUORATE_OPERATOR_HTTP_LISTENER", ":65536"),
    ],
)
def test_an_invalid_option_ends_the_process(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(SystemExit):
        main.parse([])
    assert text in capsys.readouterr().err


def test_the_address_of_the_pages() -> None:
    assert main.parse([]).http_listener is None
    assert main.parse(["--http-listener", ":9464"]).http_listener == ("", 9464)
    assert main.parse(["--http-listener", "[::1]:1"]).http_listener == ("::1", 1)
