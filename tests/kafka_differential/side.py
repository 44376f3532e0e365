"""One of the two controllers: its connection, the log that it writes, and the image of that log."""

from __future__ import annotations

import os
import re
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quorate.bridge.messages import schemas as s
from quorate.common.identifiers import UUID_CHARACTERS, uuid_to_bytes
from quorate.metadata.acls import acl_of
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage
from quorate.records import metadata as rec
from quorate.records.batch import BatchHeader, iter_batches, iter_records

from tests.kafka_differential.connection import BlockingConnection
from tests.processes import until

SOURCE: Final = "127.2.0.3"
READ_BYTES: Final = 4 * 1024
"""More than most requests write; a longer read would mostly return zeros."""
HEADER_BYTES: Final = 61
SEGMENT_S: Final = 60.0
LENGTH_BYTES: Final = 12
"""The part of a batch that its length does not count."""
NEVER: Final = uuid.UUID("00112233-4455-4677-8899-aabbccddeeff")
"""The id of no topic."""
NO_EPOCH: Final = 1 << 40
"""The epoch of no broker."""

EPOCH_FIELDS: Final = frozenset({"broker_epoch", "epoch"})
"""Fields of records and messages with the epoch of a broker."""
PUBLISHED_AFTER: Final = 100
"""Requests."""

Batch = Sequence[tuple[bytes, AnyRecord]]
"""The metadata records of a batch: the value and what it holds."""


class LogTail:
    """Reads what a controller appends to the segments of its log. folder: of the partition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._position = 0
        self.end_offset = 0
        # A controller may listen before it has created its first segment.
        first = min(until("a segment", lambda: list(folder.glob("*.log")), SEGMENT_S))
        self._file = os.open(first, os.O_RDONLY)

    def read(self) -> list[tuple[BatchHeader, bytes]]:
        """The complete batches since the last call."""
        found: list[tuple[BatchHeader, bytes]] = []
        while True:
            whole = self._next()
            if not whole and not self._has_rolled():
                return found
            for header, batch in iter_batches(whole):
                self.end_offset = header.end_offset
                found.append((header, bytes(batch)))

    def _next(self) -> bytes:
        """The complete batches at the position, as many as a read returns; empty at the end."""
        size = READ_BYTES
        while True:
            data = os.pread(self._file, size, self._position)
            end = 0
            while end + HEADER_BYTES <= len(data):
                length = int.from_bytes(data[end + 8 : end + LENGTH_BYTES], "big")
                # Segments are preallocated: zeros follow the last batch.
                if length == 0 or end + LENGTH_BYTES + length > len(data):
                    break
                end += LENGTH_BYTES + length
            if end or len(data) < size or not data.strip(b"\0"):
                self._position += end
                return data[:end]
            size *= 2

    def _has_rolled(self) -> bool:
        """Whether another segment follows; from now on, it is read."""
        path = self._folder / f"{self.end_offset:020}.log"
        if not self._position or not path.exists():
            return False
        os.close(self._file)
        self._file = os.open(path, os.O_RDONLY)
        self._position = 0
        return True

    def close(self) -> None:
        os.close(self._file)


class Aliases:
    """Names for the ids that a controller chose, equal on both sides for what was created alike.

    A topic's id is named after the topic and the number of its creation, an ACL's id after the ACL,
    a token's after its number, and a broker's epoch after the broker and the number of the process.

    texts, epochs: the names of ids and epochs. text_of, epoch_of: the reverse. uuids, uuid_of: the
    same as `texts` and `text_of`, of the ids as bytes.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.epochs: dict[int, str] = {}
        self.text_of: dict[str, str] = {}
        self.epoch_of: dict[str, int] = {}
        self.uuids: dict[bytes, str] = {}
        self.uuid_of: dict[str, bytes] = {}
        self._counts: Counter[str] = Counter()

    def note(self, record: AnyRecord) -> None:
        """Name what a record creates."""
        match record:
            case rec.TopicRecord():
                self._name(record.topic_id, f"topic {record.name}")
            case rec.AccessControlEntryRecord():
                self._name(record.id, f"acl {acl_of(record)}")
            case rec.DelegationTokenRecord():
                self._name(record.token_id, "token")
            case rec.RegisterBrokerRecord() if record.broker_epoch not in self.epochs:
                name = f"broker {record.broker_id}"
                self._counts[name] += 1
                alias = f"epoch {self._counts[name]} of {name}"
                self.epochs[record.broker_epoch] = alias
                self.epoch_of[alias] = record.broker_epoch

    def level(self, other: Aliases) -> None:
        """Let both go on with the same numbers after one of them has named more."""
        self._counts |= other._counts
        other._counts |= self._counts

    def _name(self, text: str, name: str) -> None:
        if text not in self.texts:
            self._counts[name] += 1
            alias = self.texts[text] = f"{name} #{self._counts[name]}"
            self.text_of[alias] = text
            if len(text) == UUID_CHARACTERS:
                found = self.uuid_of[alias] = uuid_to_bytes(text)
                self.uuids[found] = alias


