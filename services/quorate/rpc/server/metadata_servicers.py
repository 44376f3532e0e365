"""Serves the calls of Metadata and BrokerLifecycle, all in the same way.

The steps and rules of `servicers` apply. If a request is about topics or resources, the gate
authorizes each part separately, once the request was read.

Source: proto/quorate/v1/metadata.proto, lifecycle.proto.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from quorate.rpc.server.authorizer import Context, Refusal, answer_admitted
from quorate.rpc.server.handler import MetadataHandler
from quorate.rpc.server.intake import read_request, write_answer
from quorate.rpc.server.servicers import Behavior, Slot, failure
from quorate.rpc.wire.codecs import NO_LEADER
from quorate.rpc.wire.convert_metadata import METHODS, MetadataAnswer, Method


def metadata_behaviors(slot: Slot) -> dict[str, Behavior]:
    """The behaviors by method name; each takes the bytes of a request."""
    return {method.name: _serve(slot, method) for method in METHODS.values()}


def _serve(slot: Slot, method: Method) -> Behavior:
    async def serve(data: bytes, context: Context) -> Message:
        handler = await slot.metadata(context, data)
        answer = await _answer(slot, method, handler, data, context)
        slot.turns.charge(context, answer.ByteSize(), asked_bytes=len(data))
        await slot.keep(context, answer)
        return answer

    return serve


async def _answer(
    slot: Slot, method: Method, handler: MetadataHandler, data: bytes, context: Context
) -> Message:
    try:
        answer = await _handled(slot, method, handler, data, context)
        return await write_answer(method.encode_answer, answer, _parts(answer.response))
    except DecodeError:
        raise
    except Exception as error:
        code, text = failure(method.rpc, context, error)
    return method.encode_answer(MetadataAnswer(code, NO_LEADER, message=text))


def _parts(response: Any) -> int:
    """The number of topics, resources, … in a response."""
    names = getattr(response, "__dataclass_fields__", ())
    found = (getattr(response, name) for name in names)
    return sum(len(each) for each in found if isinstance(each, tuple))


async def _handled(
    slot: Slot, method: Method, handler: MetadataHandler, data: bytes, context: Context
) -> MetadataAnswer:
    asker = slot.asker(context)
    if asker is None:
        request, timeout_ms = await read_request(method.rpc, data, method.decode_request)
        return await handler.metadata(request, timeout_ms)
    admitted: Any = asker.refusal(method.name)
    timeout_ms = 0
    if not isinstance(admitted, Refusal):
        request, timeout_ms = await read_request(method.rpc, data, method.decode_request)
        admitted = asker.admit(method.name, request)
    return await answer_admitted(
        admitted, NO_LEADER, partial(handler.metadata, timeout_ms=timeout_ms)
    )
