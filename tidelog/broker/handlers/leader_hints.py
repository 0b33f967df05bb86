"""The new leaders that answers of Produce and Fetch name with a refusal (KIP-951).

Owns which answers name leaders, and their addresses. Invariants: a leader is named only with its address on
the listener of the request, so that a client can connect to it at once; an answer without a refusal by
another leader is not changed.

Source: KIP-951, and KafkaApis.handleProduceRequest and handleFetchRequest. Produce names them from version 10
on. Fetch has a field for the leader from version 12 on, and one for its address from 16 on.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.handlers.brokers import address_of
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import (
    FetchResponse,
    NodeEndpoint,
    TopicKey,
    encode_fetch_response_steps,
    encode_produce_response_steps,
    with_node_endpoints,
)
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, in_steps
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    pass

REFUSALS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_FIRST_VERSIONS: Final = {ApiKey.PRODUCE: 10, ApiKey.FETCH: 12}
_FIRST_FETCH_WITH_ENDPOINTS: Final = 16


class LeaderHints:
    """Adds new leaders to the answers of one broker of several."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def apply_to(self, api_key: int, version: int, codes: Container[int]) -> bool:
        """Whether an answer with these error codes names leaders."""
        first = _FIRST_VERSIONS.get(api_key)  # type: ignore[call-overload]
        return first is not None and version >= first and any(code in codes for code in REFUSALS)

    def encode(self, context: RequestContext, api_key: int, version: int, answer: Any) -> Steps[list[Buffer]]:
        """The encoded answer with the leaders of the partitions whose refusals it has."""
        endpoints: dict[int, NodeEndpoint] = {}
        if api_key == ApiKey.PRODUCE:
            topics = yield from self._named(context, answer, endpoints)
            encoded = yield from in_steps(encode_produce_response_steps(version, topics))
            return with_node_endpoints(version, encoded, list(endpoints.values()))
        fetched: FetchResponse = answer
        topics = yield from self._named(context, fetched.topics, endpoints)
        named = list(endpoints.values()) if version >= _FIRST_FETCH_WITH_ENDPOINTS else ()
        fetched = fetched._replace(topics=topics, node_endpoints=named)
        return (yield from encode_fetch_response_steps(version, fetched))

    def _named(
        self, context: RequestContext, topics: Any, endpoints: dict[int, NodeEndpoint]
    ) -> Steps[list[Any]]:
        """The results with the leaders, whose addresses are added to `endpoints`."""
        pace = Pace(CHECKS_PER_STEP)
        named = []
        for topic, results in topics:
            found = []
            for result in results:
                if result.error_code in REFUSALS:
                    index = result[0]  # "index" of Produce, "partition_index" of Fetch.
                    leader = self._leader(context, topic, index, endpoints)
                    if leader is not None:
                        result = result._replace(current_leader=leader)
                found.append(result)
                if pace.spent():
                    yield
            named.append((topic, found))
        return named

    def _leader(
        self, context: RequestContext, topic: TopicKey, index: int, endpoints: dict[int, NodeEndpoint]
    ) -> tuple[int, int] | None:
        """(broker id, epoch) of a live leader that the client can reach."""
        catalog = self._services.catalog
        name = topic if isinstance(topic, str) else catalog.name_of(topic)
        assigned = None if name is None else catalog.assigned(name, index)
        if assigned is None or not self._services.is_live(assigned.leader_id):
            return None
        node_id = assigned.leader_id
        if node_id not in endpoints:
            address = address_of(self._services, context, node_id)
            if address is None:
                return None
            broker = catalog.brokers.get(node_id)
            rack = None if broker is None else broker.rack
            endpoints[node_id] = NodeEndpoint(node_id, address.host, address.port, rack)
        return node_id, assigned.leader_epoch
