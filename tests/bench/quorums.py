"""Many Quorums with one operator on a real Kubernetes: what it costs when idle, and a healed disk.

    python -m tests.bench.quorums --images quorate:dev,quorate-operator:dev

Most Quorums have one voter, some three, and some hibernate. Once all are as wanted, the API server
counts its requests with the operator and without it, and the kubelet the operator's processor time
and memory. Then the volume and the pod of a member are deleted, several times.

KUBECONFIG names a cluster on which nothing else runs, and which has the images. `--chart` names the
chart of another version, which may lack hibernation and metrics.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.cluster.conftest import IMAGES_VARIABLE, namespace
from tests.cluster.lab import CHART, SMALL, Images, Lab, Object, run

BATCH = 8
"""How many Quorums start at the same time."""
STARTED_S = 900.0
SETTLED_S = 60.0
"""A pause before the measurement: watches have been renewed, and caches are warm."""
COUNTED = re.compile(r"^apiserver_request_total\{.*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(slots=True)
class Measured:
    """Of the operator. Rates are per second."""

    one_voter: int
    three_voters: int
    hibernated: int
    minutes: float
    lost_disks: int
    requests_with: float = 0.0
    requests_without: float = 0.0
    cpu_cores: float = 0.0
    memory_mib: float = 0.0
    heals_s: list[float] = field(default_factory=list)
    """Of each lost disk."""

    @property
    def healed_s(self) -> float:
        """The median."""
        return round(statistics.median(self.heals_s), 1)

    @property
    def requests(self) -> float:
        return self.requests_with - self.requests_without


class Many:
    """The Quorums of one namespace."""

    def __init__(self, lab: Lab, chart: Path, console: Console) -> None:
        self.lab = lab
        self.chart = chart
        self._console = console

    def install(self) -> None:
        """Install the operator, and one Quorum of three voters, whose spec the others get."""
        sets = [f"--set={value}" for value in (*self.lab.images.values, *SMALL)]
        self.lab.helm("upgrade", "--install", self.lab.name, str(self.chart), *sets)
        self.lab.until_ready(3)

    def create(self, names: Iterable[str], replicas: int, *, hibernated: bool = False) -> None:
        """Create Quorums batch by batch, and wait until each is as wanted."""
        wanted = list(names)
        if not wanted:
            return
        spec = {**self.lab.quorum["spec"], "replicas": replicas}
        what = "hibernated" if hibernated else f"{replicas} voter{'s' * (replicas > 1)}"
        with Progress(console=self._console) as progress:
            task = progress.add_task(f"Quorums: {what}", total=len(wanted))
            for begin in range(0, len(wanted), BATCH):
                batch = wanted[begin : begin + BATCH]
                items = [self._manifest(name, spec) for name in batch]
                listed = {"apiVersion": "v1", "kind": "List", "items": items}
                self.lab.kubectl("create", "-f", "-", text=json.dumps(listed))
                self._until(batch, lambda status: self._is_ready(status, replicas))
                if hibernated:
                    for name in batch:
                        patch = '{"spec": {"hibernated": true}}'
                        self.lab.kubectl("patch", "quorum", name, "--type=merge", "-p", patch)
                    self._until(batch, lambda status: condition(status, "Hibernated") == "True")
                progress.advance(task, len(batch))

    def _manifest(self, name: str, spec: Object) -> Object:
        api = "quorate.dev/v1alpha1"
        return {"apiVersion": api, "kind": "Quorum", "metadata": {"name": name}, "spec": spec}

    def _is_ready(self, status: Object, replicas: int) -> bool:
        return status.get("voters") == replicas and condition(status, "Ready") == "True"

    def _until(self, names: list[str], are_as_wanted: Callable[[Object], bool]) -> None:
        def found() -> bool:
            items = self.lab.get("quorums")["items"]
            statuses = {each["metadata"]["name"]: each.get("status") or {} for each in items}
            return all(are_as_wanted(statuses.get(name) or {}) for name in names)

        self.lab.until(f"{names[0]} to {names[-1]} are as wanted", found, STARTED_S)

    def scale_operator(self, replicas: int) -> None:
        operator = f"deployment/{self.lab.name}-operator"
        self.lab.kubectl("scale", operator, f"--replicas={replicas}")
        self.lab.until("the operator is scaled", lambda: len(self._operators()) == replicas)
        time.sleep(SETTLED_S)

    def _operators(self) -> list[Object]:
        found: list[Object] = self.lab.get("pods", "-l", "app.kubernetes.io/component=operator")[
            "items"
        ]
        return found

    def request_rate(self, seconds: float) -> float:
        """Requests to the API server, all clients together."""
        before, began = requests(), time.monotonic()
        time.sleep(seconds)
        return (requests() - before) / (time.monotonic() - began)

    def usage(self) -> tuple[float, float]:
        """The operator's processor time in seconds, and its memory in MiB."""
        (operator,) = self._operators()
        node, name = operator["spec"]["nodeName"], operator["metadata"]["name"]
        summary = json.loads(
            run("kubectl", "get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary")
        )
        (pod,) = (
            each
            for each in summary["pods"]
            if (each["podRef"]["namespace"], each["podRef"]["name"]) == (self.lab.namespace, name)
        )
        nanoseconds = sum(each["cpu"]["usageCoreNanoSeconds"] for each in pod["containers"])
        used = sum(each["memory"]["workingSetBytes"] for each in pod["containers"])
        return nanoseconds / 1e9, used / 2**20

    def heal(self) -> float:
        """Delete the volume and the pod of a member; the seconds until it is a voter again."""
        leader = self.lab.leader
        victim = (leader + 1) % 3
        old = self.lab.directories()[victim]
        began = time.monotonic()
        self.lab.lose_disk(victim)
        self.lab.until(
            "the disk is another",
            lambda: self.lab.directories().get(victim) not in ("", None, old),
        )
        self.lab.until_ready(3)
        return time.monotonic() - began


