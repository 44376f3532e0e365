"""All mutants: each removes or weakens one guard of the protocol, or one with its second line."""

from __future__ import annotations

from tests.simulation.mutants.elections import ELECTIONS
from tests.simulation.mutants.membership import MEMBERSHIP, SNAPSHOTS
from tests.simulation.mutants.replication import READS, REPLICATION

MUTANTS = ELECTIONS + REPLICATION + READS + MEMBERSHIP + SNAPSHOTS
