"""Packets are lost in the directions that are cut, and in no other."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.key_value.namespaces import Namespaces, NoNamespacesError

PORT = 9999


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    try:
        found = Namespaces(3)
    except NoNamespacesError as error:
        pytest.skip(f"no network namespaces: {error}")
    yield found
    found.close()


def test_only_the_cut_directions_lose_packets(namespaces: Namespaces) -> None:
    with contextlib.ExitStack() as stack:
        sockets = {}
        for node in namespaces.nodes:
            with namespaces.inside(node):
                opened = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            opened.bind((namespaces.host(node), PORT))
            opened.settimeout(2.0)
            sockets[node] = opened

        def arrive() -> set[tuple[int, int]]:
            """Send from each to each; the pairs whose packet arrived."""
            pairs = [(a, b) for a in sockets for b in sockets if a != b]
            for sender, receiver in pairs:
                sockets[sender].sendto(b"%d" % sender, (namespaces.host(receiver), PORT))
            found = set()
            for receiver, opened in sockets.items():
                opened.settimeout(0.5)
                with contextlib.suppress(TimeoutError):
                    while True:
                        found.add((int(opened.recv(10)), receiver))
            return found

        every = {(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)}
        assert arrive() == every
        namespaces.lose([(1, 2), (3, 1)])
        assert arrive() == every - {(1, 2), (3, 1)}
        namespaces.heal()
        assert arrive() == every


def test_they_are_gone_when_closed(namespaces: Namespaces) -> None:
    namespaces.close()
    with pytest.raises(FileNotFoundError), namespaces.inside(1):
        pass


def test_without_the_command_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoNamespacesError, match="iproute2"):
        Namespaces(3)
