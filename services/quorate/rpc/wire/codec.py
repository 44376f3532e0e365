"""The codec: converts messages to values and back, field by field.

A value's class (a dataclass) and its message have the same field names, except for those in
`MESSAGE_NAMES`. The conversion is derived from the two declarations. Types are paired by these
rules, which are checked when a codec is built, so that a mismatch fails at import and never at run
time:

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
    X with a default           optional X: absent is the default; False is not written where it is
                               the default
    int, -1 or no default      optional int: -1 is "unknown", which is not written

Rules for received messages: a number that is not a member of its enum, a UUID that does not have 16
bytes, and a missing message that the value requires raise `ViolationError`, whose text names the
field. So does a negative number if the codec's `Rules` forbid it. An unknown `ErrorCode` becomes
UNKNOWN_SERVER_ERROR. `Rules.checks` or the handler of the value check further ranges and meanings.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import UUID_BYTES, ZERO_UUID, uuid_from_bytes, uuid_to_bytes
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.fields import error_from_wire
from quorate.rpc.wire.methods import RpcMethod

V = TypeVar("V")
M = TypeVar("M", bound=Message)

Convert = Callable[[Any], Any]
NO_LEADER = CurrentLeader(0)

LIST_FIELD = "values"
"""The only field of a message that stands for a nullable list."""

MESSAGE_NAMES: Mapping[str, str] = {
    "error": "error_code",
    "message": "error_message",
    "leader": "current_leader",
    "snapshot": "snapshot_id",
    "granted": "vote_granted",
    "last_fetch_ms": "last_fetch_timestamp_ms",
    "last_caught_up_ms": "last_caught_up_timestamp_ms",
    "epoch": "finalized_features_epoch",
}
"""The message's name of a value's field, for messages without a field of the value's name."""
UNSENT = frozenset({"max_bytes", "mutation_quota", "partition_numbers"})
"""Fields of values that are not sent, unless a message has them."""


class TypeConversion(NamedTuple):
    """The conversions of one type; None if the value and the message's field are the same."""

    encode: Convert | None
    decode: Convert | None
    is_list: bool = False
    """Whether the type is a whole repeated field."""
    may_be_absent: bool = False
    """Whether an absent message is read as an empty one."""


@dataclass(frozen=True)
class Rules:
    """The rules of a codec that do not follow from the two declarations."""

    conversions: Mapping[Any, TypeConversion] = field(default_factory=dict)
    """The conversions of types that do not have the default one."""
    checks: Mapping[type, Convert] = field(default_factory=dict)
    """By the class of a value, the function that rejects a decoded value (ValueError or
    ViolationError) or limits it.
    """
    are_numbers_natural: bool = False
    """Whether negative integers are rejected."""


class MessageCodec(Generic[V, M]):
    """The conversions between values of one class and their messages."""

    def __init__(self, value_type: type[V], message_type: type[M], rules: Rules | None = None):
        rules = rules or Rules()
        self.value_type = value_type
        self.message_type = message_type
        self._fields = _fields(value_type, message_type, rules)
        self._check = rules.checks.get(value_type)

    def encode(self, value: V) -> M:
        """Encode a value. MisuseError if it cannot be encoded."""
        message = self.message_type()
        for each in self._fields:
            try:
                each.put(message, getattr(value, each.name))
            except (TypeError, ValueError) as error:
                where = f"{self.value_type.__name__}.{each.name}"
                raise MisuseError(f"{where}: {error}") from None
        return message

    def decode(self, message: M) -> V:
        """Decode a message. ViolationError if it is invalid."""
        found: dict[str, Any] = {}
        for each in self._fields:
            try:
                found[each.name] = each.take(message)
            except ValueError as error:
                where = f"{message.DESCRIPTOR.name}.{each.message_name}"
                raise ViolationError(f"{where}: {error}") from None
        value = self.value_type(**found)
        if self._check is None:
            return value
        try:
            return self._check(value)  # type: ignore[no-any-return]
        except ValueError as error:
            raise ViolationError(f"{message.DESCRIPTOR.name}.{error}") from None


@dataclass(frozen=True, slots=True)
class Codec:
    """The conversions of one method's messages."""

    method: RpcMethod
    encode_request: Callable[..., Message]
    decode_request: Callable[[Any], Any]
    encode_response: Callable[..., Message]
    decode_response: Callable[[Any], Any]
    refuse: Callable[[ErrorCode, str], Any] | None
    """Builds the response to a request that failed; None if responses have no error field."""


class _Field(NamedTuple):
    name: str
    message_name: str
    put: Callable[[Any, Any], None]
    take: Convert


