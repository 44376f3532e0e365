"""Messages that mirror values field by field: the conversion follows from the two declarations.

A value's class (a frozen dataclass) and its message have the same fields by name; what differs in
kind follows these rules, checked when the pair is made, so that a pair that does not fit fails at
import and never at run time:

    value                      message
    int, bool, float, str      the same scalar
    bytes                      bytes
    str                        bytes: a UUID as 22 characters; empty is ZERO_UUID, or None
    an IntEnum                 an integer or an enum, by number
    a StrEnum                  a string
    a dataclass                a message that mirrors it
    tuple[X, ...]              repeated X; within another, a message whose only field is `values`
    tuple[X, Y]                a message whose fields are X and Y in the order of their numbers
    Mapping[str, X]            map<string, X>
    X | None                   optional X, a message, or a message whose only field is `values`

Rules for what arrives: a number that is no member of its enum, a UUID that has not 16 bytes, a
missing message that the value cannot do without raise `ViolationError`, whose text names the field.
An `ErrorCode` that is not ours is UNKNOWN_SERVER_ERROR. Ranges and meanings are checked by who
handles the value.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quorate.raft.errors import ErrorCode, MisuseError, ViolationError
from quorate.raft.types import ZERO_UUID
from quorate.records.primitives import UUID_BYTES, uuid_from_bytes, uuid_to_bytes
from quorate.rpc.fields import error_from_wire

V = TypeVar("V")
M = TypeVar("M", bound=Message)

Convert = Callable[[Any], Any]
LIST_FIELD = "values"
"""The only field of a message that stands for a nullable list."""


class _Both(NamedTuple):
    """One field's conversions; None where the value is the message's own."""

    encode: Convert | None
    decode: Convert | None


class Mirror(Generic[V, M]):
    """The conversions between values of one class and their messages.

    others: classes that have conversions of their own, (encode, decode).
    """

    def __init__(
        self,
        value_type: type[V],
        message_type: type[M],
        others: Mapping[type, tuple[Convert, Convert]] | None = None,
    ) -> None:
        self.value_type = value_type
        self.message_type = message_type
        self._fields = _fields(value_type, message_type, others or {})

    def encode(self, value: V) -> M:
        """The message. MisuseError for a value that has no form on the wire."""
        message = self.message_type()
        for field in self._fields:
            try:
                field.put(message, getattr(value, field.name))
            except (TypeError, ValueError) as error:
                where = f"{self.value_type.__name__}.{field.name}"
                raise MisuseError(f"{where}: {error}") from None
        return message

    def decode(self, message: M) -> V:
        """The value. ViolationError for a message that has none."""
        found: dict[str, Any] = {}
        for field in self._fields:
            try:
                found[field.name] = field.take(message)
            except ValueError as error:
                where = f"{message.DESCRIPTOR.name}.{field.name}"
                raise ViolationError(f"{where}: {error}") from None
        return self.value_type(**found)


class _Field(NamedTuple):
    name: str
    put: Callable[[Any, Any], None]
    take: Convert


def _fields(
    value_type: type, message_type: type[Message], others: Mapping[type, tuple[Convert, Convert]]
) -> tuple[_Field, ...]:
    hints = get_type_hints(value_type)
    names = [field.name for field in dataclasses.fields(value_type)]
    known: Any = message_type.DESCRIPTOR.fields_by_name
    unknown = [name for name in names if name not in known]
    assert not unknown, f"{message_type.DESCRIPTOR.name} has no {', '.join(unknown)}"
    return tuple(_field(hints[name], known[name], others) for name in names)


def _field(hint: Any, descriptor: Any, others: Mapping[type, tuple[Convert, Convert]]) -> _Field:
    name = descriptor.name
    hint, nullable = _without_none(hint)
    if get_origin(hint) in (Mapping, dict) or _origin_is_mapping(hint):
        return _map_field(name, hint, descriptor, others)
    if _is_list(hint):
        if nullable:
            return _nullable_list_field(name, hint, descriptor, others)
        return _list_field(name, hint, descriptor, others)
    both = _convert(hint, descriptor, others)
    encode, decode = both.encode or _same, both.decode or _same
    if descriptor.message_type is not None:
        return _message_field(name, encode, decode, nullable)
    if nullable and descriptor.type == FieldDescriptor.TYPE_BYTES and hint is str:
        return _uuid_or_none_field(name)
    if nullable:
        assert descriptor.has_presence, f"{descriptor.full_name} must be optional"
        return _optional_field(name, encode, decode)
    return _plain_field(name, encode, decode)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    left = [each for each in get_args(hint) if each is not types.NoneType]
    assert len(left) == 1, f"a union of {len(left)} kinds has no form on the wire: {hint}"
    return left[0], True


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis


def _origin_is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _same(value: Any) -> Any:
    return value


# --- fields ---------------------------------------------------------------------------------------


def _plain_field(name: str, encode: Convert, decode: Convert) -> _Field:
    def put(message: Any, value: Any) -> None:
        setattr(message, name, encode(value))

    return _Field(name, put, lambda message: decode(getattr(message, name)))


def _optional_field(name: str, encode: Convert, decode: Convert) -> _Field:
    def put(message: Any, value: Any) -> None:
        if value is not None:
            setattr(message, name, encode(value))

    def take(message: Any) -> Any:
        return decode(getattr(message, name)) if message.HasField(name) else None

    return _Field(name, put, take)


def _uuid_or_none_field(name: str) -> _Field:
    def put(message: Any, value: Any) -> None:
        if value is not None:
            setattr(message, name, _uuid_to_wire(value))

    def take(message: Any) -> Any:
        raw = getattr(message, name)
        return _uuid_from_wire(raw) if raw else None

    return _Field(name, put, take)


def _message_field(name: str, encode: Convert, decode: Convert, nullable: bool) -> _Field:
    def put(message: Any, value: Any) -> None:
        if value is not None:
            getattr(message, name).CopyFrom(encode(value))

    def take(message: Any) -> Any:
        if message.HasField(name):
            return decode(getattr(message, name))
        if nullable:
            return None
        raise ValueError("it is missing")

    return _Field(name, put, take)


def _list_field(name: str, hint: Any, descriptor: Any, others: Mapping[type, Any]) -> _Field:
    assert descriptor.is_repeated, f"{descriptor.full_name} must be repeated"
    encode, decode = _convert(get_args(hint)[0], descriptor, others)

    def put(message: Any, value: Any) -> None:
        getattr(message, name).extend(map(encode, value) if encode is not None else value)

    def take(message: Any) -> Any:
        found = getattr(message, name)
        return tuple(map(decode, found) if decode is not None else found)

    return _Field(name, put, take)


def _nullable_list_field(
    name: str, hint: Any, descriptor: Any, others: Mapping[type, Any]
) -> _Field:
    fields = _message_class(descriptor).DESCRIPTOR.fields_by_name
    assert list(fields) == [LIST_FIELD], (
        f"{descriptor.full_name} must be a message whose only field is `{LIST_FIELD}`"
    )
    inner = _list_field(LIST_FIELD, hint, fields[LIST_FIELD], others)

    def put(message: Any, value: Any) -> None:
        if value is not None:
            getattr(message, name).SetInParent()
            inner.put(getattr(message, name), value)

    def take(message: Any) -> Any:
        return inner.take(getattr(message, name)) if message.HasField(name) else None

    return _Field(name, put, take)


def _map_field(name: str, hint: Any, descriptor: Any, others: Mapping[type, Any]) -> _Field:
    key_type, value_type = get_args(hint)
    assert key_type in (str, int), f"{descriptor.full_name}: a map's keys are strings or integers"
    entry = descriptor.message_type
    assert entry is not None, f"{descriptor.full_name} is no map"
    value_descriptor = entry.fields_by_name["value"]
    is_message = value_descriptor.message_type is not None
    encode, decode = _convert(value_type, value_descriptor, others)

    def put(message: Any, value: Any) -> None:
        target = getattr(message, name)
        for key, each in value.items():
            made = encode(each) if encode is not None else each
            if is_message:
                target[key].CopyFrom(made)
            else:
                target[key] = made

    def take(message: Any) -> Any:
        found = getattr(message, name)
        return {key: decode(each) if decode is not None else each for key, each in found.items()}

    return _Field(name, put, take)


# --- single values --------------------------------------------------------------------------------


def _convert(hint: Any, descriptor: Any, others: Mapping[type, Any]) -> _Both:
    """The conversion of one value that is neither nullable nor a list."""
    if hint in others:
        return _Both(*others[hint])
    if hint is ErrorCode:
        return _Both(int, error_from_wire)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return _Both(int, _member_of(hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _Both(str, _member_of(hint))
    if get_origin(hint) is tuple:
        return _tuple_message(hint, descriptor, others)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        nested = Mirror(hint, _message_class(descriptor), others)
        return _Both(nested.encode, nested.decode)
    if hint is str and descriptor.type == FieldDescriptor.TYPE_BYTES:
        return _Both(_uuid_to_wire, _uuid_from_wire)
    wanted = _SCALARS.get(hint)
    assert wanted is not None, f"{descriptor.full_name}: {hint} has no form on the wire"
    assert descriptor.type in wanted, f"{descriptor.full_name} is no {hint.__name__}"
    return _Both(None, None)


def _message_class(descriptor: Any) -> type[Message]:
    assert descriptor.message_type is not None, f"{descriptor.full_name} must be a message"
    return GetMessageClass(descriptor.message_type)


def _tuple_message(hint: Any, descriptor: Any, others: Mapping[type, Any]) -> _Both:
    """A tuple that is a message: its members are the message's fields, or its only field's."""
    message_class = _message_class(descriptor)
    by_number = sorted(message_class.DESCRIPTOR.fields, key=lambda field: field.number)
    hints = (hint,) if _is_list(hint) else get_args(hint)
    assert len(hints) == len(by_number), f"{descriptor.full_name} has not {len(hints)} fields"
    fields = [_field(each, field, others) for each, field in zip(hints, by_number, strict=True)]
    is_list = _is_list(hint)

    def encode(value: Any) -> Any:
        message = message_class()
        for field, each in zip(fields, (value,) if is_list else value, strict=True):
            field.put(message, each)
        return message

    def decode(message: Any) -> Any:
        return fields[0].take(message) if is_list else tuple(f.take(message) for f in fields)

    return _Both(encode, decode)


_F = FieldDescriptor
_SCALARS: dict[Any, tuple[int, ...]] = {
    bool: (_F.TYPE_BOOL,),
    int: (
        *(_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64),
        *(_F.TYPE_SINT32, _F.TYPE_SINT64, _F.TYPE_ENUM),
    ),
    float: (_F.TYPE_DOUBLE,),
    str: (_F.TYPE_STRING,),
    bytes: (_F.TYPE_BYTES,),
}


def _member_of(members: type[Any]) -> Convert:
    known = {member.value: member for member in members}

    def decode(number: Any) -> Any:
        found = known.get(number)
        if found is None:
            raise ValueError(f"{number!r} is none of {', '.join(map(str, known))}")
        return found

    return decode


def _uuid_to_wire(text: str) -> bytes:
    return b"" if text == ZERO_UUID else uuid_to_bytes(text)


def _uuid_from_wire(raw: bytes) -> str:
    if not raw:
        return ZERO_UUID
    if len(raw) != UUID_BYTES:
        raise ValueError(f"a UUID has {UUID_BYTES} bytes, not {len(raw)}")
    return uuid_from_bytes(raw)
