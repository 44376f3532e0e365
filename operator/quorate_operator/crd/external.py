"""Access from outside the cluster: `spec.external`, its schema, and the nodes' outside addresses.

Each node has a further Service. Clients outside need the addresses of all nodes: a node that does
not lead names the leader by its address within the cluster, which they cannot reach, so they try
the other addresses that they know (`quorate.rpc.client.routing`). Only the certificates of the
nodes depend on these addresses, and no pod is restarted for a new certificate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quorate.rpc.wire.limits import format_address

from quorate_operator.crd import schema
from quorate_operator.crd.rules import Schema
from quorate_operator.naming import KAFKA_PORT, NODES_MAX, PORT, Object

LOAD_BALANCER, NODE_PORT = "LoadBalancer", "NodePort"
ORDINAL = "{ordinal}"
"""Stands for a pod's ordinal in a template of hosts."""
HOST_PATTERN = (
    "^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|([0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f.]{0,15})$"
)
"""A DNS name or an IP address, without a port."""
TEMPLATE_PATTERN = "^([A-Za-z0-9]|[{]ordinal[}])([-A-Za-z0-9.]|[{]ordinal[}])*$"
RANGE_PATTERN = "^[0-9A-Fa-f.:]+/[0-9]{1,3}$"
RANGES_MAX = 64
_HOST = re.compile(HOST_PATTERN)
_NODE = re.compile(r"node-[0-9]+", re.IGNORECASE)
"""In a certificate, such a name identifies a node."""


@dataclass(frozen=True, slots=True)
class ExternalAccess:
    """`spec.external`. type: LOAD_BALANCER or NODE_PORT. hosts, node_ports: by ordinal."""

    type: str
    annotations: Mapping[str, str]
    hosts: tuple[str, ...] = ()
    host_template: str = ""
    source_ranges: tuple[str, ...] = ()
    node_ports: tuple[int, ...] = ()

    @classmethod
    def parse(cls, found: Object) -> ExternalAccess:
        return cls(
            type=str(found.get("type")),
            annotations=found.get("annotations") or {},
            hosts=tuple(found.get("hosts") or ()),
            host_template=str(found.get("hostTemplate") or ""),
            source_ranges=tuple(found.get("loadBalancerSourceRanges") or ()),
            node_ports=tuple(found.get("nodePorts") or ()),
        )

    def host(self, ordinal: int) -> str:
        """The host that the spec gives to a node, "" for none."""
        if self.host_template:
            return self.host_template.replace(ORDINAL, str(ordinal))
        return self.hosts[ordinal] if ordinal < len(self.hosts) else ""

    def service_fields(self, ordinal: int) -> Object:
        """The fields of a node's Service that depend on `spec.external`."""
        port: Object = {"name": "controller", "port": PORT, "targetPort": PORT, "protocol": "TCP"}
        if ordinal < len(self.node_ports):
            port["nodePort"] = self.node_ports[ordinal]
        found: Object = {"type": self.type, "ports": [port]}
        if self.source_ranges:
            found["loadBalancerSourceRanges"] = [*self.source_ranges]
        return found


@dataclass(frozen=True, slots=True)
class ExternalAddress:
    """Where clients outside the cluster reach a node."""

    address: str = ""
    """`host:port`, "" while there is none."""
    names: tuple[str, ...] = ()
    """The names and IP addresses that its certificate needs."""
    is_pending: bool = False
    """Whether its load balancer has no address yet."""