def _fields(value_type: type, message_type: type[Message], rules: Rules) -> tuple[_Field, ...]:
    hints = get_type_hints(value_type)
    known: Any = message_type.DESCRIPTOR.fields_by_name
    made = []
    for each in dataclasses.fields(value_type):
        name = each.name if each.name in known else MESSAGE_NAMES.get(each.name, each.name)
        if name not in known and each.name in UNSENT:
            continue
        assert name in known, f"{message_type.DESCRIPTOR.name} has no {name}"
        put, take = _conversions(hints[each.name], known[name], rules, _absent(each))
        made.append(_Field(each.name, name, put, take))
    return tuple(made)


def _absent(declared: Any) -> Any:
    """The value of an absent optional field."""
    return -1 if declared.default is MISSING else declared.default


_Conversions = tuple[Callable[[Any, Any], None], Convert]


def _conversions(hint: Any, descriptor: Any, rules: Rules, absent: Any = None) -> _Conversions:
    name = descriptor.name
    conversion = rules.conversions.get(hint)
    if conversion is not None and conversion.is_list:
        return _whole_list(name, conversion)
    hint, nullable = (hint, False) if conversion is not None else _without_none(hint)
    if _origin_is_mapping(hint):
        return _map_field(name, hint, descriptor, rules)
    if _is_list(hint) and hint not in rules.conversions:
        if nullable:
            return _nullable_list_field(name, hint, descriptor, rules)
        return _list_field(name, hint, descriptor, rules)
    conversion = _type_conversion(hint, descriptor, rules)
    encode, decode = conversion.encode or _same, conversion.decode or _same
    if descriptor.message_type is not None:
        return _message_field(name, encode, decode, nullable, conversion.may_be_absent)
    if nullable and descriptor.type == FieldDescriptor.TYPE_BYTES and hint is str:
        return _uuid_or_none_field(name)
    if nullable:
        assert descriptor.has_presence, f"{descriptor.full_name} must be optional"
        return _optional_field(name, encode, decode)
    if descriptor.has_presence:
        return _field_with_default(name, encode, decode, absent)
    return _plain_field(name, encode, decode)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    left = [each for each in get_args(hint) if each is not types.NoneType]
    assert len(left) == 1, f"a union of {len(left)} kinds cannot be encoded: {hint}"
    return left[0], True


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis


def _origin_is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _same(value: Any) -> Any:
    return value


# --- fields ---------------------------------------------------------------------------------------


def _plain_field(name: str, encode: Convert, decode: Convert) -> _Conversions:
    def put(message: Any, value: Any) -> None:
        setattr(message, name, encode(value))

    return put, lambda message: decode(getattr(message, name))


def _field_with_default(name: str, encode: Convert, decode: Convert, absent: Any) -> _Conversions:
    """A scalar with presence in the message, whose value is never None."""

    def put(message: Any, value: Any) -> None:
        if value is False and absent is False:
            return
        if absent != -1 or value >= 0:
            setattr(message, name, encode(value))

    def take(message: Any) -> Any:
        return decode(getattr(message, name)) if message.HasField(name) else absent

    return put, take


def _optional_field(name: str, encode: Convert, decode: Convert) -> _Conversions:
    def put(message: Any, value: Any) -> None:
        if value is not None:
            setattr(message, name, encode(value))

    def take(message: Any) -> Any:
        return decode(getattr(message, name)) if message.HasField(name) else None

    return put, take


def _uuid_or_none_field(name: str) -> _Conversions:
    def put(message: Any, value: Any) -> None:
        if value is not None:
            setattr(message, name, _uuid_to_wire(value))

    def take(message: Any) -> Any:
        raw = getattr(message, name)
        found = _uuid_from_wire(raw)
        return None if found == ZERO_UUID else found

    return put, take


def _message_field(
    name: str, encode: Convert, decode: Convert, nullable: bool, may_be_absent: bool
) -> _Conversions:
    def put(message: Any, value: Any) -> None:
        if value is not None:
            getattr(message, name).CopyFrom(encode(value))

    def take(message: Any) -> Any:
        if message.HasField(name) or (may_be_absent and not nullable):
            return decode(getattr(message, name))
        if nullable:
            return None
        raise ValueError("it is missing")

    return put, take


def _whole_list(name: str, conversion: TypeConversion) -> _Conversions:
    encode, decode = conversion.encode or _same, conversion.decode or _same

    def put(message: Any, value: Any) -> None:
        getattr(message, name).extend(encode(value))

    return put, lambda message: decode(getattr(message, name))


