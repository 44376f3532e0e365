"""Faults of the network between controllers, and sometimes between them and the clients, too.

Each must be seen in the proxies' counts: a fault that hit no byte was none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.soak.kinds import Kind, Scene, Victims
from tests.soak.network import OUTSIDE, Impairment, Pair

NETWORK = "network"
LASTS_S = (2.0, 7.0)
CLIENTS_TOO = 0.3
"""The part of the faults that hit what clients send through the proxies, too."""

DELAY_S = (0.005, 0.2)
LOSS = (0.01, 0.15)
BYTES_PER_S = (50_000, 500_000)
FLAP_S = (0.1, 1.2)


def _around(scene: Scene) -> list[Pair]:
    """The paths between the victims and all others, or, with no others, between the victims."""
    network, ids = scene.network, scene.ids
    clients = scene.choices.random() < CLIENTS_TOO
    if len(ids) < len(scene.quorum.nodes):
        return network.around(*ids, clients=clients)
    outside = [OUTSIDE] if clients else []
    return network.between(ids) + network.between(ids, outside) + network.between(outside, ids)


@contextmanager
def _seen(scene: Scene, what: str) -> Iterator[None]:
    """The proxies must have done it meanwhile; all paths are sound afterwards."""
    before = scene.network.count(what)
    try:
        yield
        assert scene.network.count(what) > before, f"no traffic was {what}"
    finally:
        scene.network.heal()


async def _shaped(scene: Scene, what: str, impairment: Impairment) -> None:
    with _seen(scene, what):
        scene.network.shape(_around(scene), impairment)
        await scene.rest(*LASTS_S)


async def delay(scene: Scene) -> None:
    delay_s = scene.choices.uniform(*DELAY_S)
    jitter_s = delay_s * scene.choices.random()
    await _shaped(scene, "delayed", Impairment(delay_s=delay_s, jitter_s=jitter_s))


async def lossy(scene: Scene) -> None:
    await _shaped(scene, "lost", Impairment(delay_s=0.001, loss=scene.choices.uniform(*LOSS)))


async def slow(scene: Scene) -> None:
    bytes_per_s = scene.choices.randint(*BYTES_PER_S)
    await _shaped(scene, "slowed", Impairment(bytes_per_s=bytes_per_s))


async def one_way(scene: Scene) -> None:
    """What the victims send arrives nowhere, or nothing arrives at them; with no others, half of
    them send to the other half in vain.
    """
    pairs = _around(scene)
    sends = scene.choices.random() < 0.5
    senders = set(scene.ids)
    if len(senders) == len(scene.quorum.nodes):
        senders = set(scene.choices.sample(scene.ids, (len(scene.ids) + 1) // 2))
    with _seen(scene, "held"):
        scene.network.cut(pair for pair in pairs if (pair[0] in senders) is sends)
        await scene.rest(*LASTS_S)


async def isolate_leader(scene: Scene) -> None:
    leader, _ = await scene.quorum.leader()
    clients = scene.choices.random() < CLIENTS_TOO
    with _seen(scene, "held"):
        scene.network.cut(scene.network.around(leader.id, clients=clients))
        await scene.rest(*LASTS_S)


async def partition(scene: Scene) -> None:
    """Two sides that do not reach each other."""
    with _seen(scene, "held"):
        scene.network.cut(_around(scene))
        await scene.rest(*LASTS_S)


async def flap(scene: Scene) -> None:
    """A partition that comes and goes."""
    pairs = _around(scene)
    with _seen(scene, "held"):
        for _ in range(scene.choices.randint(3, 8)):
            scene.network.cut(pairs)
            await scene.rest(*FLAP_S)
            scene.network.heal()
            await scene.rest(*FLAP_S)


async def reset(scene: Scene) -> None:
    """Connections are reset, perhaps again and again."""
    pairs = _around(scene)
    with _seen(scene, "reset"):
        for _ in range(scene.choices.randint(1, 6)):
            scene.network.reset(pairs)
            await scene.rest(0.0, 1.0)


async def half_open(scene: Scene) -> None:
    """Open connections deliver nothing any more, and neither end is notified."""
    with _seen(scene, "half-open"):
        scene.network.lose(_around(scene))
        await scene.rest(*LASTS_S)


KINDS = tuple(
    Kind(name, NETWORK, act, victims, ends_process=False)
    for name, act, victims in (
        ("delay", delay, Victims.ANY),
        ("loss", lossy, Victims.ANY),
        ("low bandwidth", slow, Victims.ANY),
        ("one-way partition", one_way, Victims.ANY),
        ("leader isolated", isolate_leader, Victims.ONE),
        ("partition", partition, Victims.ANY),
        ("flapping partition", flap, Victims.ANY),
        ("connections reset", reset, Victims.ANY),
        ("half-open connections", half_open, Victims.ANY),
    )
)
