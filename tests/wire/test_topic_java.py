"""Java's producers and consumers, and Kafka's console tools, on the topic of Quorate's records."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import quorate

from tests.integration.embedded_support import Trio
from tests.kafka import KAFKA_3_9, KAFKA_4_3, fetch, java
from tests.tools.documents import block, command_lines

SOURCE = Path(__file__).with_name("TopicClient.java")
LEVEL_1 = {"application.version": 1}
CLIENT_S = 120.0
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
CONSOLES = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}

pytestmark = pytest.mark.timeout(300)

Sent = list[tuple[int, str]]


@pytest.fixture(params=[KAFKA_4_3, KAFKA_3_9], ids=lambda jars: jars.name)
def jars(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    fetch(found)
    return found


def pairs(lines: Sequence[str], kind: str) -> Sent:
    """The (offset, key) of the lines that begin with `kind`."""
    words = [line.split() for line in lines if line.startswith(f"{kind} ")]
    return [(int(offset), key) for _, offset, key in words if offset != "error"]


async def test_each_record_of_a_java_producer_is_appended_once(tmp_path: Path, jars: Path) -> None:
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True)
    async with trio.running() as nodes:
        await trio.leader()
        program = java(jars, QUIET, SOURCE, ",".join(trio.topic_addresses), "records")
        process = await asyncio.create_subprocess_exec(
            *map(str, program), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        first = await asyncio.wait_for(process.stdout.readline(), CLIENT_S)
        sent = 0
        for move in range(4):
            for _ in range(50):
                batch = [b"%d\n" % (sent + each) for each in range(10)]
                process.stdin.write(b"".join(batch))
                sent += len(batch)
                await asyncio.sleep(0.02)
            if move < 3:
                target = nodes[(await trio.leader() + 1) % 3]
                with contextlib.suppress(quorate.ClientError):
                    await target.client.transfer_leadership(target.key)
        for line in (b"\n", b"last\n"):
            await asyncio.sleep(1)  # one record per batch, since a whole batch is rejected
            process.stdin.write(line)
        await asyncio.sleep(1)
        process.stdin.close()
        out, _ = await asyncio.wait_for(process.communicate(), CLIENT_S)
        lines = (first + out).decode().splitlines()
    acknowledged = pairs(lines, "sent")
    assert [key for _, key in acknowledged] == ["first", *map(str, range(sent)), "last"]
    assert [line for line in lines if line.startswith("sent error")] == [
        "sent error InvalidRecordException"
    ]
    read = pairs(lines, "read")
    assert read == acknowledged


def run_console(jars: Path, line: str, servers: str, text: str, *more: str) -> str:
    program, *arguments = shlex.split(line.replace("controller-1:9095", servers))
    command = java(jars, QUIET, CONSOLES[program], *arguments, *more)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=CLIENT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_console_tools(tmp_path: Path) -> None:
    fetch(KAFKA_4_3)
    produce, consume = command_lines(block("docs/kafka-clients.md", "kafka-console-producer"))
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True)
    async with trio.running():
        leader = await trio.leader()
        follower = trio.topic_addresses[(leader + 1) % 3]
        await asyncio.to_thread(run_console, KAFKA_4_3, produce, follower, "k1\tv1\nk2\tv2\n")
        ends = ("--max-messages", "2", "--formatter-property", "print.key=true")
        out = await asyncio.to_thread(run_console, KAFKA_4_3, consume, follower, "", *ends)
    assert out.splitlines() == ["k1\tv1", "k2\tv2"]
