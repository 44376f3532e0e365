"""Requests on their way: every one ends with an answer or a failure, whatever its call raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.messages import (
    CurrentLeader,
    FetchRequest,
    FetchResponse,
    Response,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import Send
from quorate.records.errors import CorruptBatchError
from quorate.rpc.errors import TransportError, TransportKind
from quorate.runtime.outbound import Outbound

from tests.unit.runtime.replicas import CLUSTER, SOON_S, address, key, until

VOTED = VoteResponse(ErrorCode.NONE, CurrentLeader(1, None), True)
FETCHED = FetchResponse(ErrorCode.NONE, CurrentLeader(1, 2))


class Answers:
    """What the driver is for `Outbound`."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def answered(self, request_id: int, response: Response) -> None:
        self.given.append(("answered", request_id, response))

    def unanswered(self, request_id: int, reason: str, *, refused: bool) -> None:
        self.given.append(("unanswered", request_id, reason, refused))

    def connection_lost(self, leader_id: int) -> None:
        self.given.append(("lost", leader_id))

    def fail(self, error: BaseException) -> None:
        self.given.append(("fail", str(error)))


class Lines:
    """A transport whose calls do what a test says, and which notes its streams."""

    def __init__(self, answer: Callable[[Any], Awaitable[Response]]) -> None:
        self.answer = answer
        self.streams: list[Line] = []

    async def call(self, endpoint: Any, request: Any, timeout_ms: int) -> Response:
        return await self.answer(request)

    async def open_fetch_stream(self, endpoint: Any, on_broken: Callable[[str], None]) -> Line:
        line = Line(self.answer, on_broken)
        self.streams.append(line)
        return line

    async def close(self) -> None:
        return None


class Line:
    def __init__(self, answer: Callable[[Any], Awaitable[Response]], on_broken: Any) -> None:
        self.answer = answer
        self.on_broken = on_broken
        self.is_open = True
        self.under_way = 0

    async def fetch(self, request: Any, timeout_ms: int) -> Response:
        assert self.under_way == 0, "one at a time"
        self.under_way += 1
        try:
            return await self.answer(request)
        except asyncio.CancelledError:
            self.is_open = False
            raise
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        self.is_open = False


def vote(request_id: int = 1) -> Send:
    return Send(request_id, address(2), VoteRequest(CLUSTER, 1, key(1), key(2), 0, 0), 1_000, 2)


def fetch(request_id: int = 1, node_id: int = 2) -> Send:
    request = FetchRequest(CLUSTER, key(1), 1, 0, 0)
    return Send(request_id, address(node_id), request, 1_000, node_id, True)


def made(answer: Callable[[Any], Awaitable[Response]]) -> tuple[Outbound, Answers, Lines]:
    lines, answers = Lines(answer), Answers()
    outbound = Outbound(lines)  # type: ignore[arg-type]
    outbound.bind(answers)
    return outbound, answers, lines


@pytest.mark.parametrize("send", [vote, fetch])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("a field"), "failed: KeyError: 'a field'"),
        (ValueError("no such value"), "failed: ValueError: no such value"),
        (asyncio.CancelledError(), "failed: CancelledError"),
        (RuntimeError(), "failed: RuntimeError"),
        (ViolationError("makes no sense"), "makes no sense"),
        (CorruptBatchError(3, "the checksum is wrong"), "the checksum is wrong"),
    ],
)
async def test_whatever_a_call_raises_is_a_failure_with_one_line(
    caplog: pytest.LogCaptureFixture, send: Callable[[], Send], error: BaseException, said: str
) -> None:
    caplog.set_level(logging.INFO)
    unseen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))

    async def answer(_request: Any) -> Response:
        raise error

    outbound, answers, lines = made(answer)
    outbound.send(send())
    await until("it ended", lambda: answers.given)
    (kind, request_id, reason, refused) = answers.given[0]
    assert (kind, request_id, refused) == ("unanswered", 1, False)
    assert said in reason
    lines_logged = [r for r in caplog.records if said in r.getMessage()]
    assert len(lines_logged) == 1
    assert not lines_logged[0].exc_info
    assert all(not line.is_open for line in lines.streams)
    await outbound.close()
    assert len(answers.given) == 1
    assert unseen == []


