"""The network between real controllers: TCP proxies before each, and faults on each direction.

A controller has a proxy for each of its listeners. It listens at its own port and advertises the
port of the proxy, so all that other controllers send to it passes here, and faults of a path hit
the connections to both listeners. The proxy finds out which process opened a connection (by the
socket's inode below /proc), and thus knows both ends. A path is one direction between two ends: of
a connection that 1 opened to 2, requests travel on the path 1>2 and answers on 2>1, and a
connection that 2 opened to 1 shares both. Bytes on a path are

- delayed, slowed down, or stalled as TCP stalls when a segment is lost,
- held, and delivered when the path heals: a partition that TCP outlives,
- or dropped for good with everything that follows on the connection (half-open).

Connections can also be reset. While a listener is closed, so is its proxy, so that
whoever dials it is refused as without a proxy. Clients are the end `OUTSIDE`: they go through a
proxy where they use the advertised address, and around it where they use the listener's.

Random choices come from the seed, the two ends, and the connection's number between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.support import HOST

T = TypeVar("T")

OUTSIDE = 0
"""The end of connections that no controller opened."""

CHUNK_BYTES = 64 * 1024
CHUNKS_UNDER_WAY_MAX = 64
RETRANSMISSION_S = 0.2
RETRANSMISSION_MAX_S = 3.2
"""How long a lost segment stalls a connection: it doubles each time the segment is lost again."""

ENDING_S = 0.005
RETURN_POLL_S = 0.02

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Impairment:
    """What happens to bytes on a path.

    delay_s, jitter_s: how long each chunk takes, and how much longer at most. loss: the probability
    that a chunk is lost and sent again. bytes_per_s: the bandwidth of the path, 0 for no limit.
    is_held: nothing arrives until the path heals.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: int = 0
    is_held: bool = False


SOUND = Impairment()
HELD = Impairment(is_held=True)


class _Path:
    """One direction between two ends."""

    def __init__(self) -> None:
        self.impairment = SOUND
        self._changed = asyncio.Event()
        self._free_at_s = 0.0
        self.seen: Counter[str] = Counter()

    def change(self, impairment: Impairment) -> None:
        self.impairment = impairment
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def carry(self, sent_s: float, size: int, choices: random.Random) -> None:
        """Return when a chunk that was sent at `sent_s` has arrived."""
        loop = asyncio.get_running_loop()
        await self.opened()
        impairment = self.impairment
        due_s = sent_s + impairment.delay_s + choices.random() * impairment.jitter_s
        if due_s > sent_s:
            self.seen["delayed"] += 1
        stall_s = RETRANSMISSION_S
        while choices.random() < impairment.loss:
            due_s = max(due_s, loop.time()) + stall_s
            stall_s = min(2 * stall_s, RETRANSMISSION_MAX_S)
            self.seen["lost"] += 1
        if impairment.bytes_per_s:
            self._free_at_s = max(self._free_at_s, due_s) + size / impairment.bytes_per_s
            due_s = self._free_at_s
            self.seen["slowed"] += 1
        changed = self._changed
        if due_s > loop.time():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), due_s - loop.time())
        await self.opened()

    async def opened(self) -> None:
        """Return when the path is not held."""
        if self.impairment.is_held:
            self.seen["held"] += 1
        while self.impairment.is_held:
            await self._changed.wait()


async def _nothing() -> None:
    pass


