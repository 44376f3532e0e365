"""The stream of random requests: what is asked how often."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from tests.kafka_differential import (
    broker_requests,
    config_requests,
    security_requests,
    topic_requests,
)
from tests.kafka_differential.requests import Request, Script, State
from tests.kafka_differential.side import Side

Generator = Callable[[State], Script]

SETTLED_BROKERS: Final = 5
"""With fewer active brokers, others start more often."""


class Stream:
    """Requests without end, chosen by the state of Kafka's controller."""

    def __init__(self, seed: int, cluster_id: str) -> None:
        self._chance = random.Random(seed)
        self._waiting: deque[Request] = deque()
        self._weights: Mapping[Generator, int] = {
            broker_requests.heartbeat: 14,
            lambda state: broker_requests.register_broker(state, cluster_id): 4,
            broker_requests.unregister_broker: 2,
            broker_requests.register_controller: 1,
            broker_requests.allocate_producer_ids: 2,
            topic_requests.create_topics: 10,
            topic_requests.delete_topics: 4,
            topic_requests.create_partitions: 5,
            topic_requests.alter_partition: 20,
            topic_requests.alter_reassignments: 8,
            topic_requests.elect_leaders: 5,
            topic_requests.assign_replicas: 4,
            config_requests.incremental_alter_configs: 8,
            config_requests.alter_configs: 4,
            config_requests.update_features: 3,
            security_requests.alter_client_quotas: 5,
            security_requests.alter_scram: 3,
            security_requests.create_acls: 5,
            security_requests.delete_acls: 4,
            security_requests.create_token: 2,
            security_requests.renew_token: 2,
            security_requests.expire_token: 2,
        }
        self._start: Generator = lambda state: broker_requests.start_broker(state, cluster_id)

    def next(self, side: Side) -> Request:
        """The next request. side: Kafka's controller."""
        state = State(side.image, self._chance, side.stopped)
        while not self._waiting:
            if len(state.active_ids) < SETTLED_BROKERS and state.odds(0.3):
                self._waiting += self._start(state)
                continue
            (generator,) = self._chance.choices(list(self._weights), list(self._weights.values()))
            self._waiting += generator(state)
        return self._waiting.popleft()

    def is_safe(self, request: Request, side: Side) -> bool:
        """Whether a request may be sent now."""
        state = State(side.image, self._chance, side.stopped)
        return request.is_safe is None or request.is_safe(state)
