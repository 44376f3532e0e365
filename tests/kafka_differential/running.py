"""The run: asks both controllers, compares what they did, and counts the differences by kind."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop
from quorate.bridge import schemas as s
from quorate.metadata.image.metadata_image import ReplayError
from quorate.records.batch import BatchHeader

from tests.kafka_differential.comparing import (
    KAFKA_FAILS,
    Difference,
    compare_images,
    compare_records,
    compare_responses,
)
from tests.kafka_differential.controllers import CLUSTER, PASSWORD, USER, controllers
from tests.kafka_differential.generating import Stream
from tests.kafka_differential.reasons import Reason, reason_of
from tests.kafka_differential.requests import Request
from tests.kafka_differential.side import Batch, Side
from tests.kafka_scale.connection import request_frame
from tests.logs.checks import check_logs
from tests.logs.files import read_log
from tests.wire.compared_clusters import CONTROLLER

RESPONSE_S: Final = 60.0
START_S: Final = 60.0
POLL_S: Final = 0.05
BLOCK: Final = 1_000
"""The images are compared after so many requests."""
MAY_STOP: Final = b"\x01"
"""The last field of a response to a heartbeat, before the tagged ones."""
TEXT_MAX: Final = 3_000
STARTS_MAX: Final = 100


@dataclass(slots=True)
class Kind:
    """Differences of one kind. number, body, first: of the first one. reason: why it is meant."""

    number: int
    body: str
    first: Difference
    reason: Reason | None
    count: int = 0


@dataclass(slots=True)
class Report:
    """What a run found. requests: by name. records: written by Kafka's controller, by type.
    errors: requests whose response had bytes for no success. seconds: of the requests alone.
    starts: how many pairs of controllers were needed. violations: invariants that do not hold in
    the logs (`tests/logs/checks.py`). failure: why the run ended early.
    """

    seed: int
    requests: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Kind] = field(default_factory=dict)
    starts: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failure: str = ""

    def add(self, number: int, body: str, difference: Difference) -> None:
        """Count a difference. number, body: of its request."""
        kind = self.kinds.get(difference.kind)
        if kind is None:
            kind = self.kinds[difference.kind] = Kind(
                number, body[:TEXT_MAX], difference, reason_of(difference)
            )
        kind.count += 1

    @property
    def unlisted(self) -> list[Kind]:
        return [each for each in self.kinds.values() if each.reason is None]

    @property
    def rate(self) -> float:
        """Requests per second, each sent to both controllers."""
        return self.requests.total() / self.seconds if self.seconds else 0.0


class Run:
    """A stream of requests on two controllers, until they differ. sides: Kafka's first."""

    def __init__(
        self,
        sides: Sequence[Side],
        stream: Stream,
        report: Report,
        advance: Callable[[Report], None],
    ) -> None:
        self._sides = sides
        self._stream = stream
        self._report = report
        self._advance = advance
        self._has_diverged = False

    async def run(self, count: int) -> None:
        """Ask until there are so many requests in the report, or the images differ.

        While the controllers handle a request, the one before it is compared, and the next one is
        prepared.
        """
        await self._registered()
        for side in self._sides:
            await side.connect(USER, PASSWORD)
        began_s = time.monotonic() - self._report.seconds
        self._compare_images()
        kafkas = self._sides[0]
        request = self._stream.next(kafkas)
        bodies, sent = await self._send(request)
        while not self._has_diverged:
            following = self._stream.next(kafkas)
            async with asyncio.timeout(RESPONSE_S):
                frames = [await each for each in sent]
            batches = [side.appended() for side in self._sides]
            asked, answered = (request, bodies), (frames, batches)
            total = self._report.requests.total() + 1
            at_once = following.is_safe is None and total < count
            if at_once:
                bodies, sent = await self._send(following)
            self._judge(total, asked, answered)
            self._report.seconds = time.monotonic() - began_s
            if total == count or total % BLOCK == 0:
                self._compare_images()
            if total == count:
                break
            if not at_once:
                while not self._stream.is_safe(following, kafkas):
                    following = self._stream.next(kafkas)
                bodies, sent = await self._send(following)
            request = following
        self._stream.end_script()

    async def _registered(self) -> None:
        """Wait until both controllers have registered themselves."""
        async with asyncio.timeout(START_S):
            for side in self._sides:
                while CONTROLLER not in side.image.cluster.controllers:
                    side.replay(side.appended())
                    await asyncio.sleep(POLL_S)

    async def _send(self, request: Request) -> tuple[list[Any], list[asyncio.Future[bytes]]]:
        """Send a request to both sides: the bodies, and the responses to come."""
        first = request.build(self._sides[0])
        bodies = [first, first if request.is_common else request.build(self._sides[1])]
        frames = [request_frame(request.api_key, request.version, each) for each in bodies[:1]]
        if request.is_common:
            frames.append(bytearray(frames[0]))
        else:
            frames.append(request_frame(request.api_key, request.version, bodies[1]))
        pairs = zip(self._sides, frames, strict=True)
        sent: list[asyncio.Future[bytes]] = [
            asyncio.ensure_future(side.ask(frame)) for side, frame in pairs
        ]
        await asyncio.sleep(0)
        return bodies, sent

    def _judge(
        self,
        number: int,
        asked: tuple[Request, list[Any]],
        answered: tuple[list[bytes], list[list[tuple[BatchHeader, Batch]]]],
    ) -> None:
        """Compare what both sides did for a request, and bring their images up to date."""
        request, bodies = asked
        frames, batches = answered
        report = self._report
        report.requests[request.name] += 1
        for side, each in zip(self._sides, batches, strict=True):
            for _, batch in each:
                for _, record in batch:
                    side.aliases.note(record)
        differs = compare_records(request.name, batches, self._sides, shape_only=request.shape_only)
        for side, each in zip(self._sides, batches, strict=True):
            side.replay(each)
            side.grow_older()
        report.records.update(
            type(record).__name__ for _, batch in batches[0] for _, record in batch
        )
        self._keep_secrets(request, frames)
        if request.api_key == s.BROKER_HEARTBEAT and MAY_STOP in frames[0][-2:-1]:
            self._sides[0].stopped.add(bodies[0].broker_id)
        key = (request.api_key, request.version)
        answers = compare_responses(request.name, key, frames, self._sides)
        if answers is not None and answers.what == KAFKA_FAILS:
            self._has_diverged = True
            differs = None
        for found in (answers, differs):
            if found is not None:
                report.add(number, repr(bodies[0]), found)
        if differs is not None and differs.what == "records":
            self._has_diverged = compare_images(self._sides) is not None

    def _keep_secrets(self, request: Request, frames: Sequence[bytes]) -> None:
        if request.api_key != s.CREATE_DELEGATION_TOKEN:
            return
        for side, frame in zip(self._sides, frames, strict=True):
            if not frame:
                continue
            response = s.read_response(request.api_key, request.version, frame)[1]
            if not int(response.error_code):
                side.keep_secret(response.token_id, response.hmac)

    def _compare_images(self) -> None:
        # If the last request made the images differ, that difference is counted.
        difference = None if self._has_diverged else compare_images(self._sides)
        if difference is not None:
            self._report.add(self._report.requests.total(), "", difference)
            self._has_diverged = True
        self._advance(self._report)


def compare(
    count: int, seed: int, folder: Path, advance: Callable[[Report], None] = lambda _report: None
) -> Report:
    """Drive both controllers with a stream. advance: called after each block.

    If the images differ, the stream goes on with new controllers.
    """
    report = Report(seed)
    stream = Stream(seed, CLUSTER)
    while report.requests.total() < count and report.starts < STARTS_MAX:
        report.starts += 1
        place = folder / str(report.starts)
        with controllers(place) as sides:
            try:
                uvloop.run(Run(sides, stream, report, advance).run(count))
            except (OSError, TimeoutError, ReplayError) as error:
                report.failure = f"{type(error).__name__}: {error}; the files are in {place}"
                break
        for side in sides:
            found = check_logs([read_log(side.folder.parent)]).violations
            report.violations += (f"{side.name}: {each}" for each in found)
        shutil.rmtree(place)
    advance(report)
    return report
