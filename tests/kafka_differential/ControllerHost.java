import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;

/**
 * Runs controllers of Kafka one after the other, so that each finds the code compiled that the ones
 * before it have used. Each line of the input is a command, its words separated by tabs:
 *
 *   start FILE OPTION ...    format the directory of the properties in FILE, with further options of
 *                            kafka-storage, and start a controller
 *   stop                     stop it
 *
 * A line "done" follows each. An error ends the process with a stack trace.
 */
public class ControllerHost {
    static KafkaRaftServer server;

    public static void main(String[] ignored) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("start")) {
                start(words);
            } else {
                server.shutdown();
                server.awaitShutdown();
            }
            System.out.println("done");
        }
        System.exit(0);
    }

    static void start(String[] words) throws Exception {
        String[] format = words.clone();
        format[0] = "format";
        format[1] = "--config=" + words[1];
        int status = StorageTool.execute(format, System.err);
        if (status != 0) {
            throw new IllegalStateException("kafka-storage ended with status " + status);
        }
        Properties properties = Utils.loadProps(words[1]);
        server = new KafkaRaftServer(KafkaConfig.fromProps(properties, false), Time.SYSTEM);
        server.startup();
    }
}