class Side:
    """A controller. name: Kafka or Quorate. image: of everything that was read from its log.
    folder: of the partition.

    topic_ids, epochs: the last known ids of topics and epochs of brokers, also of those that are
    gone. registered_at: the offset of a broker's last registration. secrets: of tokens, by id,
    without the newest. gone: the secret of a removed token. stopped: the brokers that may stop.
    """

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.image = MetadataImage()
        self.aliases = Aliases()
        self.topic_ids: dict[str, str] = {}
        self.epochs: dict[int, int] = {}
        self.registered_at: dict[int, int] = {}
        self.stopped: set[int] = set()
        self.secrets: dict[str, bytes] = {}
        self.gone = b"no token"
        self._new_secrets: deque[tuple[int, str, bytes]] = deque()
        self._gone: deque[tuple[int, bytes]] = deque()
        self._port = port
        self._user = self._password = ""
        self._age = 0
        self._tail = LogTail(folder)
        self._connection: BlockingConnection | None = None

    def connect(self, user: str, password: str) -> None:
        """Connect and authenticate with PLAIN. Raises OSError."""
        self._user, self._password = user, password
        connection = self._connection = BlockingConnection(self._port, SOURCE)
        shaken = connection.call(s.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert not int(shaken.error_code), shaken
        login = f"\0{user}\0{password}".encode()
        found = connection.call(s.SASL_AUTHENTICATE, 2, auth_bytes=login)
        assert not int(found.error_code), found

    def send(self, frame: bytearray) -> None:
        """Send an encoded request. Raises OSError."""
        assert self._connection is not None, "connect() comes first"
        self._connection.send(frame)

    def receive(self) -> bytes:
        """The response to the last request, with its header; empty if the controller closed the
        connection instead. Raises OSError.
        """
        assert self._connection is not None, "connect() comes first"
        try:
            return self._connection.receive()
        except ConnectionResetError:
            self._connection.close()
            self.connect(self._user, self._password)
            return b""

    def appended(self) -> list[tuple[BatchHeader, Batch]]:
        """The batches of metadata records since the last call; they are not in the image yet."""
        return [
            (header, [(value, rec.decode(value)) for value in _values(batch, header)])
            for header, batch in self._tail.read()
            if not header.is_control
        ]

    def replay(self, batches: Sequence[tuple[BatchHeader, Batch]]) -> None:
        """Bring the image and the aliases up to date. Raises ReplayError."""
        for header, batch in batches:
            records = [record for _, record in batch]
            self.image.apply_batch(records, header.base_offset, header.epoch, header.max_timestamp)
            for offset, record in enumerate(records, header.base_offset):
                self.aliases.note(record)
                if isinstance(record, rec.TopicRecord):
                    self.topic_ids[record.name] = record.topic_id
                elif isinstance(record, rec.RegisterBrokerRecord):
                    if record.broker_epoch != self.epochs.get(record.broker_id):
                        self.stopped.discard(record.broker_id)
                    self.epochs[record.broker_id] = record.broker_epoch
                    self.registered_at[record.broker_id] = offset
                elif isinstance(record, rec.RemoveDelegationTokenRecord):
                    self._remove_secret(record.token_id)

    def keep_secret(self, token_id: str, secret: bytes) -> None:
        """Use a new token in later requests.

        Kafka's controllers know a token, and that it is removed, only after a while: they look for
        it in what they have published.
        """
        self._new_secrets.append((self._age + PUBLISHED_AFTER, token_id, secret))

    def _remove_secret(self, token_id: str) -> None:
        secret = self.secrets.pop(token_id, None)
        if secret is not None:
            self._gone.append((self._age + PUBLISHED_AFTER, secret))

    def grow_older(self) -> None:
        """Count a request."""
        self._age += 1
        while self._new_secrets and self._new_secrets[0][0] <= self._age:
            _, token_id, secret = self._new_secrets.popleft()
            if token_id in self.image.tokens.tokens:
                self.secrets[token_id] = secret
        while self._gone and self._gone[0][0] <= self._age:
            self.gone = self._gone.popleft()[1]

    @property
    def last_offset(self) -> int:
        """The offset of the last record that the image has."""
        return self.image.offset

    def topic_id(self, name: str) -> uuid.UUID:
        """The id of a topic, also of one that was deleted; of no topic if it never existed."""
        text = self.topic_ids.get(name)
        found = None if text is None else s.uuid_field(text)
        return NEVER if found is None else found

    def epoch(self, broker_id: int) -> int:
        """The last epoch of a broker, also of one that was unregistered."""
        return self.epochs.get(broker_id, NO_EPOCH)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._tail.close()


def _values(batch: bytes, header: BatchHeader) -> list[bytes]:
    return [each.value or b"" for each in iter_records(memoryview(batch), header)]


ID_PATTERN: Final = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
"""Text that may be an id."""
