"""A controller that believes it leads: claims ZooKeeper, writes again and again, says what happens.

`python rival.py CONNECT CONTROLLER_ID EPOCH` prints `claimed`, then `wrote N` for each write, and
in the end `fenced`. It can be stopped and continued meanwhile: a paused controller.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from quorate.migration.errors import FencedError
from quorate.migration.operations import SetData
from quorate.migration.zookeeper import ZooKeeper


def main(connect: str, controller_id: int, epoch: int) -> None:
    client = ZooKeeper(connect, session_timeout_s=6.0)
    client.start()
    lease = client.claim(controller_id, epoch)
    print("claimed", flush=True)
    number = 0
    try:
        while True:
            number += 1
            data = f"controller {controller_id} wrote {number}".encode()
            position = replace(lease.position, offset=number)
            lease = client.write(lease, [SetData("/brokers/seqid", data)], position)
            print(f"wrote {number}", flush=True)
            time.sleep(0.02)
    except FencedError:
        print("fenced", flush=True)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