class _Connection:
    """A connection that a process opened, and the proxy's own to the controller."""

    def __init__(
        self, source: int, target: int, forth: _Path, back: _Path, choices: random.Random
    ) -> None:
        self.source = source
        self.target = target
        self.is_lost = False
        self._forth = forth
        self._back = back
        self._choices = choices
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        port: int,
        on_end: Callable[[], Awaitable[None]],
    ) -> None:
        """Carry bytes both ways until an end closes the connection.

        on_end: called when the controller closed it, before the other end learns that.
        """
        self._writers.append(writer)
        try:
            for path in (self._forth, self._back):
                await path.opened()
            there, further = await asyncio.open_connection(HOST, port)
        except OSError:
            await on_end()
            self.abort()
            return
        self._writers.append(further)
        try:
            await asyncio.gather(
                self._pump(reader, further, self._forth, _nothing),
                self._pump(there, writer, self._back, on_end),
            )
        finally:
            self.abort()

    def abort(self) -> None:
        """Reset both ends."""
        for writer in self._writers:
            opened = writer.get_extra_info("socket")
            if opened is not None and not writer.transport.is_closing():
                with contextlib.suppress(OSError):
                    linger = struct.pack("ii", 1, 0)
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        path: _Path,
        on_end: Callable[[], Awaitable[None]],
    ) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_UNDER_WAY_MAX)
        delivery = asyncio.create_task(self._deliver(chunks, writer, path))
        loop = asyncio.get_running_loop()
        try:
            chunk = b"first"
            while chunk:
                try:
                    chunk = await reader.read(CHUNK_BYTES)
                except OSError:
                    chunk = b""
                if not chunk:
                    await on_end()
                await chunks.put((loop.time(), chunk))
            await delivery
        finally:
            delivery.cancel()

    async def _deliver(
        self, chunks: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, path: _Path
    ) -> None:
        """Write the chunks as they arrive; an empty one is the end of the connection."""
        while True:
            sent_s, chunk = await chunks.get()
            await path.carry(sent_s, len(chunk), self._choices)
            if not chunk:
                if not self.is_lost:
                    writer.close()
                return
            if self.is_lost or writer.transport.is_closing():
                continue
            with contextlib.suppress(OSError):
                writer.write(chunk)
                await writer.drain()


@dataclass(slots=True)
class _Proxy:
    """The proxy of one listener of a node. port: where the node listens. advertised: where the
    proxy does. is_absent: whether it does not, because the node does not.
    """

    node_id: int
    port: int
    advertised: int = 0
    server: asyncio.Server | None = None
    is_absent: bool = False


