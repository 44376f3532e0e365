"""Makes a failing scenario small: fewer actions, a calmer network, the same violation.

Delta debugging (Zeller and Hildebrandt): drop halves, quarters, … of the plan's actions as long as
an invariant of the same name still breaks; then switch off what else is random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.simulation.plan import Scenario, draw
from tests.simulation.runner import run_scenario
from tests.simulation.scheduler import SECOND

CALM: dict[str, object] = {
    "loss": 0.0,
    "duplicates": 0.0,
    "stragglers": 0.0,
    "auto_join": False,
    "read_period_us": 3600 * SECOND,
    "snapshot_period_us": 3600 * SECOND,
    "append_period_us": SECOND,
}
"""What can be switched off, by the name of the scenario's field."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A scenario as what is left of a seed's. keep: places in the plan; None for all of it."""

    seed: int
    keep: tuple[int, ...] | None = None
    calm: tuple[str, ...] = ()

    def scenario(self) -> Scenario:
        scenario = draw(self.seed)
        if self.keep is not None:
            scenario = scenario.only(frozenset(self.keep))
        return replace(scenario, **{name: CALM[name] for name in self.calm})  # type: ignore[arg-type]

    def command(self) -> str:
        """What replays it."""
        text = f"python -m tests.simulation replay --seed {self.seed}"
        if self.keep is not None:
            text += f" --keep {','.join(map(str, self.keep)) or '-'}"
        if self.calm:
            text += f" --calm {','.join(self.calm)}"
        return text + " --trace"


def violation_name(scenario: Scenario) -> str | None:
    violation = run_scenario(scenario).violation
    return None if violation is None else violation.partition(":")[0]


def shrink(seed: int, progress: Callable[[Reduced], None]) -> Reduced | None:
    """The smallest that breaks the same invariant, None if the seed breaks none."""
    wanted = violation_name(draw(seed))
    if wanted is None:
        return None
    best = Reduced(seed, tuple(range(len(draw(seed).actions))))
    smaller: Reduced | None = best
    while smaller is not None:
        best = smaller
        progress(best)
        candidates = _smaller(best)
        smaller = next((r for r in candidates if violation_name(r.scenario()) == wanted), None)
    return best


def _smaller(reduced: Reduced) -> Iterator[Reduced]:
    """The next things to try, the large steps first."""
    keep = reduced.keep or ()
    size = max(1, len(keep) // 2)
    while keep:
        for first in range(0, len(keep), size):
            yield replace(reduced, keep=keep[:first] + keep[first + size :])
        if size == 1:
            break
        size //= 2
    for name in CALM:
        if name not in reduced.calm:
            yield replace(reduced, calm=(*reduced.calm, name))
