"""Frames over real sockets, with and without uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from quorate.rpc.errors import BadMessageError
from quorate.rpc.framing import frame_stream as module
from quorate.rpc.framing.frame_stream import CHUNK_BYTES, FrameStream, connect

HOST = "127.0.0.1"
SHORT_S = 0.1
LONG_S = 30.0

Test = Callable[[FrameStream, socket.socket], Awaitable[None]]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Run = Callable[[Awaitable[None]], None]


async def paired(test: Test, stream: Callable[[], FrameStream] = FrameStream) -> None:
    """Connect a stream with a plain socket, whose calls are made in a thread."""
    with socket.create_server((HOST, 0)) as listening:
        made = await connect(stream(), *listening.getsockname()[:2])
        peer, _ = listening.accept()
        with peer:
            peer.settimeout(LONG_S)
            await test(made, peer)
            made.abort()
            await made.close()


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


async def sent(peer: socket.socket, data: bytes) -> None:
    await asyncio.to_thread(peer.sendall, data)


@LOOPS
def test_frames_arrive_however_they_are_cut(run: Run) -> None:
    frames = [b"", b"a", bytes(100), bytes(range(256)) * 2048, b"z"]

    async def test(stream: FrameStream, peer: socket.socket) -> None:
        data = b"".join(map(framed, frames))
        for size in (1 << 30, 65_537, 4_099):
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            writing = asyncio.create_task(sent_in_pieces(peer, pieces))
            assert [await stream.frame(LONG_S) for _ in frames] == frames
            await writing
        for byte in framed(b"slow"):
            await sent(peer, bytes([byte]))
        assert await stream.frame(LONG_S) == b"slow"

    async def sent_in_pieces(peer: socket.socket, pieces: list[bytes]) -> None:
        for each in pieces:
            await sent(peer, each)

    run(paired(test))


@LOOPS
def test_a_long_frame_is_handed_over_with_the_buffer_that_holds_nothing_else(run: Run) -> None:
    long, longer = bytes(range(256)) * 2048, b"x" * (1 << 20)

    async def test(stream: FrameStream, peer: socket.socket) -> None:
        await sent(peer, framed(b"short"))
        assert await stream.frame(LONG_S) == b"short"
        alone = asyncio.create_task(sent(peer, framed(long)))
        frame = await stream.frame(LONG_S)
        await alone
        assert isinstance(frame, bytearray)
        assert frame == long
        # Two in one go: the second stays in the buffer.
        both = asyncio.create_task(sent(peer, framed(longer) + framed(long) + framed(b"z")))
        assert await stream.frame(LONG_S) == longer
        assert await stream.frame(LONG_S) == long
        assert await stream.frame(LONG_S) == b"z"
        await both
        assert frame == long

    run(paired(test))


@LOOPS
def test_an_end_between_frames_is_none_and_within_one_an_error(run: Run) -> None:
    async def between(stream: FrameStream, peer: socket.socket) -> None:
        await sent(peer, framed(b"last"))
        peer.shutdown(socket.SHUT_WR)
        await asyncio.sleep(SHORT_S)
        assert await stream.frame(LONG_S) == b"last"
        assert await stream.frame(LONG_S) is None
        await stream.send(b"still answered")
        assert await asyncio.to_thread(peer.recv, 100) == framed(b"still answered")

    def within(part: bytes) -> Test:
        async def test(stream: FrameStream, peer: socket.socket) -> None:
            await sent(peer, part)
            peer.shutdown(socket.SHUT_WR)
            with pytest.raises(BadMessageError, match="ended within a frame"):
                await stream.frame(LONG_S)

        return test

    run(paired(between))
    for part in (b"\0\0", framed(b"whole")[:-1], framed(bytes(3 * CHUNK_BYTES))[:-1]):
        run(paired(within(part)))


@LOOPS
def test_a_reset_is_an_error(run: Run) -> None:
    async def test(stream: FrameStream, peer: socket.socket) -> None:
        reading = asyncio.create_task(stream.frame(LONG_S))
        await asyncio.sleep(0)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        with pytest.raises(ConnectionResetError):
            await reading
        with pytest.raises(ConnectionResetError):
            await stream.frame(LONG_S)
        with pytest.raises(ConnectionResetError):
            await stream.send(b"x")

    run(paired(test))


@LOOPS
def test_each_wait_has_its_own_deadline(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRAME_S", 3 * SHORT_S)

    async def test(stream: FrameStream, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        async def expired_after() -> float:
            began_s = loop.time()
            with pytest.raises(TimeoutError):
                await stream.frame(idle_s)
            return loop.time() - began_s

        # A timer of a wait that has ended does not end the next one, be it shorter or longer.
        for idle_s in (LONG_S, SHORT_S, 4 * SHORT_S, LONG_S):
            await sent(peer, framed(b"x"))
            assert await stream.frame(idle_s) == b"x"
        idle_s = SHORT_S
        assert await expired_after() >= 0.9 * SHORT_S
        idle_s = 5 * SHORT_S
        assert await expired_after() >= 4.5 * SHORT_S
        # The rest of a frame has its limit as a whole, however regularly its bytes arrive.
        idle_s = LONG_S
        await sent(peer, framed(bytes(100))[:5])
        dripping = asyncio.create_task(drip(peer))
        assert 2.7 * SHORT_S <= await expired_after() < LONG_S
        dripping.cancel()

    async def drip(peer: socket.socket) -> None:
        while True:
            await asyncio.sleep(SHORT_S / 2)
            await sent(peer, b"x")

    run(paired(test))


@LOOPS
def test_the_peer_may_not_fill_the_memory_before_it_is_read(run: Run) -> None:
    async def test(stream: FrameStream, peer: socket.socket) -> None:
        frame = framed(bytes(1000))
        peer.settimeout(SHORT_S)

        def fill() -> int:
            count = 0
            try:
                while True:
                    count += peer.send(frame)
            except TimeoutError:
                return count

        count = await asyncio.to_thread(fill)
        # What the kernel holds is not bounded here.
        assert len(stream._received) <= 32 * 1024 + 256 * 1024 < count
        for _ in range(count // len(frame)):
            assert len(await stream.frame(LONG_S) or b"") == 1000

    run(paired(test))


@LOOPS
def test_a_reader_that_waits_gets_no_more_than_fits(run: Run) -> None:
    """Also if the kernel has megabytes by the time the event loop reads."""

    async def test(stream: FrameStream, peer: socket.socket) -> None:
        own = stream.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        reading = asyncio.create_task(stream.frame(LONG_S))
        await asyncio.sleep(0)
        peer.setblocking(False)
        frames = framed(bytes(1000)) * 1000
        for _ in range(100):
            with contextlib.suppress(BlockingIOError):
                peer.send(frames)
        await reading
        assert len(stream._received) <= 32 * 1024 + 256 * 1024

    run(paired(test))


@LOOPS
def test_a_writer_waits_for_a_peer_that_does_not_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = bytes(8 * 1024 * 1024)

    async def slow(stream: FrameStream, peer: socket.socket) -> None:
        sending = asyncio.create_task(stream.send(large))
        await asyncio.sleep(SHORT_S)
        assert not sending.done()
        received = 0
        while received < 4 + len(large):
            received += len(await asyncio.to_thread(peer.recv, 1 << 20))
        await sending

    async def silent(stream: FrameStream, _peer: socket.socket) -> None:
        with pytest.raises(TimeoutError):
            await stream.send(large)

    async def gone(stream: FrameStream, peer: socket.socket) -> None:
        sending = asyncio.create_task(stream.send(large))
        await asyncio.sleep(SHORT_S)
        peer.close()
        with pytest.raises(OSError, match=r"closed|reset|[Bb]roken"):
            await sending

    run(paired(slow))
    run(paired(gone))
    monkeypatch.setattr(module, "FRAME_S", SHORT_S)
    run(paired(silent))


@LOOPS
def test_closing_waits_for_the_peer_but_not_for_ever(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(stream: FrameStream, peer: socket.socket) -> None:
        size = 0
        while not stream.transport.get_write_buffer_size():
            await stream.send(bytes(10_000))
            size += 10_004
        closing = asyncio.create_task(stream.close())
        await asyncio.sleep(SHORT_S)
        assert not closing.done()
        while size:
            size -= len(await asyncio.to_thread(peer.recv, 1 << 20))
        await closing
        assert await asyncio.to_thread(peer.recv, 1) == b""

    async def silent(stream: FrameStream, peer: socket.socket) -> None:
        while not stream.transport.get_write_buffer_size():
            await stream.send(bytes(10_000))
        peer.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(LONG_S):
            await stream.close()
        await asyncio.sleep(SHORT_S)
        assert stream._closed.done()

    run(paired(slow))
    monkeypatch.setattr(module, "FRAME_S", SHORT_S)
    run(paired(silent))


@LOOPS
def test_the_owner_learns_of_the_end_once_also_between_requests(run: Run) -> None:
    lost: list[Exception | None] = []

    async def test(stream: FrameStream, peer: socket.socket) -> None:
        peer.close()
        await stream.close()
        assert lost == [None]
        assert await stream.frame(LONG_S) is None

    run(paired(test, lambda: FrameStream(on_lost=lost.append)))
