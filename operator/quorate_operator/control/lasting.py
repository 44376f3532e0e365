"""What an action does, as a stamp, and who undid it: an action that does not last has failed.

An apply may succeed and not stick: an admission webhook changes the object on its way, or another
program, such as an operator of another version, changes it back.
"""

from __future__ import annotations

from collections.abc import Collection

from quorate_operator import naming
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.ownership import last_manager
from quorate_operator.kube.writer import CREATOR, MANAGER
from quorate_operator.naming import Object
from quorate_operator.objects import manifests
from quorate_operator.objects.budget import with_voters
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.observe import Snapshot
from quorate_operator.planning.values import Action, ApplyObjects, targets

NOT_LASTING = "the change did not last: another program may undo it"


def stamps(action: Action, quorum: QuorumResource, seen: Snapshot) -> dict[str, str]:
    """What an action does, by target. It has the same stamp only if it does the same again."""
    if isinstance(action, ApplyObjects):
        return stamps_of_objects(action.names, quorum, seen)
    return dict.fromkeys(targets(action), str(action))


def stamps_of_objects(
    names: Collection[str], quorum: QuorumResource, seen: Snapshot
) -> dict[str, str]:
    """The stamps of objects as they shall be, by "Kind/name"; "" for one that shall not exist."""
    wanted = manifests.objects(with_voters(quorum, seen.stateful_set, seen.observed))
    issued = _stamp_of_secrets(seen)
    return {
        name: issued
        if name.startswith("Secret/")
        else manifests.stamp_of(wanted[name])
        if name in wanted
        else ""
        for name in names
    }


def _stamp_of_secrets(seen: Snapshot) -> str:
    """What the certificates follow besides the spec. Each step of a rotation has its own stamp."""
    authority = seen.authority
    trusted = None if authority is None else [authority.phase.value, authority.trusted]
    names = {str(ordinal): list(each.names) for ordinal, each in seen.external.items()}
    return manifests.digest({"authority": trusted, "names": names})


def why_undone(kube: Kube, quorum: QuorumResource, action: Action, target: str) -> str:
    """Why the last attempt did not last, as far as the object's managers tell. Blocks."""
    if not isinstance(action, ApplyObjects):
        return NOT_LASTING
    kind, _, name = target.partition("/")
    try:
        found = kube.get(kind, quorum.namespace, name)
    except KubeError:
        found = None
    return f"it was applied, but {_who(found)} reverts it"


def _who(found: Object | None) -> str:
    manager = "" if found is None else last_manager(found, naming.HASH_ANNOTATION, _OWN)
    if manager:
        return f'the field manager "{manager}"'
    return "an admission webhook or another version of the operator"


_OWN = (MANAGER, CREATOR)