@pytest.mark.parametrize(
    ("kind", "refused"),
    [(TransportKind.REFUSED, True), (TransportKind.BROKEN, True), (TransportKind.TIMEOUT, False)],
)
@pytest.mark.parametrize("send", [vote, fetch])
async def test_the_node_learns_whether_nobody_is_there(
    send: Callable[[], Send], kind: TransportKind, refused: bool
) -> None:
    async def answer(_request: Any) -> Response:
        raise TransportError(kind, "b:2", "gone")

    outbound, answers, _ = made(answer)
    outbound.send(send())
    await until("it ended", lambda: answers.given)
    assert answers.given == [("unanswered", 1, "b:2: gone", refused)]
    await outbound.close()


async def test_answers_come_back_with_their_request() -> None:
    async def answer(request: Any) -> Response:
        await asyncio.sleep(0.01)
        return VOTED if isinstance(request, VoteRequest) else FETCHED

    outbound, answers, lines = made(answer)
    outbound.send(vote(7))
    outbound.send(fetch(8))
    await until("both ended", lambda: len(answers.given) == 2)
    assert sorted(answers.given) == [("answered", 7, VOTED), ("answered", 8, FETCHED)]
    outbound.send(fetch(9))
    await until("the third ended", lambda: len(answers.given) == 3)
    assert len(lines.streams) == 1, "one stream to one leader"
    outbound.send(fetch(10, node_id=3))
    await until("the fourth ended", lambda: len(answers.given) == 4)
    assert [line.is_open for line in lines.streams] == [False, True]
    await outbound.close()
    assert not lines.streams[1].is_open


async def test_a_later_fetch_takes_the_place_of_one_under_way() -> None:
    async def answer(request: Any) -> Response:
        if not lines.streams[1:]:
            await asyncio.sleep(SOON_S)
        return FETCHED

    outbound, answers, lines = made(answer)
    outbound.send(fetch(1))
    await until("it is under way", lambda: lines.streams and lines.streams[0].under_way)
    outbound.send(fetch(2))
    await until("the second ended", lambda: answers.given)
    assert answers.given == [("answered", 2, FETCHED)]
    assert not lines.streams[0].is_open
    await outbound.close()


async def test_a_stream_that_breaks_is_a_hint_about_its_leader() -> None:
    async def answer(_request: Any) -> Response:
        return FETCHED

    outbound, answers, lines = made(answer)
    outbound.send(fetch(1))
    await until("it ended", lambda: answers.given)
    lines.streams[0].on_broken("reset")
    assert answers.given[-1] == ("lost", 2)
    lines.streams[0].is_open = False
    outbound.send(fetch(2))
    await until("the second ended", lambda: len(answers.given) == 3)
    assert len(lines.streams) == 2, "a broken stream is not used again"
    await outbound.close()


async def test_what_another_cluster_says_counts_as_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    foreign = VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, CurrentLeader(99, 9))

    async def answer(_request: Any) -> Response:
        return foreign

    outbound, answers, _ = made(answer)
    outbound.send(vote(1))
    outbound.send(vote(2))
    await until("both ended", lambda: len(answers.given) == 2)
    assert {each[0] for each in answers.given} == {"unanswered"}
    assert caplog.text.count("belongs to another cluster") == 1
    await outbound.close()


async def test_closing_gives_up_what_is_under_way_without_a_word() -> None:
    async def answer(_request: Any) -> Response:
        await asyncio.sleep(SOON_S)
        return VOTED

    outbound, answers, lines = made(answer)
    outbound.send(vote(1))
    outbound.send(fetch(2))
    await until("they are under way", lambda: lines.streams and lines.streams[0].under_way)
    await outbound.close()
    assert answers.given == []


async def test_an_owner_that_fails_is_told_by_the_task() -> None:
    async def answer(_request: Any) -> Response:
        return VOTED

    outbound, answers, _ = made(answer)

    def answered(_request_id: int, _response: Response) -> None:
        raise KeyError("in the driver")

    answers.answered = answered  # type: ignore[method-assign]
    outbound.send(vote(1))
    await until("it is told", lambda: answers.given)
    assert answers.given[0][0] == "fail"
    assert "KeyError: 'in the driver'" in answers.given[0][1]
    await outbound.close()
