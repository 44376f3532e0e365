import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools one after the other, which saves a start of Java for each of them. Each line of
 * the input is a class and its arguments, separated by tabs; after each output follows a line "====".
 */
public class RunTools {
    static class Exited extends RuntimeException {
    }

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Exited();
        });
        System.setErr(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            String[] arguments = Arrays.copyOfRange(words, 1, words.length);
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Exited)) {
                    error.getCause().printStackTrace(System.out);
                }
            }
            System.out.println("====");
        }
    }
}
