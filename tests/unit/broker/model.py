"""A small deterministic cluster: real partition replicas, the real metadata controller, and a world
that delays, loses and reorders messages, kills brokers and takes their unflushed tails.

One partition with replicas on brokers 1, 2 and 3 and min.insync.replicas=2. The metadata log is a
list of committed batches; every broker replays it at its own pace. One random source decides all.

What must hold after every step (`check`), and what must be there when everything is healed:
1. who leads in the controller's eyes, and has learnt of it, has every acknowledged record;
2. the committed ISR holds no fenced, stopping or unregistered broker unless it is its last member.

Which tails may be lost, in order of what is promised:

    Promise.FENCING   one broker of the ISR at a time loses its tail, and until the controller has
                      taken it out no other member fails (KIP-841)
    Promise.ELIGIBLE  one broker at a time stops uncleanly, whatever else becomes of the others:
                      they may be fenced or stop (eligible leader replicas, KIP-966)
    Promise.FLUSHED   any, at any time: nobody acknowledges what it has not flushed
"""

from __future__ import annotations

import random
from collections.abc import Callable

from quorate.broker.partition import PartitionConfig, PartitionReplica
from quorate.broker.values import (
    FetchAnswer,
    ProposalAnswer,
    ProposeIsr,
    ReplicaPosition,
)
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata.controller import MetadataController
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.metadata_version import ELR_VERSION, LATEST_LEVEL, SUPPORTED
from quorate.metadata.requests import (
    AlterPartition,
    BrokerFeature,
    BrokerHeartbeat,
    CreateTopics,
    NewTopic,
    PartitionProposal,
    RegisterBroker,
    TopicProposals,
)
from quorate.metadata.settings import ControllerSettings
from quorate.raft.batches import Batch
from quorate.rpc.wire.partition_values import PartitionKey

from tests.unit.broker.model_values import Disk, LossError, Process, Promise

BROKERS = (1, 2, 3)
TOPIC = "t"
SESSION_MS = 1_500
LAG_MS = 1_000
RETRY_MS = 200


