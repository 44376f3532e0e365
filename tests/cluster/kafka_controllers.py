"""A cluster of Kafka with controllers of its own, beside a release of the chart.

It has three controllers, which are dynamic voters, one broker and a pod with Kafka's tools. The
broker and the tools know the addresses of Kafka's controllers and of the release's pods. `Load`
creates topics all the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from tests.cluster.lab import WRITERS, Lab, Object

CLUSTER = "q7Wk2mLzQ9uYb3cVtR5x1g"
DIRECTORIES = ("Zb1TqVn4S0KXy8eUoJ2w5A", "mH6dR3kPQfGsC9vLxN7t2Q", "aY4pW8jBTzOiE5uFgK0r3w")
"""The directory ids of the three controllers."""
RELEASE = "4.3.0"
FIRST = 3000
"""The node id of the first controller."""
BROKER = 1
LISTENER = "CONTROLLER"
PORT = 9093
QUORATE_PORT = 9094
"""The port for Kafka's protocol of a Quorum's pods."""
CONTROLLERS_SERVICE = "kafka-controllers"
BROKERS_SERVICE = "kafka-brokers"
CONTROLLER_SET = "kafka-controller"
BROKER_SET = "kafka-broker"
TOOLS = "kafka-tools"
HEAP_MIB = 256
START_S = 300.0
"""Until Kafka's processes run on a busy machine."""
RECOVERED_S = 120.0
TOOL_TIMEOUT_MS = 15_000
"""A client that learns during an election that nobody leads asks again only after this time."""
FETCH_TIMEOUT_MS = 6_000
"""Each election must have a kill or a removal as its cause, not a machine that stalls."""
LEADER = re.compile(r"^LeaderId:\s+(\d+)", re.MULTILINE)
JAVA = "java -XX:TieredStopAtLevel=1"
JARS = "-cp '/opt/kafka/libs/*'"
ARCHIVE = "/tmp/tools.jsa"
ARCHIVED = f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"

PAIR = "/tmp/node.pem"
SECURED = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": PAIR,
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": f"/tls/{FIRST}/ca.crt",
    # The certificates name node ids, not hosts.
    "ssl.endpoint.identification.algorithm": "",
}
"""Settings of the listener of controllers with the certificates of the operator."""

# A process that has the id 1 cannot be killed from inside its pod, so the shell waits for Java.
# Names of pods that come back must not be remembered.
START = f"""
ordinal=${{POD_NAME##*-}}
own=/tls/$((FIRST_ID + ordinal))
if [ -e $own ]; then (umask 077; cat $own/tls.key $own/tls.crt > {PAIR}); fi
{{
  printf '%s\\n' "$SETTINGS"
  echo "node.id=$((FIRST_ID + ordinal))"
  echo "$LISTENERS=$LISTENER://$POD_NAME.$SERVICE.$POD_NAMESPACE.svc:$PORT"
}} > /tmp/server.properties
printf '%s\\n' rootLogger.level=INFO rootLogger.appenderRef.stdout.ref=STDOUT \
  appender.stdout.type=Console appender.stdout.name=STDOUT \
  appender.stdout.layout.type=PatternLayout \
  'appender.stdout.layout.pattern=[%d] %p %m (%c)%n' > /tmp/log4j2.properties
{JAVA} {JARS} kafka.tools.StorageTool format --ignore-formatted --cluster-id {CLUSTER} \
  --config /tmp/server.properties $FORMAT
{JAVA} -Xmx{HEAP_MIB}m -Dsun.net.inetaddr.ttl=1 -Dsun.net.inetaddr.negative.ttl=0 \
  -Dlog4j2.configurationFile=/tmp/log4j2.properties {JARS} kafka.Kafka /tmp/server.properties &
echo $! > /tmp/pid
trap "kill -TERM $!" TERM
wait $! || wait $!
"""


