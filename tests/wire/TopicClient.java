import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * TopicClient SERVERS TOPIC: sends a record for each line on stdin, with the line as its key and no
 * key for an empty one, and prints its offset or the error; at the end, reads the topic up to its
 * end, and prints the offset and key of each record.
 */
public class TopicClient {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("linger.ms", "1");
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "none");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String key = line.isEmpty() ? null : line;
                producer.send(new ProducerRecord<>(arguments[1], 0, key, "value"), (done, error) -> {
                    String said = error == null ? done.offset() + " " + key
                            : "error " + error.getClass().getSimpleName();
                    System.out.println("sent " + said);
                });
            }
        }
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        StringDeserializer decoded = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, decoded, decoded)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println("read " + each.offset() + " " + each.key());
                }
            }
        }
    }
}
