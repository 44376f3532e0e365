"""Requests for every method that a controller serves: wild values, damaged bytes, huge ones.

The methods and their messages come from the descriptors in `quorate.v1`, so that a new one is
attacked without a word here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from types import ModuleType

from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from quorate.v1 import lifecycle_pb2, metadata_pb2, quorum_pb2, raft_pb2

from tests.hostile.inputs import hostile

MODULES: tuple[ModuleType, ...] = (
    *(raft_pb2, quorum_pb2, metadata_pb2, lifecycle_pb2),
    *(health_pb2, reflection_pb2),
)
DEPTH_MAX = 4
NUMBERS = (0, 1, 2, 3, -1, 7, 127, 128, 65_535, 65_536)
TEXTS = (
    "",
    "a",
    "é",
    "x" * 300,
    "\x00",
    "../../etc/passwd",
    "A" * 22,
    "__cluster_metadata",
    "\U0001f980",
)
HUGE_SHARE = 0.0005
HUGE_BYTES = (1 << 20, 9 << 20, 17 << 20)

_LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


@dataclass(frozen=True, slots=True)
class Method:
    """path: as gRPC names it."""

    path: str
    request: Descriptor
    takes_stream: bool
    gives_stream: bool


def methods() -> list[Method]:
    """Every method of the controllers' services."""
    found = []
    for module in MODULES:
        services: Sequence[ServiceDescriptor] = list(module.DESCRIPTOR.services_by_name.values())
        for service in services:
            found += [
                Method(
                    f"/{service.full_name}/{method.name}",
                    method.input_type,
                    method.client_streaming,
                    method.server_streaming,
                )
                for method in service.methods
            ]
    return found


@dataclass(frozen=True, slots=True)
class Known:
    """What an attacker may have learnt: values that are right where they belong."""

    texts: tuple[str, ...] = ()
    data: tuple[bytes, ...] = ()


def requests(random: Random, method: Method, known: Known) -> Iterator[bytes]:
    """Encoded requests, without an end: wild, damaged, noise, now and then a huge one."""
    while True:
        if random.random() < HUGE_SHARE:
            yield b"\x0a" + _varint(size := random.choice(HUGE_BYTES)) + b"x" * size
            continue
        sound = [wild(random, method.request, known).SerializeToString() for _ in range(2)]
        yield sound[0] if random.random() < 0.5 else hostile(random, sound)


def wild(random: Random, descriptor: Descriptor, known: Known, depth: int = 0) -> Message:
    """A message that can be decoded, with values that nobody sane would send."""
    message: Message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if random.random() < 0.25:
            continue
        many = field.is_repeated
        for _ in range(random.choice((0, 1, 1, 2, 5)) if many else 1):
            if field.message_type is not None:
                if depth < DEPTH_MAX:
                    inner = wild(random, field.message_type, known, depth + 1)
                    at = getattr(message, field.name)
                    (at.add() if many else at).CopyFrom(inner)
            elif many:
                getattr(message, field.name).append(_value(random, field, known))
            else:
                setattr(message, field.name, _value(random, field, known))
    return message


def _value(random: Random, field: FieldDescriptor, known: Known) -> object:
    kind = field.cpp_type
    if kind in _LIMITS:
        low, high = _LIMITS[kind]
        drawn = random.choice((*NUMBERS, low, high, high - 1, random.randint(low, high)))
        return min(max(drawn, low), high)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice((0, 1, 2, 99, 1 << 30))
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return random.choice((0.0, -1.0, 1e300, float("nan"), float("inf")))
    if field.type == FieldDescriptor.TYPE_BYTES:
        noise = random.randbytes(random.choice((0, 1, 15, 16, 17, 200)))
        return random.choice((*known.data, noise, bytes(16), b"\xff" * 16))
    return random.choice((*known.texts, *TEXTS))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
