"""How a metadata record is declared: a class whose annotations are Kafka's types.

    @record(api_key=3, versions=(0, 2))
    class PartitionRecord(MetadataRecord):
        partition_id: Int32 = -1                                    # in every version
        replicas: tuple[Int32, ...] = ()
        directories: tuple[Uuid, ...] = wire(default=(), since=1)   # from version 1 on
        last_known_elr: tuple[Int32, ...] | None = wire(default=None, since=2, tag=2)

Rules: fields stand in Kafka's order, which is the order on the wire and in JSON; each has Kafka's
default; `| None` makes a field nullable in all of its versions; a field with a tag is a tagged
field in all of its versions; every version is flexible (KIP-482). Kafka's name of a field is ours
in camel case, and a record's type name is its class's in upper snake case.

Records are values (`common.value`), `version` aside.

Source: KIP-631 (metadata records), KIP-482 (flexible versions), Kafka's message format README.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from quorate.common.features import VersionRange
from quorate.common.value import value


class Kind(StrEnum):
    """Kafka's primitive types, as far as metadata records use them."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    STRING = "string"
    BYTES = "bytes"
    UUID = "uuid"


Bool = Annotated[bool, Kind.BOOL]
Int8 = Annotated[int, Kind.INT8]
Int16 = Annotated[int, Kind.INT16]
Uint16 = Annotated[int, Kind.UINT16]
Int32 = Annotated[int, Kind.INT32]
Int64 = Annotated[int, Kind.INT64]
Float64 = Annotated[float, Kind.FLOAT64]
String = Annotated[str, Kind.STRING]
"""At most 32,767 bytes of UTF-8, as Kafka has it."""
Bytes = Annotated[bytes, Kind.BYTES]
Uuid = Annotated[str, Kind.UUID]
"""22 characters of unpadded url-safe base64; `raft.types.ZERO_UUID` stands for none."""

UnknownTags = tuple[tuple[int, bytes], ...]
"""Tagged fields of a later release, by rising tag; they survive decoding and encoding."""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """One declared field. `kind` is a structure's class for nested structures."""

    name: str
    kind: Kind | type[Structure]
    is_array: bool
    nullable: bool
    default: Any
    since: int
    tag: int | None

    @property
    def json_name(self) -> str:
        head, *rest = self.name.split("_")
        return head + "".join(word.capitalize() for word in rest)

    def exists_in(self, version: int) -> bool:
        return version >= self.since

    def is_default(self, value: Any) -> bool:
        # Callers may hand in a list where a tuple is declared.
        if self.is_array and self.default == () and value is not None:
            return len(value) == 0
        return bool(value == self.default)


def wire(
    *,
    default: Any,
    since: int = 0,
    tag: int | None = None,
    kw_only: bool = False,
    compare: bool = True,
    repr: bool = True,  # noqa: A002 (the name that dataclasses use)
) -> Any:
    """A field that begins at version `since`, tagged if `tag` is given."""
    return dataclasses.field(
        default=default,
        kw_only=kw_only,
        compare=compare,
        repr=repr,
        metadata={"since": since, "tag": tag},
    )


@dataclass_transform(frozen_default=True, field_specifiers=(wire,))
def structure(cls: type[S]) -> type[S]:
    """Declare a nested structure; its fields have the versions of the record around it."""
    made = value(cls)
    hints = get_type_hints(made, include_extras=True)
    made.FIELDS = tuple(
        _field_spec(field, hints[field.name])
        for field in dataclasses.fields(made)
        if field.name not in _OWN_FIELDS
    )
    return made


@dataclass_transform(frozen_default=True, field_specifiers=(wire,))
def record(*, api_key: int, versions: tuple[int, int]) -> Callable[[type[R]], type[R]]:
    """Declare a metadata record with its api key and its first and last version."""

    def declare(cls: type[R]) -> type[R]:
        made = structure(cls)
        made.API_KEY = api_key
        made.VERSIONS = VersionRange(*versions)
        made.TYPE = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
        return made

    return declare


class _Declared:
    """What every declared class has besides its fields."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[FieldSpec, ...]] = ()
    if TYPE_CHECKING:
        # Makes dataclasses.replace and dataclasses.fields known to type checkers.
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


# `structure` itself cannot declare the bases: it looks for fields that they do not have.
@dataclass_transform(frozen_default=True, field_specifiers=(wire,))
def _base(cls: type[S]) -> type[S]:
    return value(cls)


@_base
class Structure(_Declared):
    """The base of records and of the structures within them."""

    unknown_tags: UnknownTags = wire(default=(), kw_only=True, repr=False)


@_base
class MetadataRecord(Structure):
    """The base of records. `version` is the one it was decoded from, None for a new record."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[VersionRange]
    TYPE: ClassVar[str]

    version: int | None = wire(default=None, kw_only=True, compare=False, repr=False)


S = TypeVar("S", bound=_Declared)
R = TypeVar("R", bound=MetadataRecord)

_OWN_FIELDS = frozenset({"unknown_tags", "version"})


def _field_spec(field: dataclasses.Field[Any], hint: Any) -> FieldSpec:
    nullable = False
    if get_origin(hint) in (Union, types.UnionType):
        inner = [argument for argument in get_args(hint) if argument is not types.NoneType]
        nullable = len(inner) < len(get_args(hint))
        (hint,) = inner
    is_array = get_origin(hint) is tuple
    if is_array:
        hint = get_args(hint)[0]
    kind = get_args(hint)[1] if get_origin(hint) is Annotated else hint
    assert isinstance(kind, Kind) or issubclass(kind, Structure), f"{field.name}: {hint}"
    return FieldSpec(
        field.name,
        kind,
        is_array,
        nullable,
        field.default,
        field.metadata.get("since", 0),
        field.metadata.get("tag"),
    )
