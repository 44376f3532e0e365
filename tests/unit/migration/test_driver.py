"""The migration's state machine: KIP-866's path, what interrupts it, and what may never happen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.migration import driver as d
from quorate.migration.driver import Driver, State
from quorate.migration.znodes import Tree
from quorate.records.metadata import ZkMigrationState as Zk

BOTH = frozenset({1, 2})
NOBODY: frozenset[int] = frozenset()
TREE = Tree([])


def moves(outputs: list[d.Output]) -> list[State]:
    return [output.after for output in outputs if isinstance(output, d.Moved)]


def asked(driver: Driver) -> list[d.Output]:
    """What the driver asks for, without its reports."""
    return [output for output in driver.take_outputs() if not isinstance(output, d.Moved)]


def leading(migration_state: Zk = Zk.PRE_MIGRATION, epoch: int = 5) -> Driver:
    driver = Driver(enabled=True)
    driver.applied(10, migration_state, NOBODY, 0)
    driver.led(epoch, 0)
    return driver


def test_the_whole_path() -> None:
    driver = leading()
    assert driver.state is State.WAIT_FOR_CONTROLLER_QUORUM
    assert not driver.accepts_requests
    driver.controllers(ready=False, reason="controller 2 has no zookeeper.connect", now_ms=1)
    assert driver.waits_for == "controller 2 has no zookeeper.connect"
    driver.controllers(ready=True, reason="", now_ms=2)
    assert asked(driver) == [d.ReadBrokers()]
    driver.brokers_read(5, BOTH, 3)
    assert driver.waits_for == "brokers 1, 2 to register"
    driver.applied(12, Zk.PRE_MIGRATION, frozenset({1}), 4)
    assert driver.waits_for == "brokers 2 to register"
    driver.applied(13, Zk.PRE_MIGRATION, BOTH, 5)
    assert asked(driver) == [d.Claim(5)]
    driver.claimed(5)
    assert asked(driver) == [d.ReadTree()]
    driver.tree_read(5, TREE)
    assert asked(driver) == [d.Copy(TREE)]
    driver.applied(100, Zk.MIGRATION, BOTH, 6)
    driver.copied(5)
    assert asked(driver) == [d.Synchronize()]
    driver.synchronized(5, 100)
    assert asked(driver) == [d.TellBrokers()]
    driver.brokers_notified(5, 7)
    assert driver.state is State.DUAL_WRITE
    assert driver.accepts_requests
    assert asked(driver) == []
    driver.applied(110, Zk.MIGRATION, BOTH, 8)
    assert driver.lag == 10
    assert asked(driver) == [d.WriteChanges(110)]
    driver.applied(120, Zk.MIGRATION, BOTH, 9)
    assert asked(driver) == [], "one write at a time"
    driver.changes_written(5, 110, 10)
    assert asked(driver) == [d.WriteChanges(120)]
    driver.changes_written(5, 120, 11)
    assert driver.lag == 0


def test_a_cluster_that_nobody_is_known_of_waits_for_its_first_broker() -> None:
    driver = leading()
    driver.controllers(ready=True, reason="", now_ms=1)
    assert asked(driver) == [d.ReadBrokers()]
    driver.brokers_read(5, NOBODY, 2)
    assert asked(driver) == []
    assert driver.waits_for == "a broker to register"
    driver.applied(12, Zk.PRE_MIGRATION, frozenset({1}), 3)
    assert asked(driver) == [d.Claim(5)]


def test_a_new_leader_of_a_migration_under_way_does_not_copy_again() -> None:
    driver = leading(Zk.MIGRATION)
    driver.controllers(ready=True, reason="", now_ms=1)
    assert asked(driver) == [d.Claim(5)]
    driver.claimed(5)
    assert asked(driver) == [d.Synchronize()]


def test_an_open_transaction_of_an_earlier_leader_is_aborted_first() -> None:
    driver = Driver(enabled=True)
    driver.applied(10, Zk.PRE_MIGRATION, NOBODY, 0, in_transaction=True)
    driver.led(5, 0)
    assert asked(driver) == [d.AbortCopy()]


def test_answers_of_an_older_epoch_are_ignored() -> None:
    driver = leading()
    driver.controllers(ready=True, reason="", now_ms=1)
    driver.resigned()
    driver.led(7, 2)
    driver.controllers(ready=True, reason="", now_ms=3)
    driver.take_outputs()
    driver.brokers_read(5, NOBODY, 4)
    assert driver.state is State.WAIT_FOR_BROKERS
    assert asked(driver) == []


def test_what_fails_is_tried_again_after_a_growing_pause() -> None:
    driver = leading(Zk.MIGRATION)
    driver.controllers(ready=True, reason="", now_ms=0)
    assert asked(driver) == [d.Claim(5)]
    pauses, now_ms = [], 0
    for _ in range(8):
        driver.failed(5, now_ms)
        deadline_ms = driver.next_deadline_ms
        assert deadline_ms is not None
        driver.tick(deadline_ms - 1)
        assert asked(driver) == []
        driver.tick(deadline_ms)
        assert asked(driver) == [d.Claim(5)]
        pauses.append(deadline_ms - now_ms)
        now_ms = deadline_ms
    assert pauses == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]


def test_who_was_fenced_resigns() -> None:
    driver = leading(Zk.MIGRATION)
    driver.controllers(ready=True, reason="", now_ms=0)
    driver.take_outputs()
    driver.fenced(5)
    assert driver.state is State.INACTIVE
    assert asked(driver) == [d.Resign()]


def test_a_finalized_migration_rests() -> None:
    driver = leading(Zk.MIGRATION)
    driver.applied(20, Zk.POST_MIGRATION, BOTH, 1)
    assert driver.state is State.INACTIVE
    driver.led(6, 2)
    assert driver.state is State.INACTIVE
    assert driver.accepts_requests


def test_without_the_setting_nothing_happens() -> None:
    driver = Driver(enabled=False)
    driver.applied(10, Zk.NONE, NOBODY, 0)
    driver.led(5, 0)
    assert driver.state is State.INACTIVE
    assert driver.accepts_requests
    assert asked(driver) == []


EPOCHS = st.integers(4, 7)
TIMES = st.integers(0, 100_000)
INPUTS = st.one_of(
    st.tuples(st.just("led"), EPOCHS),
    st.tuples(st.just("resigned")),
    st.tuples(
        st.just("applied"),
        st.integers(0, 50),
        st.sampled_from(list(Zk)),
        st.frozensets(st.integers(1, 3)),
    ),
    st.tuples(st.just("controllers"), st.booleans()),
    st.tuples(st.just("brokers_read"), EPOCHS, st.frozensets(st.integers(1, 3))),
    st.tuples(st.just("claimed"), EPOCHS),
    st.tuples(st.just("tree_read"), EPOCHS),
    st.tuples(st.just("copied"), EPOCHS),
    st.tuples(st.just("synchronized"), EPOCHS, st.integers(0, 50)),
    st.tuples(st.just("brokers_notified"), EPOCHS),
    st.tuples(st.just("changes_written"), EPOCHS, st.integers(0, 50)),
    st.tuples(st.just("fenced"), EPOCHS),
    st.tuples(st.just("failed"), EPOCHS),
    st.tuples(st.just("tick")),
)


def give(driver: Driver, step: tuple[object, ...], now_ms: int) -> None:
    match step:
        case ("led", int(epoch)):
            if driver.epoch is None or epoch > driver.epoch:
                driver.resigned()
                driver.led(epoch, now_ms)
        case ("resigned",):
            driver.resigned()
        case ("applied", int(offset), Zk() as state, frozenset() as brokers):
            driver.applied(offset, state, brokers, now_ms)
        case ("controllers", bool(ready)):
            driver.controllers(ready=ready, reason="", now_ms=now_ms)
        case ("brokers_read", int(epoch), frozenset() as brokers):
            driver.brokers_read(epoch, brokers, now_ms)
        case ("tree_read", int(epoch)):
            driver.tree_read(epoch, TREE)
        case ("synchronized", int(epoch), int(offset)):
            driver.synchronized(epoch, offset)
        case ("brokers_notified", int(epoch)):
            driver.brokers_notified(epoch, now_ms)
        case ("changes_written", int(epoch), int(offset)):
            driver.changes_written(epoch, offset, now_ms)
        case ("failed", int(epoch)):
            driver.failed(epoch, now_ms)
        case ("tick",):
            driver.tick(now_ms)
        case (("claimed" | "copied" | "fenced") as name, int(epoch)):
            getattr(driver, name)(epoch)
        case _:
            raise AssertionError(step)


@settings(max_examples=300)
@given(st.lists(st.tuples(INPUTS, st.integers(0, 5000)), max_size=60))
def test_whatever_comes_only_a_leader_asks_and_only_legal_moves_happen(
    steps: list[tuple[tuple[object, ...], int]],
) -> None:
    driver, now_ms = Driver(enabled=True), 0
    for step, pause_ms in steps:
        now_ms += pause_ms
        before = driver.state
        give(driver, step, now_ms)
        outputs = driver.take_outputs()
        for output in outputs:
            match output:
                case d.Moved():
                    assert output.after in d.TRANSITIONS[output.before]
                    assert output.before is before
                    before = output.after
                case d.Resign():
                    assert driver.state is State.INACTIVE
                case d.Claim():
                    assert output.epoch == driver.epoch
                case d.WriteChanges():
                    assert driver.state is State.DUAL_WRITE
                case d.Copy() | d.ReadTree():
                    assert driver.state is State.ZK_MIGRATION
        if driver.epoch is None:
            assert driver.state in (State.INACTIVE, State.UNINITIALIZED)
            assert driver.next_deadline_ms is None