class KafkaControllers:
    """Kafka's controllers, their broker and the tools. image: of all of them.

    The pods of the release need not exist yet. is_secured: the listener of the controllers is SSL,
    with certificates of `clients`; the pods wait for them.
    """

    def __init__(self, lab: Lab, image: str, *, is_secured: bool = False) -> None:
        self._lab = lab
        self._image = image
        self._is_secured = is_secured

    @property
    def clients(self) -> list[Object]:
        """The clients, as in the resource's `spec.clients`."""
        return [{"name": _client(node), "brokerId": node} for node in (*sorted(self.ids), BROKER)]

    # --- addresses --------------------------------------------------------------------------------

    @property
    def ids(self) -> frozenset[int]:
        """The node ids of the controllers."""
        return frozenset(range(FIRST, FIRST + len(DIRECTORIES)))

    @property
    def controllers(self) -> list[Object]:
        """The controllers, as in the resource's `spec.takeover.controllers`."""
        namespace = self._lab.namespace
        return [
            {
                "id": FIRST + n,
                "address": f"{CONTROLLER_SET}-{n}.{CONTROLLERS_SERVICE}.{namespace}.svc:{PORT}",
            }
            for n in range(len(DIRECTORIES))
        ]

    @property
    def addresses(self) -> str:
        """The addresses of the controllers of both kinds."""
        lab = self._lab
        quorates = [f"{lab.name}-{n}.{lab.namespace}.svc:{QUORATE_PORT}" for n in range(3)]
        return ",".join([*(each["address"] for each in self.controllers), *quorates])

    @property
    def broker(self) -> str:
        """The broker's address."""
        return f"{BROKER_SET}-0.{BROKERS_SERVICE}.{self._lab.namespace}.svc:9092"

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Create everything, and do not wait."""
        voters = ",".join(
            f"{each['id']}@{each['address']}:{directory}"
            for each, directory in zip(self.controllers, DIRECTORIES, strict=True)
        )
        shared = {
            "controller.listener.names": LISTENER,
            "controller.quorum.bootstrap.servers": self.addresses,
            "controller.quorum.fetch.timeout.ms": FETCH_TIMEOUT_MS,
            "log.dirs": "/var/lib/kafka/data",
        }
        protocol = "PLAINTEXT"
        if self._is_secured:
            protocol = "SSL"
            shared |= SECURED | {"ssl.client.auth": "required"}
        controller = shared | {
            "process.roles": "controller",
            "listener.security.protocol.map": f"{LISTENER}:{protocol}",
        }
        broker = shared | {
            "process.roles": "broker",
            "listeners": "PLAINTEXT://:9092",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:{protocol}",
            "offsets.topic.num.partitions": 3,
            "offsets.topic.replication.factor": 1,
        }
        controller_environment = {
            "FIRST_ID": FIRST,
            "SETTINGS": _lines(controller),
            "LISTENERS": "listeners",
            "LISTENER": LISTENER,
            "FORMAT": f"--release-version {RELEASE} --initial-controllers {voters}",
        }
        broker_environment = {
            "FIRST_ID": BROKER,
            "SETTINGS": _lines(broker),
            "LISTENERS": "advertised.listeners",
            "LISTENER": "PLAINTEXT",
            "FORMAT": f"--release-version {RELEASE}",
        }
        count = len(DIRECTORIES)
        items = [
            _service(CONTROLLERS_SERVICE, CONTROLLER_SET, PORT),
            self._set(CONTROLLER_SET, CONTROLLERS_SERVICE, count, PORT, controller_environment),
            _service(BROKERS_SERVICE, BROKER_SET, 9092),
            self._set(BROKER_SET, BROKERS_SERVICE, 1, 9092, broker_environment),
            self._tools(),
        ]
        manifest = {"apiVersion": "v1", "kind": "List", "items": items}
        self._lab.kubectl("apply", "-f", "-", text=json.dumps(manifest))

    def until_ready(self) -> None:
        """Wait until all pods are ready, a controller leads and the broker is registered."""
        lab = self._lab
        for name, count in ((CONTROLLER_SET, len(DIRECTORIES)), (BROKER_SET, 1)):
            self._until_ready_replicas(name, count)
        lab.until(f"pod {TOOLS} is ready", lambda: lab.is_ready(TOOLS), START_S)
        self.leader()
        lab.until("the broker answers", lambda: self._run_tool(self._topics("--list"))[0], START_S)

    def kill(self, ordinal: int) -> None:
        """Kill a controller, whose container then starts again on the same disk."""
        pod = f"{CONTROLLER_SET}-{ordinal}"
        self._lab.kubectl("exec", pod, "--", "sh", "-c", "kill -9 $(cat /tmp/pid)")

    def delete(self) -> None:
        """Stop all controllers, and wait until they are gone. Their disks stay."""
        self.scale(0)

    def scale(self, count: int) -> None:
        """Have so many controllers run."""
        lab = self._lab
        lab.kubectl("scale", "statefulset", CONTROLLER_SET, f"--replicas={count}")

        def is_scaled() -> bool:
            pods = lab.get("pods", "-l", f"app={CONTROLLER_SET}")["items"]
            return len(pods) == count

        lab.until(f"there are {count} of Kafka's controllers", is_scaled)
        self._until_ready_replicas(CONTROLLER_SET, count)

    # --- tools ------------------------------------------------------------------------------------

    def run(self, script: str) -> str:
        """Run a script in the pod with Kafka's tools; what it printed."""
        return self._lab.kubectl("exec", TOOLS, "--", "sh", "-ec", script)

    def quorum(self) -> str:
        """What Kafka's tool prints of the quorum's status; empty if nobody answers."""
        where = f"--bootstrap-controller {self.addresses} --command-config /tmp/peer.properties"
        return self._run_tool(f"MetadataQuorumCommand {where} describe --status")[1]

    def leader(self) -> int:
        """The node id of the controller that leads, of either kind."""

        def found() -> list[str]:
            return LEADER.findall(self.quorum())

        return int(self._lab.until("Kafka's tool names a leader", found, START_S)[0])

    def create_topic(self, name: str) -> None:
        """Have a topic created by the broker, which may need another attempt after an election."""

        def is_created() -> bool:
            return self._run_tool(self._create(f"{name} --if-not-exists"))[0]

        self._lab.until(f"topic {name} is created", is_created, RECOVERED_S)

    def topics(self) -> set[str]:
        """The names of all topics, as the broker lists them."""

        def listed() -> tuple[bool, str] | None:
            found = self._run_tool(self._topics("--list"))
            return found if found[0] else None

        _, said = self._lab.until("the broker lists topics", listed, RECOVERED_S)
        return set(said.split())

    def create_command(self, name: str) -> str:
        """A shell command that creates a topic."""
        return _java(self._create(name))

    def _create(self, name: str) -> str:
        return self._topics(f"--create --partitions 1 --replication-factor 1 --topic {name}")

    def _topics(self, options: str) -> str:
        where = f"--bootstrap-server {self.broker} --command-config /tmp/tool.properties"
        return f"TopicCommand {where} {options}"

    def _run_tool(self, command: str) -> tuple[bool, str]:
        """Whether a command of Kafka's succeeded, and what it printed."""
        said = self.run(f"if {_java(command)}; then echo; echo succeeded; fi")
        printed, _, result = said.rstrip().rpartition("\n")
        return (True, printed) if result == "succeeded" else (False, said)

    # --- manifests --------------------------------------------------------------------------------

    def _until_ready_replicas(self, name: str, count: int) -> None:
        def are_ready() -> bool:
            status = self._lab.get("statefulset", name)["status"]
            return int(status.get("readyReplicas", 0)) == count

        self._lab.until(f"{count} pods of {name} are ready", are_ready, START_S)

    def _set(
        self, name: str, service: str, count: int, port: int, environment: Mapping[str, object]
    ) -> Object:
        """A StatefulSet of controllers or brokers."""
        values = {"SERVICE": service, "PORT": port, **environment}
        variables: list[Object] = [{"name": k, "value": str(v)} for k, v in values.items()]
        for variable, field in (("POD_NAME", "name"), ("POD_NAMESPACE", "namespace")):
            source = {"fieldRef": {"fieldPath": f"metadata.{field}"}}
            variables.append({"name": variable, "valueFrom": source})
        opened = {"tcpSocket": {"port": port}}
        container = {
            **self._container("kafka", START),
            "env": variables,
            "ports": [{"name": "kafka", "containerPort": port}],
            "startupProbe": opened | {"periodSeconds": 2, "failureThreshold": 150},
            "readinessProbe": opened | {"periodSeconds": 5},
            "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        }
        container["volumeMounts"] += [{"name": "data", "mountPath": "/var/lib/kafka"}]
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "256Mi"}},
            },
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name},
            "spec": {
                "serviceName": service,
                "replicas": count,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": _labels(name)},
                    "spec": self._pod(container, grace_s=30),
                },
                "volumeClaimTemplates": [claim],
            },
        }

    def _tools(self) -> Object:
        """The pod with Kafka's tools, which first makes an archive of the classes they load."""
        timeouts = ("request.timeout.ms", "default.api.timeout.ms")
        settings = " ".join(f"{name}={TOOL_TIMEOUT_MS}" for name in timeouts)
        peer = ""
        if self._is_secured:
            peer = f"security.protocol=SSL {_lines(SECURED)}".replace("\n", " ")
        # Nobody listens there, so the tool fails once it has loaded what a client needs.
        command = _java("TopicCommand --bootstrap-server localhost:1 --list", archive=False)
        script = (
            f"printf '%s\\n' {settings} > /tmp/tool.properties\n"
            f"printf '%s\\n' {settings} {peer} > /tmp/peer.properties\n"
            "printf '%s\\n' request.timeout.ms=500 default.api.timeout.ms=1000 > /tmp/short\n"
            f"{command} --command-config /tmp/short > /dev/null 2>&1 || true\n"
            f"cd /tls/{FIRST} && cat tls.key tls.crt > {PAIR} || true\n"
            "touch /tmp/ready\n"
            "exec sleep infinity\n"
        )
        container = self._container("tools", script)
        ready = {"exec": {"command": ["test", "-e", "/tmp/ready"]}}
        container["readinessProbe"] = ready | {"periodSeconds": 2, "timeoutSeconds": 10}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": TOOLS, "labels": _labels(TOOLS)},
            "spec": self._pod(container, grace_s=1),
        }

    def _container(self, name: str, script: str) -> Object:
        return {
            "name": name,
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-euc", script],
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }

    def _pod(self, container: Object, *, grace_s: int) -> Object:
        volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
        for client in self.clients if self._is_secured else ():
            node = client["brokerId"]
            secret = {
                "secretName": f"{self._lab.name}-client-{client['name']}-tls",
                "defaultMode": 0o440,
            }
            volumes.append({"name": f"tls-{node}", "secret": secret})
            container["volumeMounts"].append({"name": f"tls-{node}", "mountPath": f"/tls/{node}"})
        return {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": grace_s,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": volumes,
        }


