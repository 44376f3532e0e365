import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;

/** Prints the APIs that a controller of Kafka serves: key, name, lowest and highest version. */
public class ListControllerApis {
    public static void main(String[] arguments) {
        for (ApiKeys api : ApiKeys.apisForListener(ApiMessageType.ListenerType.CONTROLLER)) {
            System.out.println(api.id + " " + api.name + " " + api.oldestVersion() + " "
                + api.latestVersion(false) + " " + api.forwardable);
        }
    }
}
