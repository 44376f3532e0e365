"""What will happen to a cluster, drawn from a seed before it runs: its shape and its faults.

A plan is a list of actions with a time each; whom an action hits is decided when it happens (the
leader of that moment, say), from numbers that the plan fixes. So any subset of a plan can be run:
that is how a failing plan is shrunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.scheduler import MS, SECOND

FAULTS: dict[str, float] = {
    # network
    "lossy": 1.0,
    "duplicating": 0.7,
    "straggling": 0.7,
    "partition": 1.5,
    "one_way": 1.0,
    "partial": 1.0,
    "isolate_leader": 0.8,
    "cut_off_minority": 0.8,
    "unheard_leader": 0.8,
    "broken_stream": 0.8,
    "false_hint": 1.0,
    # process and clock
    "crash": 2.0,
    "crash_between_outputs": 1.5,
    "crash_in_election": 1.5,
    "crash_while_installing": 1.0,
    "crash_all": 0.3,
    "pause": 1.0,
    "clock_jump": 0.7,
    "clock_rate": 0.7,
    "clock_back": 0.5,
    "shut_down": 0.8,
    # disk
    "slow_disk": 1.0,
    "fsync_fails": 0.7,
    "full_disk": 0.6,
    "lost_disk": 1.2,
    "damaged_disk": 0.5,
    "lost_records": 1.5,
    "lost_records_everywhere": 0.5,
    "rollback": 1.0,
    # membership and leadership
    "add": 2.0,
    "add_nonsense": 0.4,
    "add_broker": 0.4,
    "remove": 1.5,
    "remove_leader": 0.8,
    "two_callers": 1.0,
    "change_at_election": 1.5,
    "replace": 1.0,
    "update": 0.8,
    "upgrade": 1.0,
    "transfer": 1.0,
    # the log
    "snapshot": 2.5,
    "clean": 1.5,
}
"""Every kind of action that the default mix draws one by one, with its weight."""

TARGETED: dict[str, float] = {
    "remove_while_silent": 0.08,
    "leave_unheard": 0.1,
    "huge_epochs": 0.2,
    "forged_answers": 0.3,
    "quick_epochs": 0.1,
    "slow_epochs": 0.1,
    "votes_for_another": 0.2,
    "forged_votes": 0.1,
    "lying_voter": 0.1,
    "read_while_leaving": 0.15,
    "several_adds": 0.12,
    "stuck_add": 0.1,
    "cancel": 0.15,
    "force_removal": 0.1,
    "transfer_to_the_dead": 0.15,
    "transfer_to_the_dying": 0.1,
    "add_after_lost_disk": 0.1,
}
"""What the even mix hardly ever brings about, with the share of the seeds that have it besides
(`_draw_targeted`).
"""

NETWORK = (
    "lossy", "duplicating", "straggling", "partition", "one_way", "partial", "isolate_leader",
    "cut_off_minority", "unheard_leader", "broken_stream", "false_hint",
)  # fmt: skip
PROCESSES = (
    "crash",
    "crash_between_outputs",
    "crash_in_election",
    "crash_while_installing",
    "pause",
    "shut_down",
    "transfer",
)
DISKS = (
    "slow_disk", "fsync_fails", "full_disk", "lost_disk", "replace", "snapshot", "clean",
    "lost_records", "lost_records_everywhere", "rollback",
)  # fmt: skip
MEMBERSHIP = (
    "add", "add_nonsense", "add_broker", "remove", "remove_leader", "two_callers",
    "change_at_election", "replace", "update", "upgrade", "remove_while_silent", "leave_unheard",
    "read_while_leaving",
)  # fmt: skip
"""Those that ask for a change of the voters. A seed may have more of one of these groups."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to happen. numbers: uniform in [0, 1), interpreted by the kind."""

    at_us: int
    kind: str
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and what happens to it.

    voters: how many of the nodes are voters at the beginning; the others are observers. brokers:
    how many nodes there are besides, which never vote.
    level: kraft.version at the beginning. append_period_us: the clients' mean time between appends.
    stable: nothing that happens is a reason to change the leader.
    """

    seed: int
    nodes: int = 3
    voters: int = 3
    brokers: int = 0
    level: int = 1
    auto_join: bool = False
    append_period_us: int = 60 * MS
    read_period_us: int = 250 * MS
    snapshot_period_us: int = 4 * SECOND
    fetch_batches_max: int = 8
    snapshot_bytes: int = 300
    chunk_bytes: int = 100
    install_us: int = 5 * MS
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    loss: float = 0.0
    duplicates: float = 0.0
    stragglers: float = 0.0
    faults_us: int = 20 * SECOND
    stable: bool = False
    actions: tuple[Action, ...] = field(default=())

    def only(self, indices: frozenset[int]) -> Scenario:
        """The same with these actions alone, by their place in the plan."""
        kept = tuple(action for i, action in enumerate(self.actions) if i in indices)
        return replace(self, actions=kept)


def draw(seed: int) -> Scenario:
    """The default mix: every kind of fault is possible, with rates that differ by seed."""
    random = Random(f"plan {seed}")
    if random.random() < 0.06:
        return _draw_calm(seed, random)
    nodes = random.choices(range(1, 8), (1, 2, 6, 5, 5, 3, 3))[0]
    level = 0 if random.random() < 0.12 else 1
    voters = random.choice((1, min(3, nodes), min(3, nodes), (nodes + 1) // 2, nodes))
    duration = random.randint(8, 30) * SECOND
    scenario = Scenario(
        seed,
        nodes,
        voters,
        Random(f"brokers {seed}").choice((0, 0, 0, 1, 2)),
        level,
        auto_join=random.random() < 0.25,
        append_period_us=random.choice((20, 50, 100, 300)) * MS,
        read_period_us=random.choice((100, 300, 1_000)) * MS,
        fetch_batches_max=random.choice((1, 3, 50)),
        snapshot_bytes=random.choice((1, 100, 1_000)),
        chunk_bytes=random.choice((40, 100, 1_000)),
        install_us=random.choice((1, 20, 800)) * MS,
        election_timeout_ms=random.choice((200, 500, 1_000)),
        fetch_timeout_ms=random.choice((500, 1_000, 2_000)),
        loss=random.choice((0.0, 0.0, 0.005, 0.03)),
        duplicates=random.choice((0.0, 0.01, 0.05)),
        stragglers=random.choice((0.0, 0.005, 0.02)),
        faults_us=duration,
    )
    # Swarm testing: a seed that does much of a few things finds what an even mix does not.
    weights = [weight * random.choice((0.2, 1.0, 1.0, 4.0)) for weight in FAULTS.values()]
    focus = random.choice((NETWORK, PROCESSES, DISKS, MEMBERSHIP, MEMBERSHIP, (), ()))
    weights = [w * 5 if kind in focus else w for kind, w in zip(FAULTS, weights, strict=True)]
    if level == 0:
        weights[list(FAULTS).index("upgrade")] = 8.0
    per_second = random.choice((0.3, 0.8, 1.6, 3.0))
    count = max(1, int(duration / SECOND * per_second))
    kinds = random.choices(list(FAULTS), weights, k=count)
    if random.random() < 0.9:
        # Membership changes inside the fault mix are the point: most seeds have some.
        kinds += random.choices(("add", "remove", "remove_leader", "two_callers"), k=4)
        random.shuffle(kinds)
        count = len(kinds)
    times = sorted(random.randint(1 * SECOND, duration) for _ in range(count))
    actions = tuple(
        Action(at, kind, tuple(random.random() for _ in range(6)))
        for at, kind in zip(times, kinds, strict=True)
    )
    return replace(scenario, actions=actions + _draw_targeted(scenario))


def _draw_targeted(scenario: Scenario) -> tuple[Action, ...]:
    """What takes several steps in the right order, drawn from numbers of its own: the rest of the
    plan is the same with and without.
    """
    random = Random(f"targeted {scenario.seed}")

    def action(at_us: int, kind: str) -> Action:
        return Action(at_us, kind, tuple(random.random() for _ in range(6)))

    actions: list[Action] = []
    for kind, share in TARGETED.items():
        # Of two voters neither can do without the other.
        times = 4 if kind == "leave_unheard" and scenario.voters == 1 else 1
        if random.random() >= times * share:
            continue
        at = random.randint(2 * SECOND, scenario.faults_us)
        if kind == "leave_unheard":
            # Who leaves joined not long ago: after a restart it cannot tell that this was
            # committed, nor what followed.
            last = Action(at - 500 * MS, "transfer", (0.999, 0.0, 1.0, 0.0, 0.0, 0.0))
            actions += [action(at - SECOND, "add"), last]
        if kind == "cancel":
            actions += [action(at - 20 * MS, "several_adds"), action(at - 10 * MS, "transfer")]
        actions.append(action(at, kind))
    return tuple(actions)


def _draw_calm(seed: int, random: Random) -> Scenario:
    """A healthy quorum, of which at most a minority is cut off now and then, or cannot hear the
    leader; an adversary sends votes.
    """
    nodes = random.choice((1, 3, 4, 5))
    kinds = ("cut_off_minority", "unheard_leader") if nodes >= 3 else ("snapshot",)
    actions = tuple(
        Action(at * SECOND, random.choice(kinds), tuple(random.random() for _ in range(6)))
        for at in (6, 16, 26)
    )
    return Scenario(
        seed,
        nodes,
        nodes,
        append_period_us=random.choice((100, 100_000)) * MS,
        fetch_batches_max=50,
        faults_us=30 * SECOND,
        stable=True,
        actions=actions + _forgeries(seed),
    )


def _forgeries(seed: int) -> tuple[Action, ...]:
    """What an adversary sends that must not depose a leader that works.

    Everybody hears the leader again then: the last cut ended more than a fetch timeout before.
    """
    random = Random(f"forgeries {seed}")
    kinds = ("forged_votes", "forged_votes", "votes_for_another", "huge_epochs")
    return tuple(
        Action(at, random.choice(kinds), tuple(random.random() for _ in range(6)))
        for at in (15_400 * MS, 25_400 * MS)
    )
