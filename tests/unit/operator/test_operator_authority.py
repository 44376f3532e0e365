"""The authority's replacement, step by step, against the small API server."""

from __future__ import annotations

import datetime as dt

import pytest
from quorate_operator import naming
from quorate_operator.control.act import ActionFailedError, Actor
from quorate_operator.kube.api import Kube
from quorate_operator.objects import authority as a
from quorate_operator.objects import certificates
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.observe import Observer
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_api import Store

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


@pytest.fixture
def quorum(api: tuple[Store, Kube]) -> QuorumResource:
    return asking_for(api[1], 1)


def asking_for(kube: Kube, revision: int) -> QuorumResource:
    """The Quorum, with an authority of that revision wanted and no wait between the steps."""
    tls = {"enabled": True, "authorityRevision": revision, "rotationWaitSeconds": 0}
    spec = {"image": "quorate:1", "replicas": 3, "tls": tls}
    body = {
        "apiVersion": naming.API_VERSION,
        "kind": "Quorum",
        "metadata": {"name": "q"},
        "spec": spec,
    }
    if kube.get("Quorum", "lab", "q") is None:
        kube.create("Quorum", "lab", body, "test")
    return QuorumResource.parse(kube.merge("Quorum", "lab", "q", {"spec": spec}))


async def leads() -> bool:
    return True


class Run:
    """An operator that forgets everything after each action; nobody has pods."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.mutations: list[str] = []

    async def step(self, quorum: QuorumResource) -> p.OperatorPlan:
        seen = await Observer(self.kube).observe(quorum, None)
        planned = p.plan(quorum.desired, seen.observed)
        if planned.action is not None:
            actor = Actor(self.kube, leads, mutated=self.mutations.append)
            await actor.act(planned.action, quorum, seen, None)
        return planned

    async def settle(self, quorum: QuorumResource) -> list[str]:
        """Go on until nothing is left to do; what was applied."""
        done = []
        while (action := (await self.step(quorum)).action) is not None:
            assert len(done) < 20, done
            done += list(action.names) if isinstance(action, p.ApplyObjects) else [str(action)]
        return done

    def secret(self, name: str) -> dict[str, str]:
        return a.secret_files(self.kube.get("Secret", "lab", name))

    @property
    def authority(self) -> a.Authority:
        found = a.authority_of(self.kube.get("Secret", "lab", "q-ca"))
        assert found is not None
        return found


async def test_the_successor_is_trusted_before_it_signs_and_the_predecessor_after(
    api: tuple[Store, Kube], quorum: QuorumResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(api[1])
    await run.settle(quorum)
    first = run.authority
    assert first.phase is a.Phase.STABLE
    wanted = asking_for(api[1], 2)

    await run.step(wanted)
    assert run.authority.phase is a.Phase.PREPARING
    assert run.authority.signer == first.signer
    assert run.authority.revision == 2
    leaf = run.secret("q-node-tls")["node-0.crt"]
    await run.step(wanted)
    nodes = run.secret("q-node-tls")
    assert nodes["ca.crt"].count("BEGIN CERTIFICATE") == 2
    assert nodes["node-0.crt"] == leaf
    assert run.secret("q-client-tls")["ca.crt"] == nodes["ca.crt"]
    # Without a probe nobody knows what nodes trust: nothing goes on.
    assert (await run.step(wanted)).action is None

    # Without a pod there is nobody to ask, so the probe is not used.
    async def has_been_asked(*_: object) -> bool:
        return True

    monkeypatch.setattr(Observer, "_is_authority_due", has_been_asked)
    await run.step(wanted)
    assert run.authority.phase is a.Phase.SWITCHING
    assert run.authority.predecessor == first.signer.certificate
    assert run.authority.signer != first.signer
    await run.step(wanted)
    nodes = run.secret("q-node-tls")
    assert nodes["ca.crt"].count("BEGIN CERTIFICATE") == 2
    assert not certificates.is_due(run.authority.signer, nodes["node-8.crt"])
    await run.step(wanted)
    assert run.authority.phase is a.Phase.STABLE
    leaf = run.secret("q-node-tls")["node-0.crt"]
    monkeypatch.undo()
    assert await run.settle(wanted) == ["Secret/q-node-tls", "Secret/q-client-tls"]
    assert run.secret("q-node-tls")["ca.crt"] == run.authority.signer.certificate
    assert run.secret("q-node-tls")["node-0.crt"] == leaf
    assert len(run.mutations) == len(set(run.mutations)), run.mutations


async def test_of_two_operators_one_takes_a_step(
    api: tuple[Store, Kube], quorum: QuorumResource
) -> None:
    run = Run(api[1])
    await run.settle(quorum)
    wanted = asking_for(api[1], 2)
    seen = await Observer(api[1]).observe(wanted, None)
    action = p.ApplyObjects(("Secret/q-ca",))
    assert seen.observed.stale == action.names
    await Actor(api[1], leads).act(action, wanted, seen, None)
    with pytest.raises(ActionFailedError, match="modified"):
        await Actor(api[1], leads).act(action, wanted, seen, None)


def made(days: int = 3650, **more: object) -> a.Authority:
    signer = certificates.new_authority("q", days=days, now=NOW)
    return a.Authority(signer, since=NOW, **more)  # type: ignore[arg-type]


def is_due(authority: a.Authority, confirmed: set[int], later_s: float, revision: int = 1) -> bool:
    now = NOW + dt.timedelta(seconds=later_s)
    return a.is_step_due(authority, revision, 60, {0, 1, 2}, confirmed, now=now)


def test_it_begins_when_it_is_asked_for_or_two_thirds_are_over() -> None:
    day = 86400
    assert not is_due(made(days=30), set(), 19 * day)
    assert is_due(made(days=30), set(), 21 * day)
    assert is_due(made(), set(), 0, revision=2)


def test_a_step_waits_for_every_pod_and_for_the_clients() -> None:
    preparing = made(successor=certificates.new_authority("q", now=NOW))
    assert not is_due(preparing, {0, 1, 2}, 59)
    assert not is_due(preparing, {0, 2}, 3600)
    assert is_due(preparing, {0, 1, 2}, 60)


def test_a_time_that_nobody_can_read_holds_nothing_up() -> None:
    found = {
        "metadata": {"annotations": {a.SINCE_ANNOTATION: "soon", a.REVISION_ANNOTATION: "x"}},
        "data": {"tls.crt": "eA==", "tls.key": "eA==", "other": "/w=="},
    }
    read = a.authority_of(found)
    assert read is not None
    assert (read.since, read.revision) == (None, 1)
    assert a.authority_of(None) is None
    assert a.authority_of({"metadata": {}, "data": {"tls.crt": "eA=="}}) is None
