"""One line of the report of `quorate takeover check`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class CheckState(StrEnum):
    """OK and NOTE allow the takeover; a NOTE says what changes with it."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TakeoverCheck:
    """The result of one check."""

    check: str
    """What was looked at."""
    state: CheckState
    text: str
    """What was found."""
    todo: str = ""
    """What to do about it, "" if nothing."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ok(check: str, text: str) -> TakeoverCheck:
    return TakeoverCheck(check, CheckState.OK, text)


def note(check: str, text: str) -> TakeoverCheck:
    return TakeoverCheck(check, CheckState.NOTE, text)


def failed(check: str, text: str, todo: str) -> TakeoverCheck:
    return TakeoverCheck(check, CheckState.FAILED, text, todo)
