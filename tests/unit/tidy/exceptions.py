"""What the tidy rules find and the project accepts, with the reason for each.

The keys have no packages, so code may move. An entry that nothing needs any more fails the test:
delete it. Prefer to fix what a rule finds; a new entry needs a reason that a reviewer accepts.
"""

from __future__ import annotations

PRIMITIVE = "`records.primitives` implements every primitive type of Kafka, and tests check each"
FOR_TESTS = "tests use it to look into the object"
MESSAGE = "a field of a message; the codec handles it by name"
CALLED = "asyncio calls it"
LIBRARY = "part of a Python interface for users; tests call it"

EXCEPTIONS: dict[str, dict[str, str]] = {
    "module length": {
        "kernels": "Numba compiles these loops together; helpers in other modules cost a call each",
    },
    "function length": {
        "quorum_schema._spec": "one literal, the schema of a Quorum, ordered as its documentation",
    },
    "import cycles": {},
    "ambiguous classes": {
        "Node": "`quorate.sync` has the names of the asynchronous interface",
    },
    "dead definitions": {
        "FrameStream.connection_made": CALLED,
        "FrameStream.data_received": CALLED,
        "FrameStream.eof_received": CALLED,
        "FrameStream.pause_writing": CALLED,
        "FrameStream.resume_writing": CALLED,
        "_Conversation.connection_made": CALLED,
        "_Conversation.data_received": CALLED,
        "_Conversation.eof_received": CALLED,
        "ClientStream._ask": "its subclasses call it, in other modules",
        "_Source.readable": "Tink calls it",
        "_Standing._changed": "its base class calls it, in another module",
        "ConfigValue.is_read_only": MESSAGE,
        "DescribeClusterResponse.features_epoch": MESSAGE,
        "Election.campaign": LIBRARY,
        "Election.is_over": LIBRARY,
        "FOLLOWER_FETCH": "a method in the table of access rights, which the tests look up",
        "FetchStream._watcher": "keeps the task from being collected",
        "HistoryChecker.begun_count": FOR_TESTS,
        "HistoryChecker.reads_count": FOR_TESTS,
        "HttpPath.says": "the tool that writes docs/access.md prints it",
        "LakeSink.newest_run": LIBRARY,
        "Leadership.term": LIBRARY,
        "RecordReader": LIBRARY,
        "compare": LIBRARY,
        "typed": LIBRARY,
        **dict.fromkeys(
            (
                "Reader.compact_bytes",
                "Reader.compact_nullable_array",
                "Reader.unsigned_varlong",
                "Writer.compact_bytes",
                "Writer.compact_nullable_array",
                "Writer.unsigned_varlong",
            ),
            PRIMITIVE,
        ),
    },
    "documented fields": {},
    "missing files": {
        "kustomization.yaml": "readers of docs/gitops.md make it",
        "quorate.yaml": "readers of docs/gitops.md make it",
    },
    "missing names": {},
}
"""By rule: what is accepted, and why."""
