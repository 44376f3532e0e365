import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;

/**
 * Clients of every kind on one cluster, and what became of their records.
 *
 * Arguments: bootstrap servers, seconds (0: until stdin ends), replication factor, "share" or "classic" (whether the
 * brokers have share groups and the new group protocol). Prints one JSON object: per workload the
 * records acknowledged, lost and duplicated; errors by class, and the first of each; the longest pauses, ms.
 */
public class Clients {
    static final int PARTITIONS = 6;
    static final int PER_TRANSACTION = 10;
    static String servers;
    static short replication;
    static volatile boolean producing = true;
    static volatile boolean consuming = true;
    static final Map<String, LongAdder> errors = new ConcurrentSkipListMap<>();
    static final Map<String, String> firstErrors = new ConcurrentSkipListMap<>();
    static final long started = System.nanoTime();
    static final Map<String, Object> report = new ConcurrentSkipListMap<>();
    static final List<String> wrong = Collections.synchronizedList(new ArrayList<>());

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        long seconds = Long.parseLong(arguments[1]);
        replication = Short.parseShort(arguments[2]);
        boolean hasShareGroups = arguments[3].equals("share");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            for (String topic : List.of("plain", "transactions", "streams-in", "streams-out", "shared"))
                create(admin, topic);
            if (hasShareGroups) {
                ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "share");
                ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
                admin.incrementalAlterConfigs(Map.of(group,
                    List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
            }
        }
        List<Thread> producers = new ArrayList<>();
        List<Thread> consumers = new ArrayList<>();
        Sender plain = new Sender("plain", 100);
        Sender streamed = new Sender("streams-in", 50);
        Sender shared = new Sender("shared", 50);
        Transactions transactions = new Transactions();
        producers.add(thread("plain", plain));
        producers.add(thread("streams-in", streamed));
        producers.add(thread("transactions", transactions));
        producers.add(thread("churn", Clients::churn));
        Group classic = new Group("classic", plain);
        consumers.add(thread("classic group", classic));
        Group modern = null;
        Shared share = null;
        if (hasShareGroups) {
            producers.add(thread("shared", shared));
            modern = new Group("consumer", plain);
            consumers.add(thread("consumer group", modern));
            share = new Shared(shared);
            consumers.add(thread("share group", share));
        }
        KafkaStreams streams = streams();
        streams.start();

