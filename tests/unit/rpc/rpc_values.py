"""Values of the protocol, for hypothesis."""

from __future__ import annotations

import base64
import string

from hypothesis import strategies as st
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.raft import messages as m
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet

INT32 = 2**31 - 1
INT64 = 2**63 - 1
UINT32 = 2**32 - 1

ids = st.integers(0, INT32)
epochs = st.integers(0, INT32)
offsets = st.integers(0, INT64)
known_or_not = st.integers(-1, INT64)
times_ms = st.integers(0, UINT32)
timeouts_ms = st.integers(1, 60_000)
texts = st.text(max_size=30)
names = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20)
directories = st.none() | (
    st.binary(min_size=16, max_size=16)
    .filter(any)
    .map(lambda raw: base64.urlsafe_b64encode(raw)[:22].decode())
)
keys = st.builds(ReplicaKey, ids, directories)
endpoint_lists = st.lists(
    st.builds(Endpoint, names, names, st.integers(1, 65_535)), max_size=3
).map(tuple)
ranges = st.tuples(st.integers(0, 32_767), st.integers(0, 32_767)).map(
    lambda pair: VersionRange(min(pair), max(pair))
)
voters = st.builds(Voter, keys, endpoint_lists, ranges)
voter_lists = st.lists(voters, max_size=4, unique_by=lambda voter: voter.id).map(tuple)
voter_sets = voter_lists.map(VoterSet)
positions = st.builds(OffsetAndEpoch, offsets, epochs)
leaders = st.builds(m.CurrentLeader, epochs, st.none() | ids, endpoint_lists)
errors = st.sampled_from(list(ErrorCode))
statuses = st.lists(
    st.builds(m.ReplicaStatus, keys, known_or_not, known_or_not, known_or_not, endpoint_lists),
    max_size=3,
).map(tuple)
