"""`quorate quickstart --zookeeper`: a quorum that is ready to take a cluster over."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.integration.support import HOST, assert_error, free_ports, here, quorate, until
from tests.integration.test_quickstart import running
from tests.migration.cluster import CLUSTER
from tests.migration.conftest import Server
from tests.processes import listens

IDS = (3001, 3002, 3003)


@pytest.mark.timeout(180)
def test_a_quorum_waits_for_the_brokers_and_says_what_they_need(
    server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "quorum"
    for starts in ("Starting new", "Restarting"):
        with running(folder, "--zookeeper", server.connect) as quickstart:
            quickstart.wait_for(f"{starts} quorum {CLUSTER} in")
            voters = quickstart.wait_for(r"controller\.quorum\.voters=(\S+)")[1]
            places = dict(entry.split("@") for entry in voters.split(","))
            assert tuple(map(int, places)) == IDS
            status = quickstart.wait_for(r"Try: quorate (migrate status .+)$")[1].split()
            quickstart.wait_for("3 voters|voters.*3003")

            def waits(command: list[str] = status) -> bool:
                return "PRE_MIGRATION" in here(*command).out

            until("the brokers are waited for", waits)
            # Kafka's protocol is spoken where the brokers are told to ask, once a controller has
            # read of the migration.
            for place in places.values():
                host, _, port = place.partition(":")
                until(f"{place} listens", partial(listens, int(port), host))
            assert quickstart.interrupt() == 0


@pytest.mark.timeout(180)
def test_what_cannot_be_is_one_line(empty: Server, tmp_path: Path) -> None:
    folder = tmp_path / "quorum"
    start = ("quickstart", "--dir", folder, "--zookeeper")
    assert_error(quorate(*start, empty.connect), "/cluster/id does not exist", "chroot")
    nowhere = f"{HOST}:{free_ports(1)[0]}"
    assert_error(quorate(*start, nowhere), nowhere)
    for option in (("--brokers", "1"), ("--demo",)):
        assert_error(quorate(*start, nowhere, *option), option[0], status=2)
    assert not folder.exists(), "nothing was made"
    assert re.search("--zookeeper", quorate("quickstart", "--help").out)