        if (seconds > 0) Thread.sleep(seconds * 1000);
        else while (System.in.read() >= 0);
        producing = false;
        for (Thread each : producers) each.join();
        Group lastModern = modern;
        Shared lastShare = share;
        boolean done = waitFor(180, () -> classic.has(plain.acknowledged)
            && (lastModern == null || lastModern.has(plain.acknowledged))
            && (lastShare == null || lastShare.has(shared.acknowledged)));
        consuming = false;
        for (Thread each : consumers) each.join();
        if (!done) wrong.add("a group has not read everything within 180 s");
        plain.check(readAll("plain"), "plain");
        transactions.check(readAll("transactions"));
        waitFor(120, () -> readAll("streams-out").size() >= streamed.acknowledged.size());
        streams.close(Duration.ofSeconds(60));
        List<String> before = readAll("streams-in");
        List<String> after = readAll("streams-out");
        Collections.sort(before);
        Collections.sort(after);
        if (!before.equals(after))
            wrong.add("streams: " + before.size() + " records in, " + after.size() + " out");
        streamed.check(before, "streams-in");
        if (hasShareGroups) shared.check(readAll("shared"), "shared");
        report.put("errors", errors);
        report.put("first errors", firstErrors);
        report.put("wrong", wrong);
        System.out.println(json(report));
        System.exit(wrong.isEmpty() ? 0 : 1);
    }

    static Thread thread(String name, Runnable work) {
        Thread made = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                error.printStackTrace();
                wrong.add(name + " ended with " + error);
            }
        }, name);
        made.start();
        return made;
    }

    static boolean waitFor(int seconds, BooleanSupplierThrowing condition) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.get()) {
            if (System.nanoTime() > end) return false;
            Thread.sleep(500);
        }
        return true;
    }

    interface BooleanSupplierThrowing { boolean get() throws Exception; }

    static void note(String where, Throwable error) {
        Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
        String name = where + ": " + cause.getClass().getSimpleName();
        errors.computeIfAbsent(name, ignored -> new LongAdder()).increment();
        long second = (System.nanoTime() - started) / 1_000_000_000;
        firstErrors.putIfAbsent(name, "after " + second + " s: " + messages(cause));
    }

    /** What an error and its causes say. */
    static String messages(Throwable error) {
        StringJoiner found = new StringJoiner(": ");
        for (Throwable each = error; each != null; each = each.getCause())
            found.add(each.getClass().getSimpleName() + " " + each.getMessage());
        return found.toString();
    }

    static void create(Admin admin, String topic) throws Exception {
        Map<String, String> configs = Map.of("min.insync.replicas", replication > 1 ? "2" : "1");
        NewTopic wanted = new NewTopic(topic, PARTITIONS, replication).configs(configs);
        while (true) {
            try {
                admin.createTopics(List.of(wanted)).all().get();
                return;
            } catch (ExecutionException error) {
                if (error.getCause() instanceof TopicExistsException) return;
                note("setup", error);
                Thread.sleep(500);
            }
        }
    }

    static Properties properties(Object... pairs) {
        Properties made = new Properties();
        made.put("bootstrap.servers", servers);
        for (int at = 0; at < pairs.length; at += 2) made.put(pairs[at], pairs[at + 1]);
        return made;
    }

    /** An idempotent producer of "topic-N", and which N were acknowledged. */
    static class Sender implements Runnable {
        final String topic;
        final int perSecond;
        final Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        final AtomicLong longest = new AtomicLong();
        volatile long last;

        Sender(String topic, int perSecond) {
            this.topic = topic;
            this.perSecond = perSecond;
        }

        public void run() {
            last = System.nanoTime();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties(
                    "acks", "all", "enable.idempotence", "true", "linger.ms", "5",
                    "delivery.timeout.ms", "120000", "max.block.ms", "120000"),
                    new StringSerializer(), new StringSerializer())) {
                for (long number = 0; producing; number++) {
                    String value = topic + "-" + number;
                    producer.send(new ProducerRecord<>(topic, value, value), (where, error) -> {
                        if (error != null) {
                            note("produce " + topic, error);
                            return;
                        }
                        long now = System.nanoTime();
                        longest.accumulateAndGet((now - last) / 1_000_000, Math::max);
                        last = now;
                        acknowledged.add(value);
                    });
                    pause(1000 / perSecond);
                }
            }
        }

        /** Every acknowledged record is there, none twice. */
        void check(List<String> found, String name) {
            Set<String> unique = new HashSet<>(found);
            Set<String> lost = new HashSet<>(acknowledged);
            lost.removeAll(unique);
            int doubled = found.size() - unique.size();
            report.put(name, new TreeMap<>(Map.of("acknowledged", acknowledged.size(),
                "lost", lost.size(), "duplicated", doubled, "longest pause", longest.get())));
            if (!lost.isEmpty() || doubled > 0)
                wrong.add(name + ": " + lost.size() + " lost, " + doubled + " duplicated");
        }
    }

    /** Transactions of ten records; every fourth is aborted. */
    static class Transactions implements Runnable {
        final Set<Long> committed = new HashSet<>();
        final Set<Long> aborted = new HashSet<>();
        final Set<Long> unknown = new HashSet<>();

        KafkaProducer<String, String> open() {
            while (true) {
                KafkaProducer<String, String> made = new KafkaProducer<>(properties(
                    "acks", "all", "transactional.id", "clients", "transaction.timeout.ms", "30000",
                    "max.block.ms", "60000"), new StringSerializer(), new StringSerializer());
                try {
                    made.initTransactions();
                    return made;
                } catch (KafkaException error) {
                    note("initTransactions", error);
                    made.close(Duration.ZERO);
                    pause(500);
                }
            }
        }

        public void run() {
            KafkaProducer<String, String> producer = open();
            for (long number = 0; producing; number++) {
                boolean commits = number % 4 != 3;
                boolean ending = false;
                try {
                    producer.beginTransaction();
                    for (int at = 0; at < PER_TRANSACTION; at++) {
                        String value = number + "/" + at;
                        producer.send(new ProducerRecord<>("transactions", value, value));
                    }
                    ending = true;
                    if (commits) {
                        producer.commitTransaction();
                        committed.add(number);
                    } else {
                        producer.abortTransaction();
                        aborted.add(number);
                    }
                } catch (KafkaException error) {
                    note("transaction", error);
                    (ending && commits ? unknown : aborted).add(number);
                    producer.close(Duration.ofSeconds(5));
                    producer = open();
                }
                pause(100);
            }
            producer.close(Duration.ofSeconds(30));
        }

        void check(List<String> found) {
            Map<Long, Set<String>> whole = new HashMap<>();
            for (String value : found)
                whole.computeIfAbsent(Long.parseLong(value.split("/")[0]), n -> new HashSet<>()).add(value);
            int size = whole.values().stream().mapToInt(Set::size).sum();
            long lost = committed.stream()
                .filter(n -> whole.getOrDefault(n, Set.of()).size() != PER_TRANSACTION).count();
            long shown = aborted.stream().filter(whole::containsKey).count();
            long torn = unknown.stream()
                .filter(n -> whole.getOrDefault(n, Set.of()).size() % PER_TRANSACTION != 0).count();
            report.put("transactions", new TreeMap<>(Map.of("committed", committed.size(),
                "aborted", aborted.size(), "unknown", unknown.size(), "lost", lost,
                "aborted but visible", shown, "torn", torn, "duplicated", found.size() - size)));
            if (lost + shown + torn > 0 || found.size() != size)
                wrong.add("transactions: " + report.get("transactions"));
        }
    }

    /** A consumer group; protocol: classic, or consumer (KIP-848). */
    static class Group implements Runnable {
        final String protocol;
        final Set<String> seen = ConcurrentHashMap.newKeySet();

        Group(String protocol, Sender source) {
            this.protocol = protocol;
        }

        boolean has(Set<String> wanted) {
            return seen.containsAll(wanted);
        }

        public void run() {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties(
                    "group.id", "group-" + protocol, "group.protocol", protocol,
                    "auto.offset.reset", "earliest", "enable.auto.commit", "false"),
                    new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("plain"));
                while (consuming) {
                    try {
                        ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(200));
                        for (ConsumerRecord<String, String> record : found) seen.add(record.value());
                        if (!found.isEmpty()) consumer.commitSync();
                    } catch (KafkaException error) {
                        note("group " + protocol, error);
                        pause(200);
                    }
                }
            }
        }
    }

    /** A share group (KIP-932). */
    static class Shared implements Runnable {
        final Set<String> seen = ConcurrentHashMap.newKeySet();

        Shared(Sender source) {}

        boolean has(Set<String> wanted) {
            return seen.containsAll(wanted);
        }

        public void run() {
            try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(
                    properties("group.id", "share"), new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("shared"));
                while (consuming) {
                    try {
                        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)))
                            seen.add(record.value());
                    } catch (KafkaException error) {
                        note("share group", error);
                        pause(200);
                    }
                }
            }
        }
    }

    static KafkaStreams streams() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("streams-in").to("streams-out");
        KafkaStreams made = new KafkaStreams(builder.build(), properties(
            "application.id", "streams", "processing.guarantee", "exactly_once_v2",
            "auto.offset.reset", "earliest", "commit.interval.ms", "500",
            "replication.factor", String.valueOf(replication),
            "default.key.serde", Serdes.StringSerde.class, "default.value.serde", Serdes.StringSerde.class));
        made.setUncaughtExceptionHandler(error -> {
            note("streams", error);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                .StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        return made;
    }

    /** Topics created, configured, extended and deleted, one after the other. */
    static void churn() {
        long longest = 0;
        long count = 0;
        List<Long> times = new ArrayList<>();
        try (Admin admin = Admin.create(properties("default.api.timeout.ms", "60000"))) {
            for (long number = 0; producing; number++) {
                String topic = "churn-" + number;
                long begun = System.nanoTime();
                try {
                    admin.createTopics(List.of(new NewTopic(topic, 3, replication))).all().get();
                    times.add((System.nanoTime() - begun) / 1_000_000);
                    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                    ConfigEntry entry = new ConfigEntry("retention.ms", "3600000");
                    admin.incrementalAlterConfigs(Map.of(resource,
                        List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
                    admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(6))).all().get();
                    if (number >= 5) admin.deleteTopics(List.of("churn-" + (number - 5))).all().get();
                    count++;
                } catch (ExecutionException error) {
                    note("churn", error);
                } catch (InterruptedException error) {
                    return;
                }
                longest = Math.max(longest, (System.nanoTime() - begun) / 1_000_000);
                pause(500);
            }
        }
        Collections.sort(times);
        report.put("churn", new TreeMap<>(Map.of("rounds", count, "longest round", longest,
            "create p50", times.isEmpty() ? -1 : times.get(times.size() / 2),
            "create p99", times.isEmpty() ? -1 : times.get(times.size() * 99 / 100),
            "create max", times.isEmpty() ? -1 : times.get(times.size() - 1))));
    }

    /** All committed values of a topic. */
    static List<String> readAll(String topic) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties(
                "isolation.level", "read_committed", "auto.offset.reset", "earliest"),
                new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> parts = new ArrayList<>();
            for (PartitionInfo info : consumer.partitionsFor(topic, Duration.ofSeconds(60)))
                parts.add(new TopicPartition(topic, info.partition()));
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts, Duration.ofSeconds(60));
            long end = System.nanoTime() + 120_000_000_000L;
            while (parts.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                if (System.nanoTime() > end) {
                    wrong.add(topic + " could not be read to its end within 120 s");
                    break;
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)))
                    found.add(record.value());
            }
        }
        return found;
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new InterruptException(error);
        }
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            StringJoiner parts = new StringJoiner(", ", "{", "}");
            map.forEach((key, each) -> parts.add(json(key) + ": " + json(each)));
            return parts.toString();
        }
        if (value instanceof Collection<?> many) {
            StringJoiner parts = new StringJoiner(", ", "[", "]");
            many.forEach(each -> parts.add(json(each)));
            return parts.toString();
        }
        if (value instanceof Number || value instanceof LongAdder) return value.toString();
        return "\"" + String.valueOf(value).replace("\\", "\\\\").replace("\"", "\\\"")
            .replaceAll("\\s", " ") + "\"";
    }
}
