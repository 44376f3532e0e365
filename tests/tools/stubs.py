"""gRPC stubs made from the proto alone: a client that shares nothing with the product's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from quorate.v1 import quorum_pb2, raft_pb2


def quorum_stub(channel: Any) -> Any:
    """The methods of quorate.v1.Quorum at a channel of grpc or grpc.aio, as attributes."""
    return _stub(channel, quorum_pb2.DESCRIPTOR.services_by_name["Quorum"])


def raft_stub(channel: Any) -> Any:
    """The methods of quorate.v1.Raft, likewise."""
    return _stub(channel, raft_pb2.DESCRIPTOR.services_by_name["Raft"])


def _stub(channel: Any, service: Any) -> SimpleNamespace:
    methods = {}
    for method in service.methods:
        sent = "stream" if method.client_streaming else "unary"
        received = "stream" if method.server_streaming else "unary"
        methods[method.name] = getattr(channel, f"{sent}_{received}")(
            f"/{service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
    return SimpleNamespace(**methods)
