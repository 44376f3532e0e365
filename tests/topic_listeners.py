"""Controllers of a local cluster that also listen for Kafka's producers and consumers."""

from __future__ import annotations

from quorate.cli.local.local_cluster import LocalCluster, free_ports

from tests.processes import HOST

TOPIC = "records"


def add_topic_listeners(cluster: LocalCluster) -> str:
    """Give each controller the listener before it starts; returns the addresses, with commas."""
    addresses = []
    for node in cluster.nodes.values():
        (port,) = free_ports(1)
        addresses.append(f"{HOST}:{port}")
        settings = dict(
            line.split("=", 1) for line in node.properties.read_text().splitlines() if "=" in line
        )
        settings["listeners"] += f",TOPIC://{addresses[-1]}"
        settings["controller.listener.names"] += ",TOPIC"
        settings["listener.security.protocol.map"] += ",TOPIC:PLAINTEXT"
        settings["quorate.topic.listener.name"] = "TOPIC"
        node.properties.write_text("".join(f"{key}={settings[key]}\n" for key in settings))
    return ",".join(addresses)
