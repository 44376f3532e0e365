"""Reads the status of every Quorum once a second."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import defaultdict
from typing import Any

import urllib3
from kubernetes import client, config
from quorate_operator.main import LEASE_NAME

from tests.chaos.judging import Sample

INTERVAL_S = 1.0
TIMEOUT_S = 2.0
RENEWED_S = 10.0
"""An operator whose lease is older does not work."""
GROUP = ("quorate.dev", "v1alpha1", "quorums")
OPERATORS = "app.kubernetes.io/component=operator"


class Sampler(threading.Thread):
    """samples: of each namespace's Quorum, from the start of the thread until `stop`."""

    def __init__(self, namespaces: list[str]) -> None:
        super().__init__(daemon=True)
        self.samples: dict[str, list[Sample]] = defaultdict(list)
        self._namespaces = namespaces
        self.failure = ""
        self._stopped = threading.Event()
        # No request is repeated: a late answer would be of another second.
        config.load_kube_config()
        api = client.ApiClient(_configuration())
        self._quorums = client.CustomObjectsApi(api)
        self._pods = client.CoreV1Api(api)
        self._leases = client.CoordinationV1Api(api)

    def run(self) -> None:
        try:
            self._sample()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            raise

    def _sample(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            at = time.time()
            try:
                found = self._read()
            except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
                found = {}
            for namespace in self._namespaces:
                conditions, has_operator = found.get(namespace, ({}, False))
                ready = conditions.get("Ready", {})
                quorate = conditions.get("Quorate", {})
                sample = Sample(
                    at,
                    ready.get("status", ""),
                    quorate.get("status", ""),
                    ready.get("reason", ""),
                    has_operator,
                )
                self.samples[namespace].append(sample)

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _read(self) -> dict[str, tuple[dict[str, Any], bool]]:
        """The conditions by type, and whether an operator works, by namespace."""
        quorums = self._quorums.list_cluster_custom_object(*GROUP, _request_timeout=TIMEOUT_S)
        pods = self._pods.list_pod_for_all_namespaces(
            label_selector=OPERATORS, _request_timeout=TIMEOUT_S
        )
        ready = {
            (pod.metadata.namespace, pod.metadata.name) for pod in pods.items if _is_ready(pod)
        }
        leases = self._leases.list_lease_for_all_namespaces(
            field_selector=f"metadata.name={LEASE_NAME}", _request_timeout=TIMEOUT_S
        )
        now = dt.datetime.now(dt.UTC)
        tended = {
            lease.metadata.namespace
            for lease in leases.items
            if (lease.metadata.namespace, lease.spec.holder_identity) in ready
            and (now - lease.spec.renew_time).total_seconds() < RENEWED_S
        }
        return {
            quorum["metadata"]["namespace"]: (
                {c["type"]: c for c in (quorum.get("status") or {}).get("conditions") or ()},
                quorum["metadata"]["namespace"] in tended,
            )
            for quorum in quorums["items"]
        }


def _configuration() -> client.Configuration:
    made = client.Configuration.get_default_copy()
    made.retries = False
    return made


def _is_ready(pod: client.V1Pod) -> bool:
    conditions = pod.status.conditions or ()
    ready = any(each.type == "Ready" and each.status == "True" for each in conditions)
    return ready and pod.metadata.deletion_timestamp is None
