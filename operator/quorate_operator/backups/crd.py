"""The CustomResourceDefinition of QuorumBackup. The chart ships it, and a test keeps both equal."""

from __future__ import annotations

from typing import Any

from quorate_operator.backups.resource import KIND, PLURAL
from quorate_operator.crd import pod_schema, schema
from quorate_operator.crd.destination import destination
from quorate_operator.crd.rules import QUANTITY, Schema, kept

REVISION = 2
"""The revision of the schema. Raise it with each change, and never use one twice."""
CRON = r"^(@(hourly|daily|weekly|monthly)|[0-9*/,A-Za-z?-]+( [0-9*/,A-Za-z?-]+){4})$"


def _pod_template() -> Schema:
    return schema.object(
        "Fields of the pods.",
        {
            "resources": pod_schema.resources("Resources of the container."),
            "nodeSelector": pod_schema.strings("As in a pod.", maxProperties=32),
            "tolerations": pod_schema.tolerations(),
        },
        default={},
    )


def _drill() -> Schema:
    return schema.object(
        "Restore drills: a Job restores the newest state to a volume of its pod, and opens it.",
        {
            "schedule": schema.text("A cron expression, in UTC.", pattern=CRON, maxLength=128),
            "resources": pod_schema.resources(
                "Resources of the container. ephemeral-storage covers the restored state."
            ),
            "volumeSize": schema.text(
                "The limit of the volume for the restored state, on the machine's disk. Default: "
                "none.",
                pattern=QUANTITY,
                maxLength=32,
            ),
        },
        required=["schedule"],
    )


def _spec() -> Schema:
    continuous = {
        "rule": "!has(self.schedule) || !has(self.intervalSeconds)",
        "message": "intervalSeconds is for a continuous backup, without schedule",
    }
    return schema.object(
        "The desired backup.",
        {
            "quorumName": schema.text(
                "The Quorum, in the same namespace. Cannot be changed later.",
                minLength=1,
                maxLength=40,
            ),
            "destination": destination(
                "Where the archive is. Use another one after the Quorum was replaced."
            ),
            "schedule": schema.text(
                "A cron expression, in UTC. Not set: the backup is continuous.",
                pattern=CRON,
                maxLength=128,
            ),
            "intervalSeconds": schema.integer(
                "How often a continuous backup archives what was committed; default: 5.",
                minimum=1,
                maximum=3600,
            ),
            "keepDays": schema.integer(
                "Delete what no restore to a time of the last days needs; default: keep "
                "everything.",
                minimum=1,
                maximum=36500,
            ),
            "client": schema.text(
                "The client in the Quorum's spec.clients with whose certificate it connects. It "
                "needs the cluster action. Default: NAME-client-tls, a super user.",
                maxLength=30,
                pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$",
            ),
            "suspend": schema.boolean("No backups and no drills run.", default=False),
            "drill": _drill(),
            "podTemplate": _pod_template(),
        },
        required=["quorumName", "destination"],
        **{"x-kubernetes-validations": [kept("quorumName"), continuous]},
    )


def _status() -> Schema:
    return schema.object(
        "The observed state of the backup.",
        {
            "observedGeneration": schema.integer("", format="int64"),
            "lastSuccess": schema.text(
                "When a backup last succeeded, at most a minute late.", format="date-time"
            ),
            "lastOffset": schema.integer("Where the archive ended then.", format="int64"),
            "clusterId": schema.text("The cluster in the archive."),
            "lastDrill": schema.object(
                "The last restore drill that succeeded.",
                {
                    "time": schema.text("When it ended.", format="date-time"),
                    "endOffset": schema.integer(
                        "Where the restored archive ended.", format="int64"
                    ),
                    "seconds": schema.integer("How long it took.", format="int64"),
                },
            ),
            "conditions": schema.conditions(),
        },
    )


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    columns = [
        schema.column("Quorum", "string", ".spec.quorumName"),
        schema.column("Schedule", "string", ".spec.schedule"),
        schema.column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        schema.column("LastSuccess", "date", ".status.lastSuccess"),
        schema.column("LastOffset", "integer", ".status.lastOffset"),
        schema.column("Drilled", "string", ".status.conditions[?(@.type=='Drilled')].status", 1),
        schema.column("LastDrill", "date", ".status.lastDrill.time", 1),
        schema.column("Age", "date", ".metadata.creationTimestamp"),
        schema.column("Message", "string", ".status.conditions[?(@.type=='Ready')].message", 1),
    ]
    description = "A backup of a Quorum, continuous or on a schedule."
    found = schema.resource(description, _spec(), _status())
    return schema.definition(
        REVISION,
        KIND,
        PLURAL,
        "qb",
        described_by=found,
        subresources={"status": {}},
        columns=columns,
    )
