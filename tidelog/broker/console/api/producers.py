"""Producers: what partitions remember of them, what was recognised or refused, and one producer's history.

Owns the routes and pages of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from operator import itemgetter
from typing import Annotated, Final

from msgspec import Meta

from tidelog.broker.console.api.topics import one_topic
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import EVENT_STREAM, Console, Listing, Page, Parameters, route
from tidelog.broker.console.spread import OF_LEADER, listing
from tidelog.broker.console.views import producers as view
from tidelog.broker.console.views.producer_history import HistoryPiece, history
from tidelog.broker.security.required_access import READ_TOPIC, whole

_READ: Final = whole(READ_TOPIC, field="topic")
_Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_ProducerId = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ProducersAsked(Listing, frozen=True, kw_only=True):
    """Which producers are shown."""

    topic: Annotated[str | None, Meta(description="Only of this topic.")] = None
    partition: Annotated[_Partition | None, Meta(description="Only of this partition.")] = None
    producer_id: Annotated[_ProducerId | None, Meta(description="Only this producer.")] = None
    is_troubled: Annotated[bool, Meta(description="Only those with duplicates or refusals.")] = False


class HistoryAsked(Parameters, frozen=True, kw_only=True):
    """Which producer's history is shown, in which partition."""

    topic: str
    partition: _Partition
    producer_id: _ProducerId


@route(
    "GET", "/api/v1/producers", needs=(_READ,), spread=listing(itemgetter("topic", "partition"), "problems")
)
async def _producers(console: Console, caller: Caller, asked: ProducersAsked) -> view.Producers:
    """The producers of partitions, with their cached batches, duplicates and refusals."""
    wanted = view.Filter(asked.topic, asked.partition, asked.producer_id, asked.is_troubled)
    may_read = partial(caller.may, READ_TOPIC)
    services = console.services
    return await services.turns.run(view.listed(services, may_read, wanted, asked.offset, asked.limit))


@route(
    "GET",
    "/api/v1/topics/{topic}/partitions/{partition}/producers/{producer_id}/history",
    needs=(_READ,),
    stream=EVENT_STREAM,
    spread=OF_LEADER,
)
async def _history(
    console: Console, caller: Caller, asked: HistoryAsked
) -> AsyncGenerator[HistoryPiece, None]:
    """The history of a producer in a partition, checked by the rules of log verification, in pieces."""
    services = console.services
    replica = services.replica(asked.topic, asked.partition)
    return history(console.records.reader, replica, asked.producer_id, services.catalog.next_producer_id)


PAGES: Final[Sequence[Page]] = (
    Page(
        "/console/topics/{topic}/producers",
        "Producers of a topic",
        "producers.html",
        {"topic": one_topic, "producers": _producers},
    ),
    Page("/console/producers", "Producers", "producers.html", {"producers": _producers}),
    Page(
        "/console/producers/{topic}/{partition}/{producer_id}",
        "Producer",
        "producer.html",
        {"producers": _producers},
    ),
)
