"""The tables' columns, rows and texts as plain data, without nicegui.

A row has a unique `key`, and strings: browsers show them as text, whatever they contain.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from urllib.parse import urlencode

from quorate.console.cluster import IsrSummary, UnhealthyPartition
from quorate.console.state import BROKER, NO_CHANGES, OBSERVER, QuorumState, ReplicaRow, place_of
from quorate.console.topics import LEADERLESS, ConfigRow, TopicRow, problem_of
from quorate.metadata.requests import BrokerDescription, PartitionDescription

OBSERVERS_SHOWN = 50
BROKERS_SHOWN = 50
READING = "Reading …"
UNREAD = "Not read: see above."
NOT_AUTHORIZED = "the console's principal needs DESCRIBE on topics"
NO_TOPICS = "There are no topics."
NOT_KNOWN = "The cluster has not been described yet: only the active controller does so."
THEMES = ("auto", "light", "dark")

Row = dict[str, object]
Columns = list[dict[str, str]]


def _column(name: str, label: str, align: str) -> dict[str, str]:
    """Return a column that shows the field `name` of a row."""
    return {"name": name, "label": label, "field": name, "align": align}


REPLICAS = [
    _column("id", "ID", "left"),
    _column("role", "Role", "left"),
    _column("directory", "Directory ID", "left"),
    _column("endpoint", "Endpoint", "left"),
    _column("software", "Implementation", "left"),
    _column("end", "Log end offset", "right"),
    _column("lag", "Lag", "right"),
    _column("fetched", "Last fetch", "right"),
    _column("caught", "Caught up", "right"),
]
BROKERS = [
    _column("id", "ID", "left"),
    _column("problem", "State", "left"),
    _column("endpoint", "Endpoint", "left"),
    _column("rack", "Rack", "left"),
    _column("epoch", "Epoch", "right"),
]
PARTITIONS = [
    _column("partition", "Partition", "left"),
    _column("problem", "State", "left"),
    _column("leader", "Leader", "right"),
    _column("isr", "ISR", "right"),
    _column("replicas", "Replicas", "right"),
]
TOPIC_PARTITIONS = [
    *PARTITIONS,
    _column("offline", "Offline replicas", "right"),
    _column("epoch", "Leader epoch", "right"),
]
TOPICS = [
    _column("name", "Topic", "left"),
    _column("problem", "State", "left"),
    _column("partitions", "Partitions", "right"),
    _column("factor", "Replication factor", "right"),
    _column("under_replicated", "Under-replicated", "right"),
    _column("leaderless", "Without a leader", "right"),
]
CONFIGS = [
    _column("name", "Config", "left"),
    _column("value", "Value", "left"),
]
BROKER_CONFIGS = [_column("entity", "Broker", "left"), *CONFIGS]
TOPIC_CONFIGS = [_column("entity", "Topic", "left"), *CONFIGS]


def clock(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def ids(values: Iterable[int]) -> str:
    return ", ".join(map(str, values)) or "–"


def _ago(value: int | None) -> str:
    if value is None:
        return "–"
    # Whole seconds: an unchanged row is not redrawn under the user's mouse.
    return "now" if value < 2_000 else f"{value // 1000} s ago"


def address_of(path: str, theme: str = "", **query: str) -> str:
    """Return the address of a page on this console: always a path, whatever the values are."""
    given = {**query, "theme": theme} if theme in THEMES[1:] else query
    return f"{path}?{urlencode(given)}" if given else path


# --- replicas and brokers -------------------------------------------------------------------------


def key_of(replica: ReplicaRow) -> str:
    return f"{replica.key.id}/{replica.key.directory_id}"


def replicas(state: QuorumState) -> tuple[list[Row], int]:
    """Return rows of all voters and of some observers, and the number of observers left out.

    The observers that are left out are healthy ones as far as possible.
    """
    observers = [each for each in state.replicas if each.role in (BROKER, OBSERVER)]
    if len(observers) > OBSERVERS_SHOWN:
        observers.sort(key=lambda each: (each.is_healthy, -(each.lag or 0), each.key.id))
    voters = [each for each in state.replicas if each.role not in (BROKER, OBSERVER)]
    shown = [*voters, *observers[:OBSERVERS_SHOWN]]
    can_change = state.leader is not None
    return [_replica(each, can_change) for each in shown], max(0, len(observers) - OBSERVERS_SHOWN)


def _replica(replica: ReplicaRow, can_change: bool) -> Row:
    return {
        "key": key_of(replica),
        "id": replica.key.id,
        "role": replica.role,
        "directory": replica.key.directory_id or "unknown",
        "endpoint": replica.endpoint,
        "software": str(replica.software),
        "end": number(replica.end_offset),
        "lag": number(replica.lag),
        "fetched": _ago(replica.fetched_ago_ms),
        "caught": _ago(replica.late_ms),
        "healthy": replica.is_healthy,
        "changeable": can_change,
    }


def why_no_changes(state: QuorumState) -> str:
    """Return why the voters cannot be changed at present, empty if they can."""
    return "" if state.leader is not None else NO_CHANGES


def brokers(found: Iterable[BrokerDescription]) -> tuple[list[Row], int]:
    """Return rows of brokers, fenced ones first if not all are shown, and how many are not."""
    known = list(found)
    if len(known) > BROKERS_SHOWN:
        known.sort(key=lambda each: (not each.is_fenced, each.id))
    return [_broker(each) for each in known[:BROKERS_SHOWN]], max(0, len(known) - BROKERS_SHOWN)


def _broker(broker: BrokerDescription) -> Row:
    state = "fenced" if broker.is_fenced else "active"
    if broker.in_controlled_shutdown:
        state = "shutting down"
    return {
        "key": broker.id,
        "id": broker.id,
        "problem": state,
        "endpoint": place_of(broker.endpoints),
        "rack": broker.rack or "–",
        "epoch": str(broker.epoch),
        "healthy": state == "active",
        "serious": broker.is_fenced,
    }


# --- partitions, topics, configs ------------------------------------------------------------------


def unhealthy_partition(found: UnhealthyPartition, theme: str) -> Row:
    return {
        "key": f"{found.topic}-{found.partition}",
        "partition": f"{found.topic}-{found.partition}",
        "href": address_of("/topic", theme, name=found.topic),
        "problem": found.problem,
        "leader": "none" if found.leader is None else str(found.leader),
        "isr": ids(found.isr),
        "replicas": ids(found.replicas),
        "serious": found.problem == LEADERLESS,
    }


def partition(found: PartitionDescription) -> Row:
    problem = problem_of(found)
    return {
        "key": found.index,
        "partition": str(found.index),
        "problem": problem or "in sync",
        "leader": "none" if found.leader < 0 else str(found.leader),
        "isr": ids(found.isr),
        "replicas": ids(found.replicas),
        "offline": ids(found.offline_replicas),
        "epoch": str(found.leader_epoch),
        "healthy": problem is None,
        "serious": problem == LEADERLESS,
    }


def topic(found: TopicRow, theme: str) -> Row:
    problem = "under-replicated" if found.under_replicated else "in sync"
    if found.leaderless:
        problem = LEADERLESS
    return {
        "key": found.name,
        "name": found.name,
        "href": address_of("/topic", theme, name=found.name),
        "problem": problem,
        "partitions": number(found.partitions),
        "factor": str(found.replication_factor),
        "under_replicated": number(found.under_replicated),
        "leaderless": number(found.leaderless),
        "healthy": not found.unhealthy,
        "serious": bool(found.leaderless),
    }


def config(found: ConfigRow) -> Row:
    key = f"{found.entity}/{found.name}"
    return {"key": key, "entity": found.entity, "name": found.name, "value": found.value}


# --- sentences ------------------------------------------------------------------------------------


def outdated(summary: IsrSummary, state: QuorumState) -> str:
    """Return why nothing is known about the cluster at present, and since when; empty if it is.

    The verdict on the quorum has the details where it has no leader.
    """
    if not summary.error:
        return ""
    why = summary.error if state.leader is not None else "there is no leader to describe it"
    since = "" if summary.health is None else f" Last update: {clock(summary.health.at_ms)} UTC."
    return f"The state of the cluster is unavailable: {why}.{since}"


def isr_verdict(summary: IsrSummary, state: QuorumState) -> str:
    """Return the state of all partitions in a sentence."""
    health = summary.health
    if summary.error:
        return outdated(summary, state)
    if not summary.is_known:
        return NOT_KNOWN
    if not summary.is_in_use:
        return "No broker is registered and there are no topics."
    if not summary.topics:
        return NO_TOPICS
    if health is None:
        return f"Reading the partitions: {reading(summary)}."
    if _are_hidden(summary):
        return f"No partition is visible: {NOT_AUTHORIZED}."
    if not health.unhealthy:
        return "Every replica of every partition is in sync."
    parts = (f"{count:,}: {problem}" for problem, count in sorted(health.counts.items()))
    shown = (
        f"; the worst {len(health.worst)} are listed"
        if health.unhealthy > len(health.worst)
        else ""
    )
    return f"{'; '.join(parts)}{shown}"


def reading(summary: IsrSummary) -> str:
    """Return how much of the first round is done."""
    return f"{summary.table.partitions:,} of {summary.partitions:,} partitions so far"


def _are_hidden(summary: IsrSummary) -> bool:
    """Whether the cluster has partitions, and the console was shown none of them."""
    return bool(summary.partitions and summary.health and not summary.health.partitions)


def without_topics(summary: IsrSummary, empty: str = NO_TOPICS) -> str:
    """Return what an empty list of topics or their configs means: `empty`, or that it is early."""
    if _are_hidden(summary):
        return f"No topic is visible: {NOT_AUTHORIZED}."
    if summary.has_all_topics:
        return empty
    return READING if summary.is_known else NOT_KNOWN


def topics_note(summary: IsrSummary, state: QuorumState) -> str:
    """Return what limits the list of topics: an error, an unfinished round, or its size."""
    table, notes = summary.table, []
    if summary.error:
        notes.append(outdated(summary, state))
    elif summary.is_known and not summary.has_all_topics:
        notes.append(f"Reading the topics: {reading(summary)}.")
    elif summary.health is not None:
        notes.append(f"Read until {clock(summary.health.at_ms)} UTC.")
    if table.left_out:
        notes.append(f"{table.left_out:,} more topics are not listed.")
    return " ".join(notes)


def named_partitions(found: TopicRow) -> str:
    """Return which partitions of a topic have a problem, empty if none has."""
    if not found.unhealthy:
        return ""
    left_out = found.unhealthy - len(found.named)
    more = f" and {left_out:,} more" if left_out else ""
    return (
        f"{found.under_replicated:,} under-replicated, {found.leaderless:,} without a leader: "
        f"partitions {ids(found.named)}{more}"
    )
