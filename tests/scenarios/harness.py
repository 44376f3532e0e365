"""The commands of the transcripts, over a `Cluster`.

A command is a name, values and options: `add-voter 1 4A timeout=5000`. Nodes are named by id where
one is meant (`crash 2`), by id and directory where a replica is (`4A`). What a command prints is
what happened, less the kinds that `hide` names: fetch, vote, begin, end, snapshot, update, message
(other messages), persist, append, hw, lead, role, voters, notice, lost, refused, answer, all.

The cluster and its time:
  cluster voters=1A,2A [observers=4A] [brokers=7A] [kraft=0] [lead=1] [auto-join=4] [SETTING=MS]
      [loud] [hide=KIND,KIND] [unnamed=4 (whose ApiVersions name no replica, like Kafka's)]
  lose-records 2 3 [silently] (from offset 3 on, of a node that is down; recovery notices or not)
  start 4A | restart 2 | crash 2 (the machine falls silent) | kill 2 (the process: connections
      break and are refused) | lose-disk 2
      with endpoint=[LISTENER:]host:port,..., kraft=0-1, auto-join
  elect 1 | tick 1 | advance MS | run MS (advance, delivering) | settle
  hide KIND... | show KIND... | quietly COMMAND
The network: deliver, drop, refuse, each with [1->2] [Kind] [n=1]; partition 1 | 2 3; cut 1->2; heal
The log: append 1 x y | manual-sync 2 | auto-sync 2 | sync 2 | snapshot 1 5 | clean 1
    manual-install 3 | install 3 | corrupt 3 | longer-partial 3 5@1 (bytes of a snapshot received)
A node's door: shutdown 1 | resign 1 | connection-lost 2 1 | requests (see `handmade.py`)
    cancel 1 LABEL (whoever sent that request gave up)
    brokers 1 101=0-1 102=0-0 (all that are registered, with the kraft.versions they support)
Looking: state | log 1 | ready (what each node's health says)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft import RaftConfig
from quorate.raft.errors import MisuseError
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, ReplicaKey, Voter, VoterSet

from tests.replica.disk import Disk, Snapshot
from tests.replica.voters import without_directories
from tests.scenarios import handmade, rendering
from tests.scenarios.arguments import (
    CLUSTER_ID,
    Arguments,
    parse_endpoint,
    parse_key,
    parse_keys,
    parse_link,
    parse_position,
    parse_range,
    usual_endpoint,
)
from tests.scenarios.cluster import Cluster, Message
from tests.scenarios.node import Node, snapshot_content
from tests.scenarios.wire import Wire

SETTINGS = {f.name for f in fields(RaftConfig) if f.name.endswith(("_ms", "_max"))}


class Harness:
    """One transcript's cluster. wire: what carries its messages, by default the values."""

    def __init__(self, wire: Wire | None = None) -> None:
        self.cluster = Cluster(wire or Wire())
        self._settings: dict[str, int] = {}
        self._static = VoterSet()
        self._bootstrap: tuple[Endpoint, ...] = ()

    def execute(self, line: str) -> list[str]:
        """Do what one line says; return what it printed."""
        name, *words = line.split()
        if name == "quietly":
            hidden, self.cluster.hidden = self.cluster.hidden, {"all"}
            self.execute(line.split(maxsplit=1)[1])
            self.cluster.hidden = hidden
            return self.cluster.take_printed()
        arguments = Arguments.of(words)
        if name in handmade.REQUESTS:
            handmade.execute(self, name, arguments)
        else:
            command: Callable[[Arguments], None] = getattr(self, "do_" + name.replace("-", "_"))
            command(arguments)
        self.cluster.check()
        return self.cluster.take_printed()

    def node(self, text: str) -> Node:
        return self.cluster.nodes[parse_key(text).id]

    # --- the cluster ------------------------------------------------------------------------------

    def do_cluster(self, arguments: Arguments) -> None:
        options = dict(arguments.options)
        voters = parse_keys(options.pop("voters", ""))
        observers = parse_keys(options.pop("observers", ""))
        brokers = parse_keys(options.pop("brokers", ""))
        stopped = {key.id for key in parse_keys(options.pop("stopped", ""))}
        self.cluster.unnamed = {int(each) for each in options.pop("unnamed", "").split(",") if each}
        joining = {key.id for key in parse_keys(options.pop("auto-join", ""))}
        level = int(options.pop("kraft", "1"))
        lead = options.pop("lead", "")
        hidden = set(options.pop("hide", "").split(","))
        for name, value in options.items():
            setting = next(s for s in (f"{name}_ms", name) if s in SETTINGS)
            self._settings[setting] = int(value)
        self._bootstrap = tuple(usual_endpoint(key.id) for key in voters)
        members = VoterSet.of(Voter(key, (usual_endpoint(key.id),)) for key in voters)
        if level == 0:
            self._static = without_directories(members)
        self.cluster.hidden = hidden if arguments.flag("loud") else {"all"}
        for key in [*voters, *observers, *brokers]:
            node = self._add(key, auto_join=key.id in joining, can_vote=key not in brokers)
            if level == 1 and key in voters:
                node.disk.keep(Snapshot(BOOTSTRAP_SNAPSHOT, 1, members, 0, b""))
        for node in list(self.cluster.nodes.values()):
            if node.id not in stopped:
                node.start()
        if lead:
            self.do_elect(Arguments([lead]))
            self.cluster.advance(200, delivers=True)
        self.cluster.hidden = hidden

    def _add(self, key: ReplicaKey, *, auto_join: bool = False, can_vote: bool = True) -> Node:
        config = RaftConfig(
            CLUSTER_ID,
            key,
            (usual_endpoint(key.id),),
            bootstrap=self._bootstrap,
            static_voters=self._static,
            can_vote=can_vote,
            auto_join=auto_join,
            # Without a linger each commit is told in messages of its own, which read more clearly.
            **{"high_watermark_linger_ms": 0, **self._settings},  # type: ignore[arg-type]
        )
        node = self.cluster.nodes[key.id] = Node(self.cluster, config)
        return node

    def _configure(self, node: Node, arguments: Arguments) -> None:
        options = arguments.options
        if "endpoint" in options:
            endpoints = tuple(parse_endpoint(e) for e in options["endpoint"].split(",") if e)
            node.config = replace(node.config, endpoints=endpoints)
        if "kraft" in options:
            node.config = replace(node.config, kraft_version=parse_range(options["kraft"]))
        if arguments.flag("auto-join"):
            node.config = replace(node.config, auto_join=True)
        if arguments.flag("no-voters"):
            # Formatted for kraft.version 1 and above: the voters are in the log alone.
            node.config = replace(node.config, static_voters=VoterSet())

    def do_start(self, arguments: Arguments) -> None:
        key = parse_key(arguments.values[0])
        node = self.cluster.nodes.get(key.id) or self._add(key)
        self._configure(node, arguments)
        if arguments.flag("standalone"):
            self.cluster.is_checked = False  # another quorum with the same cluster id
            members = VoterSet((node.config.voter,))
            node.disk.keep(Snapshot(BOOTSTRAP_SNAPSHOT, 1, members, 0, b""))
        node.start()

    def do_restart(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        if node.raft is not None:
            self.cluster.stop(node, resets=False)
        self._configure(node, arguments)
        node.start()

    def do_crash(self, arguments: Arguments) -> None:
        for value in arguments.values:
            self.cluster.stop(self.node(value), resets=False)

    def do_kill(self, arguments: Arguments) -> None:
        for value in arguments.values:
            self.cluster.stop(self.node(value), resets=True)

    def do_lose_disk(self, arguments: Arguments) -> None:
        """An empty disk gets a new directory id: the next letter."""
        node = self.node(arguments.values[0])
        if node.raft is not None:
            self.cluster.stop(node, resets=False)
        node.use_disk(Disk(chr(ord(node.disk.directory_id) + 1)))
        self._configure(node, arguments)
        node.start()

    def do_lose_records(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        assert node.raft is None, f"{node.name} is not down"
        disk, end_offset = node.disk, int(arguments.values[1])
        if arguments.flag("silently"):
            disk.log.lose(end_offset)
        else:
            disk.lose_records(end_offset)

    # --- time -------------------------------------------------------------------------------------

    def do_elect(self, arguments: Arguments) -> None:
        """Let this node's clock run ahead until it leads."""
        node = self.node(arguments.values[0])
        for _ in range(20):
            assert node.raft is not None
            if node.raft.is_leader:
                return
            due = node.raft.next_deadline_ms()
            self.cluster.now_ms = max(self.cluster.now_ms, due)
            self.cluster.tick(node)
            self.cluster.settle()
        raise AssertionError(f"{node.name} is not elected")

    def do_tick(self, arguments: Arguments) -> None:
        for value in arguments.values:
            self.cluster.tick(self.node(value))

    def do_advance(self, arguments: Arguments) -> None:
        self._let_pass(arguments, delivers=False)

    def do_run(self, arguments: Arguments) -> None:
        self._let_pass(arguments, delivers=True)

    def _let_pass(self, arguments: Arguments, *, delivers: bool) -> None:
        self.cluster.shows_time = True
        if delivers:
            self.cluster.settle()
        self.cluster.advance(int(arguments.values[0]), delivers=delivers)
        self.cluster.shows_time = False

    def do_settle(self, _: Arguments) -> None:
        self.cluster.settle()

    def do_hide(self, arguments: Arguments) -> None:
        self.cluster.hidden |= set(arguments.values)

    def do_show(self, arguments: Arguments) -> None:
        self.cluster.hidden -= set(arguments.values)

    # --- the network ------------------------------------------------------------------------------

    def _select(self, arguments: Arguments) -> list[Message]:
        """Messages under way: of a link, of a kind (a request, or `re:` and the answer's)."""
        source: int | None = None
        target: int | None = None
        kinds = []
        for value in arguments.values:
            if "->" in value:
                source, target = parse_link(value)
            else:
                kinds.append(value)
        chosen = [
            message
            for message in self.cluster.network
            if source in (None, message.source)
            and target in (None, message.target)
            and all(kind in message.text.split() for kind in kinds)
        ]
        return chosen[: int(arguments.options.get("n", len(chosen)))]

    def do_deliver(self, arguments: Arguments) -> None:
        for message in self._select(arguments):
            self.cluster.deliver(message)

    def do_drop(self, arguments: Arguments) -> None:
        for message in self._select(arguments):
            self.cluster.network.remove(message)
            self.cluster.show("lost", f"lost: {message.text}", message=message)

    def do_refuse(self, arguments: Arguments) -> None:
        for message in self._select(arguments):
            assert not message.is_response, "only a request can be refused"
            self.cluster.network.remove(message)
            self.cluster.refuse(message)

    def do_partition(self, arguments: Arguments) -> None:
        groups: list[list[int]] = [[]]
        for value in arguments.values:
            if value == "|":
                groups.append([])
            else:
                groups[-1].append(int(value))
        for group in groups:
            for node_id in group:
                others = {other for g in groups if g is not group for other in g}
                self.cluster.cut |= {(node_id, other) for other in others}

    def do_cut(self, arguments: Arguments) -> None:
        for value in arguments.values:
            source, target = parse_link(value)
            assert source is not None
            assert target is not None
            self.cluster.cut.add((source, target))

    def do_heal(self, _: Arguments) -> None:
        self.cluster.cut.clear()

    # --- the log ----------------------------------------------------------------------------------

    def do_append(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        raft = node.raft
        assert raft is not None
        payloads = [(1, data) for data in arguments.values[1:]]
        result = node.feed(raft.append, payloads)
        if isinstance(result, ErrorCode):
            self.cluster.show("answer", f"{node.name} refuses to append: {result.name}")

    def do_manual_sync(self, arguments: Arguments) -> None:
        for value in arguments.values:
            self.node(value).syncs_itself = False

    def do_auto_sync(self, arguments: Arguments) -> None:
        for value in arguments.values:
            self.node(value).syncs_itself = True
            self.do_sync(Arguments([value]))

    def do_sync(self, arguments: Arguments) -> None:
        for value in arguments.values:
            node = self.node(value)
            node.feed(node.sync)

    def do_brokers(self, arguments: Arguments) -> None:
        """The controller tells of the registered brokers."""
        raft = self.node(arguments.values[0]).raft
        assert raft is not None
        raft.observers_support(
            {int(broker): parse_range(text) for broker, text in arguments.options.items()}
        )

    def do_snapshot(self, arguments: Arguments) -> None:
        """The state machine wrote a snapshot that ends at an offset (default: all committed)."""
        node = self.node(arguments.values[0])
        raft = node.raft
        assert raft is not None
        given = arguments.values[1:]
        offset = int(given[0]) if given else raft.high_watermark
        snapshot = node.snapshot_at(offset, 0, snapshot_content)
        try:
            node.feed(node.keep, snapshot)
        except MisuseError as error:
            self.cluster.show("snapshot", f"{node.name} refuses: {error}")
            return
        self.cluster.snapshots[snapshot.content] = snapshot
        members = rendering.voters(raft.membership_at(offset)[1])
        self.cluster.show("snapshot", f"{node.name} has snapshot {snapshot.id} with {members}")

    def do_clean(self, arguments: Arguments) -> None:
        """Delete the log before the latest snapshot."""
        node = self.node(arguments.values[0])
        start = max(node.disk.snapshots)
        node.feed(node.clean, start)
        self.cluster.show("snapshot", f"{node.name} log starts at {start}")

    def do_manual_install(self, arguments: Arguments) -> None:
        self.node(arguments.values[0]).installs_itself = False

    def do_install(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        node.installs_itself = True
        node.feed(node.install_received)

    def do_corrupt(self, arguments: Arguments) -> None:
        """What was received of a snapshot is not what was sent."""
        disk = self.node(arguments.values[0]).disk
        for part in disk.parts.values():
            part[:] = b"?" * len(part)

    def do_longer_partial(self, arguments: Arguments) -> None:
        """More bytes of a snapshot lie here than the leader's has."""
        name = parse_position(arguments.values[1])
        self.node(arguments.values[0]).disk.parts[name] = bytearray(b"?" * 4096)

    # --- a node's door ----------------------------------------------------------------------------

    def do_shutdown(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        assert node.raft is not None
        node.feed(node.raft.shut_down)

    def do_resign(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        assert node.raft is not None
        reason = " ".join(arguments.values[1:])
        node.feed(node.raft.resign, reason)

    def do_cancel(self, arguments: Arguments) -> None:
        """The sender of a request, named by its label, disconnects."""
        node = self.node(arguments.values[0])
        assert node.raft is not None
        label = " ".join(arguments.values[1:])
        request_id = next(i for i, waiter in node.waiting.items() if waiter[0] == label)
        del node.waiting[request_id]
        node.feed(node.raft.cancel_request, request_id)

    def do_connection_lost(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        assert node.raft is not None
        node.feed(node.raft.connection_lost, int(arguments.values[1]))

    # --- looking ----------------------------------------------------------------------------------

    def do_state(self, arguments: Arguments) -> None:
        chosen = [self.node(v) for v in arguments.values] or list(self.cluster.nodes.values())
        for node in sorted(chosen, key=lambda n: n.id):
            if node.raft is None:
                self.cluster.printed.append(f"{node.name} down")
                continue
            raft, log = node.raft, node.raft.core.log
            led_by = raft.current_leader.id
            of = "" if led_by in (None, node.id) else f" of {led_by}"
            text = f"{node.name} {raft.role}{of} epoch={raft.epoch}"
            text += f" log={log.start.offset}..{log.end_offset}@{log.last_epoch}"
            text += f" durable={log.durable_end}" if not log.is_durable else ""
            text += f" hw={raft.high_watermark} kraft.version={raft.kraft_version}"
            self.cluster.printed.append(f"{text} voters={rendering.voters(raft.voters)}")

    def do_ready(self, _: Arguments) -> None:
        up = [node for node in self.cluster.nodes.values() if node.raft is not None]
        words = {True: "ready", False: "not ready"}
        told = (f"{n.name} {words[n.raft.is_attached]}" for n in up if n.raft is not None)
        self.cluster.printed.append(", ".join(told))

    def do_log(self, arguments: Arguments) -> None:
        node = self.node(arguments.values[0])
        log = node.disk.log
        for batch in log.batches_between(0, log.end):
            self.cluster.printed.append(f"  {rendering.batch(batch)}")
