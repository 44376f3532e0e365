"""What the errors of the layers below mean to the person at the command line.

Loaded only after something went wrong, since it looks into every layer.
"""

from __future__ import annotations

from quorate.controller.formatting import FormatError
from quorate.log.errors import LogError
from quorate.process.properties import ConfigError
from quorate.raft.errors import ErrorCode, RaftError
from quorate.raft.roles import CANNOT_COMMIT, STILL_LEADS, ChangeStage
from quorate.records.errors import RecordsError
from quorate.rpc.errors import AdminError, OutcomeUnknownError, RpcError, TransportError

FORESEEN = (ConfigError, FormatError, LogError, RaftError, RecordsError, RpcError)
"""Exceptions whose text is written for the person."""

OUTCOME_UNKNOWN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Answers after which a change may still be committed."""

NOTHING_WRITTEN = (ChangeStage.PROBING, ChangeStage.CATCHING_UP, CANNOT_COMMIT, STILL_LEADS)
"""Texts of a leader after which nothing is in the log. A change that waited for its turn is not
among them: what it waited for may be an earlier attempt.
"""


def explain(error: Exception) -> str | None:
    """One line for the person, or None for an error that nobody foresaw."""
    if isinstance(error, FORESEEN):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror or error}"
    return None


def unknown_outcome(error: Exception) -> bool:
    """Whether a change that ended with `error` may have been done, or may be done yet."""
    if isinstance(error, AdminError):
        is_certain = any(stage in error.message for stage in NOTHING_WRITTEN)
        return error.code in OUTCOME_UNKNOWN and not is_certain
    if isinstance(error, TransportError):
        return not error.nothing_done
    return isinstance(error, OutcomeUnknownError)
