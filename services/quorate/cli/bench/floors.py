"""What the machine allows by itself: the floors that figures are read against."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import grpc.aio

from quorate.cli.bench.report import percentile

MESSAGE_BYTES = 1024 * 1024
SYNC_BYTES = 16 * MESSAGE_BYTES
_METHOD = "/floor/Copy"


def sync_latencies(folder: Path, count: int = 2000) -> list[float]:
    """Seconds of an append of 256 bytes with fdatasync, in order."""
    latencies = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(count):
            started = time.perf_counter()
            os.write(file.fileno(), b"x" * 256)
            os.fdatasync(file.fileno())
            latencies.append(time.perf_counter() - started)
    return sorted(latencies)


def sync_ms(folder: Path) -> tuple[float, float]:
    """(p50, p99) of an append of 256 bytes with fdatasync, milliseconds."""
    latencies = sync_latencies(folder)
    return percentile(latencies, 0.5) * 1000, percentile(latencies, 0.99) * 1000


def one_stream_to_one_disk(folder: Path, size: int) -> float:
    """Bytes a second of `size` bytes through one gRPC stream from another process to one file.

    That is the least that a replica has to do to receive a log: messages of a megabyte, synced
    every 16.
    """
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    sender = context.Process(target=_send, args=(theirs, size), daemon=True)
    sender.start()
    try:
        port = ours.recv()
        return asyncio.run(_receive(port, folder, size))
    finally:
        sender.kill()
        sender.join()


def _send(connection: Connection, size: int) -> None:
    async def serve() -> None:
        async def copy(request: bytes, _context: object) -> object:  # noqa: ARG001
            message = b"\x5a" * MESSAGE_BYTES
            for _ in range(size // MESSAGE_BYTES):
                yield message

        server = grpc.aio.server()
        handler = grpc.unary_stream_rpc_method_handler(copy)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("floor", {"Copy": handler}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection.send(port)
        await server.wait_for_termination()

    asyncio.run(serve())


async def _receive(port: int, folder: Path, size: int) -> float:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        started = time.perf_counter()
        received = unsynced = 0
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            async for message in channel.unary_stream(_METHOD, None, None)(b""):
                await asyncio.to_thread(os.write, file.fileno(), message)
                received += len(message)
                unsynced += len(message)
                if unsynced >= SYNC_BYTES:
                    await asyncio.to_thread(os.fdatasync, file.fileno())
                    unsynced = 0
            os.fdatasync(file.fileno())
        assert received == size // MESSAGE_BYTES * MESSAGE_BYTES, received
        return received / (time.perf_counter() - started)