class World:
    """See above. safe: whether KIP-841's checks are on."""

    def __init__(self, seed: int, promise: Promise = Promise.FENCING, *, safe: bool = True) -> None:
        self.promise = promise
        self.random = random.Random(seed)
        self.config = PartitionConfig(
            min_insync_replicas=2,
            lag_time_max_ms=LAG_MS,
            flush_before_ack=promise is Promise.FLUSHED,
            check_eligibility=safe,
        )
        self.now_ms = 0
        self.offset = 0
        self.batches: list[tuple[int, tuple[object, ...]]] = []
        self.image = MetadataImage()
        self.controller = MetadataController(
            lambda: self.random.randbytes(16),
            ControllerSettings(session_timeout_ms=SESSION_MS),
            bootstrap_levels={METADATA_VERSION: LATEST_LEVEL}
            | ({ELR_VERSION: 1} if promise is Promise.ELIGIBLE else {}),
            enforce_eligibility=safe,
        )
        self.disks = {broker: Disk() for broker in BROKERS}
        self.processes: dict[int, Process] = {}
        self.messages: list[Callable[[], None]] = []
        self.produced = 0
        self.pending: dict[str, tuple[int, int]] = {}
        """Records that wait for their acknowledgement: broker epoch of the leader, end offset."""
        self.acknowledged: dict[int, str] = {}
        self.lost_tails = 0
        self.unsound: set[int] = set()
        """Brokers that failed and that the controller may still take for what they were."""
        self.key = PartitionKey("", 0)
        self._commit(self.controller.activate(self.image, 1, self.now_ms, self.offset))
        self._begin()

    def _begin(self) -> None:
        for broker in BROKERS:
            self.start(broker)
        self._settle(lambda: all(self._is_active(broker) for broker in BROKERS))
        topic = NewTopic(TOPIC, assignments=(BROKERS,), configs=(("min.insync.replicas", "2"),))
        self._ask(CreateTopics((topic,)))
        self.key = PartitionKey(self.image.topics.ids[TOPIC], 0)
        self._settle(lambda: self.leader() is not None)

    # --- the controller ---------------------------------------------------------------------------

    def _commit(self, result: object) -> object:
        """One atomic batch, committed at once."""
        records = result.records if result is not None else ()  # type: ignore[attr-defined]
        if records:
            self.image.apply_batch(records, self.offset, 1, self.now_ms)
            self.batches.append((self.offset, records))
            self.offset += len(records)
        return None if result is None else result.response  # type: ignore[attr-defined]

    def _ask(self, request: object) -> object:
        return self._commit(self.controller.handle(request, self.now_ms, self.offset))

    def _is_active(self, broker: int) -> bool:
        return self.image.cluster.is_active(broker)

    def isr(self) -> tuple[int, ...]:
        found = self.image.topics.partition(*self._where)
        return () if found is None else found.isr

    @property
    def _where(self) -> tuple[str, int]:
        return self.key.topic_id, self.key.index

    # --- brokers ----------------------------------------------------------------------------------

    def start(self, broker: int) -> None:
        disk = self.disks[broker]
        incarnation = uuid_from_bytes(self.random.randbytes(16))
        self.processes[broker] = Process(incarnation, disk.clean_epoch)
        disk.clean_epoch = -1

    def register(self, broker: int) -> None:
        process = self.processes[broker]
        answer = self._ask(
            RegisterBroker(
                broker,
                process.incarnation,
                (Endpoint("PLAINTEXT", "localhost", 9000 + broker),),
                log_dirs=(uuid_from_bytes(bytes([broker] * 16)),),
                features=tuple(BrokerFeature(n, levels) for n, levels in SUPPORTED.items()),
                previous_epoch=process.previous_epoch,
            )
        )
        if answer.error is ErrorCode.NONE:  # type: ignore[attr-defined]
            process.epoch = answer.broker_epoch  # type: ignore[attr-defined]

    def heartbeat(self, broker: int) -> None:
        process = self.processes[broker]
        last = self.batches[process.replayed - 1] if process.replayed else (0, ())
        answer = self._ask(
            BrokerHeartbeat(
                broker,
                process.epoch,
                last[0] + len(last[1]) - 1,
                want_fence=process.replica is None,
                want_shutdown=process.stopping and self.may_end(broker),
            )
        )
        if answer.should_shut_down:  # type: ignore[attr-defined]
            self.end(broker, clean=True)

    def replay(self, broker: int) -> None:
        """One more batch of the metadata log reaches a broker."""
        process = self.processes[broker]
        if process.replayed == len(self.batches):
            return
        base, records = self.batches[process.replayed]
        process.replayed += 1
        changes = process.image.apply_batch(records, base, 1, self.now_ms)
        process.view.follow(process.image, changes)
        state = process.view.partition(self.key)
        is_past_registration = base + len(records) > process.epoch >= 0
        if process.replica is None and is_past_registration:
            log = self.disks[broker].state()
            process.replica = PartitionReplica(broker, log, self.config)
            if not self.config.flush_before_ack:
                self.disks[broker].flushed = len(self.disks[broker].entries)
        if process.replica is not None and state is not None:
            process.replica.apply(state, process.view.brokers, self.now_ms)
            process.replica.brokers_changed(process.view.brokers)
            self._execute(broker)

    def end(self, broker: int, *, clean: bool = False, lose_tail: bool = False) -> None:
        """A process ends: in order, or killed, perhaps with what it had not flushed."""
        disk, process = self.disks[broker], self.processes.pop(broker)
        if clean:
            disk.flushed = len(disk.entries)
            disk.clean_epoch = process.epoch
        elif lose_tail:
            del disk.entries[disk.flushed :]
            self.lost_tails += 1
        if lose_tail or (self.promise is Promise.ELIGIBLE and not clean):
            self.unsound.add(broker)

    def in_sync(self) -> set[int]:
        """Who could lead without a loss, if it has kept its tail."""
        found = self.image.topics.partition(*self._where)
        return set() if found is None else {*found.isr, *(found.eligible_leader_replicas or ())}

    def _registered(self) -> set[int]:
        """Brokers whose process is the one that the controller knows."""
        known = self.image.cluster.brokers
        return {
            b for b, p in self.processes.items() if b in known and p.epoch == known[b].broker_epoch
        }

    def may_lose_tail(self, broker: int) -> bool:
        left = self.in_sync() - self.unsound - {broker}
        match self.promise:
            case Promise.FLUSHED:
                return True
            case Promise.ELIGIBLE:
                return not self.unsound and bool(left)
            case Promise.FENCING:
                # An ISR without the others may be on its way to the controller.
                is_asking = bool(self.processes[broker].asked)
                others_live = bool(left) and left <= self._registered()
                return others_live and not self.unsound and not is_asking

    def may_end(self, broker: int) -> bool:
        """Whether this failure may come now."""
        if self.promise is Promise.ELIGIBLE:
            return self.may_lose_tail(broker)
        return self.promise is Promise.FLUSHED or not self.unsound or broker not in self.isr()

    # --- replicas ---------------------------------------------------------------------------------

    def _execute(self, broker: int) -> None:
        process = self.processes[broker]
        assert process.replica is not None
        entries = self.disks[broker].entries
        for output in process.replica.take_outputs():
            match type(output).__name__:
                case "AppendReplicaBatches":
                    entries += [(b, str(b.data)) for b in output.batches]  # type: ignore[union-attr]
                case "TruncateReplicaLog":
                    while entries and entries[-1][0].end_offset > output.end_offset:  # type: ignore[union-attr]
                        entries.pop()
                    disk = self.disks[broker]
                    disk.flushed = min(disk.flushed, len(entries))
                case "ReplicaRoleChanged":
                    # Its producers are told that it no longer leads, or not in that epoch.
                    self.pending = {
                        record: (epoch, end)
                        for record, (epoch, end) in self.pending.items()
                        if epoch != process.epoch
                    }
                case "ProposeIsr":
                    assert isinstance(output, ProposeIsr)
                    process.asked.append(output)
                    process.asked_again_ms = 0
                case "ReplicaHighWatermarkAdvanced":
                    self._acknowledge(broker, output.offset)  # type: ignore[union-attr]

    def _acknowledge(self, broker: int, high_watermark: int) -> None:
        """The leader answers producers that wait for what is below the high watermark."""
        process = self.processes[broker]
        assert process.replica is not None
        for record, (epoch, end) in list(self.pending.items()):
            is_its = process.replica.is_leader and epoch == process.epoch
            if is_its and end <= high_watermark:
                del self.pending[record]
                self.acknowledged[end - 1] = record

    def produce(self, broker: int) -> None:
        process = self.processes[broker]
        assert process.replica is not None
        name = f"r{self.produced}"
        base = process.replica.append(Batch(0, 0, 0, (), name), acks_all=True)
        if not isinstance(base, ErrorCode):
            self.produced += 1
            self.pending[name] = (process.epoch, base + 1)
            self._execute(broker)

    def flush(self, broker: int) -> None:
        process, disk = self.processes[broker], self.disks[broker]
        disk.flushed = len(disk.entries)
        if process.replica is not None:
            process.replica.flushed(process.replica.log.end_offset)
            self._execute(broker)

    def fetch(self, follower: int) -> None:
        """A fetch sets out; it arrives when the world delivers it, or never."""
        process = self.processes[follower]
        replica = process.replica
        position = replica.position() if replica is not None else None
        if replica is None or position is None:
            return
        leader, epoch = replica.leader_id, process.epoch
        self.messages.append(lambda: self._serve(leader, follower, process, epoch, position))

    def _serve(
        self, leader: int, follower: int, asker: Process, epoch: int, position: ReplicaPosition
    ) -> None:
        process = self.processes.get(leader)
        if process is None or process.replica is None:
            return
        answer = process.replica.fetch(follower, epoch, position, self.now_ms)
        self._execute(leader)
        batches: list[Batch] = []
        if answer.read_from is not None:
            first = self.random.randint(1, 3)
            found = [b for b, _ in self.disks[leader].entries if b.base_offset >= answer.read_from]
            batches = found[:first]
        self.messages.append(lambda: self._answered(follower, asker, position, answer, batches))

    def _answered(
        self,
        follower: int,
        asker: Process,
        position: ReplicaPosition,
        answer: FetchAnswer,
        batches: list[Batch],
    ) -> None:
        if self.processes.get(follower) is asker and asker.replica is not None:
            asker.replica.fetched(position, answer, batches)
            self._execute(follower)

    def propose(self, broker: int) -> None:
        """A proposal sets out, again when no answer came for a while."""
        process = self.processes[broker]
        assert process.replica is not None
        process.asked = [each for each in process.asked if process.replica.is_asked(each)]
        if process.asked and self.now_ms >= process.asked_again_ms:
            process.asked_again_ms = self.now_ms + RETRY_MS
            proposal = process.asked[-1]
            self.messages.append(lambda: self._alter(broker, process, proposal))

    def _alter(self, broker: int, process: Process, proposal: ProposeIsr) -> None:
        answer = self._ask(
            AlterPartition(
                broker,
                process.epoch,
                (
                    TopicProposals(
                        (
                            PartitionProposal(
                                0, proposal.leader_epoch, proposal.partition_epoch, proposal.isr
                            ),
                        ),
                        self.key.topic_id,
                    ),
                ),
            )
        )
        said = ProposalAnswer(answer.error)  # type: ignore[attr-defined]
        for topic in answer.topics:  # type: ignore[attr-defined]
            for each in topic.partitions:
                said = ProposalAnswer(
                    each.error, each.leader, each.leader_epoch, each.isr, each.partition_epoch
                )
        lost = self.random.random() < 0.1
        said = ProposalAnswer(ErrorCode.NETWORK_EXCEPTION) if lost else said
        self.messages.append(lambda: self._altered(broker, process, proposal, said))

    def _altered(
        self, broker: int, process: Process, proposal: ProposeIsr, answer: ProposalAnswer
    ) -> None:
        if self.processes.get(broker) is process and process.replica is not None:
            process.replica.isr_answered(proposal, answer, self.now_ms)
            self._execute(broker)

    # --- the world --------------------------------------------------------------------------------

    def leader(self) -> int | None:
        """The broker that the controller takes for the leader and that knows it."""
        state = self.image.topics.partition(*self._where)
        process = self.processes.get(state.leader) if state is not None else None
        if state is None or process is None or process.replica is None:
            return None
        replica = process.replica
        is_leader = replica.is_leader and replica.leader_epoch == state.leader_epoch
        return state.leader if is_leader else None

    def step(self) -> None:
        """Something happens."""
        alive = [b for b, p in self.processes.items() if p.replica is not None]
        kind = self.random.random()
        if self.messages and kind < 0.45:
            message = self.messages.pop(self.random.randrange(len(self.messages)))
            if self.random.random() < 0.93:
                message()
        elif kind < 0.995:
            self._ordinary(alive)
        elif self.processes:
            self._disaster()
        del self.messages[200:]
        self.check()

    def _ordinary(self, alive: list[int]) -> None:
        broker = self.random.choice(BROKERS)
        process = self.processes.get(broker)
        if process is None:
            if self.random.random() < 0.2:
                self.start(broker)
        elif process.epoch < 0:
            self.register(broker)
        else:
            actions: list[Callable[[int], None]] = [self.heartbeat, self.replay, self.replay]
            if broker in alive:
                actions += [self.fetch] * 4 + [self.produce] * 2 + [self.propose] * 2
                actions += [self._tick]
                if self.config.flush_before_ack or self.random.random() < 0.1:
                    actions += [self.flush]
            self.random.choice(actions)(broker)
        self._pass(self.random.choice((0, 0, 1, 5, 20, 50)))

    def _tick(self, broker: int) -> None:
        process = self.processes[broker]
        assert process.replica is not None
        process.replica.tick(self.now_ms)
        self._execute(broker)

    def _pass(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        if self.promise is Promise.FENCING and self.unsound:
            # The end of a session is a failure too.
            for broker in set(self.isr()) & self.processes.keys():
                if self.processes[broker].epoch >= 0:
                    self.heartbeat(broker)
        self._commit(self.controller.tick(self.now_ms, self.offset))

    def _disaster(self) -> None:
        broker = self.random.choice(tuple(self.processes))
        process = self.processes[broker]
        kind = self.random.random()
        if not self.may_end(broker):
            return
        if kind < 0.3 and process.epoch >= 0:
            process.stopping = True
        elif kind < 0.7 and self.may_lose_tail(broker):
            self.end(broker, lose_tail=True)
        else:
            self.end(broker)

    def check(self) -> None:
        """What must hold all the time."""
        isr = self.isr()
        # Who is out, and known to be another process, must catch up before it is back.
        self.unsound -= self._registered() - self.in_sync()
        if len(isr) > 1:
            odd = [broker for broker in isr if not self._is_active(broker)]
            if odd:
                raise LossError(f"ISR {isr} with {odd}, which are not active")
        leader = self.leader()
        if leader is not None:
            self._check_log(leader)

    def _check_log(self, broker: int) -> None:
        entries = self.disks[broker].entries
        for offset, record in self.acknowledged.items():
            found = entries[offset][1] if offset < len(entries) else None
            if found != record:
                raise LossError(f"broker {broker} leads without {record} at {offset}: {found}")

    def _settle(self, condition: Callable[[], bool]) -> None:
        """A time without losses, until a condition holds."""
        for _ in range(3_000):
            if condition():
                return
            for broker in BROKERS:
                if broker not in self.processes:
                    self.start(broker)
                process = self.processes[broker]
                if process.epoch < 0:
                    self.register(broker)
                    continue
                for _ in range(5):
                    self.replay(broker)
                self.heartbeat(broker)
                if broker in self.processes and process.replica is not None:
                    self.flush(broker)
                    self._tick(broker)
                    self.propose(broker)
                    self.fetch(broker)
            waiting, self.messages = self.messages, []
            for message in waiting:
                message()
            self._pass(50)
            self.check()
        raise LossError("the cluster does not come back")

    def _is_whole(self) -> bool:
        """Three processes, as they are registered, in the ISR, and a leader."""
        registered = {broker: self.image.cluster.brokers[broker].broker_epoch for broker in BROKERS}
        alive = {b: p.epoch for b, p in self.processes.items() if p.replica is not None}
        return alive == registered and set(self.isr()) == set(BROKERS) and self.leader() is not None

    def heal(self) -> None:
        """Everybody comes back and catches up: all that was acknowledged must be everywhere."""
        for broker, process in tuple(self.processes.items()):
            if process.stopping:
                self.end(broker, clean=True)
        self._settle(self._is_whole)
        leader = self.leader()
        assert leader is not None
        for _ in range(20):
            self.produce(leader)
        replicas = [self.processes[b].replica for b in BROKERS]
        self._settle(
            lambda: (
                len({r.log.end_offset for r in replicas if r is not None}) == 1
                and not self.pending.keys() & {f"r{self.produced - 1}"}
            )
        )
        for broker in BROKERS:
            self._check_log(broker)
