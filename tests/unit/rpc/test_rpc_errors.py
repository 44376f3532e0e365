"""The errors of the client, as programs hand them on."""

from __future__ import annotations

import copy
import pickle

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.rpc.errors import (
    AdminError,
    ClientError,
    NoLeaderError,
    OutcomeUnknownError,
    ReadBrokenError,
    UnreachableError,
)


@pytest.mark.parametrize(
    "error",
    [
        AdminError(ErrorCode.REQUEST_TIMED_OUT),
        AdminError(ErrorCode.VOTER_NOT_FOUND, "no such voter"),
        NoLeaderError(500, {"controller-1:9093": "connection refused"}),
        UnreachableError({"controller-1:9093": "connection refused"}),
        OutcomeUnknownError("the client was closed"),
        ReadBrokenError("the batch at offset 1 is corrupt"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_copied_and_passed_to_other_processes(error: ClientError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)
