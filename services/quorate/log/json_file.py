"""Small JSON files beside the log. What cannot be understood is an error, never a guess."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from quorate.log.errors import LogError

T = TypeVar("T")
Fields = Mapping[str, Any]


def read_json_file(
    path: Path, parse: Callable[[Fields], T], error_type: type[LogError], consequence: str
) -> T | None:
    """Return the file's JSON object, converted by `parse`, or None if there is no file.

    parse: raises ValueError, TypeError or KeyError for invalid fields. Raises `error_type`, whose
    message contains the consequence, if the content cannot be understood.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise error_type(f"{path} cannot be read: {error}") from error
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise TypeError("it is not an object")
        return parse(fields)
    except (ValueError, TypeError, KeyError) as error:
        raise error_type(f"{path} is broken ({error}), {consequence}") from error


def integer_field(fields: Fields, name: str, least: int = 0) -> int:
    """Return an integer field. Raises KeyError if it is missing, ValueError if it is invalid or
    below `least`.
    """
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}")
    return value
