"""A network of three hosts on this machine, whose packets can be lost: network namespaces of Linux.

Each node has a namespace with one interface, on a bridge in a namespace of its own, so nothing of
this touches the machine's network. A direction between two nodes is cut by a wrong, permanent entry
in the sender's neighbour table: its packets leave and reach nobody, as with a broken switch. Needs
root (CAP_SYS_ADMIN) and `ip` of iproute2, and no firewall.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

CLONE_NEWNET = 0x40000000
NOBODY = "02:00:00:00:00:ff"
LIBC = ctypes.CDLL(None, use_errno=True)


class NoNamespacesError(Exception):
    """Why there can be no namespaces here."""


def ip(*arguments: object) -> None:
    """Run `ip`. NoNamespacesError if it fails."""
    try:
        done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)
    except FileNotFoundError:
        raise NoNamespacesError("there is no `ip` command: install iproute2") from None
    if done.returncode:
        raise NoNamespacesError(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")


def _enter(file: int) -> None:
    if LIBC.setns(file, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Namespaces:
    """The namespaces of nodes 1 to `count`. Raises NoNamespacesError."""

    def __init__(self, count: int) -> None:
        self.nodes = range(1, count + 1)
        self._hub = f"kv{os.getpid()}-hub"
        try:
            self._build()
        except NoNamespacesError:
            self.close()
            raise

    def _build(self) -> None:
        ip("netns", "add", self._hub)
        ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._hub, "link", "set", "bridge", "up")
        for node in self.nodes:
            name = self.name(node)
            ip("netns", "add", name)
            ip("-n", self._hub, "link", "add", f"port{node}", "type", "veth",
               "peer", "name", "eth0", "address", self._mac(node), "netns", name)  # fmt: skip
            ip("-n", self._hub, "link", "set", f"port{node}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"{self.host(node)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
        self.heal()

    def close(self) -> None:
        """Remove them; the processes in them must have ended."""
        for name in (*map(self.name, self.nodes), self._hub):
            with contextlib.suppress(NoNamespacesError):
                ip("netns", "delete", name)

    def name(self, node: int) -> str:
        return f"kv{os.getpid()}-{node}"

    def host(self, node: int) -> str:
        return f"10.77.0.{node}"

    def _mac(self, node: int) -> str:
        return f"02:00:00:00:00:{node:02x}"

    def lose(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Lose all packets from one node to another, for each pair (sender, receiver)."""
        for sender, receiver in pairs:
            self._neighbour(sender, receiver, NOBODY)

    def heal(self) -> None:
        """Lose nothing."""
        for sender in self.nodes:
            for receiver in self.nodes:
                if sender != receiver:
                    self._neighbour(sender, receiver, self._mac(receiver))

    def _neighbour(self, sender: int, receiver: int, mac: str) -> None:
        ip("-n", self.name(sender), "neighbour", "replace", self.host(receiver),
           "lladdr", mac, "dev", "eth0", "nud", "permanent")  # fmt: skip

    @contextlib.contextmanager
    def inside(self, node: int) -> Iterator[None]:
        """Sockets that this thread makes meanwhile belong to the node's namespace."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        other = os.open(Path("/run/netns") / self.name(node), os.O_RDONLY)
        try:
            _enter(other)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(own)
            os.close(other)
