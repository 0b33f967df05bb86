"""What brokers of one cluster promise each other and their clients, checked at each of them while they run.

Owns what was seen of all lives: who led in which epoch, which producer ids were given, which image each
broker had at which revision. `find` is told what contradicts a rule. The rules of the store are in
`checked_store`, those of refused batches in `refusal_checks`.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import UUID

from tests.simulation.checked_store import StoreFacts, are_equal
from tests.simulation.refusal_checks import RefusalChecks
from tests.simulation.virtual_broker import VirtualBroker
from tidelog.broker.cluster.facts import delta_fields, encoded
from tidelog.broker.handlers import cut_off
from tidelog.broker.handlers.context import Handler, RequestContext
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.protocol.schema import ApiKey


class ClusterChecks:
    """Of all brokers and all their lives."""

    def __init__(self, facts: StoreFacts, find: Callable[[str], None]) -> None:
        self._facts = facts
        self._find = find
        self._leaders: dict[tuple[UUID, int, int], UUID] = {}
        """By topic, partition and leader epoch: the incarnation that led."""
        self._led: dict[Replica, int] = {}
        """In which epoch a replica was seen to lead."""
        self._given_ids: set[int] = set()
        self._images: dict[UUID, int] = {}

    def opened(self, services: Services, handlers: Mapping[ApiKey, Handler]) -> Mapping[ApiKey, Handler]:
        """Look at what a life of a broker does from now on; returns its handlers."""
        self._check_changes(services)
        self._check_producer_ids(services)
        owner: ProduceHandler = cast(Any, handlers[ApiKey.PRODUCE]).__self__
        RefusalChecks(services, owner, self._find)
        return {key: self._checked(services, key, handler) for key, handler in handlers.items()}

    def _check_changes(self, services: Services) -> None:
        cluster = services.cluster
        change = cluster.change

        async def checked(*arguments: Any, **more: Any) -> Any:
            delta = await change(*arguments, **more)
            if encoded(delta_fields(delta)) not in self._facts.made:
                self._find(f"a change was acknowledged and is not stored: {delta}")
            return delta

        cluster.change = checked  # type: ignore[method-assign]

    def _check_producer_ids(self, services: Services) -> None:
        ids = services.producer_ids
        try_next = ids.try_next

        def checked() -> int | None:
            given = try_next()
            if given is not None:
                if given in self._given_ids:
                    self._find(f"producer id {given} is given twice")
                self._given_ids.add(given)
            return given

        ids.try_next = checked  # type: ignore[method-assign]

    def _checked(self, services: Services, key: ApiKey, handler: Handler) -> Handler:
        """A handler that coordinates only while its broker has a session."""
        if key == ApiKey.FIND_COORDINATOR:
            return self._finding(services, handler)
        if key not in cut_off.CODES:
            return handler

        def handle(context: RequestContext, request: Any) -> Any:
            answer = handler(context, request)  # Raises where it is refused.
            if cut_off._needs_coordinator(key, request) and not self._has_session(services):
                self._find(f"broker {services.node_id} has no session and answers {key.name}")
            return answer

        return handle

    def _finding(self, services: Services, handler: Handler) -> Handler:
        """FindCoordinator: it names other brokers at any time, this one only while it has a session."""

        async def handle(context: RequestContext, request: Any) -> Any:
            answer = await handler(context, request)
            named = {answer["node_id"], *(each["node_id"] for each in answer["coordinators"])}
            if services.node_id in named and not self._has_session(services):
                self._find(f"broker {services.node_id} has no session and names itself as coordinator")
            return answer

        return handle

    def _has_session(self, services: Services) -> bool:
        assert services.membership is not None
        return self._facts.session_of(services.node_id) == services.membership.incarnation.hex.encode()

    def look(self, broker: VirtualBroker, *, is_cut_off: bool) -> None:
        """Check what a broker is and knows now."""
        services = broker.services
        if services is None or services.membership is None:
            return
        membership = services.membership
        if not is_cut_off:
            if not self._has_session(services):
                self._find(f"broker {broker.node_id} has no session and does not know it")
            if membership.incarnation in self._facts.fenced:
                self._find(f"broker {broker.node_id} is fenced and does not know it")
        self._check_leaders(services, membership.incarnation)
        revision = services.catalog.revision
        if self._images.get(membership.incarnation) != revision:
            self._images[membership.incarnation] = revision
            expected = self._facts.images.get(revision)
            if expected is not None and not are_equal(services.catalog, expected):
                self._find(f"broker {broker.node_id} has another image at revision {revision} than the store")

    def _check_leaders(self, services: Services, incarnation: UUID) -> None:
        for (name, index), replica in services.replicas.items():
            epoch = replica.leader_epoch
            if self._led.get(replica) == epoch or replica.is_follower or replica.stopped is not None:
                continue
            topic = services.catalog.topic(name)
            if topic is None:
                continue
            self._led[replica] = epoch
            if self._leaders.setdefault((topic.topic_id, index, epoch), incarnation) != incarnation:
                self._find(f"{name}-{index} has two leaders in epoch {epoch}")
