"""The schemas of Kubernetes types in the custom resource: the pod template, and who may connect.

They are complete, so that the API server rejects a misspelled field or value when the Quorum is
changed, not when the operator applies the StatefulSet.

Source: Kubernetes, API reference: PodSpec, NetworkPolicyPeer, Quantity.
"""

from __future__ import annotations

from typing import Any

from quorate_operator.crd.rules import Schema

QUANTITY = (
    r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+([.][0-9]*)?)?$"
)
"""Any quantity, such as that of a CPU."""
LABEL_MAX = 253
OWN_VARIABLE = "^(QUORATE_|PYTHON|LD_|OPENSSL_|GCONV_PATH$|PATH$|SSLKEYLOGFILE$)"
"""The variables that a pod may not be given: the operator's, and those with which it could be made
to run other code than that of an allowed image, or to write down session keys.
"""


def text(description: str = "", **more: Any) -> Schema:
    return {"type": "string", **_described(description), **more}


def integer(description: str = "", **more: Any) -> Schema:
    return {"type": "integer", **_described(description), **more}


def _object(properties: dict[str, Schema], description: str = "", **more: Any) -> Schema:
    return {"type": "object", **_described(description), "properties": properties, **more}


def _array(items: Schema, description: str = "", **more: Any) -> Schema:
    return {"type": "array", **_described(description), "items": items, **more}


def _described(description: str) -> Schema:
    return {"description": description} if description else {}


def strings(description: str = "", **more: Any) -> Schema:
    """A map of strings, such as labels."""
    values = {"type": "string", "maxLength": 1024}
    return {
        "type": "object",
        **_described(description),
        "additionalProperties": values,
        **more,
    }


OWNED_LABEL = "(^|[.])(kubernetes[.]io|k8s[.]io|helm[.]sh|quorate[.]dev)/"
"""The keys of labels that belong to Kubernetes, to Helm and to the operator."""
LABEL_VALUE = "^(([A-Za-z0-9][A-Za-z0-9_.-]*)?[A-Za-z0-9])?$"
"""Source: Kubernetes, "Labels and Selectors", "Syntax and character set"."""


def common_labels() -> Schema:
    """`spec.commonLabels`. The patterns are short, because the API server limits their cost."""
    rules = [
        {
            "rule": f"self.all(key, !key.matches('{OWNED_LABEL}'))",
            "message": "labels of kubernetes.io, k8s.io, helm.sh and quorate.dev are not allowed",
        },
        {
            "rule": "self.all(key, key.matches('^([a-z0-9.-]+/)?[A-Za-z0-9][A-Za-z0-9_.-]*$'))",
            "message": "the key of a label is a name, or a domain, a slash and a name",
        },
    ]
    return {
        "type": "object",
        "description": "Labels of all objects that the operator makes for the Quorum, and of their "
        "pods, but not of volume claims. A change restarts the pods, as a rollout.",
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
        "maxProperties": 16,
        "x-kubernetes-validations": rules,
    }


def _names() -> Schema:
    return _array(text(maxLength=LABEL_MAX), maxItems=64)


def _expressions(*operators: str) -> Schema:
    fields = {
        "key": text(maxLength=317),
        "operator": text(enum=[*operators]),
        "values": _names(),
    }
    return _array(_object(fields, required=["key", "operator"]), maxItems=32)


def label_selector() -> Schema:
    """A LabelSelector."""
    return _object(
        {
            "matchLabels": strings(maxProperties=32),
            "matchExpressions": _expressions("In", "NotIn", "Exists", "DoesNotExist"),
        }
    )


def _node_term() -> Schema:
    operators = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    return _object({name: _expressions(*operators) for name in ("matchExpressions", "matchFields")})


def pod_term() -> Schema:
    """A PodAffinityTerm."""
    fields = {
        "labelSelector": label_selector(),
        "namespaceSelector": label_selector(),
        "namespaces": _names(),
        "topologyKey": text(minLength=1, maxLength=317),
        "matchLabelKeys": _names(),
        "mismatchLabelKeys": _names(),
    }
    return _object(fields, required=["topologyKey"])


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _preferred(name: str, term: Schema) -> Schema:
    fields = {"weight": integer(minimum=1, maximum=100), name: term}
    return _array(_object(fields, required=["weight", name]), maxItems=16)


def _affinity() -> Schema:
    terms = _array(_node_term(), maxItems=16)
    nodes = {
        _REQUIRED: _object({"nodeSelectorTerms": terms}, required=["nodeSelectorTerms"]),
        _PREFERRED: _preferred("preference", _node_term()),
    }
    pods = {
        _REQUIRED: _array(pod_term(), maxItems=16),
        _PREFERRED: _preferred("podAffinityTerm", pod_term()),
    }
    fields = {"nodeAffinity": _object(nodes)}
    fields |= {name: _object(pods) for name in ("podAffinity", "podAntiAffinity")}
    return _object(fields, "As in a pod.")


