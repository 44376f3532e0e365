"""What a StatefulSet's controller, kubelet and volumes do, with real controllers on loopback.

`sync` brings pods (objects of the fake API server, and processes) to what the StatefulSet says: a
pod is a process of `quorate controller` that waits for its format, a volume is a folder, and a pod
that was deleted comes back on the folder that is there.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from quorate_operator import naming
from quorate_operator.kube.api import path
from quorate_operator.objects import manifests

from tests.processes import HOST, QUORATE, Process, free_ports
from tests.unit.operator.fake_api import Object, Store


class FakePod(Process):
    """The process of a pod. variables: its settings."""

    def __init__(self, log_file: Path, variables: dict[str, str]) -> None:
        super().__init__(log_file.stem, log_file, sys.executable, *QUORATE, "controller")
        self._variables = variables

    @property
    def variables(self) -> dict[str, str]:
        return self._variables


class FakePods:
    """The pods of the StatefulSet `quorum` in `namespace`; pod 0 is node `first`."""

    def __init__(
        self, store: Store, folder: Path, quorum: str, namespace: str, first: int = 0
    ) -> None:
        self.ids = naming.NodeIds(first)
        self.store = store
        self.folder = folder
        self.quorum = quorum
        self.namespace = namespace
        self.ports = free_ports(naming.NODES_MAX)
        self.processes: dict[int, FakePod] = {}

    def locate(self, quorum: str, namespace: str, ordinal: int) -> tuple[str, int]:
        """For the operator: where a node is reached."""
        assert (quorum, namespace) == (self.quorum, self.namespace)
        return HOST, self.ports[ordinal]

    @property
    def addresses(self) -> list[str]:
        return [f"{HOST}:{port}" for port in self.ports[:5]]

    def volume(self, ordinal: int) -> Path:
        return self.folder / f"volume-{ordinal}"

    # --- what Kubernetes does ---------------------------------------------------------------------

    def sync(self) -> None:
        stateful_set = self.store.objects.get(path("StatefulSet", self.namespace, self.quorum))
        if stateful_set is None:
            return
        template = stateful_set["spec"]["template"]
        revision = manifests.digest(template)
        stateful_set["status"] = {"updateRevision": revision, "observedGeneration": 1}
        wanted = int(stateful_set["spec"]["replicas"])
        for ordinal in [n for n in self.processes if self._pod(n) is None or n >= wanted]:
            self._end(ordinal)
        for ordinal in range(wanted):
            if ordinal not in self.processes:
                self._begin(ordinal, template, revision)

    def _path(self, ordinal: int) -> str:
        return path("Pod", self.namespace, naming.pod(self.quorum, ordinal))

    def _pod(self, ordinal: int) -> Object | None:
        return self.store.objects.get(self._path(ordinal))

    def _end(self, ordinal: int) -> None:
        self.processes.pop(ordinal).stop()
        self.store.objects.pop(self._path(ordinal), None)

    def _begin(self, ordinal: int, template: Any, revision: str) -> None:
        labels = template["metadata"]["labels"] | {"controller-revision-hash": revision}
        pod: Object = {
            "kind": "Pod",
            "metadata": {"name": naming.pod(self.quorum, ordinal), "labels": labels},
            "status": {
                "phase": "Running",
                "podIP": HOST,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        claim: Object = {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": naming.claim(self.quorum, ordinal), "labels": labels},
        }
        claims = path("PersistentVolumeClaim", self.namespace)
        if f"{claims}/{claim['metadata']['name']}" not in self.store.objects:
            self.store.handle("POST", claims, claim)
        self.store.handle("POST", path("Pod", self.namespace), pod)
        self.processes[ordinal] = self._start(ordinal)

    def _start(self, ordinal: int) -> FakePod:
        listener = f"{naming.LISTENER}://{HOST}:{self.ports[ordinal]}"
        settings = {
            "PROCESS_ROLES": "controller",
            "NODE_ID": str(self.ids.of(ordinal)),
            "CONTROLLER_LISTENER_NAMES": naming.LISTENER,
            "LISTENERS": listener,
            "CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": ",".join(self.addresses[:3]),
            "QUORATE_UNFORMATTED_WAIT": "true",
            "QUORATE_FORMAT_PRINCIPALS": "User:ANONYMOUS",
            "METADATA_LOG_DIR": str(self.volume(ordinal)),
        }
        variables = {f"QUORATE_{name}": value for name, value in settings.items()}
        pod = FakePod(self.folder / f"pod-{ordinal}.log", variables)
        pod.start()
        return pod

    # --- what goes wrong --------------------------------------------------------------------------

    def lose_disk(self, ordinal: int) -> None:
        """The volume is gone, and the pod comes back on an empty one."""
        self.kill(ordinal)
        shutil.rmtree(self.volume(ordinal))
        self.restart(ordinal)

    def kill(self, ordinal: int) -> None:
        """kill -9, and nothing brings it back yet."""
        self.processes[ordinal].kill()

    def restart(self, ordinal: int) -> None:
        self.processes[ordinal] = self._start(ordinal)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
