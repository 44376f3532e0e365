"""Applies the CRDs at the start: Helm installs `crds/` once and never upgrades it.

All operators of a cluster share the CRDs, and they may have different versions. An older
definition would remove fields, and with them the settings that Quorums have in these fields.
Therefore each definition has a revision as an annotation, and a newer one stays.
"""

from __future__ import annotations

import logging

from quorate_operator.backups import crd as backup_crd
from quorate_operator.crd import quorum_schema
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.naming import REVISION_ANNOTATION, Object

LOGGER = logging.getLogger(__name__)

MANAGER = "quorate-operator"
KIND = "CustomResourceDefinition"
ATTEMPTS = 5
"""How often a CRD is read again after another operator has changed it."""


def definitions() -> list[Object]:
    """The CRDs of this version."""
    return [quorum_schema.definition(), backup_crd.definition()]


def revision_of(definition: Object) -> int:
    """The revision of a CRD; 0 if it has none, as those of release 0.1.0."""
    annotations = definition["metadata"].get("annotations") or {}
    text = str(annotations.get(REVISION_ANNOTATION, ""))
    return int(text) if text.isascii() and text.isdigit() else 0


def apply_crds(kube: Kube) -> None:
    """Apply the CRDs that are not newer in the cluster. Raises KubeError.

    Without the permission (403), a CRD stays as it is.
    """
    for definition in definitions():
        name = definition["metadata"]["name"]
        try:
            _apply(kube, definition)
        except KubeError as error:
            if error.status != 403:
                raise
            LOGGER.warning(
                "no permission to apply the CRD %s, the installed version stays in use: %s",
                name,
                error,
            )


def _apply(kube: Kube, definition: Object) -> None:
    name, revision = definition["metadata"]["name"], revision_of(definition)
    for attempt in range(1, ATTEMPTS + 1):
        installed = kube.get(KIND, "", name)
        metadata = dict(definition["metadata"])
        if installed is not None:
            newer = revision_of(installed)
            if newer > revision:
                LOGGER.warning(
                    "the CRD %s has revision %d, which is newer than this operator's %d: it stays",
                    name,
                    newer,
                    revision,
                )
                return
            # Fails if another operator has applied its own meanwhile.
            metadata["resourceVersion"] = installed["metadata"]["resourceVersion"]
        try:
            kube.apply("", {**definition, "metadata": metadata}, MANAGER)
            return
        except KubeError as error:
            if not error.is_conflict or attempt == ATTEMPTS:
                raise
