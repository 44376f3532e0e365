"""`quorate recover epochs`: what is chosen, what is refused, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from quorate.log.metadata_log import partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.raft.types import ElectionState, ReplicaKey
from quorate.recovery.epochs import EPOCH_SANE_MAX, EpochReset, plan_epochs, reset_epochs
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import examine

from tests.unit.recovery.test_recovery import IDS, bytes_of, replica

LAST = 2**31 - 1
VALUES = ((1, 3), (5, 4))


def voters(
    folder: Path,
    epochs: Sequence[int],
    values: Sequence[tuple[int, int]] = VALUES,
    **options: int,
) -> list[Path]:
    """The directories of voters 1, 2, 3 with these epochs in quorum-state."""
    return [
        replica(
            folder,
            node_id,
            values,
            election=ElectionState(epoch, None, ReplicaKey(3, IDS[3])),
            **options,
        )
        for node_id, epoch in enumerate(epochs, 1)
    ]


def plan(directories: Sequence[Path], *ids: int) -> EpochReset:
    return plan_epochs([examine(directory) for directory in directories], ids)


@pytest.mark.parametrize(
    ("epochs", "chosen"),
    [
        ((LAST, LAST, LAST), 6),
        ((LAST + 1, LAST, 5), 6),
        ((LAST - 1, 57, 5), 58),
        ((5, EPOCH_SANE_MAX + 1, LAST), 6),
        ((2**40, 6, 6), 7),
    ],
)
def test_one_epoch_above_all_logs_and_votes(
    tmp_path: Path, epochs: tuple[int, ...], chosen: int
) -> None:
    directories = voters(tmp_path, epochs)
    before = [bytes_of(directory) for directory in directories]
    assert plan(directories).epoch == chosen
    assert [bytes_of(directory) for directory in directories] == before, "a plan changes nothing"
    done = reset_epochs(directories)
    assert done.epoch == chosen
    for directory, old, backup in zip(directories, before, done.backups, strict=True):
        state = QuorumStateFile(partition_directory(directory)).read()
        assert state == ElectionState(chosen, None, None)
        name = "__cluster_metadata-0/quorum-state"
        assert (backup / name).read_bytes() == old[name]
        assert {n: data for n, data in bytes_of(directory).items() if n.endswith(".log")} == {
            n: data for n, data in old.items() if n.endswith(".log")
        }
    with pytest.raises(RecoveryError, match="there is nothing to repair"):
        plan(directories)


def test_a_reset_that_was_cut_short_is_repeated(tmp_path: Path) -> None:
    directories = voters(tmp_path, (LAST, LAST, LAST))
    QuorumStateFile(partition_directory(directories[0])).write(ElectionState(6, None, None), 1)
    assert reset_epochs(directories).epoch == 7


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("missing", "sane", "log", "damaged", "static")]
    for folder in folders:
        folder.mkdir()
    missing = voters(folders[0], (LAST, LAST, LAST))
    sane = voters(folders[1], (5, 900, EPOCH_SANE_MAX))
    in_log = voters(folders[2], (LAST, LAST, LAST), ((1, 1), (LAST - 2, 1)))
    damaged = voters(folders[3], (LAST, LAST, LAST))
    (partition_directory(damaged[2]) / "quorum-state").write_text("{")
    static = voters(folders[4], (LAST, LAST, LAST), kraft_version=0)
    for directories, ids, reason in (
        (missing[:2], (), f"voters 3-{IDS[3]} are missing"),
        (sane, (), "there is nothing to repair"),
        (in_log, (), "itself contains epoch 2147483645"),
        (damaged, (), "is damaged, so its epochs are not known"),
        (static, (), "give the ids in controller.quorum.voters with --voters"),
        (static, (1, 2, 3, 4), "voters 4 are missing"),
        ([missing[0], missing[0], *missing[1:]], (), "are the same replica"),
    ):
        before = [bytes_of(directory) for directory in directories]
        with pytest.raises(RecoveryError, match=reason):
            reset_epochs(directories, ids)
        assert [bytes_of(directory) for directory in directories] == before
    assert reset_epochs(static, (1, 2, 3)).epoch == 6