def _list_field(name: str, hint: Any, descriptor: Any, rules: Rules) -> _Conversions:
    assert descriptor.is_repeated, f"{descriptor.full_name} must be repeated"
    encode, decode, *_ = _type_conversion(get_args(hint)[0], descriptor, rules)

    def put(message: Any, value: Any) -> None:
        getattr(message, name).extend(map(encode, value) if encode is not None else value)

    def take(message: Any) -> Any:
        found = getattr(message, name)
        return tuple(map(decode, found) if decode is not None else found)

    return put, take


def _nullable_list_field(name: str, hint: Any, descriptor: Any, rules: Rules) -> _Conversions:
    fields = _message_class(descriptor).DESCRIPTOR.fields_by_name
    assert list(fields) == [LIST_FIELD], (
        f"{descriptor.full_name} must be a message whose only field is `{LIST_FIELD}`"
    )
    put_list, take_list = _list_field(LIST_FIELD, hint, fields[LIST_FIELD], rules)

    def put(message: Any, value: Any) -> None:
        if value is not None:
            getattr(message, name).SetInParent()
            put_list(getattr(message, name), value)

    def take(message: Any) -> Any:
        return take_list(getattr(message, name)) if message.HasField(name) else None

    return put, take


def _map_field(name: str, hint: Any, descriptor: Any, rules: Rules) -> _Conversions:
    key_type, value_type = get_args(hint)
    assert key_type in (str, int), f"{descriptor.full_name}: a map's keys are strings or integers"
    entry = descriptor.message_type
    assert entry is not None, f"{descriptor.full_name} is not a map"
    value_descriptor = entry.fields_by_name["value"]
    is_message = value_descriptor.message_type is not None
    encode, decode, *_ = _type_conversion(value_type, value_descriptor, rules)

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

    return put, take


# --- single values --------------------------------------------------------------------------------


def _type_conversion(hint: Any, descriptor: Any, rules: Rules) -> TypeConversion:
    """The conversion of one value that is neither nullable nor a list."""
    conversion = rules.conversions.get(hint)
    if conversion is not None:
        return conversion
    if hint is ErrorCode:
        return TypeConversion(int, error_from_wire)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return TypeConversion(int, _member_of(hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return TypeConversion(str, _member_of(hint))
    if get_origin(hint) is tuple:
        return _tuple_message(hint, descriptor, rules)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        nested = MessageCodec(hint, _message_class(descriptor), rules)
        return TypeConversion(nested.encode, nested.decode)
    if hint is str and descriptor.type == FieldDescriptor.TYPE_BYTES:
        return TypeConversion(_uuid_to_wire, _uuid_from_wire)
    wanted = _SCALARS.get(hint)
    assert wanted is not None, f"{descriptor.full_name}: {hint} cannot be encoded"
    assert descriptor.type in wanted, f"{descriptor.full_name} is no {hint.__name__}"
    return TypeConversion(None, _natural if hint is int and rules.are_numbers_natural else None)


def _natural(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _message_class(descriptor: Any) -> type[Message]:
    assert descriptor.message_type is not None, f"{descriptor.full_name} must be a message"
    return GetMessageClass(descriptor.message_type)


def _tuple_message(hint: Any, descriptor: Any, rules: Rules) -> TypeConversion:
    """A tuple as a message: its members are the message's fields, or those of the only field."""
    message_class = _message_class(descriptor)
    by_number = sorted(message_class.DESCRIPTOR.fields, key=lambda field: field.number)
    hints = (hint,) if _is_list(hint) else get_args(hint)
    assert len(hints) == len(by_number), f"{descriptor.full_name} has not {len(hints)} fields"
    parts = [_conversions(each, of, rules, -1) for each, of in zip(hints, by_number, strict=True)]
    is_list = _is_list(hint)

    def encode(value: Any) -> Any:
        message = message_class()
        for (put, _), each in zip(parts, (value,) if is_list else value, strict=True):
            put(message, each)
        return message

    def decode(message: Any) -> Any:
        found = tuple(take(message) for _, take in parts)
        return found[0] if is_list else found

    return TypeConversion(encode, decode)


_F = FieldDescriptor
_SCALARS: dict[Any, tuple[int, ...]] = {
    bool: (_F.TYPE_BOOL,),
    int: (
        *(_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64),
        *(_F.TYPE_SINT32, _F.TYPE_SINT64, _F.TYPE_FIXED32, _F.TYPE_FIXED64, _F.TYPE_ENUM),
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
            raise ValueError(f"{number!r} is not one of {', '.join(map(str, known))}")
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
