"""The configs of Kafka 4.3, and those of applications: names, types, defaults and valid values.

`TOPIC` is complete: any other name is rejected. `BROKER` holds the configs that can be changed
while a broker runs, `STATIC_BROKER` those that cannot. Names in neither belong to plugins and take
any value. A broker config that begins with `listener.name.NAME.` applies to one listener.
`APPLICATION` has cluster-wide defaults that Kafka does not know.

Source: Kafka 4.3's LogConfig, DynamicBrokerConfig, GroupConfig, ClientMetricsConfigs. Names, types,
defaults and ranges follow its ConfigDefs.
"""

from __future__ import annotations

from typing import Final

from quorate.metadata.config.config_types import ConfigKey, ConfigKeyType


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_name(*defs: ConfigKey) -> dict[str, ConfigKey]:
    return {found.name: found for found in defs}


TOPIC: Final = _by_name(
    ConfigKey(
        "cleanup.policy",
        ConfigKeyType.LIST,
        "delete",
        choices=("compact", "delete"),
        synonym="log.cleanup.policy",
    ),
    ConfigKey("compression.gzip.level", ConfigKeyType.INT, "-1", low=1, high=9, or_minus_one=True),
    ConfigKey("compression.lz4.level", ConfigKeyType.INT, "9", low=1, high=17),
    ConfigKey(
        "compression.type",
        ConfigKeyType.STRING,
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigKey("compression.zstd.level", ConfigKeyType.INT, "3", low=-131072, high=22),
    ConfigKey(
        "delete.retention.ms",
        ConfigKeyType.LONG,
        "86400000",
        low=0,
        synonym="log.cleaner.delete.retention.ms",
    ),
    ConfigKey(
        "file.delete.delay.ms",
        ConfigKeyType.LONG,
        "60000",
        low=0,
        synonym="log.segment.delete.delay.ms",
    ),
    ConfigKey(
        "flush.messages",
        ConfigKeyType.LONG,
        "9223372036854775807",
        low=1,
        synonym="log.flush.interval.messages",
    ),
    ConfigKey(
        "flush.ms",
        ConfigKeyType.LONG,
        "9223372036854775807",
        low=0,
        synonym="log.flush.interval.ms",
    ),
    ConfigKey("follower.replication.throttled.replicas", ConfigKeyType.LIST, "", throttled=True),
    ConfigKey(
        "index.interval.bytes", ConfigKeyType.INT, "4096", low=0, synonym="log.index.interval.bytes"
    ),
    ConfigKey("internal.segment.bytes", ConfigKeyType.INT, None),
    ConfigKey("leader.replication.throttled.replicas", ConfigKeyType.LIST, "", throttled=True),
    ConfigKey(
        "local.retention.bytes",
        ConfigKeyType.LONG,
        "-2",
        low=-2,
        synonym="log.local.retention.bytes",
    ),
    ConfigKey(
        "local.retention.ms", ConfigKeyType.LONG, "-2", low=-2, synonym="log.local.retention.ms"
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        ConfigKeyType.LONG,
        "9223372036854775807",
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    ConfigKey(
        "max.message.bytes", ConfigKeyType.INT, "1048588", low=0, synonym="message.max.bytes"
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        ConfigKeyType.LONG,
        "3600000",
        low=0,
        synonym="log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        ConfigKeyType.LONG,
        "9223372036854775807",
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    ),
    ConfigKey(
        "message.timestamp.type",
        ConfigKeyType.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        ConfigKeyType.DOUBLE,
        "0.5",
        low=0,
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        ConfigKeyType.LONG,
        "0",
        low=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    ConfigKey("min.insync.replicas", ConfigKeyType.INT, "1", low=1),
    ConfigKey("preallocate", ConfigKeyType.BOOLEAN, "false", synonym="log.preallocate"),
    ConfigKey("remote.log.copy.disable", ConfigKeyType.BOOLEAN, "false"),
    ConfigKey("remote.log.delete.on.disable", ConfigKeyType.BOOLEAN, "false"),
    ConfigKey("remote.storage.enable", ConfigKeyType.BOOLEAN, "false"),
    ConfigKey("retention.bytes", ConfigKeyType.LONG, "-1", synonym="log.retention.bytes"),
    ConfigKey("retention.ms", ConfigKeyType.LONG, "604800000", low=-1, synonym="log.retention.ms"),
    ConfigKey(
        "segment.bytes", ConfigKeyType.INT, "1073741824", low=1048576, synonym="log.segment.bytes"
    ),
    ConfigKey(
        "segment.index.bytes",
        ConfigKeyType.INT,
        "10485760",
        low=4,
        synonym="log.index.size.max.bytes",
    ),
    ConfigKey("segment.jitter.ms", ConfigKeyType.LONG, "0", low=0, synonym="log.roll.jitter.ms"),
    ConfigKey("segment.ms", ConfigKeyType.LONG, "604800000", low=1, synonym="log.roll.ms"),
    ConfigKey("unclean.leader.election.enable", ConfigKeyType.BOOLEAN, "false"),
)
"""Topic configs."""

BROKER: Final = _by_name(
    ConfigKey("background.threads", ConfigKeyType.INT, "10", low=1),
    ConfigKey("compression.gzip.level", ConfigKeyType.INT, "-1", low=1, high=9, or_minus_one=True),
    ConfigKey("compression.lz4.level", ConfigKeyType.INT, "9", low=1, high=17),
    ConfigKey(
        "compression.type",
        ConfigKeyType.STRING,
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigKey("compression.zstd.level", ConfigKeyType.INT, "3", low=-131072, high=22),
    ConfigKey("config.providers", ConfigKeyType.LIST, ""),
    ConfigKey("cordoned.log.dirs", ConfigKeyType.LIST, ""),
    ConfigKey("follower.fetch.last.tiered.offset.enable", ConfigKeyType.BOOLEAN, "false"),
    ConfigKey("follower.replication.throttled.rate", ConfigKeyType.LONG, None),
    ConfigKey("group.consumer.assignment.interval.ms", ConfigKeyType.INT, "1000", low=0),
    ConfigKey(
        "group.coordinator.cached.buffer.max.bytes", ConfigKeyType.INT, "1048588", low=524288
    ),
    ConfigKey("group.share.assignment.interval.ms", ConfigKeyType.INT, "1000", low=0),
    ConfigKey("group.streams.assignment.interval.ms", ConfigKeyType.INT, "1000", low=0),
    ConfigKey("leader.replication.throttled.rate", ConfigKeyType.LONG, None),
    ConfigKey(
        "listener.security.protocol.map",
        ConfigKeyType.STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    ),
    ConfigKey("listeners", ConfigKeyType.LIST, "PLAINTEXT://:9092"),
    ConfigKey("log.cleaner.backoff.ms", ConfigKeyType.LONG, "15000", low=0),
    ConfigKey("log.cleaner.dedupe.buffer.size", ConfigKeyType.LONG, "134217728"),
    ConfigKey("log.cleaner.delete.retention.ms", ConfigKeyType.LONG, "86400000", low=0),
    ConfigKey("log.cleaner.io.buffer.load.factor", ConfigKeyType.DOUBLE, "0.9"),
    ConfigKey("log.cleaner.io.buffer.size", ConfigKeyType.INT, "524288", low=0),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second", ConfigKeyType.DOUBLE, "1.7976931348623157E308"
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms", ConfigKeyType.LONG, "9223372036854775807", low=1
    ),
    ConfigKey("log.cleaner.min.cleanable.ratio", ConfigKeyType.DOUBLE, "0.5", low=0, high=1),
    ConfigKey("log.cleaner.min.compaction.lag.ms", ConfigKeyType.LONG, "0", low=0),
    ConfigKey("log.cleaner.threads", ConfigKeyType.INT, "1", low=0),
    ConfigKey("log.cleanup.policy", ConfigKeyType.LIST, "delete", choices=("compact", "delete")),
    ConfigKey("log.flush.interval.messages", ConfigKeyType.LONG, "9223372036854775807", low=1),
    ConfigKey("log.flush.interval.ms", ConfigKeyType.LONG, None),
    ConfigKey("log.index.interval.bytes", ConfigKeyType.INT, "4096", low=0),
    ConfigKey("log.index.size.max.bytes", ConfigKeyType.INT, "10485760", low=4),
    ConfigKey("log.local.retention.bytes", ConfigKeyType.LONG, "-2", low=-2),
    ConfigKey("log.local.retention.ms", ConfigKeyType.LONG, "-2", low=-2),
    ConfigKey("log.message.timestamp.after.max.ms", ConfigKeyType.LONG, "3600000", low=0),
    ConfigKey(
        "log.message.timestamp.before.max.ms", ConfigKeyType.LONG, "9223372036854775807", low=0
    ),
    ConfigKey(
        "log.message.timestamp.type",
        ConfigKeyType.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigKey("log.preallocate", ConfigKeyType.BOOLEAN, "false"),
    ConfigKey("log.retention.bytes", ConfigKeyType.LONG, "-1"),
    ConfigKey("log.retention.ms", ConfigKeyType.LONG, None),
    ConfigKey("log.roll.jitter.ms", ConfigKeyType.LONG, None),
    ConfigKey("log.roll.ms", ConfigKeyType.LONG, None),
    ConfigKey("log.segment.bytes", ConfigKeyType.INT, "1073741824", low=1048576),
    ConfigKey("log.segment.delete.delay.ms", ConfigKeyType.LONG, "60000", low=0),
    ConfigKey("max.connection.creation.rate", ConfigKeyType.INT, "2147483647", low=0),
    ConfigKey("max.connections", ConfigKeyType.INT, "2147483647", low=0),
    ConfigKey("max.connections.per.ip", ConfigKeyType.INT, "2147483647", low=0),
    ConfigKey("max.connections.per.ip.overrides", ConfigKeyType.STRING, ""),
    ConfigKey("message.max.bytes", ConfigKeyType.INT, "1048588", low=0),
    ConfigKey(
        "metric.reporters", ConfigKeyType.LIST, "org.apache.kafka.common.metrics.JmxReporter"
    ),
    ConfigKey("min.insync.replicas", ConfigKeyType.INT, "1", low=1),
    ConfigKey("num.io.threads", ConfigKeyType.INT, "8", low=1),
    ConfigKey("num.network.threads", ConfigKeyType.INT, "3", low=1),
    ConfigKey("num.recovery.threads.per.data.dir", ConfigKeyType.INT, "2", low=1),
    ConfigKey("num.replica.fetchers", ConfigKeyType.INT, "1", low=1),
    ConfigKey(
        "principal.builder.class",
        ConfigKeyType.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    ConfigKey("producer.id.expiration.ms", ConfigKeyType.INT, "86400000", low=1),
    ConfigKey("remote.fetch.max.wait.ms", ConfigKeyType.INT, "500", low=1),
    ConfigKey("remote.list.offsets.request.timeout.ms", ConfigKeyType.LONG, "30000", low=1),
    ConfigKey(
        "remote.log.index.file.cache.total.size.bytes", ConfigKeyType.LONG, "1073741824", low=1
    ),
    ConfigKey("remote.log.manager.copier.thread.pool.size", ConfigKeyType.INT, "10", low=1),
    ConfigKey(
        "remote.log.manager.copy.max.bytes.per.second",
        ConfigKeyType.LONG,
        "9223372036854775807",
        low=1,
    ),
    ConfigKey("remote.log.manager.expiration.thread.pool.size", ConfigKeyType.INT, "10", low=1),
    ConfigKey(
        "remote.log.manager.fetch.max.bytes.per.second",
        ConfigKeyType.LONG,
        "9223372036854775807",
        low=1,
    ),
    ConfigKey("remote.log.manager.follower.thread.pool.size", ConfigKeyType.INT, "2", low=1),
    ConfigKey("remote.log.reader.threads", ConfigKeyType.INT, "10", low=1),
    ConfigKey("replica.alter.log.dirs.io.max.bytes.per.second", ConfigKeyType.LONG, None),
    ConfigKey("sasl.enabled.mechanisms", ConfigKeyType.LIST, "GSSAPI"),
    ConfigKey("sasl.jaas.config", ConfigKeyType.PASSWORD, None),
    ConfigKey("sasl.kerberos.kinit.cmd", ConfigKeyType.STRING, "/usr/bin/kinit"),
    ConfigKey("sasl.kerberos.min.time.before.relogin", ConfigKeyType.LONG, "60000"),
    ConfigKey("sasl.kerberos.principal.to.local.rules", ConfigKeyType.LIST, "DEFAULT"),
    ConfigKey("sasl.kerberos.service.name", ConfigKeyType.STRING, None),
    ConfigKey("sasl.kerberos.ticket.renew.jitter", ConfigKeyType.DOUBLE, "0.05"),
    ConfigKey("sasl.kerberos.ticket.renew.window.factor", ConfigKeyType.DOUBLE, "0.8"),
    ConfigKey("sasl.login.refresh.buffer.seconds", ConfigKeyType.SHORT, "300"),
    ConfigKey("sasl.login.refresh.min.period.seconds", ConfigKeyType.SHORT, "60"),
    ConfigKey("sasl.login.refresh.window.factor", ConfigKeyType.DOUBLE, "0.8"),
    ConfigKey("sasl.login.refresh.window.jitter", ConfigKeyType.DOUBLE, "0.05"),
    ConfigKey("sasl.mechanism.inter.broker.protocol", ConfigKeyType.STRING, "GSSAPI"),
    ConfigKey(
        "share.coordinator.cached.buffer.max.bytes", ConfigKeyType.INT, "1048588", low=524288
    ),
    ConfigKey("ssl.cipher.suites", ConfigKeyType.LIST, ""),
    ConfigKey(
        "ssl.client.auth", ConfigKeyType.STRING, "none", choices=("required", "requested", "none")
    ),
    ConfigKey("ssl.enabled.protocols", ConfigKeyType.LIST, "TLSv1.2,TLSv1.3"),
    ConfigKey("ssl.endpoint.identification.algorithm", ConfigKeyType.STRING, "https"),
    ConfigKey("ssl.engine.factory.class", ConfigKeyType.CLASS, None),
    ConfigKey("ssl.key.password", ConfigKeyType.PASSWORD, None),
    ConfigKey("ssl.keymanager.algorithm", ConfigKeyType.STRING, "SunX509"),
    ConfigKey("ssl.keystore.certificate.chain", ConfigKeyType.PASSWORD, None),
    ConfigKey("ssl.keystore.key", ConfigKeyType.PASSWORD, None),
    ConfigKey("ssl.keystore.location", ConfigKeyType.STRING, None),
    ConfigKey("ssl.keystore.password", ConfigKeyType.PASSWORD, None),
    ConfigKey("ssl.keystore.type", ConfigKeyType.STRING, "JKS"),
    ConfigKey("ssl.protocol", ConfigKeyType.STRING, "TLSv1.3"),
    ConfigKey("ssl.provider", ConfigKeyType.STRING, None),
    ConfigKey("ssl.secure.random.implementation", ConfigKeyType.STRING, None),
    ConfigKey("ssl.trustmanager.algorithm", ConfigKeyType.STRING, "PKIX"),
    ConfigKey("ssl.truststore.certificates", ConfigKeyType.PASSWORD, None),
    ConfigKey("ssl.truststore.location", ConfigKeyType.STRING, None),
    ConfigKey("ssl.truststore.password", ConfigKeyType.PASSWORD, None),
    ConfigKey("ssl.truststore.type", ConfigKeyType.STRING, "JKS"),
    ConfigKey("transaction.partition.verification.enable", ConfigKeyType.BOOLEAN, "true"),
    ConfigKey("unclean.leader.election.enable", ConfigKeyType.BOOLEAN, "false"),
)
"""Broker configs that can be changed while the broker runs."""

GROUP: Final = _by_name(
    ConfigKey("consumer.assignment.interval.ms", ConfigKeyType.INT, "1000", low=0),
    ConfigKey("consumer.heartbeat.interval.ms", ConfigKeyType.INT, "5000", low=1),
    ConfigKey("consumer.session.timeout.ms", ConfigKeyType.INT, "45000", low=1),
    ConfigKey("share.assignment.interval.ms", ConfigKeyType.INT, "1000", low=0),
    ConfigKey(
        "share.auto.offset.reset", ConfigKeyType.STRING, "latest", choices=("latest", "earliest")
    ),
    ConfigKey("share.delivery.count.limit", ConfigKeyType.INT, "5", low=2),
    ConfigKey("share.heartbeat.interval.ms", ConfigKeyType.INT, "5000", low=1),
    ConfigKey(
        "share.isolation.level",
        ConfigKeyType.STRING,
        "read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
    ),
    ConfigKey("share.partition.max.record.locks", ConfigKeyType.INT, "2000", low=100),
    ConfigKey("share.record.lock.duration.ms", ConfigKeyType.INT, "30000", low=1000),
    ConfigKey("share.renew.acknowledge.enable", ConfigKeyType.BOOLEAN, "true"),
    ConfigKey("share.session.timeout.ms", ConfigKeyType.INT, "45000", low=1),
    ConfigKey("streams.assignment.interval.ms", ConfigKeyType.INT, "1000", low=0),
    ConfigKey("streams.heartbeat.interval.ms", ConfigKeyType.INT, "5000", low=1),
    ConfigKey("streams.initial.rebalance.delay.ms", ConfigKeyType.INT, "3000", low=0),
    ConfigKey("streams.num.standby.replicas", ConfigKeyType.INT, "0", low=0),
    ConfigKey("streams.session.timeout.ms", ConfigKeyType.INT, "45000", low=1),
)
"""Group configs."""

CLIENT_METRICS: Final = _by_name(
    ConfigKey("interval.ms", ConfigKeyType.INT, "300000", low=100, high=3600000),
    ConfigKey("match", ConfigKeyType.LIST, ""),
    ConfigKey("metrics", ConfigKeyType.LIST, ""),
)
"""Configs of client metrics subscriptions (KIP-714)."""

CLEANUP_POLICY: Final = "application.cleanup.policy"
KEEP: Final = "keep"
COMPACT: Final = "compact"

APPLICATION: Final = _by_name(
    ConfigKey(CLEANUP_POLICY, ConfigKeyType.STRING, KEEP, choices=(COMPACT, KEEP)),
)
"""Cluster-wide configs of quorums with records of applications. CLEANUP_POLICY: whether snapshots
keep all records, or only the last of each key that has a value."""

CLIENT_MATCH_KEYS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

PER_BROKER: Final = _names(
    """
    cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class
    sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol ssl.cipher.suites
    ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
    """
)
"""Per-broker configs: they cannot be set as a cluster-wide default."""

STATIC_BROKER: Final = _names(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    advertised.listeners alter.config.policy.class.name
    alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name
    auto.create.topics.enable auto.leader.rebalance.enable broker.heartbeat.interval.ms
    broker.id broker.rack broker.session.timeout.ms client.quota.callback.class
    connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
    controlled.shutdown.enable controller.listener.names
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quorum.append.linger.ms controller.quorum.auto.join.enable
    controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
    controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
    controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
    controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    controller.quorum.voters controller.quota.window.num controller.quota.window.size.seconds
    controller.socket.timeout.ms create.topic.policy.class.name default.replication.factor
    delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
    delegation.token.max.lifetime.ms delegation.token.secret.key
    delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners
    fetch.max.bytes fetch.purgatory.purge.interval.requests group.consumer.assignors
    group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
    group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms
    group.consumer.max.size group.consumer.migration.policy
    group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
    group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms
    group.consumer.session.timeout.ms group.coordinator.append.linger.ms
    group.coordinator.background.threads group.coordinator.rebalance.protocols
    group.coordinator.threads group.initial.rebalance.delay.ms group.max.session.timeout.ms
    group.max.size group.min.session.timeout.ms group.share.assignors
    group.share.delivery.count.limit group.share.heartbeat.interval.ms
    group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
    group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
    group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
    group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
    group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
    group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
    group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
    group.share.partition.max.record.locks group.share.persister.class.name
    group.share.record.lock.duration.ms group.share.session.timeout.ms
    group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
    group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
    group.streams.max.session.timeout.ms group.streams.max.size
    group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
    group.streams.num.standby.replicas group.streams.session.timeout.ms
    initial.broker.registration.timeout.ms inter.broker.listener.name
    internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes kafka.metrics.polling.interval.secs
    kafka.metrics.reporters leader.imbalance.check.interval.seconds log.cleaner.enable log.dir
    log.dir.failure.timeout.ms log.dirs log.flush.offset.checkpoint.interval.ms
    log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.initial.task.delay.ms log.retention.check.interval.ms log.retention.hours
    log.retention.minutes log.roll.hours log.roll.jitter.hours
    max.incremental.fetch.session.cache.slots max.request.partition.size.limit metadata.log.dir
    metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
    metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
    metadata.max.retention.bytes metadata.max.retention.ms metrics.num.samples
    metrics.recording.level metrics.sample.window.ms node.id num.partitions
    num.replica.alter.log.dirs.threads offset.metadata.max.bytes offsets.commit.timeout.ms
    offsets.load.buffer.size offsets.retention.check.interval.ms offsets.retention.minutes
    offsets.topic.compression.codec offsets.topic.num.partitions
    offsets.topic.replication.factor offsets.topic.segment.bytes process.roles
    producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests
    queued.max.request.bytes queued.max.requests quota.window.num quota.window.size.seconds
    remote.log.index.file.cache.ttl.ms remote.log.manager.copy.quota.window.num
    remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num
    remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.task.interval.ms
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
    remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
    remote.log.storage.manager.class.name remote.log.storage.manager.class.path
    remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
    replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
    replication.quota.window.size.seconds request.timeout.ms sasl.client.callback.handler.class
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
    sasl.server.max.receive.size security.inter.broker.protocol security.providers
    server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms
    share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes
    socket.request.max.bytes socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes
    ssl.principal.mapping.rules telemetry.max.bytes
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.load.buffer.size transaction.state.log.min.isr
    transaction.state.log.num.partitions transaction.state.log.replication.factor
    transaction.state.log.segment.bytes transaction.two.phase.commit.enable
    transactional.id.expiration.ms unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable
    """
)
"""Configs from a broker's or controller's file, which cannot be changed while the process runs."""
