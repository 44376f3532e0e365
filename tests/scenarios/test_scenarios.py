"""Every transcript says what the state machine does; every row of the protocol's table has one.

Each runs three times: with values as messages, and with the messages of either protocol between
controllers (`protocols`). What Kafka's messages do not carry is listed there and in `kafka`.

`pytest tests/scenarios --rewrite` writes what happens now into the transcripts: read the difference
against the rule that the transcript's comments state before you keep it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios import transcript
from tests.scenarios.harness import Harness
from tests.scenarios.protocols import WIRES, shown

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))
OVER_KAFKA = HERE / "kafka"
"""Transcripts whose outcome over Kafka's protocol is another one, in place of those in `HERE`."""

ROWS = {
    "identity": ["replace_a_", "fetch_acknowledges_for_this_directory_only"],
    "roles": ["bootstrap_first_leader_writes_its_records", "observer_finds_the_leader_and_follows"],
    "pre-vote": ["pre_vote_"],
    "vote": ["vote_"],
    "limits to epochs": ["epoch_limits"],
    "vote: not while the leader lives": ["vote_ignored_"],
    "vote: who is asked and need not elect": ["vote_asked_of_an_observer_"],
    "vote: a voter in a higher epoch": [
        "vote_of_a_higher_epoch_returns",
        "observer_of_a_higher_epoch_returns",
    ],
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
    "high watermark: carried by Fetch": [
        "high_watermark_reaches_followers_early",
        "high_watermark_lingers_for_records",
    ],
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
    "cancelled requests": ["cancel_request"],
    "A replica that may have lost records": ["required_end_", "two_processes_of_one_replica"],
    "A leader that restarts": ["restart_as_leader_tells_the_voters", "end_quorum_epoch_names"],
    "A bootstrap checkpoint": ["snapshot_at_offset_0_is_never_replicated"],
    "outcome unknown": ["add_voter_outcome_unknown", "add_voter_lost_with_its_leader"],
    "kraft.version 0 to 1": ["kraft_version_upgrade"],
    "bootstrap": ["bootstrap_"],
    "auto join": ["auto_join"],
    "auto join: replaced directory": ["auto_join_after_a_lost_disk"],
    "auto join: an admin's removal": ["auto_join_respects_a_removal"],
    "lost connection: a true hint": [
        "lost_connection_true_hint",
        "lost_connection_refused_fetch",
        "lost_connection_turns",
        "election_rivals_do_not_wait_for_the_dead",
        "pre_vote_asks_again_who_had_not_noticed",
    ],
    "lost connection: a false hint": ["lost_connection_false_hint"],
    "a leader that never answers": ["leader_that_never_answers", "leader_at_other_endpoints"],
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
    "readiness in a wedged quorum": ["readiness_of_a_wedged_quorum"],
    "two voters, one lost its disk": ["two_voters_one_lost_its_disk"],
    "the bug in single-server changes": ["single_server_change_bug"],
}
"""Rows of the table of decisions and of the list of bugs, with the transcripts that show them: a
name, or the beginning of several.
"""