def tolerations() -> Schema:
    """The tolerations of a pod."""
    fields = {
        "key": text(maxLength=317),
        "operator": text(enum=["Exists", "Equal", "Lt", "Gt"]),
        "value": text(maxLength=LABEL_MAX),
        "effect": text(enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        "tolerationSeconds": integer(format="int64"),
    }
    return _array(_object(fields), "As in a pod.", maxItems=32)


def _spread() -> Schema:
    policy = text(enum=["Honor", "Ignore"])
    fields = {
        "maxSkew": integer(minimum=1),
        "topologyKey": text(minLength=1, maxLength=317),
        "whenUnsatisfiable": text(enum=["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": label_selector(),
        "minDomains": integer(minimum=1),
        "nodeAffinityPolicy": policy,
        "nodeTaintsPolicy": policy,
        "matchLabelKeys": _names(),
    }
    return _array(
        _object(fields, required=["maxSkew", "topologyKey", "whenUnsatisfiable"]),
        "As in a pod; default: those of `spread`.",
        maxItems=8,
    )


def _zones_and_nodes() -> Schema:
    def place(description: str) -> Schema:
        return text(description, enum=["Preferred", "Required"])

    return _object(
        {
            "zones": place(
                "Required: a pod stays pending unless it has one of three zones or more, whose "
                "numbers of members differ by at most one. Default: Preferred."
            ),
            "nodes": place(
                "Required: a pod stays pending unless it has a node without a member of the "
                "Quorum. Default: Preferred."
            ),
        },
        "How the pods are spread over zones and nodes.",
    )


def resources(description: str) -> Schema:
    """The resources of a container."""
    quantity: Schema = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": True,
    }
    amounts = {"type": "object", "additionalProperties": quantity, "maxProperties": 16}
    fields: dict[str, Schema] = {"requests": amounts, "limits": amounts}
    return _object(fields, description)


_ONE_SPREAD = {
    "rule": "!has(self.spread) || !has(self.topologySpreadConstraints) || "
    "size(self.topologySpreadConstraints) == 0",
    "message": "spread and topologySpreadConstraints cannot be used together",
}


def _extra_environment() -> Schema:
    """Variables with a value or a field of the pod: a Secret or a ConfigMap may be anyone's."""
    source = _object({"fieldPath": text(minLength=1, maxLength=LABEL_MAX)}, required=["fieldPath"])
    fields = {
        "name": text(minLength=1, maxLength=128, pattern="^[A-Za-z_][A-Za-z0-9_]*$"),
        "value": text(maxLength=4096),
        "valueFrom": _object({"fieldRef": source}, required=["fieldRef"]),
    }
    rules = [
        {
            "rule": f"!self.name.matches('{OWN_VARIABLE}')",
            "message": "the operator sets variables that begin with QUORATE_, see spec.config; "
            "those with which other code would run, such as PYTHONPATH, are not allowed",
        },
        {
            "rule": "!has(self.value) || !has(self.valueFrom)",
            "message": "value and valueFrom cannot be used together",
        },
    ]
    checked = {"x-kubernetes-validations": rules}
    each = _object(fields, "One variable.", required=["name"], **checked)
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    description = "Additional variables of the controller container: a value or a field of the pod."
    return _array(each, description, maxItems=32, **keyed)


def pod_template() -> Schema:
    """`spec.podTemplate`."""
    pull_secret = _object({"name": text(minLength=1, maxLength=LABEL_MAX)}, required=["name"])
    return _object(
        {
            "labels": strings("Additional labels of the pods.", maxProperties=32),
            "annotations": strings("Additional annotations of the pods.", maxProperties=32),
            "extraEnv": _extra_environment(),
            "resources": resources("Resources of the controller container."),
            "nodeSelector": strings("As in a pod.", maxProperties=32),
            "tolerations": tolerations(),
            "affinity": _affinity(),
            "spread": _zones_and_nodes(),
            "topologySpreadConstraints": _spread(),
            "imagePullSecrets": _array(pull_secret, "As in a pod.", maxItems=8),
            "priorityClassName": text("As in a pod.", maxLength=LABEL_MAX),
            "fixedUserIds": {
                "type": "boolean",
                "description": "Whether pods run with the user, the group and the file system "
                "group 10001. false: the platform assigns the ids, as OpenShift does.",
                "default": True,
            },
            "terminationGracePeriodSeconds": integer(
                "Time for a controller to shut down and, if it leads, to transfer leadership.",
                minimum=5,
                maximum=600,
                default=30,
            ),
        },
        "Fields of the pod template.",
        default={},
        **{"x-kubernetes-validations": [_ONE_SPREAD]},
    )


def peers(description: str, **more: Any) -> Schema:
    """A list of pods and addresses, as in a NetworkPolicy's `from`."""
    block = {"cidr": text(maxLength=64), "except": _array(text(maxLength=64), maxItems=64)}
    fields = {
        "podSelector": label_selector(),
        "namespaceSelector": label_selector(),
        "ipBlock": _object(block, required=["cidr"]),
    }
    return _array(_object(fields), description, maxItems=16, **more)
