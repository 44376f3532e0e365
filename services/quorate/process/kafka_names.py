"""The names of Kafka's settings that have no effect on Quorate's controller.

A controller.properties file written for Kafka works unchanged: each of these settings is ignored
with a warning. Most are broker settings; the others concern Java's TLS and SASL.
Source: the names that KafkaConfig of Apache Kafka 3.3 to 4.3 declares.
"""

from __future__ import annotations

_FAMILIES = """
compression. confluent. connections. controller.quota. create.topic. delegation.token.
delete.records. follower.fetch. group. listener.name. log.cleaner.
log.flush. log.index. log.local. log.message. log.retention. log.roll. log.segment.
offset. offsets. producer. queued.max. quota. remote. replica. replication.quota. sasl. share.
socket. telemetry. transaction. transactional. unclean.leader. unstable.
"""

_NAMES = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
auto.create.topics.enable auto.include.jmx.reporter
auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms broker.id
broker.id.generation.enable broker.rack client.quota.callback.class
config.providers connection.failed.authentication.delay.ms controlled.shutdown.enable
controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.append.linger.ms controller.socket.timeout.ms cordoned.log.dirs
delete.topic.enable early.start.listeners fetch.max.bytes
fetch.purgatory.purge.interval.requests initial.broker.registration.timeout.ms
inter.broker.protocol.version
internal.metadata.delete.delay.millis internal.metadata.max.batch.size.in.bytes
internal.metadata.max.fetch.size.in.bytes kafka.metrics.polling.interval.secs
kafka.metrics.reporters leader.imbalance.per.broker.percentage
log.cleanup.policy log.dir.failure.timeout.ms log.initial.task.delay.ms
log.preallocate max.connection.creation.rate max.connections.per.ip.overrides
max.incremental.fetch.session.cache.slots max.request.partition.size.limit
message.max.bytes metadata.log.segment.ms metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms min.insync.replicas
num.alter.log.dirs.replica.threads num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers
principal.builder.class
request.timeout.ms reserved.broker.max.id security.inter.broker.protocol security.providers
server.max.startup.time.ms ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
ssl.keymanager.algorithm ssl.keystore.password ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.password
zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
zookeeper.metadata.migration.min.batch.size zookeeper.ssl.cipher.suites
zookeeper.ssl.enabled.protocols zookeeper.ssl.protocol
"""

FAMILIES: tuple[str, ...] = tuple(_FAMILIES.split())
"""Prefixes of names. What a configuration declares takes precedence over them."""

NAMES: frozenset[str] = frozenset(_NAMES.split())


def is_kafkas(name: str) -> bool:
    """Whether Kafka knows the setting `name`. What is not declared has no use here."""
    return name in NAMES or name.startswith(FAMILIES)