KIP_ROWS = {
    "Bootstrapping with one voter": ["bootstrap_single_voter_elects_at_once"],
    "Bootstrapping with multiple voters, First leader": ["bootstrap_first_leader_writes_"],
    "Upgrade KRaft protocol": ["kraft_version_upgrade"],
    "Upgrading controller listener": ["listener_upgrade"],
    "Automatic joining controllers": ["auto_join"],
    "Disk failure recovery": ["replace_a_lost_disk", "auto_join_after_a_lost_disk"],
    "Node failure recovery": ["replace_a_failed_node"],
    "Leader election: nobody checks membership": ["vote_without_membership_check"],
    "Leader election: BeginQuorumEpoch to silent voters": ["begin_quorum_epoch_to_silent_voters"],
    "Endpoint discovery: a voter's": ["update_voter_after_a_changed_endpoint"],
    "Endpoint discovery: the leader's own": [
        "update_voter_of_the_leader_itself",
        "update_voter_of_the_leader_is_tried_again",
    ],
    "Directory id discovery: only where there was none": [
        "update_voter_at_kraft_version_0",
        "update_voter_refused",
    ],
    "High watermark": ["high_watermark_never_decreases"],
    "Snapshots": ["snapshot_carries_the_voters"],
    "Internal listener": ["truncation_rolls_back_voters", "kraft_version_upgrade_rolled_back"],
    "VotersRecord: in force when read": ["add_voter", "remove_voter"],
    "VotersRecord: the leader that goes, until it is committed": [
        "remove_voter_the_leader_itself",
        "remove_voter_leader_of_two",
    ],
    "VotersRecord: the leader that goes, until the epoch advances": [
        "remove_voter_leader_deposed_first"
    ],
    "VotersRecord: who is added may elect": ["add_voter_may_elect"],
    "UpdateFeatures 1: every voter supports it": [
        "kraft_version_upgrade_refused",
        "kraft_version_upgrade_waits_for_every_voter",
    ],
    "UpdateFeatures 3: one batch": ["kraft_version_upgrade", "kraft_version_upgrade_rolled_back"],
    "UpdateFeatures 4: answered when committed": ["kraft_version_upgrade"],
    "UpdateFeatures: INVALID_UPDATE_VERSION for a downgrade": ["kraft_version_upgrade"],
    "UpdateFeatures: NOT_LEADER_OR_FOLLOWER": ["kraft_version_upgrade_refused"],
    "UpdateFeatures: REQUEST_TIMED_OUT": [
        "kraft_version_upgrade_waits_for_every_voter",
        "kraft_version_upgrade_rolled_back",
    ],
    "AddVoter 1: no uncommitted VotersRecord": [
        "add_voter_waits_for_the_earlier_change",
        "add_voter_checked_again_before_the_append",
        "add_voter_order_of_arrival",
    ],
    "AddVoter 2: this epoch's LeaderChange is committed": ["add_voter_waits_for_epoch_commit"],
    "AddVoter 3: ApiVersions to the first listener": [
        "add_voter_first_listener_is_dialled",
        "add_voter_probe_retried_until_timeout",
    ],
    "AddVoter 4: it supports the kraft.version": ["add_voter_refused_by_what_answers"],
    "AddVoter 5: it is caught up": [
        "add_voter_waits_until_caught_up",
        "caught_up_is_known_from_fetches_only",
    ],
    "AddVoter 6: appended": ["add_voter"],
    "AddVoter 7: in force": ["add_voter", "add_voter_new_voter_is_told_who_leads"],
    "AddVoter 8: committed by the new set": ["add_voter", "add_voter_outcome_unknown"],
    "AddVoter 9: answered": ["add_voter", "add_voter_acknowledged_on_append"],
    "AddVoter: NOT_LEADER_OR_FOLLOWER": ["add_voter_refused", "add_voter_lost_with_its_leader"],
    "AddVoter: DUPLICATE_VOTER": ["add_voter_refused", "add_voter_twice_at_once"],
    "AddVoter: UNSUPPORTED_VERSION": ["add_voter_unsupported_at_kraft_version_0"],
    "AddVoter: INVALID_REQUEST": ["add_voter_refused_by_what_answers", "add_voter_refused"],
    "AddVoter: REQUEST_TIMED_OUT": [
        "add_voter_times_out_catching_up",
        "add_voter_probe_retried_until_timeout",
        "add_voter_outcome_unknown",
    ],
    "RemoveVoter 1: no uncommitted VotersRecord": ["remove_voter_waits_for_the_earlier_change"],
    "RemoveVoter 2: this epoch's LeaderChange is committed": [
        "remove_voter_waits_for_epoch_commit"
    ],
    "RemoveVoter 3, 4: appended and in force": ["remove_voter"],
    "RemoveVoter 3, 4: the leader serves and does not count itself": [
        "remove_voter_leader_serves_until_committed",
        "check_quorum_counts_a_majority_without_the_leader",
    ],
    "RemoveVoter 5: committed by the new set": ["remove_voter", "remove_voter_that_is_down"],
    "RemoveVoter 6, 7: answered, then EndQuorumEpoch": ["remove_voter_the_leader_itself"],
    "RemoveVoter: NOT_LEADER_OR_FOLLOWER": ["remove_voter_refused"],
    "RemoveVoter: VOTER_NOT_FOUND": ["remove_voter_refused"],
    "RemoveVoter: UNSUPPORTED_VERSION": ["add_voter_unsupported_at_kraft_version_0"],
    "RemoveVoter: INVALID_REQUEST for the last voter": [
        "remove_voter_refused",
        "remove_voter_forced",
    ],
    "RemoveVoter: REQUEST_TIMED_OUT": [
        "remove_voter_outcome_unknown",
        "remove_voter_waits_for_epoch_commit",
        "remove_voter_that_would_leave_no_majority",
    ],
    "UpdateVoter: sent until acknowledged": ["update_voter_unreachable_endpoint_is_refused"],
    "UpdateVoter 1: no uncommitted change": ["update_voter_waits_its_turn"],
    "UpdateVoter 2: this epoch's LeaderChange is committed": [
        "update_voter_waits_for_epoch_commit"
    ],
    "UpdateVoter 3: it supports the kraft.version": ["update_voter_refused"],
    "UpdateVoter 4: the directory id where there was none": [
        "update_voter_at_kraft_version_0",
        "kraft_version_upgrade",
    ],
    "UpdateVoter 5: appended at kraft.version 1": ["update_voter_after_a_changed_endpoint"],
    "UpdateVoter 6: the new endpoint is dialled": ["listener_upgrade"],
    "UpdateVoter 7, 8: committed and answered": ["update_voter_after_a_changed_endpoint"],
    "UpdateVoter: NOT_LEADER_OR_FOLLOWER": ["update_voter_refused"],
    "UpdateVoter: VOTER_NOT_FOUND": ["update_voter_refused"],
    "UpdateVoter: INVALID_UPDATE": ["update_voter_refused"],
    "UpdateVoter: REQUEST_TIMED_OUT": ["update_voter_times_out"],
    "Vote: from everybody": ["vote_without_membership_check"],
    "Vote: pre-votes fence who was removed": ["remove_voter_that_does_not_know_disturbs_nobody"],
    "Vote: pre-vote rules": ["pre_vote_granted_by_rule"],
    "Vote: the candidate's id and directory are persisted": ["vote_once_in_an_epoch"],
    "Vote: meant for this id and directory": [
        "vote_validation",
        "vote_empty_disk_votes_by_its_directory_only",
    ],
    "BeginQuorumEpoch: accepted by who is no voter": ["begin_quorum_epoch_validation"],
    "BeginQuorumEpoch: meant for this id and directory": ["begin_quorum_epoch_validation"],
    "BeginQuorumEpoch: to voters that do not fetch": [
        "begin_quorum_epoch_to_silent_voters",
        "snapshot_counts_for_check_quorum",
    ],
    "EndQuorumEpoch: the leader that was removed": ["remove_voter_the_leader_itself"],
    "EndQuorumEpoch: the candidates' directories count": ["end_quorum_epoch_validation"],
    "Fetch: tracked by id and directory": [
        "fetch_acknowledges_for_this_directory_only",
        "kraft_version_upgrade_makes_directories_count",
    ],
    "Fetch: from a leader that is no voter": ["remove_voter_leader_serves_until_committed"],
    "FetchSnapshot: from a leader that is no voter": ["remove_voter_leader_serves_until_committed"],
    "FetchSnapshot: errors": ["snapshot_fetch_validation"],
    "DescribeQuorum: directories and endpoints": ["describe_anywhere", "describe_static_voters"],
    "DescribeQuorum: the committed voters": ["describe_anywhere"],
}
"""The same for KIP-853, "Reference explanation" and "Public Interfaces": every step and error of
its handling sections.
"""

ALL_ROWS = {**ROWS, **{f"KIP-853 {row}": names for row, names in KIP_ROWS.items()}}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path, wire: str, rewrite: bool) -> None:
    own = OVER_KAFKA / path.name
    expected = own if wire == "kafka" and own.exists() else path
    actual = transcript.render(transcript.run(expected, Harness(WIRES[wire]()).execute))
    if rewrite and (wire == "values" or expected is own):
        expected.write_text(actual, encoding="utf-8")
    text = expected.read_text(encoding="utf-8")
    if wire == "kafka":
        text = "\n".join(shown(text.split("\n")))
    assert actual == text


@pytest.mark.parametrize("path", sorted(OVER_KAFKA.glob("*.txt")), ids=lambda path: path.stem)
def test_a_transcript_over_kafkas_protocol_is_one_of_another_outcome(path: Path) -> None:
    usual = (HERE / path.name).read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8") != "\n".join(shown(usual.split("\n")))


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
    files = [*FILES, *OVER_KAFKA.glob("*.txt")]
    silent = [path.stem for path in files if not path.read_text("utf-8").startswith("# ")]
    assert not silent
