package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * PartitionChanges STATES RECORDS: what Kafka's controller writes for each state of a partition.
 * Each line of STATES is a State in JSON. For each, RECORDS gets a line with the record in
 * hexadecimal, which is empty if nothing changes. It is in the package of the classes it drives,
 * because some are visible only there.
 */
public class PartitionChanges {
    /** The fields are those of test_partition_changes.py; those that are null set no target. */
    record State(short level, int minIsr, boolean elr, String partition, Set<Integer> active,
                 Map<Integer, String> newDirectories, String election, List<Integer> isr,
                 List<Integer> replicas, List<Integer> removing, List<Integer> adding,
                 List<Integer> reassigned, boolean cancelled, List<Integer> uncleanShutdown,
                 Map<Integer, String> assigned, Byte recovery) {
    }

    static final ObjectReader STATES = new ObjectMapper()
        .setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
        .readerFor(State.class);

    public static void main(String[] arguments) throws Exception {
        try (PrintWriter records = new PrintWriter(arguments[1])) {
            for (String line : Files.readAllLines(Path.of(arguments[0]))) {
                records.println(builder(STATES.readValue(line)).build()
                    .map(PartitionChanges::encoded).orElse(""));
            }
        }
    }

    static PartitionChangeBuilder builder(State state) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(state.partition));
        PartitionRecord record = (PartitionRecord) MetadataRecordSerde.INSTANCE
            .read(new ByteBufferAccessor(bytes), bytes.remaining()).message();
        PartitionRegistration partition = new PartitionRegistration(record);
        PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, record.topicId(),
            record.partitionId(), state.active::contains,
            MetadataVersion.fromFeatureLevel(state.level), state.minIsr, state.elr)
            .setElection(PartitionChangeBuilder.Election.valueOf(state.election))
            .setDefaultDirProvider(broker -> Uuid.fromString(state.newDirectories.get(broker)))
            .setUncleanShutdownReplicas(state.uncleanShutdown);
        if (state.isr != null) {
            builder.setTargetIsr(state.isr);
        }
        if (state.replicas != null) {
            builder.setTargetReplicas(state.replicas)
                .setTargetRemoving(state.removing).setTargetAdding(state.adding);
        }
        if (state.reassigned != null) {
            PartitionReassignmentReplicas target = new PartitionReassignmentReplicas(
                assignment(record.replicas()), assignment(state.reassigned));
            builder.setTargetReplicas(target.replicas())
                .setTargetRemoving(target.removing()).setTargetAdding(target.adding());
        }
        if (state.cancelled) {
            PartitionReassignmentRevert target = new PartitionReassignmentRevert(partition);
            builder.setTargetIsr(target.isr()).setTargetReplicas(target.replicas())
                .setTargetRemoving(List.of()).setTargetAdding(List.of());
        }
        state.assigned.forEach((broker, id) -> builder.setDirectory(broker, Uuid.fromString(id)));
        if (state.recovery != null) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(state.recovery));
        }
        return builder;
    }

    static PartitionAssignment assignment(List<Integer> replicas) {
        return new PartitionAssignment(replicas, broker -> Uuid.ZERO_UUID);
    }

    static String encoded(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(
            MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(bytes));
        return HexFormat.of().formatHex(bytes.array());
    }
}
