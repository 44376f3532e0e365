"""Runs seeds, one after the other or on several cores, and adds up what they did."""

from __future__ import annotations

from tests.simulation.cluster import Cluster, Result, Trace
from tests.simulation.plan import Scenario, draw


def run_seed(seed: int) -> Result:
    """Run the default mix for a seed. A run without a commit counts as a violation."""
    result = run_scenario(draw(seed))
    if result.violation is None and result.commits == 0:
        result.violation = "Committed: the run passed without a commit"
    return result


def run_scenario(scenario: Scenario, trace: Trace | None = None) -> Result:
    return Cluster(scenario, trace).run()