def external_address(
    access: ExternalAccess, ordinal: int, service: Object | None
) -> ExternalAddress:
    """The outside address of a node. service: its Service as the API server has it."""
    host, found = access.host(ordinal), service or {}
    ports = (found.get("spec") or {}).get("ports") or [{}]
    port, given = ports[0].get("nodePort"), []
    if access.type == LOAD_BALANCER:
        ingress = ((found.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        given = [str(each.get("hostname") or each.get("ip") or "") for each in ingress]
        port = PORT if any(given) else None
        host = host or next(filter(None, given), "")
    return ExternalAddress(
        format_address(host, int(port)) if host and port else "",
        tuple(_certifiable([host, *given])),
        is_pending=access.type == LOAD_BALANCER and service is not None and not any(given),
    )


def _certifiable(hosts: Iterable[str]) -> Iterable[str]:
    """The hosts that a certificate may name: none is another node's name."""
    return (
        host for host in dict.fromkeys(hosts) if _HOST.fullmatch(host) and not _NODE.fullmatch(host)
    )


def _names_node(host: str) -> str:
    """The condition in CEL that a host would identify a node in a certificate."""
    return f"{host}.startsWith('node-') && !{host}.contains('.')"


def external_access() -> Schema:
    """The schema of `spec.external`."""
    host = schema.text("", maxLength=253, pattern=HOST_PATTERN)
    rules = {
        f"self.type == '{LOAD_BALANCER}' || has(self.hosts) || has(self.hostTemplate)": (
            f"type {NODE_PORT} needs hosts or hostTemplate: the addresses of the cluster's machines"
        ),
        "!has(self.hosts) || !has(self.hostTemplate)": (
            "hosts and hostTemplate cannot be used together"
        ),
        f"self.type == '{NODE_PORT}' || !has(self.hostTemplate) || "
        f"self.hostTemplate.contains('{ORDINAL}')": (
            f"hostTemplate needs {ORDINAL}: each node has a load balancer of its own"
        ),
        f"!has(self.hosts) || !self.hosts.exists(h, {_names_node('h')})": (
            "hosts contains a name such as node-1, which identifies a node in certificates: use "
            "the full name"
        ),
        f"!has(self.hostTemplate) || !({_names_node('self.hostTemplate')})": (
            "hostTemplate makes names such as node-1, which identify nodes in certificates: use "
            "full names"
        ),
        f"self.type == '{LOAD_BALANCER}' || !has(self.loadBalancerSourceRanges)": (
            f"loadBalancerSourceRanges needs type {LOAD_BALANCER}"
        ),
        f"self.type == '{NODE_PORT}' || !has(self.nodePorts)": f"nodePorts needs type {NODE_PORT}",
        "!has(self.nodePorts) || self.nodePorts.all(p, self.nodePorts.exists_one(q, q == p))": (
            "nodePorts contains a port twice"
        ),
    }
    return schema.object(
        "A Service for each node, for clients outside the cluster: they need the addresses of all "
        "nodes (status.externalBootstrapServers). Needs tls.enabled. Kafka's brokers and tools "
        f"cannot use it: port {KAFKA_PORT} is reached only from inside.",
        {
            "type": schema.text("The type of the Services.", enum=[LOAD_BALANCER, NODE_PORT]),
            "annotations": {
                "type": "object",
                "description": "Annotations of the Services.",
                "additionalProperties": {"type": "string", "maxLength": 1024},
                "maxProperties": 32,
            },
            "hosts": {
                "type": "array",
                "description": "DNS names or IP addresses by which clients reach the nodes, by the "
                "ordinal of the pod. The nodes' certificates name them, as they do the addresses "
                "of load balancers.",
                "items": host,
                "maxItems": NODES_MAX,
            },
            "hostTemplate": schema.text(
                f"In place of hosts: a name with {ORDINAL} for the ordinal, or one host for all "
                "nodes.",
                maxLength=253,
                pattern=TEMPLATE_PATTERN,
            ),
            "loadBalancerSourceRanges": {
                "type": "array",
                "description": "The networks (CIDR) from which load balancers accept connections, "
                "if the cloud provider supports it. Default: any.",
                "items": schema.text("", maxLength=64, pattern=RANGE_PATTERN),
                "maxItems": RANGES_MAX,
            },
            "nodePorts": {
                "type": "array",
                "description": "The node ports, by the ordinal of the pod. Default: the API server "
                "chooses them.",
                "items": schema.integer("", minimum=1, maximum=65_535),
                "maxItems": NODES_MAX,
            },
        },
        required=["type"],
        **{
            "x-kubernetes-validations": [
                {"rule": rule, "message": text} for rule, text in rules.items()
            ]
        },
    )


def rules_of_spec() -> list[Schema]:
    """The rules that `spec.external` and other fields of the spec keep together."""
    rules = [
        {
            "rule": "!has(self.external) || !has(self.tls) || !has(self.tls.enabled) || "
            "self.tls.enabled",
            "message": "external needs tls.enabled",
        }
    ]
    for field in ("hosts", "nodePorts"):
        given = f"self.external.{field}"
        rules.append(
            {
                "rule": f"!has(self.external) || !has({given}) || size({given}) >= self.replicas",
                "message": f"external.{field} needs an entry for each of the replicas",
            }
        )
    return rules
