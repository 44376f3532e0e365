"""The run: asks both controllers, compares what they did, and counts the differences by kind.

A run is a sequence of pairs of controllers. Each pair starts from nothing, with a stream of its
own, so what it shows can be reproduced with its seed alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.metadata.image.metadata_image import ReplayError
from quorate.records.batch import BatchHeader

from tests.kafka import KAFKA_4_3, fetch
from tests.kafka_differential.comparing import (
    KAFKA_FAILS,
    Difference,
    compare_images,
    compare_records,
    compare_responses,
)
from tests.kafka_differential.controllers import CLUSTER, PASSWORD, USER, controllers
from tests.kafka_differential.generating import Stream
from tests.kafka_differential.kafka_host import KafkaHost
from tests.kafka_differential.repairing import repairs
from tests.kafka_differential.report import Report
from tests.kafka_differential.requests import Request
from tests.kafka_differential.results import Results
from tests.kafka_differential.side import Batch, Side
from tests.kafka_scale.connection import request_frame
from tests.logs.checks import check_logs
from tests.logs.files import read_log
from tests.wire.compared_clusters import CONTROLLER

START_S: Final = 180.0
POLL_S: Final = 0.05
BLOCK: Final = 1_000
"""The images are compared after so many requests."""
PAIR_REQUESTS: Final = 25_000
"""A pair of controllers ends after so many requests: its logs are checked, and their size and that
of the tables of ids are bounded.
"""
MAY_STOP: Final = b"\x01"
"""The last field of a response to a heartbeat, before the tagged ones."""
DIVERGED_MAX: Final = 100
"""A run ends when so many pairs had differences without a reason."""

Batches = Sequence[tuple[BatchHeader, Batch]]


class Run:
    """A stream of requests on two controllers, until they differ. sides: Kafka's first. report: of
    this pair.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        stream: Stream,
        report: Report,
        results: Results,
    ) -> None:
        self._sides = sides
        self._stream = stream
        self._report = report
        self._results = results
        self._has_diverged = False
        self._has_failed = False

    def run(self, count: int) -> None:
        """Ask so many times, or until Kafka's controller fails or the images stay different.

        A request is sent once the images have what both controllers wrote for the one before.
        While the controllers handle it, the responses of the one before are compared, and the next
        one is prepared.
        """
        self._wait_registered()
        for side in self._sides:
            side.connect(USER, PASSWORD)
        began_s = time.monotonic()
        self._compare_images()
        kafkas = self._sides[0]
        request = self._stream.next(kafkas)
        bodies = self._send(request)
        for number in range(1, count + 1):
            following = self._stream.next(kafkas)
            frames = [side.receive() for side in self._sides]
            differs = self._replay(request, bodies, frames)
            if differs is not None and differs.what == "records":
                self._has_diverged = compare_images(self._sides) is not None
            asked, body = request, bodies[0]
            may_send = number < count and not self._has_diverged
            if may_send:
                request = self._safe(following)
                bodies = self._send(request)
            self._judge(asked, body, frames, differs)
            if number % BLOCK == 0 or not may_send:
                # The next request may be under way, but what it writes has not been read.
                self._compare_images()
            self._report.seconds = time.monotonic() - began_s
            self._results.advance(self._report)
            if number == count or self._has_failed:
                break
            if self._has_diverged:
                if may_send or not self._repair():
                    break
                request = self._safe(following)
                bodies = self._send(request)

    def _wait_registered(self) -> None:
        """Wait until both controllers have registered themselves."""
        deadline = time.monotonic() + START_S
        for side in self._sides:
            while CONTROLLER not in side.image.cluster.controllers:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{side.name}'s controller did not register itself")
                side.replay(side.appended())
                time.sleep(POLL_S)

    def _safe(self, request: Request) -> Request:
        """The request, or the next one that may be sent now."""
        kafkas = self._sides[0]
        while not self._stream.is_safe(request, kafkas):
            request = self._stream.next(kafkas)
        return request

    def _send(self, request: Request) -> Sequence[Any]:
        """Send a request to both sides: the bodies."""
        first = request.build(self._sides[0])
        bodies = [first, first if request.is_common else request.build(self._sides[1])]
        frame = request_frame(request.api_key, request.version, first)
        self._sides[0].send(frame)
        if not request.is_common:
            frame = request_frame(request.api_key, request.version, bodies[1])
        self._sides[1].send(frame)
        return bodies

    def _repair(self) -> bool:
        """Make the controllers agree again; whether they do."""
        for request in repairs(self._sides):
            self._send(request)
            for side in self._sides:
                side.receive()
                side.replay(side.appended())
        if compare_images(self._sides) is not None:
            return False
        self._sides[0].aliases.level(self._sides[1].aliases)
        self._has_diverged = False
        self._report.repairs += 1
        return True

    def _replay(
        self, request: Request, bodies: Sequence[Any], frames: Sequence[bytes]
    ) -> Difference | None:
        """Compare the records that both wrote for a request, and bring the images up to date."""
        sides = self._sides
        batches: Sequence[Batches] = [side.appended() for side in sides]
        for side, each in zip(sides, batches, strict=True):
            for _, batch in each:
                for _, record in batch:
                    side.aliases.note(record)
        differs = compare_records(request.name, batches, sides, shape_only=request.shape_only)
        for side, each in zip(sides, batches, strict=True):
            side.replay(each)
            side.grow_older()
        self._report.records.update(
            type(record).__name__ for _, batch in batches[0] for _, record in batch
        )
        self._keep_secrets(request, frames)
        if request.api_key == s.BROKER_HEARTBEAT and MAY_STOP in frames[0][-2:-1]:
            sides[0].stopped.add(bodies[0].broker_id)
        return differs

    def _judge(
        self, request: Request, body: Any, frames: Sequence[bytes], differs: Difference | None
    ) -> None:
        """Compare the responses, and count the differences. differs: that of the records."""
        self._report.requests[request.name] += 1
        key = (request.api_key, request.version)
        answers = compare_responses(request.name, key, frames, self._sides)
        if answers is not None and answers.what == KAFKA_FAILS:
            self._has_failed = True
            differs = None
        for found in (answers, differs):
            if found is not None:
                self._add(repr(body), found)

    def _add(self, body: str, difference: Difference) -> None:
        kind = self._report.add(self._report.total, body, difference)
        self._results.difference(difference.kind, kind)

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
            self._add("", difference)
            self._has_diverged = True


