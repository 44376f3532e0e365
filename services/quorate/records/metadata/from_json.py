"""Metadata records from the JSON that `as_json` makes of them.

The function for a class is put together from its declaration, as in `decoding`: a ledger holds
millions of records. Fields that the JSON leaves out have their defaults.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from quorate.records.metadata.as_json import Json
from quorate.records.metadata.schema import FieldSpec, Kind, MetadataRecord, Structure


def json_reader(cls: type[Structure]) -> Callable[[Json], Any]:
    """The function that makes an object of `cls` from its JSON. A record has its latest version."""
    names: dict[str, Any] = {"cls": cls, "new": object.__new__, "bytes_of": b64decode}
    lines = ["def read(data):", "    get, made = data.get, new(cls)", "    made.unknown_tags = ()"]
    if issubclass(cls, MetadataRecord):
        lines.append(f"    made.version = {cls.VERSIONS.max}")
    for number, spec in enumerate(cls.FIELDS):
        names[f"default_{number}"] = spec.default
        if not isinstance(spec.kind, Kind):
            names[f"read_{number}"] = json_reader(spec.kind)
        lines.append(f'    value = get("{spec.json_name}", default_{number})')
        lines.append(f"    made.{spec.name} = {_converted(spec, number)}")
    lines.append("    return made")
    exec("\n".join(lines), names)  # noqa: S102 - of names and numbers from the declarations alone
    reader: Callable[[Json], Any] = names["read"]
    return reader


def _converted(spec: FieldSpec, number: int) -> str:
    """The expression for the field's value."""
    one = ""
    if not isinstance(spec.kind, Kind):
        one = f"read_{number}({{}})"
    elif spec.kind is Kind.BYTES:
        one = "bytes_of({})"
    elif spec.kind is Kind.FLOAT64:
        one = "float({})"  # NaN and infinity are texts in JSON
    if spec.is_array:
        whole = f"tuple([{one.format('each')} for each in value])" if one else "tuple(value)"
    else:
        whole = one.format("value") or "value"
        if spec.kind is Kind.BYTES:
            whole = f"value if type(value) is bytes else {whole}"
    return f"None if value is None else {whole}" if spec.nullable and whole != "value" else whole
