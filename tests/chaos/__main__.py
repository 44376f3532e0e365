"""Quorums on a real Kubernetes under random faults, and whether their status tells the truth.

    python -m tests.chaos --images quorate:dev,quorate-operator:dev --minutes 60 --seed 24

Each Quorum has a namespace, a release of the chart, and a client that appends all the time.
Meanwhile pods, disks, operators and the operator's objects vanish, quotas reject pods, the spec is
invalid for a while, certificates expire, sizes and templates change, the node is drained, and the
API server is killed (`faults.py`). The same seed chooses the same faults in the same order for each
Quorum.

At the end every Quorum must become ready again, every acknowledged record must be there once, and
the status, read every second, must never have said Ready for more than 15 s while nothing was
committed (`judging.py`). Exit status 1 otherwise. KUBECONFIG names a cluster with one node, which
has the images; the API server is killed only on a cluster of the shared folder.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tests.chaos.faults import HEALED_S, Faults, PatientLab, Surroundings, first_line
from tests.chaos.judging import Count, Period, Sample, false_claims, silences
from tests.chaos.sampling import Sampler
from tests.cluster.conftest import IMAGES_VARIABLE, namespace
from tests.cluster.lab import CHART, Images, Writer, run

SIZES = (3, 3, 5)
"""Of the Quorums at the beginning."""
PAUSE_S = 0.1
"""Of the clients: their histories, and the logs, have to be read at the end."""
SAMPLED_S = 20.0
"""At the end, operators have so long to observe the state, and the status is read for so long after
the quorums are ready.
"""
GAP_MAX_S = 10.0
"""Between two samples."""


@dataclass(slots=True)
class Outcome:
    """Of one Quorum. Times are seconds."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    violations: list[str] = field(default_factory=list)
    longest_silence_s: float = 0.0
    silences: int = 0
    ready_s: int = 0
    unready_s: int = 0
    unobserved_s: int = 0
    """Without an operator or the API server."""
    false_claims: list[str] = field(default_factory=list)
    healed_s: float = 0.0
    failure: str = ""

    @property
    def is_good(self) -> bool:
        return not (self.violations or self.false_claims or self.failure)


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))


def shown(period: Period) -> str:
    return f"{clock(period.begin)} to {clock(period.end)} ({period.seconds:.0f} s)"


def observe(outcome: Outcome, samples: list[Sample], counts: list[Count]) -> None:
    """Compare the status with the commits."""
    quiet = silences(counts)
    outcome.silences = len(quiet)
    outcome.longest_silence_s = round(max((each.seconds for each in quiet), default=0.0), 1)
    outcome.false_claims = [shown(each) for each in false_claims(samples, counts)]
    outcome.ready_s = sum(each.ready == "True" for each in samples)
    outcome.unobserved_s = sum(not each.can_change for each in samples)
    outcome.unready_s = len(samples) - outcome.ready_s


def longest_gap(samples: list[Sample]) -> float:
    """Between two samples, seconds."""
    return max((two.at - one.at for one, two in pairwise(samples)), default=0.0)


