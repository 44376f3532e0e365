"""Every transcript says what the state machine does; every row of the protocol's table has one.

`pytest tests/scenarios --rewrite` writes what happens now into the transcripts: read the difference
against the rule that the transcript's comments state before you keep it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios import transcript
from tests.scenarios.harness import Harness

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))

ROWS = {
    "identity": ["replace_a_", "fetch_acknowledges_for_this_directory_only"],
    "roles": ["bootstrap_first_leader_writes_its_records", "observer_finds_the_leader_and_follows"],
    "pre-vote": ["pre_vote_"],
    "vote": ["vote_"],
    "restart as ex-leader": ["restart_as_leader_resigns_from_its_epoch"],
    "restart as candidate": ["restart_as_candidate_keeps_its_vote"],
    "timers: election": ["election_"],
    "timers: check-quorum": ["check_quorum_", "snapshot_counts_for_check_quorum"],
    "timers: a single voter is exempt": ["check_quorum_single_voter_is_exempt"],
    "timers: a leader that is no voter": ["check_quorum_counts_a_majority_without_the_leader"],
    "append linger": ["append_group_commit"],
    "high watermark: never decreases": ["high_watermark_never_decreases"],
    "high watermark: this epoch": ["high_watermark_needs_a_record_of_this_epoch"],
    "high watermark: durable": ["high_watermark_counts_only_what_is_durable"],
    "high watermark: carried by Fetch": ["high_watermark_reaches_followers_early"],
    "begin epoch": ["begin_quorum_epoch_"],
    "end epoch": ["end_quorum_epoch_", "shutdown_elects_nobody", "resign_"],
    "voter set": ["truncation_rolls_back_voters", "snapshot_carries_the_voters"],
    "AddVoter": ["add_voter"],
    "AddVoter: every error": ["add_voter_refused", "add_voter_unsupported_at_kraft_version_0"],
    "AddVoter: every wait": ["add_voter_waits_", "add_voter_probe_", "add_voter_times_out_"],
    "AddVoter: answered on append": ["add_voter_acknowledged_on_append"],
    "AddVoter: caught up": ["caught_up_is_known_from_fetches_only"],
    "RemoveVoter": ["remove_voter"],
    "RemoveVoter: the leader itself": ["remove_voter_the_leader_itself"],
    "RemoveVoter: the last voter": ["remove_voter_refused"],
    "RemoveVoter: not yet committed": ["remove_voter_uncommitted_may_still_be_elected"],
    "UpdateVoter": ["update_voter_"],
    "outcome unknown": ["add_voter_outcome_unknown", "add_voter_lost_with_its_leader"],
    "kraft.version 0 to 1": ["kraft_version_upgrade"],
    "bootstrap": ["bootstrap_"],
    "auto join": ["auto_join"],
    "auto join: replaced directory": ["auto_join_after_a_lost_disk"],
    "auto join: an admin's removal": ["auto_join_respects_a_removal"],
    "lost connection: a true hint": [
        "lost_connection_true_hint",
        "lost_connection_refused_fetch",
        "election_rivals_do_not_wait_for_the_dead",
        "pre_vote_asks_again_who_had_not_noticed",
    ],
    "lost connection: a false hint": ["lost_connection_false_hint"],
    "leadership transfer": ["transfer_", "append_refused_when_not_leading"],
    "reads": ["read_index_"],
    "reads: a parked Fetch proves nothing": ["read_index_parked_fetch_proves_nothing"],
    "Fetch": ["fetch_long_poll", "fetch_validation"],
    "divergence": [
        "divergence_truncates_and_continues",
        "divergence_below_high_watermark_is_fatal",
    ],
    "divergence: batches above the epoch": ["append_stops_at_batches_above_the_epoch"],
    "FetchSnapshot": ["snapshot_"],
    "FetchSnapshot: resumable": ["snapshot_fetched_in_ranges_and_resumed"],
    "FetchSnapshot: atomic install": ["snapshot_install_outlives_a_new_epoch"],
    "observers": ["observer_"],
    "errors": ["vote_validation", "fetch_validation", "snapshot_fetch_validation"],
    "where an admin may ask": ["describe_anywhere"],
    "KAFKA-14077": ["vote_disk_replaced_gets_no_vote_in_its_name"],
    "KAFKA-19400": ["add_voter_acknowledged_on_append", "kraft_version_upgrade_waits_"],
    "KAFKA-15489": ["check_quorum_partitioned_leader_resigns"],
    "KAFKA-16144": ["check_quorum_single_voter_is_exempt"],
    "KAFKA-16530": ["high_watermark_never_decreases"],
    "KAFKA-17608": ["remove_voter_the_leader_itself"],
    "KAFKA-19489": ["two_standalone_quorums_do_not_mix"],
    "KAFKA-20661": ["update_voter_unreachable_endpoint_is_refused"],
    "KAFKA-19850": ["auto_join_respects_a_removal"],
    "two voters, one lost its disk": ["two_voters_one_lost_its_disk"],
    "the bug in single-server changes": ["single_server_change_bug"],
}
"""Rows of the table of decisions and of the list of bugs, with the transcripts that show them: a
name, or the beginning of several.
"""

KIP_ROWS = {
    "Upgrading controller listener": ["listener_upgrade"],
}
"""The same for KIP-853, "Reference explanation" and "Public Interfaces": every step and error of
its handling sections.
"""

ALL_ROWS = {**ROWS, **{f"KIP-853 {row}": names for row, names in KIP_ROWS.items()}}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path, rewrite: bool) -> None:
    actual = transcript.render(transcript.run(path, Harness().execute))
    if rewrite:
        path.write_text(actual, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == actual


@pytest.mark.parametrize("row", ALL_ROWS)
def test_every_row_is_shown(row: str) -> None:
    stems = [path.stem for path in FILES]
    for name in ALL_ROWS[row]:
        assert any(stem.startswith(name) for stem in stems), f"no transcript {name}"


def test_every_transcript_belongs_to_a_row() -> None:
    names = tuple({name for row in ALL_ROWS.values() for name in row})
    strays = [path.stem for path in FILES if not path.stem.startswith(names)]
    assert not strays


def test_every_transcript_says_what_it_shows() -> None:
    silent = [path.stem for path in FILES if not path.read_text("utf-8").startswith("# ")]
    assert not silent
