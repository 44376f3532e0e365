"""The operator is killed (SIGKILL) after every single change that it makes.

A function that kills it right after each change replaces its `note`, before it tells anybody or
does anything else; a loop in its container starts it again. So each process makes at most one
change, and the whole life of a quorum is put together from processes that remember nothing.

What is checked after each part: it ends as wanted; each process ended by the signal, and none made
two changes; no change was made twice, by the operator's own log, and, independently of it, by the
records of voter sets in the quorum's log and by the generation of the StatefulSet.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.cluster import figures
from tests.cluster.lab import DATA, Lab, Writer

pytestmark = pytest.mark.timeout(900)

StartWriter = Callable[[Lab], Writer]

WAIT_S = 300.0
KILLED = """
import os, signal, sys
from quorate_operator import main

def die_after(what):
    main.LOGGER.info("mutation: %s", what)
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)

assert callable(main.note)
main.note = die_after
sys.exit(main.main())
"""
"""The operator's process: its arguments and settings are those of `quorate-operator`."""

LOOP = (
    "import subprocess, sys\n"
    "while True:\n"
    f"    done = subprocess.run([sys.executable, '-c', {KILLED!r}])\n"
    "    print('ended:', done.returncode, flush=True)\n"
)


def install_killed(lab: Lab) -> None:
    """A release whose operator dies after every change."""
    lab.install("operator.replicas=0")
    # On a busy machine kubelet could restart the container, and its log would begin again.
    container = {"name": "operator", "command": ["python", "-c", LOOP], "livenessProbe": None}
    spec = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    patch = json.dumps({"spec": spec})
    lab.kubectl("patch", "deployment", f"{lab.name}-operator", "--type=strategic", "-p", patch)


@dataclass(slots=True)
class Audit:
    """What was done so far, from three sources that do not know each other."""

    mutations: list[str]
    ends: list[int]
    voter_sets: int
    generation: int

    @classmethod
    def of(cls, lab: Lab) -> Audit:
        log = lab.kubectl("logs", f"deployment/{lab.name}-operator", "--tail=-1")
        mutations = re.findall(r"mutation: (.*)", log)
        ends = [int(text) for text in re.findall(r"^ended: (-?\d+)", log, re.MULTILINE)]
        # The log is being written: where it ends, dump-log may find half a batch, and say so.
        files = f"$(ls {DATA}/__cluster_metadata-0/*.log | paste -sd,)"
        command = f"quorate dump-log --deep-iteration --files {files} | grep -c KRaftVoters"
        voter_sets = int(lab.kubectl_exec(0, "sh", "-c", command))
        generation = lab.get("statefulset", lab.name)["metadata"]["generation"]
        return cls(mutations, ends, voter_sets, generation)


def test_the_operator_is_killed_after_every_change(lab: Lab, start_writer: StartWriter) -> None:
    began = time.monotonic()
    install_killed(lab)
    lab.until_ready(3, timeout_s=WAIT_S)
    seconds = time.monotonic() - began
    audit = Audit.of(lab)
    assert audit.voter_sets == 3
    report("bootstrap", seconds, audit, audit.mutations, None)
    kinds = [text.split()[0] for text in audit.mutations]
    assert kinds.count("format") == 3, audit.mutations
    assert sum("STANDALONE" in text for text in audit.mutations) == 1, audit.mutations
    assert kinds.count("add") == 2, audit.mutations
    load = start_writer(lab)

    def go(what: str, change: Callable[[], None], voters: int, *, sets: int, sizes: int) -> None:
        """One part. sets, sizes: how many voter sets are written, and the StatefulSet's changes."""
        nonlocal audit
        load.mark()
        before, began = audit, time.monotonic()
        change()
        lab.until_ready(voters, timeout_s=WAIT_S)
        seconds = time.monotonic() - began
        audit = Audit.of(lab)
        new = audit.mutations[len(before.mutations) :]
        report(what, seconds, audit, new, load)
        assert audit.voter_sets - before.voter_sets == sets, new
        assert audit.generation - before.generation == sizes, new

    go("scale 3 to 5", lambda: lab.scale(5), 5, sets=2, sizes=2)
    lab.lead_from(2)
    go("follower's volume", lambda: lose(lab, 3), 5, sets=2, sizes=0)
    go("leader's volume", lambda: lose(lab, lab.leader), 5, sets=2, sizes=0)
    lab.lead_from(4)
    go("scale 5 to 3, led by node 4", lambda: lab.scale(3), 3, sets=2, sizes=1)
    go("rollout", lambda: roll_out(lab), 3, sets=0, sizes=1)
    load.finish()


def report(what: str, seconds: float, audit: Audit, new: list[str], load: Writer | None) -> None:
    """Print one part, and check what holds for all of them."""
    gap_ms = figures.NOT_WRITTEN if load is None else load.longest_gap_ms()
    figures.add(f"operator killed after each of {len(new)} changes: {what}", seconds, gap_ms)
    print("\n".join(f"    {text}" for text in new))
    assert new
    assert len(set(audit.mutations)) == len(audit.mutations), "a change was made twice"
    # Each process that ended was killed, and each that was killed had made one change.
    assert set(audit.ends) == {-9}, audit.ends
    assert len(audit.ends) == len(audit.mutations)


def lose(lab: Lab, ordinal: int) -> None:
    """Its disk is lost, and its successor's directory is known before anybody asks whether all is
    well again.
    """
    assert ordinal != 0, "node 0 keeps the whole log, which is counted"
    old = lab.directories()[ordinal]
    lab.lose_disk(ordinal)
    lab.until(
        f"node {ordinal} has a new directory",
        lambda: lab.directories().get(ordinal) not in ("", None, old),
    )


def roll_out(lab: Lab) -> None:
    before = lab.uids("pods")
    patch = {"spec": {"podTemplate": {"annotations": {"changed": "yes"}}}}
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", "-p", json.dumps(patch))
    lab.until_new_pods(before, timeout_s=WAIT_S)