class Quorum:
    """One of them, with its client and what happens to it."""

    def __init__(
        self,
        lab: PatientLab,
        chance: random.Random,
        say: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.lab = lab
        self.writer = Writer(lab, "writer", pause_s=PAUSE_S)
        self.writer.start()
        self.faults = Faults(lab, chance, say, is_over)
        self.outcome = Outcome()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.faults.run()
        except Exception as error:
            self.fail(first_line(error))
            raise
        finally:
            self.faults.restore()

    def fail(self, text: str) -> None:
        """Keep the first reason for which the run is not good."""
        self.outcome.failure = self.outcome.failure or text

    def heal(self) -> None:
        """Wait until it is ready and commits, when nothing happens any more."""
        try:
            seconds = self.lab.until_ready(self.faults.replicas, timeout_s=HEALED_S)
            self.outcome.healed_s = round(seconds, 1)
            self.lab.until("it commits", self.writer.is_writing, HEALED_S)
        except AssertionError as error:
            self.fail(first_line(error))

    def finish(self) -> None:
        """Stop the client, and let it check the log."""
        try:
            said = self.writer.stop()
        except AssertionError as error:
            self.fail(first_line(error))
            return
        self.outcome.acknowledged = said["acknowledged"]
        self.outcome.unknown, self.outcome.refused = said["unknown"], said["refused"]
        if said["violations"] is None:
            self.fail("the log could not be read")
        else:
            self.outcome.violations = said["violations"]


def table(outcomes: dict[str, Outcome], title: str) -> Table:
    made = Table("", *outcomes, title=title)
    for name in asdict(Outcome()):
        values = [getattr(outcome, name) for outcome in outcomes.values()]
        cells = ["; ".join(each) if isinstance(each, list) else f"{each}" for each in values]
        made.add_row(re.sub("_s$", ", s", name).replace("_", " "), *cells)
    return made


class Run:
    """Three Quorums, what happens to them, and the events in their order."""

    def __init__(self, images: Images, seed: int, console: Console) -> None:
        self.events: list[dict[str, Any]] = []
        self.quorums: dict[str, Quorum] = {}
        self.samples: dict[str, list[Sample]] = {}
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.counts: Counter[str] = Counter()
        self._images = images
        self._seed = seed
        self._console = console
        self._deadline = 0.0

    def run(self, seconds: float) -> None:
        """Install the releases, let things happen for so long, and judge the outcomes."""
        with ExitStack() as stack:
            labs = self._install(stack)
            self._deadline = time.monotonic() + seconds
            for name, lab in labs.items():
                chance = random.Random(f"{self._seed}-{name}")
                quorum = Quorum(lab, chance, self._saying(name), self._is_over)
                stack.callback(quorum.writer.delete)
                self.quorums[name] = quorum
            chance = random.Random(f"{self._seed}-all")
            surroundings = Surroundings(
                list(labs.values()), chance, self._saying("all"), self._is_over
            )
            stack.callback(surroundings.restore)
            sampler = Sampler([lab.namespace for lab in labs.values()])
            sampler.start()
            threads = [quorum.thread for quorum in self.quorums.values()]
            threads.append(threading.Thread(target=surroundings.run, daemon=True))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self._console.print("nothing happens any more")
            surroundings.restore()
            time.sleep(SAMPLED_S)
            for quorum in self.quorums.values():
                quorum.heal()
            time.sleep(SAMPLED_S)
            sampler.stop()
            self.counts += surroundings.counts
            for name, quorum in self.quorums.items():
                self.samples[name] = sampler.samples[quorum.lab.namespace]
                self.counts += quorum.faults.counts
                self.told[name] = [line for line in quorum.writer.lines() if "at" in line]
                counts = [Count(line["at"], line["acknowledged"]) for line in self.told[name]]
                observe(quorum.outcome, self.samples[name], counts)
                quorum.finish()
                gap_s = longest_gap(self.samples[name])
                if gap_s > GAP_MAX_S:
                    quorum.fail(f"the status was not read for {gap_s:.0f} s")
                if surroundings.failure or sampler.failure:
                    quorum.fail(surroundings.failure or sampler.failure)
                if not self.samples[name][-1].can_change:
                    quorum.fail("at the end, no operator works")

    def save(self, path: Path) -> None:
        """The events, then the samples of each Quorum, and what its client told."""
        lines = [*self.events]
        for name, samples in self.samples.items():
            lines += ({"who": name, **each._asdict()} for each in samples)
        for name, told in self.told.items():
            lines += ({"who": name, **each} for each in told)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def _install(self, stack: ExitStack) -> dict[str, PatientLab]:
        labs = {}
        for name, size in zip("abc", SIZES, strict=True):
            made = stack.enter_context(namespace(self._images))
            labs[name] = PatientLab(made.namespace, made.images)
            labs[name].install(f"quorum.replicas={size}")
            self._console.print(f"{name}: {size} voters in {made.namespace}")
        for lab, size in zip(labs.values(), SIZES, strict=True):
            lab.until_ready(size)
        return labs

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def _saying(self, who: str) -> Callable[[str], None]:
        def say(text: str) -> None:
            at = time.time()
            self.events.append({"at": at, "who": who, "what": text})
            self._console.print(f"{clock(at)} {who}: {text}")

        return say


def main(
    minutes: Annotated[float, typer.Option(min=1)] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the faults.")] = 24,
    images: Annotated[
        str, typer.Option(envvar=IMAGES_VARIABLE, help="Of a controller and of the operator.")
    ] = "quorate:test,quorate-operator:test",
    out: Annotated[Path | None, typer.Option(help="Save events and samples, JSON lines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
) -> None:
    """Let things happen, and print what became of the records and what the status said."""
    console = Console(stderr=as_json, soft_wrap=True, highlight=False, markup=False)
    if shutil.which("kubectl") is None:
        sys.exit("kubectl is not installed")
    controller, _, operator = images.partition(",")
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    done = Run(Images(controller, operator), seed, console)
    try:
        done.run(minutes * 60)
    finally:
        if out is not None:
            done.save(out)
    outcomes = {name: quorum.outcome for name, quorum in done.quorums.items()}
    console.print(table(outcomes, f"{minutes:g} min, seed {seed}, {done.counts.total()} faults"))
    console.print(", ".join(f"{name} {count}" for name, count in done.counts.most_common()))
    if as_json:
        report = {name: asdict(outcome) for name, outcome in outcomes.items()}
        print(json.dumps({"faults": dict(done.counts), "quorums": report}, indent=2))
    if not all(outcome.is_good for outcome in outcomes.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
