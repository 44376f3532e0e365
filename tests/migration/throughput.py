"""How fast the copy is, and what memory it takes: `python -m tests.migration.throughput`.

By default 1,000 topics of 100 partitions, generated. Measures, one after the other and each with a
bar: reading znodes into records, encoding them as batches of one transaction, replaying those as
every controller does, and the comparison field by field. With `--zookeeper HOST:PORT` the znodes
are first written to that (empty) ensemble and read from it.

Seconds are those of the clock and those of the processor; rates are by the latter, so that a busy
machine does not count. The peak of resident memory is the process's own, of all phases so far.
"""

from __future__ import annotations

import argparse
import base64
import json
import resource
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from quorate.metadata.image.metadata_image import MetadataImage
from quorate.migration.copying import copy
from quorate.migration.operations import Create
from quorate.migration.verification import compare
from quorate.migration.znodes import Tree
from quorate.migration.zookeeper import Position, ZooKeeper
from quorate.records.metadata import decode, encode
from rich.console import Console
from rich.progress import Progress

from tests.migration.generated import generated


def rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(found: dict[str, Any], name: str, count: int, work: Callable[[], Any]) -> Any:
    began, began_cpu = time.monotonic(), time.process_time()
    result = work()
    seconds, cpu = time.monotonic() - began, time.process_time() - began_cpu
    found[name] = {
        "seconds": round(seconds, 2),
        "processorSeconds": round(cpu, 2),
        "partitionsPerSecond": round(count / cpu),
        "peakMiB": round(rss_mib()),
    }
    print(f"{name:<34}{seconds:8.2f} s {cpu:8.2f} s of CPU {count / cpu:12,.0f} partitions/s "
          f"{rss_mib():6.0f} MiB", file=sys.stderr)  # fmt: skip
    return result


def into_zookeeper(connect: str, topics: int, partitions: int) -> Tree:
    """Write the generated znodes there and read them back, both with a bar."""
    client = ZooKeeper(connect)
    client.start()
    lease = client.claim(3000, 1)
    skip = {"/controller_epoch"}
    with Progress(console=Console(stderr=True)) as bar:
        total = topics * (3 + 2 * partitions)
        task = bar.add_task("writing znodes", total=total)

        def operations() -> Any:
            for node in generated(topics, partitions):
                if node.path not in skip:
                    bar.advance(task)
                    yield Create(node.path, node.data)

        client.write(lease, operations(), Position(3000, 1, 0, 1))
        reading = bar.add_task("reading znodes", total=None)
        began = time.monotonic()
        tree = client.read_tree(lambda r, k: bar.update(reading, completed=r, total=k))
    seconds = time.monotonic() - began
    print(f"read {len(tree)} znodes in {seconds:.1f} s, {len(tree) / seconds:,.0f}/s",
          file=sys.stderr)  # fmt: skip
    client.close()
    return tree


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=100, help="of each topic")
    parser.add_argument("--zookeeper", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    count = options.topics * options.partitions
    found: dict[str, Any] = {"partitions": count}
    if options.zookeeper:
        work = lambda: into_zookeeper(options.zookeeper, options.topics, options.partitions)  # noqa: E731
        tree = measured(found, "write and read ZooKeeper", count, work)
    else:
        tree = measured(found, "generate znodes", count,
                        lambda: Tree(generated(options.topics, options.partitions)))  # fmt: skip

    def new_id() -> str:
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def encode_all() -> tuple[int, int]:
        """One batch in memory at a time, as the controller appends them."""
        size = batches = 0
        for batch in copy(tree, new_id, 21):
            size += sum(len(encode(record, record.version)) for record in batch)
            batches += 1
        return batches, size

    with_tree = rss_mib()
    found["batches"], found["bytes"] = measured(found, "copy: znodes to batches", count, encode_all)
    found["copyGrowsMemoryByMiB"] = round(rss_mib() - with_tree, 1)
    image = MetadataImage()

    def replay() -> None:
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("replaying", total=found["batches"])
            offset = 0
            for batch in copy(tree, new_id, 21):
                records = [decode(encode(record, record.version)) for record in batch]
                image.apply_batch(records, offset, 1, 0)
                offset += len(batch)
                bar.advance(task)

    measured(found, "copy, encode, decode and replay", count, replay)
    verify = lambda: sum(1 for _ in compare(tree, image.records()))  # noqa: E731
    found["differences"] = measured(found, "compare field by field", count, verify)
    if options.json:
        json.dump(found, sys.stdout, indent=2)
    print(f"{count:,} partitions, {found['batches']} batches, {found['bytes']:,} bytes, "
          f"{found['differences']} differences", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main()
