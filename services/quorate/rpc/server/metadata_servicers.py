"""Serves the calls of Metadata and BrokerLifecycle, all in the same way.

The steps and rules of `servicers` apply. If a request is about topics or resources, the authorizer
authorizes each part separately, once the request was read.

Source: proto/quorate/v1/metadata.proto, lifecycle.proto.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from quorate.rpc.server.authorizer import Context, Denial, answer_authorized
from quorate.rpc.server.handler import CallHandler, MetadataHandler
from quorate.rpc.server.intake import read_request, write_answer
from quorate.rpc.server.servicers import Behavior, HandlerRef, failure
from quorate.rpc.wire.codec import NO_LEADER, Codec
from quorate.rpc.wire.convert_metadata import METADATA_CODECS, MetadataAnswer, refusal


def metadata_behaviors(handler_ref: HandlerRef) -> dict[str, Behavior]:
    """The behaviors by method name; each takes the bytes of a request."""
    return {codec.method.name: _serve(handler_ref, codec) for codec in METADATA_CODECS.values()}


def _serve(handler_ref: HandlerRef, codec: Codec) -> Behavior:
    async def serve(data: bytes, context: Context) -> Message:
        handler = await handler_ref.metadata(codec.method, context, data)
        answer = await _answer(handler_ref, codec, handler, data, context)
        handler_ref.request_throttle.charge(context, answer.ByteSize(), asked_bytes=len(data))
        await handler_ref.keep(context, answer)
        return answer

    return serve


async def _answer(
    handler_ref: HandlerRef,
    codec: Codec,
    handler: MetadataHandler | CallHandler,
    data: bytes,
    context: Context,
) -> Message:
    try:
        answer = await _handled(handler_ref, codec, handler, data, context)
        return await write_answer(codec.encode_response, answer, _parts(answer.response))
    except DecodeError:
        raise
    except Exception as error:
        code, text = failure(codec.method, context, error)
    return codec.encode_response(refusal(code, text))


def _parts(response: Any) -> int:
    """The number of topics, resources, … in a response."""
    names = getattr(response, "__dataclass_fields__", ())
    found = (getattr(response, name) for name in names)
    return sum(len(each) for each in found if isinstance(each, tuple))


async def _handled(
    handler_ref: HandlerRef,
    codec: Codec,
    handler: MetadataHandler | CallHandler,
    data: bytes,
    context: Context,
) -> MetadataAnswer:
    request_context = handler_ref.request_context(context)
    if request_context is None:
        request, timeout_ms = await read_request(codec.method, data, codec.decode_request)
        return await handler.metadata(request, timeout_ms)
    authorized: Any = request_context.refusal(codec.method.name)
    timeout_ms = 0
    if not isinstance(authorized, Denial):
        request, timeout_ms = await read_request(codec.method, data, codec.decode_request)
        authorized = request_context.authorize(codec.method.name, request)
    return await answer_authorized(
        authorized, NO_LEADER, partial(handler.metadata, timeout_ms=timeout_ms)
    )
