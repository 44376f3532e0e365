"""Kafka's own directories after a majority was lost: recovered by Quorate, read by Kafka's tools,
and led by Kafka's own controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.log.lock import DirectoryLock
from quorate.log.metadata_log import partition_directory
from quorate.recovery.examine import examine
from quorate.recovery.lost_majority import LostMajority, recover_lost_majority

from tests.kafka import copy_writable
from tests.processes import HOST
from tests.wire.metadata_support import check_free, kafka_controller
from tests.wire.test_takeover import KAFKA_DUMP

COMPLAINTS = ("isvalid: false", "rror", "xception", "Non-consecutive", "Invalid")
SURVIVOR = 2


@pytest.fixture
def recovered(golden: Path, tmp_path: Path) -> tuple[Path, LostMajority]:
    """Controller 2's directory of a Kafka quorum of three, recovered alone."""
    data = tmp_path / "controller-2"
    copy_writable(golden / "full-history" / f"controller-{SURVIVOR}", data)
    with DirectoryLock(data):
        return data, recover_lost_majority(data)


def test_kafkas_dump_reads_the_forced_records(
    recovered: tuple[Path, LostMajority], kafka_tool: Callable[..., str]
) -> None:
    data, done = recovered
    for path in sorted(partition_directory(data).glob("*.log")):
        name = path.relative_to(data)
        dumped = kafka_tool(KAFKA_DUMP, "--cluster-metadata-decoder", "--files", name, cwd=data)
        for complaint in COMPLAINTS:
            assert complaint not in dumped, dumped[-2000:]
    last = dumped.splitlines()[-1 - len(done.voter_sets) - 1 :]
    assert f"partitionLeaderEpoch: {done.epoch}" in last[0]
    assert "LeaderChange" in last[1]
    voters = [re.findall(r'"voterId":(\d+)', line) for line in last[2:]]
    assert [len(each) for each in voters] == [2, 1]
    assert voters[-1] == [str(SURVIVOR)]


@pytest.mark.timeout(300)
async def test_kafkas_controller_leads_alone(
    recovered: tuple[Path, LostMajority], kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    """Kafka refuses a log in which neighbouring voter sets differ by more than one."""
    data, done = recovered
    (voter,) = done.new_voters
    port = voter.endpoints[0].port
    check_free(port)
    address = f"{HOST}:{port}"
    kafka = kafka_controller(tmp_path / "kafka", SURVIVOR, port, data, address)
    before = (partition_directory(data) / f"{0:020}.log").read_bytes()
    with kafka:
        kafka.start()
        status = await _until_led(kafka_tool, address, done.epoch)
        kafka.stop(60)
    assert re.search(rf"LeaderId: +{SURVIVOR}\b", status), status
    assert len(re.findall(r'"id": ?\d+', status.split("CurrentVoters")[1].splitlines()[0])) == 1
    assert (partition_directory(data) / f"{0:020}.log").read_bytes().startswith(before)
    assert examine(data).highest_epoch > done.epoch


async def _until_led(kafka_tool: Callable[..., str], address: str, epoch: int) -> str:
    """`describe --status` of Kafka's own tool, once somebody leads beyond the forced epoch."""
    deadline = time.monotonic() + 120
    answer = ""
    while time.monotonic() < deadline:
        with contextlib.suppress(AssertionError):  # nobody answers yet
            answer = await asyncio.to_thread(
                kafka_tool,
                *("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller"),
                *(address, "describe", "--status"),
            )
        found = re.search(r"LeaderEpoch: +(\d+)", answer)
        if found and int(found[1]) > epoch:
            return answer
        await asyncio.sleep(1)
    pytest.fail(f"Kafka's controller does not lead: {answer}")