def _client(node: int) -> str:
    """The name of a node in the resource's `spec.clients`."""
    return f"kafka-{node}"


def _java(command: str, *, archive: bool = True) -> str:
    """A shell command that runs a tool of Kafka, with the archive of its classes or making it."""
    option = ARCHIVED if archive else f"-XX:ArchiveClassesAtExit={ARCHIVE}"
    return f"{JAVA} -Xmx128m {option} {JARS} org.apache.kafka.tools.{command}"


def _lines(settings: Mapping[str, object]) -> str:
    return "\n".join(f"{name}={value}" for name, value in settings.items())


def _labels(name: str) -> dict[str, str]:
    """The labels of a pod, which the network policies of the release let in."""
    label, _, value = WRITERS.partition("=")
    return {"app": name, label: value}


def _service(name: str, selected: str, port: int) -> Object:
    """A headless Service: its pods find each other before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": selected},
            "ports": [{"name": "kafka", "port": port}],
        },
    }


class Load:
    """Creates topics through the broker, one after another, from `start` to `stop`.

    A name is tried once: a topic whose creation failed may exist.
    """

    def __init__(self, kafka: KafkaControllers) -> None:
        self._kafka = kafka

    def start(self) -> None:
        create = self._kafka.create_command("load-$n")
        self._kafka.run(
            "rm -f /tmp/load.*; touch /tmp/load.acknowledged\n"
            "{\n"
            "  n=0\n"
            "  until [ -e /tmp/load.stop ]; do\n"
            f"    if {create}; then echo load-$n >> /tmp/load.acknowledged; fi\n"
            "    n=$((n + 1))\n"
            "  done\n"
            "  touch /tmp/load.stopped\n"
            "} > /tmp/load.out 2>&1 &"
        )

    def acknowledged(self) -> set[str]:
        """The names of the topics that were created so far."""
        return set(self._kafka.run("cat /tmp/load.acknowledged").split())

    def goes_on(self) -> Callable[[], bool]:
        """Whether more topics have been created since this call, asked later."""
        before = len(self.acknowledged())
        return lambda: len(self.acknowledged()) > before

    def stop(self) -> set[str]:
        """End it; the names of the topics that were created."""
        self._kafka.run("touch /tmp/load.stop; until [ -e /tmp/load.stopped ]; do sleep 1; done")
        return self.acknowledged()

    def errors(self) -> str:
        """The end of what the tool printed."""
        return self._kafka.run("tail -n 40 /tmp/load.out")
