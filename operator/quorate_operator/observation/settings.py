"""Checks `spec.config` as a controller does when it starts, before a pod is restarted for it.

The settings are those of pod 0: what the operator and the pod's entry point set, and `spec.config`.
The controller's own configuration reader checks them, so names, values, ranges and combinations are
rejected with the controller's message. It is the reader of the operator's version: a setting of a
newer image is unknown until the operator is upgraded. Files are not read, because they are mounted
in the pods only.
"""

from __future__ import annotations

from quorate.controller.config import CONTROLLER
from quorate.controller.config_reader import config_of
from quorate.process.properties import ConfigError

from quorate_operator import naming, pod
from quorate_operator.objects import manifests
from quorate_operator.objects.resource import QuorumResource

_NAMES = {
    variable: each.name for each in CONTROLLER.settings.values() for variable in each.variables
}
"""The setting of each environment variable."""


def problem_of_config(quorum: QuorumResource) -> str:
    """Why a controller would reject the settings of the Quorum's pods, "" if it would not.

    The text names the setting, its value and the accepted values.
    """
    config = {name: str(text).strip() for name, text in quorum.part("config").items()}
    try:
        config_of(config | _settings(quorum), "spec.config", reads_files=False)
    except ConfigError as error:
        return str(error)
    return ""


def _settings(quorum: QuorumResource) -> dict[str, str]:
    """The settings in the environment of pod 0 by name."""
    template = manifests.environment(quorum)
    environment = {each["name"]: each["value"] for each in template if "value" in each}
    environment |= {
        "QUORATE_POD_NAME": naming.pod(quorum.name, 0),
        "QUORATE_POD_NAMESPACE": quorum.namespace,
    }
    found = pod.settings(environment).items()
    return {_NAMES[name]: text.strip() for name, text in found if name in _NAMES}
