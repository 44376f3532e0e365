"""A dead or slow voter must not hold up a quorum: transfers and changes that wait for one."""

from __future__ import annotations

import pytest

from tests.scenarios.harness import Harness


def _quorum(*lines: str) -> Harness:
    harness = Harness()
    for line in lines:
        harness.execute(line)
    return harness


def _answer(harness: Harness, line: str, name: str) -> str:
    """What one command prints about the request `name`."""
    return "\n".join(text for text in harness.execute(line) if f"answers {name}:" in text)


@pytest.mark.parametrize("dead_for_ms", [0, 100, 1_900, 2_100, 10_000])
def test_a_transfer_to_a_dead_voter_refuses_no_append(dead_for_ms: int) -> None:
    harness = _quorum("cluster voters=1A,2A,3A lead=1", "run 600", "crash 2")
    harness.execute(f"quietly run {dead_for_ms}" if dead_for_ms else "settle")
    printed = harness.execute("transfer 1 2A timeout=30000 as=transfer")
    for _ in range(12):
        assert "refuses" not in "\n".join(harness.execute("append 1 x"))
        printed += harness.execute("run 100")
    assert [text.split(": ")[0] for text in printed if "answers transfer" in text] == [
        "1A answers transfer"
    ]
    assert harness.node("1").raft is not None
    assert harness.node("1").raft.is_leader  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("stuck", "lines"),
    [
        ("it does not answer", ("cut 9->1 1->9",)),
        ("nobody listens there", ("crash 9",)),
        ("it never catches up", ("manual-sync 9", "append 1 x", "quietly run 2500")),
    ],
)
def test_a_stuck_add_voter_delays_no_removal(stuck: str, lines: tuple[str, ...]) -> None:
    harness = _quorum("cluster voters=1A,2A,3A observers=9A lead=1", "run 600", *lines)
    harness.execute("add-voter 1 9A timeout=600000 as=add")
    harness.execute("quietly run 500")
    harness.execute("remove-voter 1 3A timeout=30000 as=remove")
    assert "NONE" in _answer(harness, "settle", "remove"), stuck
