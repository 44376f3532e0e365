"""What wakes the operator, how it repeats what fails, and how it limits Events."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from quorate_operator.control import backoff
from quorate_operator.control.backoff import Backoff
from quorate_operator.control.watcher import KindWatcher, WatchedKind
from quorate_operator.kube import events
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.events import EventRecorder

from tests.unit.operator.fake_api import Object, Store, created

MAPS = "/api/v1/namespaces/lab/configmaps"


class Watched:
    """A watcher of ConfigMaps, and the names that it reported."""

    def __init__(self, store: Store, kube: Kube) -> None:
        self.store, self.kube = store, kube
        self.seen: list[str] = []
        self.is_new = threading.Event()
        kind = WatchedKind("ConfigMap", lambda found: str(found["metadata"]["name"]))
        self.watcher = KindWatcher(kube, kind, "lab", self._changed)

    def _changed(self, found: Object, is_deleted: bool) -> None:
        self.seen.append(
            f"-{found['metadata']['name']}" if is_deleted else found["metadata"]["name"]
        )
        self.is_new.set()

    def create(self, name: str) -> None:
        body: Object = {"kind": "ConfigMap", "metadata": {"name": name}}
        self.kube.create("ConfigMap", "lab", body, "test")

    def while_following(self, change: Callable[[], None]) -> None:
        """Change something during a watch, and end the watch as the server does."""
        watchers = len(self.store.watchers)
        thread = threading.Thread(target=self.watcher.follow, daemon=True)
        thread.start()
        for _ in range(1000):
            if len(self.store.watchers) > watchers:
                break
            threading.Event().wait(0.01)
        self.is_new.clear()
        change()
        assert self.is_new.wait(10)
        self.store.watchers[-1].put({"type": "END"})
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def watched(api: tuple[Store, Kube]) -> Watched:
    return Watched(*api)


def test_each_change_is_reported_once_across_watches(watched: Watched) -> None:
    """A watch that begins again does not report all objects again, and misses nothing between."""
    watched.create("a")
    watched.while_following(lambda: watched.create("b"))
    assert watched.seen == ["a", "b"]
    watched.create("c")
    watched.store.remove(f"{MAPS}/a")
    watched.while_following(lambda: watched.create("d"))
    assert watched.seen == ["a", "b", "c", "-a", "d"]
    lists = [path for method, path in watched.store.log if (method, path) == ("GET", MAPS)]
    assert len(lists) == 1


def test_a_version_that_is_too_old_leads_to_a_list(watched: Watched) -> None:
    """Only what differs from the last known state is reported, deleted objects included."""
    for name in ("a", "b", "c"):
        watched.create(name)
    watched.while_following(lambda: watched.create("d"))
    watched.seen.clear()
    watched.store.remove(f"{MAPS}/a")
    watched.kube.merge("ConfigMap", "lab", "b", {"data": {"x": "y"}})
    watched.store.compacted = watched.store.version
    with pytest.raises(KubeError) as old:
        watched.watcher.follow()
    assert old.value.status == 410
    watched.while_following(lambda: watched.create("e"))
    assert watched.seen == ["-a", "b", "e"]


def test_a_deleted_object_is_reported_with_its_labels(watched: Watched) -> None:
    """They name its Quorum. A list has no managedFields, and the watcher keeps few fields."""
    kept: Object = {"name": "a", "labels": {"quorum": "q"}}
    metadata: Object = {**kept, "managedFields": [{}], "annotations": {"large": "text"}}
    watched.kube.create("ConfigMap", "lab", {"metadata": metadata}, "test")
    assert "managedFields" not in watched.kube.list("ConfigMap", "lab")[0]["metadata"]
    told: list[Object] = []
    kind = WatchedKind("ConfigMap", lambda found: "q")
    watcher = KindWatcher(watched.kube, kind, "lab", lambda found, _: told.append(found))

    def follow() -> None:
        watchers = len(watched.store.watchers)
        thread = threading.Thread(target=watcher.follow, daemon=True)
        thread.start()
        while len(watched.store.watchers) == watchers:
            threading.Event().wait(0.01)
        watched.store.watchers[-1].put({"type": "END"})
        thread.join(10)

    follow()
    watched.store.remove(f"{MAPS}/a")
    watched.store.compacted = watched.store.version
    with pytest.raises(KubeError):
        watcher.follow()
    follow()
    added, deleted = told
    names = ("name", "namespace", "uid", "resourceVersion", "labels")
    assert deleted == {"metadata": {name: added["metadata"][name] for name in names}}


def test_delays_grow_to_a_limit_and_differ() -> None:
    now = 0.0
    one, other = Backoff(lambda: now), Backoff(lambda: now)
    delays = []
    for _ in range(12):
        for each in (one, other):
            each.failed("Service/x", "no")
        assert one.failures
        due_s, other_s = one.due_in_s, other.due_in_s
        assert due_s is not None
        assert due_s != other_s
        delays.append(due_s)
        now += backoff.LONGEST_S
        assert not one.failures
        assert one.has_failed(["Service/x"])
    assert delays[0] <= backoff.FIRST_S
    assert backoff.LONGEST_S / 2 <= delays[-1] <= backoff.LONGEST_S
    one.failed("Service/y", "no", 15.0)
    one.succeeded("Service/x", "")
    assert [each.target for each in one.failures] == ["Service/y"]
    assert not one.has_failed(["Service/x"])
    one.forget()
    assert one.due_in_s is None


class Recorded:
    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.quorum = created(kube)
        self.now = 0.0
        self.recorder = EventRecorder(lambda: self.now)

    def record(self, reason: str, text: str, kind: str = "Warning") -> None:
        self.recorder.record(self.kube, self.quorum, kind, reason, text)

    @property
    def events(self) -> list[Object]:
        return self.kube.list("Event", "lab")


def test_an_event_that_repeats_is_counted(api: tuple[Store, Kube]) -> None:
    made = Recorded(api[1])
    for _ in range(3):
        made.record("ApplyRejected", "quota")
    (event,) = made.events
    assert (event["count"], event["message"]) == (3, "quota")
    assert event["involvedObject"]["uid"] == made.quorum.uid
    api[0].remove(f"/api/v1/namespaces/lab/events/{event['metadata']['name']}")  # it expired
    made.record("ApplyRejected", "quota")
    assert [each["count"] for each in made.events] == [1]


def test_events_of_one_reason_are_combined(api: tuple[Store, Kube]) -> None:
    made = Recorded(api[1])
    for number in range(events.SIMILAR_MAX + 5):
        made.record("PodFailing", f"back-off {number}s")
    assert len(made.events) == events.SIMILAR_MAX + 1
    combined = made.events[-1]
    assert combined["count"] == 5
    assert combined["message"].startswith(events.COMBINED)
    assert combined["message"].endswith(f"back-off {events.SIMILAR_MAX + 4}s")


def test_events_are_limited_and_do_not_use_up_the_budget_of_warnings(
    api: tuple[Store, Kube],
) -> None:
    made = Recorded(api[1])
    for _ in range(2 * events.BURST):
        made.record("AddVoter", "add voter 1", "Normal")
    (event,) = made.events
    assert event["count"] == events.BURST
    made.record("ApplyRejected", "quota")
    assert len(made.events) == 2
    made.now += events.REFILL_S
    made.record("AddVoter", "add voter 1", "Normal")
    assert made.events[0]["count"] == events.BURST + 1
