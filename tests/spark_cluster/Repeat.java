import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.tools.DumpLogSegments;

/** Run Kafka's dump tool once for each line of stdin, and say "done" on stderr after each run. */
public final class Repeat {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            DumpLogSegments.main(arguments);
            System.out.flush();
            System.err.println("done");
        }
    }
}
