"""Carries out the faults that a user ordered with `tidelog fault`, where `faults.enable` is set.

Owns the wrappers around the handlers. The meaning of an order:
- drop: the request takes effect (a batch is durable), its answer is never sent. Answers are sent in order, so
  no later answer of the same connection is sent either, as when the network loses an answer;
- delay: the answer is held back, and with it the later answers of the same connection;
- error: the whole request is answered with the code, before it takes effect or after it;
- cut: the connection is closed without an answer, before the request takes effect or after it;
- expire_locks: all locks of one partition of a share group end at once, as if their time had passed.

Invariants: a request takes effect in the order of arrival, whatever happens to its answer; `release` ends
every wait, so a fault never delays a stop.

Event loop only.
"""

import asyncio
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

import structlog

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.fault_injection.producer_changes import PRODUCER_FAULTS, ProducerFaults
from tidelog.broker.fault_injection.rules import (
    APIS,
    Fault,
    FaultError,
    FaultKind,
    FaultOrder,
    FaultRules,
    Moment,
    Plan,
    RequestFacts,
    parse_order,
)
from tidelog.broker.handlers.context import CloseConnection, Handler, LateAnswer, RequestContext
from tidelog.broker.services import Services
from tidelog.broker.tasks import Tasks
from tidelog.protocol.errors import ApiError, again
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import finish

logger = structlog.get_logger(__name__)

_ANY_PARTITION = -1


class FaultInjector:
    """Carries out the faults that users order at one broker."""

    def __init__(self, services: Services) -> None:
        self.rules = FaultRules()
        self.producers = ProducerFaults(services)
        self._services = services
        self._released = asyncio.Event()
        self._tasks = Tasks()

    def around(self, handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
        """The handlers; those of the APIs that can have faults are wrapped."""
        wrapped = dict(handlers)
        for api_key, _, _ in APIS.values():
            wrapped[api_key] = self._wrapped(handlers[api_key])
        return wrapped

    def take(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out or begin to apply an order, with the fields that /faults takes. Raises FaultError, and
        ApiError for a partition that is not here."""
        if values.get("fault") in PRODUCER_FAULTS:
            return self.producers.apply(values)
        if values.get("fault") == EXPIRE_LOCKS:
            return expire_locks(self._services, values)
        return self.order(parse_order(values)).describe()

    def order(self, order: FaultOrder) -> Fault:
        """Begin to apply an order. Raises FaultError."""
        fault = self.rules.add(order)
        logger.warning("fault_ordered", **fault.describe())
        return fault

    def release(self) -> None:
        """The broker stops: release every answer that is held back."""
        self._released.set()

    def _wrapped(self, handle: Handler) -> Handler:
        rules = self.rules

        def handle_with_faults(context: RequestContext, request: object) -> Any:
            if not rules.active:
                return handle(context, request)
            plan = rules.decide(_facts(context, request, self._services.catalog))
            if plan is None:
                return handle(context, request)
            return self._carry_out(plan, handle, context, request)

        return handle_with_faults

    def _carry_out(self, plan: Plan, handle: Handler, context: RequestContext, request: object) -> Any:
        logger.warning(
            "fault_applied",
            ids=plan.fault_ids,
            fault=plan.kind,
            when=plan.moment,
            delay_ms=plan.delay_ms,
            api=ApiKey(context.header.api_key).name,
            client_id=context.header.client_id,
            connection_id=context.connection.connection_id,
        )
        if plan.kind is not None and plan.moment is Moment.BEFORE:
            return self._finish(plan, None)
        error: Exception | None = None
        result = None
        try:
            result = finish(handle(context, request))
        except Exception as refused:
            error = again(refused)
        if result is None and error is None:
            # The client expects no answer (acks=0), but the connection can be cut.
            if plan.kind is FaultKind.CUT:
                raise CloseConnection
            return None
        if isinstance(result, LateAnswer) and not result.is_effective:
            return self._finish_late(plan, result)
        return self._finish(plan, result, error)

    def _finish_late(self, plan: Plan, effect: LateAnswer) -> LateAnswer:
        """As `_finish`, and later requests of the connection wait for the effect as without a fault."""
        late = LateAnswer(effect.held_bytes, is_effective=False)
        effect.when_effective(late.take_effect)

        async def finish_it() -> None:
            try:
                result = await self._finish(plan, _whole(effect, late))
            except Exception as error:
                result = again(error)
            late.give(result)

        self._tasks.begin(finish_it())
        return late

    async def _finish(self, plan: Plan, result: Any, error: Exception | None = None) -> Any:
        """The answer of a request that has taken effect or was prevented from it."""
        if isawaitable(result):
            try:
                result = await result
            except Exception as refused:
                error = again(refused)
        if plan.delay_ms:
            await self._wait(plan.delay_ms / 1000)
        if plan.kind is FaultKind.DROP:
            await self._wait(None)
            raise CloseConnection
        if plan.kind is FaultKind.CUT:
            raise CloseConnection
        if plan.kind is FaultKind.ERROR:
            raise ApiError(plan.error, f"ordered with tidelog fault (number {plan.fault_ids[-1]})")
        if error is not None:
            raise again(error)
        return result

    async def _wait(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._released.wait(), seconds)
        except TimeoutError:
            return


async def _whole(effect: LateAnswer, late: LateAnswer) -> Any:
    """The answer, after which a request that was refused holds back later ones no more."""
    try:
        return await effect
    finally:
        late.take_effect()


def _facts(context: RequestContext, request: Any, catalog: Catalog) -> RequestFacts:
    header = context.header
    key = header.api_key

    def partitions() -> list[tuple[str, int]]:
        if key == ApiKey.PRODUCE:
            return [(catalog.name_of(topic), index) for topic, parts in request.topics for index, _ in parts]
        if key == ApiKey.FETCH:
            return [
                (catalog.name_of(topic), part.partition) for topic, parts in request.topics for part in parts
            ]
        return [(topic.name or "", _ANY_PARTITION) for topic in request.topics or ()]

    expects_answer = key != ApiKey.PRODUCE or request.acks != 0
    return RequestFacts(key, header.client_id, expects_answer, partitions)


EXPIRE_LOCKS = "expire_locks"
_KNOWN = ("fault", "group_id", "topic", "partition")


def expire_locks(services: Services, values: Mapping[str, object]) -> dict[str, Any]:
    """From JSON: group_id, topic, partition (0). Returns how many records were locked. Raises FaultError."""
    if values.keys() - set(_KNOWN):
        raise FaultError(f"unknown field {min(values.keys() - set(_KNOWN))!r}; known are {', '.join(_KNOWN)}")
    group_id, topic, partition = values.get("group_id"), values.get("topic"), values.get("partition", 0)
    if not isinstance(group_id, str) or not isinstance(topic, str):
        raise FaultError("expected group_id and topic, the names of a share group and of a topic")
    for held in services.share.partitions.of_group(group_id):
        if (held.replica.topic, held.key.partition) == (topic, partition):
            ended = {"group_id": group_id, "topic": topic, "partition": partition}
            ended |= {"fault": EXPIRE_LOCKS, "records": held.expire_locks()}
            logger.warning("share_locks_expired", **ended)
            return ended
    raise FaultError(f"no member of share group {group_id!r} reads {topic}-{partition} at this broker")