class Network:
    """The proxies, in a thread of their own. All methods are for other threads.

    owner: the node whose process has a pid, for the processes that run now.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._paths: dict[Pair, _Path] = {}
        self._proxies: list[_Proxy] = []
        self._connections: set[_Connection] = set()
        self._opened: Counter[Pair] = Counter()
        self._pids: Callable[[], Mapping[int, int]] = dict
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    # --- before and after -------------------------------------------------------------------------

    def add(self, node_id: int, port: int) -> int:
        """Open the proxy of a controller that listens at `port`; the port to advertise."""
        return self._call(self._open(node_id, port))

    def watch(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """Tell whose connections are whose: `pids` gives the nodes that run, id by pid."""
        self._pids = pids

    def close(self) -> None:
        """End all connections and the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- faults -----------------------------------------------------------------------------------

    def between(self, some: Iterable[int], others: Iterable[int] | None = None) -> list[Pair]:
        """The pairs from each of `some` to each of `others`, by default all other controllers."""
        ends = self._nodes if others is None else list(others)
        return [(one, other) for one in some for other in ends if one != other]

    def around(self, *nodes: int, clients: bool = False) -> list[Pair]:
        """All pairs between these controllers and the others, both directions."""
        others = [each for each in self._nodes if each not in nodes]
        if clients:
            others.append(OUTSIDE)
        return self.between(nodes, others) + self.between(others, nodes)

    @property
    def _nodes(self) -> list[int]:
        return list(dict.fromkeys(proxy.node_id for proxy in self._proxies))

    def shape(self, pairs: Iterable[Pair], impairment: Impairment) -> None:
        """Let bytes on these paths travel so, until `heal` or another call."""
        self._call(self._shape(list(pairs), impairment))

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Let nothing arrive on these paths, on open connections and on new ones."""
        self.shape(pairs, HELD)

    def heal(self) -> None:
        """Deliver what is held; all paths are sound again."""
        self._call(self._shape(list(self._paths), SOUND))

    def reset(self, pairs: Iterable[Pair]) -> int:
        """Reset the connections between these ends, whoever opened them; how many there were."""
        return self._call(self._reset(set(pairs)))

    def lose(self, pairs: Iterable[Pair]) -> int:
        """Let nothing arrive any more on the connections that are open between these ends.

        Neither end gets a reset. New connections work. Returns how many there were.
        """
        return self._call(self._lose(set(pairs)))

    def count(self, what: str) -> int:
        """How often it was done: delayed, lost, slowed, held (chunks), reset, half-open
        (connections), connected.
        """
        return self._call(self._count(what))

    # --- in the thread ----------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self, node_id: int, port: int) -> int:
        proxy = _Proxy(node_id, port)
        server = await self._listen(proxy)
        proxy.advertised = int(server.sockets[0].getsockname()[1])
        self._proxies.append(proxy)
        return proxy.advertised

    async def _listen(self, proxy: _Proxy) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._accepted(proxy, reader, writer)
            except asyncio.CancelledError:
                writer.transport.abort()
            finally:
                self._tasks.discard(task)

        proxy.server = await asyncio.start_server(accept, HOST, proxy.advertised)
        return proxy.server

    async def _closed(self, proxy: _Proxy) -> None:
        """A controller closed a connection. If it does not listen, its proxy stops to listen."""
        if proxy.is_absent or await self._listens(proxy):
            return
        if not proxy.is_absent:
            proxy.is_absent = True
            assert proxy.server is not None
            proxy.server.close()
            task = asyncio.create_task(self._return(proxy))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _listens(self, proxy: _Proxy) -> bool:
        # A process that ends may close its connections before the socket that it listens at.
        for _ in range(2):
            if not await self._dial(proxy):
                return False
            await asyncio.sleep(ENDING_S)
        return True

    async def _dial(self, proxy: _Proxy) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, proxy.port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    async def _return(self, proxy: _Proxy) -> None:
        """Listen again when the controller does."""
        is_back = False
        while not is_back:
            await asyncio.sleep(RETURN_POLL_S)
            is_back = await self._dial(proxy)
        proxy.is_absent = False
        await self._listen(proxy)

    async def _accepted(
        self, proxy: _Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        target = proxy.node_id
        source = self._source(writer.get_extra_info("peername")[1], proxy.advertised)
        self._opened[source, target] += 1
        self._counts["connected"] += 1
        choices = random.Random(f"{self._seed} {source}>{target} {self._opened[source, target]}")
        forth, back = self._path((source, target)), self._path((target, source))
        connection = _Connection(source, target, forth, back, choices)
        self._connections.add(connection)
        try:
            ended = partial(self._closed, proxy)
            await connection.serve(reader, writer, proxy.port, ended)
        finally:
            self._connections.discard(connection)

    def _source(self, port: int, to: int) -> int:
        """The node whose process has the socket at a port."""
        inode = socket_inode(port, to)
        if inode is not None:
            for pid, node_id in self._pids().items():
                if has_socket(pid, inode):
                    return node_id
        return OUTSIDE

    def _path(self, pair: Pair) -> _Path:
        return self._paths.setdefault(pair, _Path())

    async def _shape(self, pairs: list[Pair], impairment: Impairment) -> None:
        for pair in pairs:
            self._path(pair).change(impairment)

    async def _reset(self, pairs: set[Pair]) -> int:
        chosen = self._chosen(pairs)
        for connection in chosen:
            connection.abort()
        self._counts["reset"] += len(chosen)
        return len(chosen)

    async def _lose(self, pairs: set[Pair]) -> int:
        chosen = self._chosen(pairs)
        for connection in chosen:
            connection.is_lost = True
        self._counts["half-open"] += len(chosen)
        return len(chosen)

    def _chosen(self, pairs: set[Pair]) -> list[_Connection]:
        return [
            each
            for each in self._connections
            if {(each.source, each.target), (each.target, each.source)} & pairs
        ]

    async def _count(self, what: str) -> int:
        return self._counts[what] + sum(path.seen[what] for path in self._paths.values())

    async def _close(self) -> None:
        for proxy in self._proxies:
            if proxy.server is not None:
                proxy.server.close()
        for connection in list(self._connections):
            connection.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def socket_inode(port: int, to: int) -> str | None:
    """The inode of the socket on this machine that is connected from one port to another."""
    for table in ("tcp", "tcp6"):
        with Path(f"/proc/net/{table}").open() as lines:
            next(lines)
            for line in lines:
                fields = line.split()
                ends = [int(each.rpartition(":")[2], 16) for each in fields[1:3]]
                if ends == [port, to]:
                    return fields[9]
    return None


def has_socket(pid: int, inode: str) -> bool:
    """Whether a process has the socket open; False where the process is gone."""
    folder = Path(f"/proc/{pid}/fd")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(entry.path) == f"socket:[{inode}]":  # noqa: PTH115
                    return True
    return False
