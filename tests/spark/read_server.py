"""A server that answers Read as a test wants, over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from quorate.rpc.client.batch_reader import READ
from quorate.rpc.wire.values import ReadChunk

Answer = Callable[[bytes, grpc.ServicerContext], Iterator[ReadChunk]]
"""The chunks of the response to an encoded request. It may abort the stream."""


@contextmanager
def read_server(answer: Answer) -> Iterator[str]:
    """The server's address."""

    def read(request: bytes, context: grpc.ServicerContext) -> Iterator[Any]:
        return map(READ.encode_response, answer(request, context))

    handler = grpc.unary_stream_rpc_method_handler(
        read, response_serializer=lambda message: message.SerializeToString()
    )
    service, _, name = READ.method.path.strip("/").partition("/")
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {name: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
