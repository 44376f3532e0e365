"""Hides secrets in printed records and images: SCRAM keys and secret settings.

Source: Kafka's RecordRedactor.
"""

from __future__ import annotations

from typing import Any

from quorate.metadata.describe import is_sensitive
from quorate.records import metadata as rec

HIDDEN = "[hidden]"

_SCRAM = rec.type_name(rec.UserScramCredentialRecord.API_KEY)
_CONFIG = rec.type_name(rec.ConfigRecord.API_KEY)
_SCRAM_FIELDS = ("salt", "storedKey", "serverKey")


def masked(document: dict[str, Any]) -> dict[str, Any]:
    """Return a record's JSON (of `decode_json` or `to_json`) without its secrets."""
    data = document["data"]
    if document["type"] == _SCRAM:
        data = {**data, **dict.fromkeys(_SCRAM_FIELDS, HIDDEN)}
    elif document["type"] == _CONFIG and data["value"] is not None:
        data = {**data, "value": config_value(data["resourceType"], data["name"], data["value"])}
    return {**document, "data": data}


def config_value(resource_type: int, name: str, value: str) -> str:
    """Return the value, or HIDDEN for a password and for an unknown setting (of a plugin)."""
    return HIDDEN if is_sensitive(resource_type, name) else value
