"""Recipes on a client: a key-value store, a counter, a lock with fencing tokens, an election.

They append on conditions, so the quorum must have application.version 1
(`Client.finalize_application_version`), and they are linearizable. Each object reads the log from
its beginning at first, then only what is new; compaction keeps that short. Objects with the same
keys may be used in any number of processes. The nodes of the quorum must not have state machines
with snapshots of their own, because these replace the records.
"""

from quorate.recipes.counter import Counter
from quorate.recipes.election import Election, Leadership
from quorate.recipes.key_value import KeyValue
from quorate.recipes.key_view import Entry
from quorate.recipes.lock import Lock, LockLostError

__all__ = ["Counter", "Election", "Entry", "KeyValue", "Leadership", "Lock", "LockLostError"]
