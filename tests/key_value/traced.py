"""Run a store's program as it is, with a trace of what its state machine applies and restores.

    python traced.py TRACE PROGRAM [SETTING=VALUE ...] -- serve 1 9001 ADDRESS ADDRESS ADDRESS

The settings, which let snapshots be small, are added to those of the program. The program runs in
the folder of the trace, with a log on stderr. Each line of the trace is written before the state
machine changes: `start`, `restored`, or the offset, the key and the value of a record. Nothing but
PySyncObj or Quorate is imported, since PySyncObj has an environment of its own.
"""

import functools
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Any

UNKNOWN = "OutcomeUnknownError"
"""What an error's text begins with if the put may have been executed."""


class Trace:
    """The file; what was written to it outlives a `kill -9`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self.say("start")

    def say(self, *lines: str) -> None:
        self._file.write("".join(f"{line}\n" for line in lines).encode())


def load(program: Path) -> Any:
    spec = importlib.util.spec_from_file_location("store", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["store"] = module
    spec.loader.exec_module(module)
    return module


def trace_quorate(module: Any, trace: Trace, settings: dict[str, str]) -> None:
    """Let `Store` and `quorate.Node` of the program trace, and answer the line `leader`."""
    quorate, store, answer = module.quorate, module.Store, module.answer
    apply, restore = store.apply, store.restore

    def applied(self: Any, batch: Any) -> Any:
        trace.say(*(f"{r.offset} {r.key.decode()} {r.value.decode()}" for r in batch))
        return apply(self, batch)

    def restored(self: Any, snapshot: Any) -> None:
        trace.say("restored")
        restore(self, snapshot)

    async def answer_or_leader(node: Any, state: Any, line: bytes) -> Any:
        if line.strip() == b"leader":
            return b"%d" % (node.leader.id or 0)
        return await answer(node, state, line)

    class TracedNode(quorate.Node):  # type: ignore[name-defined, misc]
        def __init__(self, config: dict[str, object], *machine: Any, **options: Any) -> None:
            super().__init__(config | settings, *machine, **options)

        async def append(self, *records: Any, **options: Any) -> Any:
            try:
                return await super().append(*records, **options)
            except quorate.OutcomeUnknownError as error:
                raise quorate.OutcomeUnknownError(f"{UNKNOWN}: {error}") from None

    store.apply, store.restore = applied, restored
    module.answer, quorate.Node = answer_or_leader, TracedNode


def trace_pysyncobj(module: Any, trace: Trace, settings: dict[str, str]) -> None:
    """Let `Store` of the program trace: `put_v0` is what PySyncObj calls to apply a `put`."""
    store = module.Store
    put, deserialize = store.put_v0, store._deserialize

    @functools.wraps(put)
    def applied(self: Any, *args: Any, **options: Any) -> Any:
        if options.get("_doApply"):
            trace.say(" ".join(map(str, (self._syncObj.raftLastApplied + 1, *args))))
        return put(self, *args, **options)

    def restored(self: Any, data: Any) -> None:
        trace.say("restored")
        deserialize(self, data)

    store.put_v0, store._deserialize = applied, restored
    module.OPTIONS.update({name: int(value) for name, value in settings.items()})


def main(arguments: list[str]) -> None:
    end = arguments.index("--")
    trace, program, *pairs = arguments[:end]
    settings = dict(pair.split("=", 1) for pair in pairs)
    os.chdir(Path(trace).parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    module = load(Path(program))
    follow = trace_quorate if hasattr(module, "quorate") else trace_pysyncobj
    follow(module, Trace(Path(trace)), settings)
    module.main(*arguments[end + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
