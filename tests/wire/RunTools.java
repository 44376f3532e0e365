import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools one after the other, which saves a start of Java for each of them. Each line of
 * the input is a class and its arguments, separated by tabs. After each output follow its exit status,
 * if that is not 0, and a line "====". Some tools catch what ends them here: what they print after
 * that is left out.
 */
public class RunTools {
    static class Exited extends RuntimeException {
    }

    static final PrintStream OUT = System.out;
    static final PrintStream NOTHING = new PrintStream(OutputStream.nullOutputStream());
    static int status;

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            if (System.out == OUT) {
                status = code;
                set(NOTHING);
            }
            throw new Exited();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            String[] arguments = Arrays.copyOfRange(words, 1, words.length);
            status = 0;
            set(OUT);
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Exited)) {
                    error.getCause().printStackTrace(System.out);
                }
            }
            if (status != 0) {
                OUT.println("exit status " + status);
            }
            OUT.println("====");
        }
    }

    static void set(PrintStream stream) {
        System.setOut(stream);
        System.setErr(stream);
    }
}
