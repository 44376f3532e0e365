"""The limits of the machine itself: the floors to which figures are compared."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop

from quorate.rpc.client.channels import EOF

MESSAGE_BYTES = 1024 * 1024
SYNC_BYTES = 16 * MESSAGE_BYTES
WARM_UP = 200
COPY = "/floor/Copy"
ECHO = "/floor/Echo"


def sync_latencies(folder: Path, count: int = 2000) -> list[float]:
    """Return sorted latencies, seconds, of 256-byte appends with fdatasync."""
    latencies = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(count):
            started = time.perf_counter()
            os.write(file.fileno(), b"x" * 256)
            os.fdatasync(file.fileno())
            latencies.append(time.perf_counter() - started)
    return sorted(latencies)


def one_stream_to_one_disk(folder: Path, size: int) -> float:
    """Return the throughput, bytes/s, of one gRPC stream from another process to one file.

    The stream carries `size` bytes in messages of MESSAGE_BYTES, with an fdatasync every
    SYNC_BYTES. This is the least work of a replica that receives a log.
    """
    with floor_server() as port:
        return uvloop.run(_receive(port, folder, size))


def stream_echoes(count: int = 3000) -> list[float]:
    """Return sorted round-trip times, seconds, of 256-byte messages to another process.

    All messages use one gRPC stream. A commit takes at least two round trips, client to leader and
    leader to follower, and a sync.
    """
    with floor_server() as port:
        return uvloop.run(_echo(port, count))


@contextmanager
def floor_server() -> Iterator[int]:
    """Run a gRPC server with `COPY` and `ECHO` in a separate process, and yield its port."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # or nothing would end `recv` if the process ended
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _serve(connection: Connection) -> None:
    async def copy(request: bytes, _context: object) -> AsyncIterator[bytes]:
        message = b"\x5a" * MESSAGE_BYTES
        for _ in range(int(request) // MESSAGE_BYTES):
            yield message

    async def echo(_requests: object, context: Any) -> None:
        while (message := await context.read()) is not EOF:
            await context.write(message)

    async def serve() -> None:
        server = grpc.aio.server()
        handlers = {
            "Copy": grpc.unary_stream_rpc_method_handler(copy),
            "Echo": grpc.stream_stream_rpc_method_handler(echo),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("floor", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection.send(port)
        await server.wait_for_termination()

    uvloop.run(serve())


async def _echo(port: int, count: int) -> list[float]:
    latencies = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream: Any = channel.stream_stream(ECHO, None, None)  # the type stubs require an iterator
        call = stream()
        for step in range(WARM_UP + count):
            started = time.perf_counter()
            await call.write(b"x" * 256)
            await call.read()
            if step >= WARM_UP:
                latencies.append(time.perf_counter() - started)
        call.cancel()
    return sorted(latencies)


async def _receive(port: int, folder: Path, size: int) -> float:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        started = time.perf_counter()
        received = unsynced = 0
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            async for message in channel.unary_stream(COPY, None, None)(b"%d" % size):
                await asyncio.to_thread(os.write, file.fileno(), message)
                received += len(message)
                unsynced += len(message)
                if unsynced >= SYNC_BYTES:
                    await asyncio.to_thread(os.fdatasync, file.fileno())
                    unsynced = 0
            os.fdatasync(file.fileno())
        assert received == size // MESSAGE_BYTES * MESSAGE_BYTES, received
        return received / (time.perf_counter() - started)
