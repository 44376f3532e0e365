"""Explains exceptions of the lower layers to the user of the command line.

Import this module only after an error, because it imports every layer.
"""

from __future__ import annotations

from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import FormatError
from quorate.log.errors import LogError
from quorate.process.properties import ConfigError
from quorate.raft.errors import RaftError
from quorate.raft.roles import CANNOT_COMMIT, STILL_LEADS, ChangeStage
from quorate.records.errors import RecordsError
from quorate.rpc.errors import AdminError, OutcomeUnknownError, RpcError, TransportError

FORESEEN = (ConfigError, FormatError, LogError, RaftError, RecordsError, RpcError)
"""Exceptions whose message is written for the user."""

OUTCOME_UNKNOWN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Error codes after which a change may still be committed."""

NOTHING_WRITTEN = (
    ChangeStage.PROBING.text,
    ChangeStage.CATCHING_UP.text,
    CANNOT_COMMIT,
    STILL_LEADS,
)
"""Texts in a leader's error message that mean that the leader wrote nothing to the log.

The text for a change that waited for another change is not included, because the other change may
be an earlier attempt of the same command.
"""


def explain(error: Exception) -> str | None:
    """Return a one-line message for the user, or None for an unexpected error."""
    if isinstance(error, FORESEEN):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror or error}"
    return None


def unknown_outcome(error: Exception) -> bool:
    """Whether a change that failed with `error` may have taken effect, or may still do so."""
    if isinstance(error, AdminError):
        is_certain = any(text in error.message for text in NOTHING_WRITTEN)
        return error.code in OUTCOME_UNKNOWN and not is_certain
    if isinstance(error, TransportError):
        return not error.nothing_done
    return isinstance(error, OutcomeUnknownError)
