"""Writes Kubernetes objects of an owner, such as a Quorum, and only while this process leads.

The rules 1, 2 and 4 of `act` are kept here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Protocol, TypeVar

from tenacity import retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.asyncio import AsyncRetrying

from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.ownership import conflict, handed_over, is_controlled_by
from quorate_operator.naming import Object

MANAGER = "quorate-operator"
CREATOR = "quorate-operator-create"
"""The field manager of fields that are set only at creation, such as a StatefulSet's replicas."""
ATTEMPTS = 3

T = TypeVar("T")


class Owner(Protocol):
    """The custom resource whose objects are written."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...


class LeaseLostError(Exception):
    """This process does not hold the lease, so it must not change anything."""


class ActionFailedError(Exception):
    """An action failed; the message is one line. The operator plans again.

    failures: the errors by object, if the other objects of the action were changed. untried: the
    objects that were left as they are.
    """

    def __init__(
        self,
        text: str,
        failures: Mapping[str, str] | None = None,
        untried: Collection[str] = (),
    ) -> None:
        super().__init__(text)
        self.failures: Mapping[str, str] = failures or {}
        self.untried = untried


class ObjectWriter:
    """Creates, changes and deletes objects.

    is_leading: returns whether this process holds the lease. mutated: called with a description
    after each mutation.
    """

    def __init__(
        self,
        kube: Kube,
        is_leading: Callable[[], Awaitable[bool]],
        mutated: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self._kube = kube
        self._is_leading = is_leading
        self._mutated = mutated

    async def mutate(self, what: str, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that changes something; `what` names the change.

        Raises LeaseLostError; KubeError also if the lease cannot be read.
        """
        with closing(call):
            if not await self._is_leading():
                raise LeaseLostError("this process no longer holds the lease")
            result = await call
        self._mutated(what)
        return result

    async def again(self, call: Callable[..., T], *arguments: object) -> T:
        """Call the API; try transient errors again, up to ATTEMPTS times in all."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda e: isinstance(e, KubeError) and e.may_pass),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.4, max=2.0),
            reraise=True,
        )
        return await retrying(partial(asyncio.to_thread, call, *arguments))

    async def create_once(self, owner: Owner, made: Object) -> None:
        """Create an object, or keep the owner's existing one.

        Raises ActionFailedError if a foreign object has the name.
        """
        kind = made["kind"]
        try:
            await self.mutate(
                f"create {_key(made)}",
                self.again(self._kube.create, kind, owner.namespace, made, CREATOR),
            )
        except KubeError as error:
            if not error.is_conflict:
                raise
            await self.own(owner, kind, made["metadata"]["name"])

    async def own(self, owner: Owner, kind: str, name: str) -> Object | None:
        """Return the owner's object, or None if no object has the name.

        Raises ActionFailedError if a foreign object has the name.
        """
        found = await self.again(self._kube.get, kind, owner.namespace, name)
        if found is not None and not is_controlled_by(found, owner.uid):
            raise ActionFailedError(conflict(kind, found, owner.name, owner.kind))
        return found

    async def put(self, owner: Owner, made: Object, stamp: str) -> None:
        """Create an object, or change the one that is the owner's own.

        The version that was read is no precondition: what is written does not depend on it, and
        the status of some objects changes often. If the object has got another controller since,
        the API server rejects a second one.
        """
        kind, name = made["kind"], made["metadata"]["name"]
        found = await self.own(owner, kind, name)
        if found is None:
            call = self.again(self._kube.create, kind, owner.namespace, made, CREATOR)
        else:
            await self._hand_over(owner, kind, found)
            metadata = {**made["metadata"], "uid": found["metadata"]["uid"]}
            body = {**made, "metadata": metadata}
            call = self.again(self._kube.apply, owner.namespace, body, MANAGER)
        await self.mutate(f"apply {kind}/{name} {stamp}", call)

    async def _hand_over(self, owner: Owner, kind: str, found: Object) -> None:
        """Hand field ownership over, so that an apply can remove fields set at creation."""
        metadata = found["metadata"]
        before = metadata.get("managedFields") or []
        after = handed_over(before, CREATOR, MANAGER)
        if after == before:
            return
        name, version = metadata["name"], metadata["resourceVersion"]
        body = {"metadata": {"resourceVersion": version, "managedFields": after}}
        await self.mutate(
            f"hand over {kind}/{name}, version {version}",
            asyncio.to_thread(self._kube.merge, kind, owner.namespace, name, body),
        )

    async def delete(self, owner: Owner, kind: str, name: str) -> None:
        """Delete the owner's object in the version that was read: it may get another owner."""
        found = await self.own(owner, kind, name)
        if found is not None:
            uid, version = found["metadata"]["uid"], found["metadata"]["resourceVersion"]
            await self.mutate(
                f"delete {kind}/{name} {uid}, version {version}",
                self.again(self._kube.delete, kind, owner.namespace, name, uid, version),
            )


def _key(found: Object) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"
