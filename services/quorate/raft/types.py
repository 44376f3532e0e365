"""The values that the protocol speaks of: replica keys, endpoints, voter sets, offsets.

A directory id is a UUID in Kafka's text form: 22 characters of unpadded url-safe base64 (KIP-858).
`None` stands for "unknown", which is written as sixteen zero bytes on disk and on the wire.

Source: KIP-853, "Replica directory ID", "Set of voters", VotersRecord, QuorumStateData.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.common.identifiers import DirectoryId
from quorate.common.value import ordered_value, value


@ordered_value
class ReplicaKey:
    """A replica: its id and the directory it runs on. A replaced disk makes another replica.

    Example:
        await client.transfer_leadership(quorate.ReplicaKey(1))
    """

    id: int
    directory_id: DirectoryId | None = None

    def __hash__(self) -> int:
        # Progress and parked fetches are looked up by it at every Fetch; few share an id.
        return self.id

    def __str__(self) -> str:
        return f"{self.id}-{self.directory_id}" if self.directory_id else str(self.id)


SUPPORTED_KRAFT_VERSION = VersionRange(0, 1)
"""What this implementation supports: 0 is KIP-595 with static voters, 1 is KIP-853."""


@ordered_value
class Voter:
    """One member of a voter set. `endpoints` keeps the order of `controller.listener.names`: the
    first is dialled.
    """

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version: VersionRange = SUPPORTED_KRAFT_VERSION

    @property
    def id(self) -> int:
        return self.key.id


def same_replica(known: ReplicaKey, claimed: ReplicaKey) -> bool:
    """Whether `claimed` is `known`: a known directory id must match, an unknown one matches any.

    An unknown directory id exists only in voter sets at kraft.version 0, where ids alone name
    voters (KIP-595).
    """
    return known.id == claimed.id and (
        known.directory_id is None or known.directory_id == claimed.directory_id
    )


@value
class VoterSet:
    """An immutable set of voters with unique ids, ordered by id."""

    voters: tuple[Voter, ...] = ()
    majority: int = field(init=False, repr=False, compare=False, hash=False)
    """How many voters are a majority."""
    _by_id: dict[int, Voter] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.voters, key=lambda voter: voter.id))
        by_id = {voter.id: voter for voter in ordered}
        if len(by_id) != len(ordered):
            raise ValueError(f"a voter id appears twice in {[str(v.key) for v in ordered]}")
        object.__setattr__(self, "voters", ordered)
        object.__setattr__(self, "_by_id", by_id)
        object.__setattr__(self, "majority", len(ordered) // 2 + 1)

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls(tuple(voters))

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __str__(self) -> str:
        return "{" + ", ".join(str(voter.key) for voter in self.voters) + "}"

    def get(self, voter_id: int) -> Voter | None:
        """The voter with this id, whatever its directory."""
        return self._by_id.get(voter_id)

    def find(self, key: ReplicaKey) -> Voter | None:
        """The voter that is this replica (see `same_replica`)."""
        voter = self._by_id.get(key.id)
        if voter is None or not (voter.key is key or same_replica(voter.key, key)):
            return None
        return voter

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, ReplicaKey):
            return False
        voter = self._by_id.get(key.id)
        return voter is not None and (voter.key is key or same_replica(voter.key, key))

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and key in self

    def adding(self, voter: Voter) -> VoterSet:
        """With one more voter; its id must be new."""
        return VoterSet((*self.voters, voter))

    def removing(self, key: ReplicaKey) -> VoterSet:
        """Without that replica, which must be a member."""
        assert key in self, f"{key} is not in {self}"
        return VoterSet(tuple(voter for voter in self.voters if voter.id != key.id))

    def updating(self, voter: Voter) -> VoterSet:
        """With the voter of the same id replaced."""
        assert voter.id in self._by_id, f"{voter.key} is not in {self}"
        return VoterSet(tuple(voter if v.id == voter.id else v for v in self.voters))

    def has_overlapping_majority(self, other: VoterSet) -> bool:
        """Whether every majority of one meets every majority of the other.

        True when they differ by at most one voter: the invariant of KIP-853's "Voter changes".
        """
        mine = {voter.key for voter in self.voters}
        theirs = {voter.key for voter in other.voters}
        if {v.id for v in self} == {v.id for v in other} and len(mine ^ theirs) > 0:
            # Directory ids become known at the upgrade to kraft.version 1; the replicas stay the
            # same.
            return all(same_replica(v.key, other._by_id[v.id].key) for v in self) or all(
                same_replica(v.key, self._by_id[v.id].key) for v in other
            )
        return len(mine - theirs) + len(theirs - mine) <= 1


@ordered_value
class OffsetAndEpoch:
    """An end offset (exclusive) and the epoch of the record before it. Names snapshots and
    divergences.
    """

    offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""`0…0-0…0.checkpoint`, which `storage format` writes; it is never replicated."""


@value
class RequiredEnd:
    """The log end that a replica must reach again because it may have lost acknowledged records."""

    end: OffsetAndEpoch
    """Logs compare by last epoch, then by end offset, as in Vote (KIP-595). Until its own log
    reaches this end, the replica grants votes only to logs that do, and wins an election only with
    the votes of all voters.
    """
    may_stand: bool = True
    """False if what was lost may hold a voter set. The replica then does not know all voters, so it
    does not stand at all.
    """


@value
class ElectionState:
    """What `quorum-state` holds (KIP-853, QuorumStateData): durable before any answer that depends
    on it.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None
