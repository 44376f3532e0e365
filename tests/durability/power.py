"""Power failures at any step, with killed processes and failed syncs between them."""

from __future__ import annotations

import shutil
import traceback
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.durability.replica import Replica, ViolationError


@dataclass(frozen=True, slots=True)
class Outcome:
    """violation: None if all is well. failures: how often the power failed. detail: what sectors
    mode has to say.
    """

    seed: int
    violation: str | None
    failures: int
    detail: str = ""


def run(seed: int, base: Path) -> Outcome:
    random = Random(seed)
    folder = base / f"power-{seed}"
    failures = 0
    replica = None
    try:
        replica = Replica(folder, random)
        for _ in range(random.randint(2, 5)):
            ending = random.choice(
                (*6 * ("power",), "kill", "kill", "eio", "eio", "quiet", "close")
            )
            replica.live(ending)
            if ending in ("power", "quiet", "close") or random.random() < 0.3:
                failures += 1
                replica.crash()
            elif random.random() < 0.5:
                # What is found at a restart counts as acknowledged at once.
                replica.live("idle")
                failures += 1
                replica.crash()
        replica.live("close")
        return Outcome(seed, None, failures)
    except ViolationError as error:
        return Outcome(seed, str(error), failures)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        return Outcome(seed, text, failures)
    finally:
        if replica is not None:
            replica.close()
        shutil.rmtree(folder, ignore_errors=True)
