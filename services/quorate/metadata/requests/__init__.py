"""Metadata requests and responses, as frozen values.

Rules:
1. A request that changes metadata is a `Request`: the active controller handles it
   (`controller.MetadataController`). A `Read` is answered from a committed image
   (`describe.answer`). Each has one response class.
2. Errors are values: a `RequestOutcome` per part, and one of the whole response where Kafka has an
   error there. A message is English text for people, and may be empty.
3. Topic ids, directory ids and incarnation ids are UUIDs in Kafka's text form; `ZERO_UUID` stands
   for none.
4. Codes that are numbers in Kafka's protocol stay numbers: resource types, operations, mechanisms
   (`configs`, `acls`, `scram` name them).

Import everything from here: this package exports the public names of its modules.

Source: the messages of KIP-631, KIP-497, KIP-841, KIP-903 (lifecycle), KIP-4, KIP-455, KIP-460,
KIP-48, KIP-546, KIP-554, KIP-584 and KIP-966 (administration).
"""

from __future__ import annotations

from quorate.metadata.requests.cluster import *  # noqa: F403
from quorate.metadata.requests.common import *  # noqa: F403
from quorate.metadata.requests.settings import *  # noqa: F403
from quorate.metadata.requests.tokens import *  # noqa: F403
from quorate.metadata.requests.topics import *  # noqa: F403
