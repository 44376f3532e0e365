"""Metadata records as JSON, in the words of Kafka's `kafka-dump-log --cluster-metadata-decoder`.

Rules: fields in the order of the declaration, under Kafka's names; UUIDs as 22 characters, bytes
as padded base64; fields that the version lacks and tagged fields at their defaults are left out,
unknown tagged fields too. `json_text` prints as Jackson does, which differs from Python's json in
floating-point numbers, control characters and text that is not ASCII.

Source: Kafka's generated JsonConverter classes; java.lang.Double.toString.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any

from quorate.records.metadata.schema import FieldSpec, Kind, Structure

Json = dict[str, Any]
_ToJson = Callable[[Any], Any]

_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


def structure_json(cls: type[Structure], version: int) -> Callable[[Any], Json]:
    """What turns an object of `cls` into its JSON form at that version."""
    fields = [
        (
            spec.json_name,
            attrgetter(spec.name),
            _never if spec.tag is None else spec.is_default,
            _field_json(spec, version),
        )
        for spec in cls.FIELDS
        if spec.exists_in(version)
    ]

    def convert(value: Any) -> Json:
        data: Json = {}
        for name, get, omitted, to_json in fields:
            content = get(value)
            if not omitted(content):
                data[name] = content if to_json is None or content is None else to_json(content)
        return data

    return convert


def _field_json(spec: FieldSpec, version: int) -> _ToJson | None:
    """None when the value is its own JSON form."""
    one: _ToJson | None = None
    if not isinstance(spec.kind, Kind):
        one = structure_json(spec.kind, version)
    elif spec.kind is Kind.BYTES:
        one = _base64
    if not spec.is_array:
        return one
    if one is None:
        return list
    each = one
    return lambda values: [each(value) for value in values]


def _never(_: Any) -> bool:
    return False


def _base64(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def json_text(document: Any) -> str:
    """Compact JSON exactly as Kafka's tools print it."""
    if isinstance(document, str):
        return _string(document)
    if isinstance(document, bool):
        return "true" if document else "false"
    if isinstance(document, int):
        return str(int(document))
    if isinstance(document, float):
        return _number(document)
    if isinstance(document, dict):
        pairs = [f"{_string(key)}:{json_text(value)}" for key, value in document.items()]
        return "{" + ",".join(pairs) + "}"
    if document is None:
        return "null"
    return "[" + ",".join([json_text(value) for value in document]) + "]"


def _string(value: str) -> str:
    """Python's form, unless a control character may be in it: their digits differ."""
    text = encode_basestring(value)
    return text if "\\u00" not in text else '"' + value.translate(_ESCAPES) + '"'


def _number(value: float) -> str:
    """As Double.toString: at least one digit on both sides of the point, an exponent outside
    10^-3 to 10^7. What is not a number is a string in JSON.
    """
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # noqa: PLC0415 - 0.3 MB that a controller does not need

    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    exponent += len(text) - 1
    fraction = text[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{text[0]}.{fraction}E{exponent}"
