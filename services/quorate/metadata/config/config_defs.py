"""The configs of Kafka 4.3: their names, types, defaults and valid values.

`TOPIC` is complete: any other name is rejected. `BROKER` holds the configs that can be changed
while a broker runs, `STATIC_BROKER` those that cannot. Names in neither belong to plugins and take
any value. A broker config that begins with `listener.name.NAME.` applies to one listener.

Source: Kafka 4.3's LogConfig, DynamicBrokerConfig, GroupConfig, ClientMetricsConfigs. Names, types,
defaults and ranges follow its ConfigDefs.
"""

from __future__ import annotations

from typing import Final

from quorate.metadata.config.config_types import ConfigDef, Kind


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_name(*defs: ConfigDef) -> dict[str, ConfigDef]:
    return {found.name: found for found in defs}


TOPIC: Final = _by_name(
    ConfigDef(
        "cleanup.policy",
        Kind.LIST,
        "delete",
        choices=("compact", "delete"),
        synonym="log.cleanup.policy",
    ),
    ConfigDef("compression.gzip.level", Kind.INT, "-1", low=1, high=9, or_minus_one=True),
    ConfigDef("compression.lz4.level", Kind.INT, "9", low=1, high=17),
    ConfigDef(
        "compression.type",
        Kind.STRING,
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigDef("compression.zstd.level", Kind.INT, "3", low=-131072, high=22),
    ConfigDef(
        "delete.retention.ms",
        Kind.LONG,
        "86400000",
        low=0,
        synonym="log.cleaner.delete.retention.ms",
    ),
    ConfigDef(
        "file.delete.delay.ms", Kind.LONG, "60000", low=0, synonym="log.segment.delete.delay.ms"
    ),
    ConfigDef(
        "flush.messages",
        Kind.LONG,
        "9223372036854775807",
        low=1,
        synonym="log.flush.interval.messages",
    ),
    ConfigDef("flush.ms", Kind.LONG, "9223372036854775807", low=0, synonym="log.flush.interval.ms"),
    ConfigDef("follower.replication.throttled.replicas", Kind.LIST, "", throttled=True),
    ConfigDef("index.interval.bytes", Kind.INT, "4096", low=0, synonym="log.index.interval.bytes"),
    ConfigDef("internal.segment.bytes", Kind.INT, None),
    ConfigDef("leader.replication.throttled.replicas", Kind.LIST, "", throttled=True),
    ConfigDef(
        "local.retention.bytes", Kind.LONG, "-2", low=-2, synonym="log.local.retention.bytes"
    ),
    ConfigDef("local.retention.ms", Kind.LONG, "-2", low=-2, synonym="log.local.retention.ms"),
    ConfigDef(
        "max.compaction.lag.ms",
        Kind.LONG,
        "9223372036854775807",
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    ConfigDef("max.message.bytes", Kind.INT, "1048588", low=0, synonym="message.max.bytes"),
    ConfigDef(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        "3600000",
        low=0,
        synonym="log.message.timestamp.after.max.ms",
    ),
    ConfigDef(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        "9223372036854775807",
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    ),
    ConfigDef(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    ),
    ConfigDef(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        "0.5",
        low=0,
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
    ),
    ConfigDef(
        "min.compaction.lag.ms", Kind.LONG, "0", low=0, synonym="log.cleaner.min.compaction.lag.ms"
    ),
    ConfigDef("min.insync.replicas", Kind.INT, "1", low=1),
    ConfigDef("preallocate", Kind.BOOLEAN, "false", synonym="log.preallocate"),
    ConfigDef("remote.log.copy.disable", Kind.BOOLEAN, "false"),
    ConfigDef("remote.log.delete.on.disable", Kind.BOOLEAN, "false"),
    ConfigDef("remote.storage.enable", Kind.BOOLEAN, "false"),
    ConfigDef("retention.bytes", Kind.LONG, "-1", synonym="log.retention.bytes"),
    ConfigDef("retention.ms", Kind.LONG, "604800000", low=-1, synonym="log.retention.ms"),
    ConfigDef("segment.bytes", Kind.INT, "1073741824", low=1048576, synonym="log.segment.bytes"),
    ConfigDef(
        "segment.index.bytes", Kind.INT, "10485760", low=4, synonym="log.index.size.max.bytes"
    ),
    ConfigDef("segment.jitter.ms", Kind.LONG, "0", low=0, synonym="log.roll.jitter.ms"),
    ConfigDef("segment.ms", Kind.LONG, "604800000", low=1, synonym="log.roll.ms"),
    ConfigDef("unclean.leader.election.enable", Kind.BOOLEAN, "false"),
)
"""Topic configs."""

BROKER: Final = _by_name(
    ConfigDef("background.threads", Kind.INT, "10", low=1),
    ConfigDef("compression.gzip.level", Kind.INT, "-1", low=1, high=9, or_minus_one=True),
    ConfigDef("compression.lz4.level", Kind.INT, "9", low=1, high=17),
    ConfigDef(
        "compression.type",
        Kind.STRING,
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigDef("compression.zstd.level", Kind.INT, "3", low=-131072, high=22),
    ConfigDef("config.providers", Kind.LIST, ""),
    ConfigDef("cordoned.log.dirs", Kind.LIST, ""),
    ConfigDef("follower.fetch.last.tiered.offset.enable", Kind.BOOLEAN, "false"),
    ConfigDef("follower.replication.throttled.rate", Kind.LONG, None),
    ConfigDef("group.consumer.assignment.interval.ms", Kind.INT, "1000", low=0),
    ConfigDef("group.coordinator.cached.buffer.max.bytes", Kind.INT, "1048588", low=524288),
    ConfigDef("group.share.assignment.interval.ms", Kind.INT, "1000", low=0),
    ConfigDef("group.streams.assignment.interval.ms", Kind.INT, "1000", low=0),
    ConfigDef("leader.replication.throttled.rate", Kind.LONG, None),
    ConfigDef(
        "listener.security.protocol.map",
        Kind.STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    ),
    ConfigDef("listeners", Kind.LIST, "PLAINTEXT://:9092"),
    ConfigDef("log.cleaner.backoff.ms", Kind.LONG, "15000", low=0),
    ConfigDef("log.cleaner.dedupe.buffer.size", Kind.LONG, "134217728"),
    ConfigDef("log.cleaner.delete.retention.ms", Kind.LONG, "86400000", low=0),
    ConfigDef("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, "0.9"),
    ConfigDef("log.cleaner.io.buffer.size", Kind.INT, "524288", low=0),
    ConfigDef("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "1.7976931348623157E308"),
    ConfigDef("log.cleaner.max.compaction.lag.ms", Kind.LONG, "9223372036854775807", low=1),
    ConfigDef("log.cleaner.min.cleanable.ratio", Kind.DOUBLE, "0.5", low=0, high=1),
    ConfigDef("log.cleaner.min.compaction.lag.ms", Kind.LONG, "0", low=0),
    ConfigDef("log.cleaner.threads", Kind.INT, "1", low=0),
    ConfigDef("log.cleanup.policy", Kind.LIST, "delete", choices=("compact", "delete")),
    ConfigDef("log.flush.interval.messages", Kind.LONG, "9223372036854775807", low=1),
    ConfigDef("log.flush.interval.ms", Kind.LONG, None),
    ConfigDef("log.index.interval.bytes", Kind.INT, "4096", low=0),
    ConfigDef("log.index.size.max.bytes", Kind.INT, "10485760", low=4),
    ConfigDef("log.local.retention.bytes", Kind.LONG, "-2", low=-2),
    ConfigDef("log.local.retention.ms", Kind.LONG, "-2", low=-2),
    ConfigDef("log.message.timestamp.after.max.ms", Kind.LONG, "3600000", low=0),
    ConfigDef("log.message.timestamp.before.max.ms", Kind.LONG, "9223372036854775807", low=0),
    ConfigDef(
        "log.message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigDef("log.preallocate", Kind.BOOLEAN, "false"),
    ConfigDef("log.retention.bytes", Kind.LONG, "-1"),
    ConfigDef("log.retention.ms", Kind.LONG, None),
    ConfigDef("log.roll.jitter.ms", Kind.LONG, None),
    ConfigDef("log.roll.ms", Kind.LONG, None),
    ConfigDef("log.segment.bytes", Kind.INT, "1073741824", low=1048576),
    ConfigDef("log.segment.delete.delay.ms", Kind.LONG, "60000", low=0),
    ConfigDef("max.connection.creation.rate", Kind.INT, "2147483647", low=0),
    ConfigDef("max.connections", Kind.INT, "2147483647", low=0),
    ConfigDef("max.connections.per.ip", Kind.INT, "2147483647", low=0),
    ConfigDef("max.connections.per.ip.overrides", Kind.STRING, ""),
    ConfigDef("message.max.bytes", Kind.INT, "1048588", low=0),
    ConfigDef("metric.reporters", Kind.LIST, "org.apache.kafka.common.metrics.JmxReporter"),
    ConfigDef("min.insync.replicas", Kind.INT, "1", low=1),
    ConfigDef("num.io.threads", Kind.INT, "8", low=1),
    ConfigDef("num.network.threads", Kind.INT, "3", low=1),
    ConfigDef("num.recovery.threads.per.data.dir", Kind.INT, "2", low=1),
    ConfigDef("num.replica.fetchers", Kind.INT, "1", low=1),
    ConfigDef(
        "principal.builder.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    ConfigDef("producer.id.expiration.ms", Kind.INT, "86400000", low=1),
    ConfigDef("remote.fetch.max.wait.ms", Kind.INT, "500", low=1),
    ConfigDef("remote.list.offsets.request.timeout.ms", Kind.LONG, "30000", low=1),
    ConfigDef("remote.log.index.file.cache.total.size.bytes", Kind.LONG, "1073741824", low=1),
    ConfigDef("remote.log.manager.copier.thread.pool.size", Kind.INT, "10", low=1),
    ConfigDef(
        "remote.log.manager.copy.max.bytes.per.second", Kind.LONG, "9223372036854775807", low=1
    ),
    ConfigDef("remote.log.manager.expiration.thread.pool.size", Kind.INT, "10", low=1),
    ConfigDef(
        "remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, "9223372036854775807", low=1
    ),
    ConfigDef("remote.log.manager.follower.thread.pool.size", Kind.INT, "2", low=1),
    ConfigDef("remote.log.reader.threads", Kind.INT, "10", low=1),
    ConfigDef("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, None),
    ConfigDef("sasl.enabled.mechanisms", Kind.LIST, "GSSAPI"),
    ConfigDef("sasl.jaas.config", Kind.PASSWORD, None),
    ConfigDef("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit"),
    ConfigDef("sasl.kerberos.min.time.before.relogin", Kind.LONG, "60000"),
    ConfigDef("sasl.kerberos.principal.to.local.rules", Kind.LIST, "DEFAULT"),
    ConfigDef("sasl.kerberos.service.name", Kind.STRING, None),
    ConfigDef("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, "0.05"),
    ConfigDef("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, "0.8"),
    ConfigDef("sasl.login.refresh.buffer.seconds", Kind.SHORT, "300"),
    ConfigDef("sasl.login.refresh.min.period.seconds", Kind.SHORT, "60"),
    ConfigDef("sasl.login.refresh.window.factor", Kind.DOUBLE, "0.8"),
    ConfigDef("sasl.login.refresh.window.jitter", Kind.DOUBLE, "0.05"),
    ConfigDef("sasl.mechanism.inter.broker.protocol", Kind.STRING, "GSSAPI"),
    ConfigDef("share.coordinator.cached.buffer.max.bytes", Kind.INT, "1048588", low=524288),
    ConfigDef("ssl.cipher.suites", Kind.LIST, ""),
    ConfigDef("ssl.client.auth", Kind.STRING, "none", choices=("required", "requested", "none")),
    ConfigDef("ssl.enabled.protocols", Kind.LIST, "TLSv1.2,TLSv1.3"),
    ConfigDef("ssl.endpoint.identification.algorithm", Kind.STRING, "https"),
    ConfigDef("ssl.engine.factory.class", Kind.CLASS, None),
    ConfigDef("ssl.key.password", Kind.PASSWORD, None),
    ConfigDef("ssl.keymanager.algorithm", Kind.STRING, "SunX509"),
    ConfigDef("ssl.keystore.certificate.chain", Kind.PASSWORD, None),
    ConfigDef("ssl.keystore.key", Kind.PASSWORD, None),
    ConfigDef("ssl.keystore.location", Kind.STRING, None),
    ConfigDef("ssl.keystore.password", Kind.PASSWORD, None),
    ConfigDef("ssl.keystore.type", Kind.STRING, "JKS"),
    ConfigDef("ssl.protocol", Kind.STRING, "TLSv1.3"),
    ConfigDef("ssl.provider", Kind.STRING, None),
    ConfigDef("ssl.secure.random.implementation", Kind.STRING, None),
    ConfigDef("ssl.trustmanager.algorithm", Kind.STRING, "PKIX"),
    ConfigDef("ssl.truststore.certificates", Kind.PASSWORD, None),
    ConfigDef("ssl.truststore.location", Kind.STRING, None),
    ConfigDef("ssl.truststore.password", Kind.PASSWORD, None),
    ConfigDef("ssl.truststore.type", Kind.STRING, "JKS"),
    ConfigDef("transaction.partition.verification.enable", Kind.BOOLEAN, "true"),
    ConfigDef("unclean.leader.election.enable", Kind.BOOLEAN, "false"),
)
"""Broker configs that can be changed while the broker runs."""

GROUP: Final = _by_name(
    ConfigDef("consumer.assignment.interval.ms", Kind.INT, "1000", low=0),
    ConfigDef("consumer.heartbeat.interval.ms", Kind.INT, "5000", low=1),
    ConfigDef("consumer.session.timeout.ms", Kind.INT, "45000", low=1),
    ConfigDef("share.assignment.interval.ms", Kind.INT, "1000", low=0),
    ConfigDef("share.auto.offset.reset", Kind.STRING, "latest", choices=("latest", "earliest")),
    ConfigDef("share.delivery.count.limit", Kind.INT, "5", low=2),
    ConfigDef("share.heartbeat.interval.ms", Kind.INT, "5000", low=1),
    ConfigDef(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
    ),
    ConfigDef("share.partition.max.record.locks", Kind.INT, "2000", low=100),
    ConfigDef("share.record.lock.duration.ms", Kind.INT, "30000", low=1000),
    ConfigDef("share.renew.acknowledge.enable", Kind.BOOLEAN, "true"),
    ConfigDef("share.session.timeout.ms", Kind.INT, "45000", low=1),
    ConfigDef("streams.assignment.interval.ms", Kind.INT, "1000", low=0),
    ConfigDef("streams.heartbeat.interval.ms", Kind.INT, "5000", low=1),
    ConfigDef("streams.initial.rebalance.delay.ms", Kind.INT, "3000", low=0),
    ConfigDef("streams.num.standby.replicas", Kind.INT, "0", low=0),
    ConfigDef("streams.session.timeout.ms", Kind.INT, "45000", low=1),
)
"""Group configs."""

CLIENT_METRICS: Final = _by_name(
    ConfigDef("interval.ms", Kind.INT, "300000", low=100, high=3600000),
    ConfigDef("match", Kind.LIST, ""),
    ConfigDef("metrics", Kind.LIST, ""),
)
"""Configs of client metrics subscriptions (KIP-714)."""

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