def requests() -> float:
    """How many requests the API server has answered."""
    text = run("kubectl", "get", "--raw", "/metrics")
    return sum(map(float, COUNTED.findall(text)))


def condition(status: Object, name: str) -> str:
    found = (each for each in status.get("conditions") or () if each["type"] == name)
    return str(next(found, {}).get("status", ""))


def measure(many: Many, measured: Measured, console: Console) -> None:
    seconds = measured.minutes * 60
    console.print(f"waiting {SETTLED_S:.0f} s, then counting for {seconds:.0f} s")
    time.sleep(SETTLED_S)
    (before, _), began = many.usage(), time.monotonic()
    measured.requests_with = round(many.request_rate(seconds), 2)
    after, memory = many.usage()
    measured.cpu_cores = round((after - before) / (time.monotonic() - began), 4)
    measured.memory_mib = round(memory, 1)
    for _ in range(measured.lost_disks):
        console.print("the volume of a member of three is deleted")
        measured.heals_s.append(round(many.heal(), 1))
    console.print(f"counting for {seconds:.0f} s without the operator")
    many.scale_operator(0)
    measured.requests_without = round(many.request_rate(seconds), 2)


def shown(measured: Measured) -> Table:
    table = Table("", "", title="one operator, idle")
    table.add_row("Quorums of one voter, of three, hibernated", quorums_of(measured))
    table.add_row("requests to the API server for the operator", f"{measured.requests:.2f}/s")
    table.add_row("requests with it, and without it", rates_of(measured))
    table.add_row("CPU", f"{measured.cpu_cores:.3f} cores")
    table.add_row("memory", f"{measured.memory_mib:.0f} MiB")
    heals = ", ".join(f"{each:.1f}" for each in measured.heals_s)
    table.add_row("a lost disk healed in, median", f"{measured.healed_s:.1f} s ({heals})")
    return table


def quorums_of(measured: Measured) -> str:
    return f"{measured.one_voter}, {measured.three_voters}, {measured.hibernated}"


def rates_of(measured: Measured) -> str:
    return f"{measured.requests_with:.2f}/s, {measured.requests_without:.2f}/s"


def main(
    *,
    one_voter: Annotated[int, typer.Option(min=0, help="Quorums of one voter.")] = 60,
    three_voters: Annotated[int, typer.Option(min=1, help="Quorums of three voters.")] = 3,
    hibernated: Annotated[int, typer.Option(min=0, help="Hibernated Quorums.")] = 37,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long requests are counted.")] = 5.0,
    lost_disks: Annotated[int, typer.Option(min=1, help="How many volumes are deleted.")] = 5,
    chart: Annotated[Path, typer.Option(exists=True, file_okay=False)] = CHART,
    images: Annotated[
        str, typer.Option(envvar=IMAGES_VARIABLE, help="Of a controller and of the operator.")
    ] = "quorate:test,quorate-operator:test",
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on stdout.")] = False,
) -> None:
    """Create the Quorums, and measure their operator."""
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    if shutil.which("kubectl") is None:
        sys.exit("kubectl is not installed")
    controller, _, operator = images.partition(",")
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(chart / "crds"))
    measured = Measured(one_voter, three_voters, hibernated, minutes, lost_disks)
    with namespace(Images(controller, operator)) as lab:
        many = Many(lab, chart, console)
        many.install()
        many.create((f"asleep-{n}" for n in range(hibernated)), 1, hibernated=True)
        many.create((f"one-{n}" for n in range(one_voter)), 1)
        many.create((f"three-{n}" for n in range(1, three_voters)), 3)
        measure(many, measured, console)
    console.print(shown(measured))
    if as_json:
        figures: dict[str, Any] = {
            **asdict(measured),
            "requests": round(measured.requests, 2),
            "healed_s": measured.healed_s,
        }
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    typer.run(main)