def compare(count: int, seed: int, folder: Path, results: Results | None = None) -> Report:
    """Drive pairs of controllers until they have got so many requests. folder: for their files.

    A pair ends after PAIR_REQUESTS, and if the images differ. results: what earlier runs have done
    is in the report, too.
    """
    fetch(KAFKA_4_3)
    results = Results(None, seed) if results is None else results
    done = results.done
    diverged = 0
    folder.mkdir(parents=True, exist_ok=True)
    host = KafkaHost(folder / "kafka.log")
    try:
        while done.total < count and not done.failure and diverged < DIVERGED_MAX:
            report = Report(seed + done.pairs, pairs=1)
            _run_pair(min(count - done.total, PAIR_REQUESTS), folder, host, report, results)
            diverged += bool(report.unlisted)
            results.pair(report)
    finally:
        host.close()
    return done


def _run_pair(count: int, folder: Path, host: KafkaHost, report: Report, results: Results) -> None:
    """Drive one pair of controllers. If it fails, its files stay in the folder."""
    place = folder / str(report.seed)
    sides: Sequence[Side] = ()
    try:
        with controllers(place, host) as sides:
            Run(sides, Stream(report.seed, CLUSTER), report, results).run(count)
    except (OSError, ReplayError, AssertionError) as error:
        report.failure = f"{type(error).__name__}: {error}; the files are in {place}"
        return
    for side in sides:
        found = check_logs([read_log(side.folder.parent)]).violations
        report.violations += (f"seed {report.seed}, {side.name}: {each}" for each in found)
    shutil.rmtree(place)
