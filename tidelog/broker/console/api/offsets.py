"""Offsets of partitions and times of records, whichever brokers lead them: for the lag of groups.

Owns the routes by which one broker asks another. Invariant: a partition whose leader is not there has a code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.others import leader
from tidelog.broker.console.route import ApiRoute, Console, Page, Parameters, route
from tidelog.broker.console.views.groups import FoundOffset, Places
from tidelog.broker.security.required_access import DESCRIBE_TOPIC
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

_Row: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, offset (or time) and code."""
Question: TypeAlias = Callable[[dict[str, list[Any]]], tuple[ApiRoute, Parameters]]
"""The route and the parameters for what is asked of one broker, by topic."""


class Asked(Parameters, frozen=True, kw_only=True):
    """Which offsets, by the timestamp of ListOffsets."""

    places: dict[str, list[int]]
    timestamp: int


class AskedTimes(Parameters, frozen=True, kw_only=True):
    """Of which records the times are asked for: topic -> partition and offset."""

    places: dict[str, list[tuple[int, int]]]


async def _ask_leaders(
    console: Console, caller: Caller, places: Mapping[tuple[str, int], Any], question: Question
) -> dict[tuple[str, int], FoundOffset]:
    """What the leader of each place answers to `question`, whose parameters are made of the values in
    `places`, by topic."""
    by_broker: dict[int, list[tuple[str, int]]] = {}
    found: dict[tuple[str, int], FoundOffset] = {}
    for place in places:
        try:
            by_broker.setdefault(leader(console.services, *place), []).append(place)
        except ApiError as error:
            found[place] = FoundOffset(-1, error.code)

    async def ask(node_id: int, led: list[tuple[str, int]]) -> None:
        of_broker: dict[str, list[Any]] = {}
        for place in led:
            of_broker.setdefault(place[0], []).append(places[place])
        route, asked = question(of_broker)
        try:
            is_own = node_id == console.services.node_id
            rows = (
                await route.handle(console, caller, asked)
                if is_own
                else await console.others.ask(node_id, caller, route, asked)
            )
        except ApiError as error:
            code = error.code
            rows = [(*place, -1, code) for place in led]
        for topic, partition, offset, code in rows:
            found[topic, partition] = FoundOffset(offset, ErrorCode(code))

    await asyncio.gather(*(ask(*each) for each in by_broker.items()))
    return found


async def offsets(
    console: Console, caller: Caller, places: Places, timestamp: int
) -> Mapping[tuple[str, int], FoundOffset]:
    """Of each place its offset, as ListOffsets gives it: -1 for none."""
    asked = {(topic, each): each for topic, partitions in places.items() for each in partitions}
    question: Question = lambda of: (offsets_here, Asked(places=of, timestamp=timestamp))  # noqa: E731
    return await _ask_leaders(console, caller, asked, question)


async def record_times(
    console: Console, caller: Caller, places: Mapping[tuple[str, int], int]
) -> Mapping[tuple[str, int], int]:
    """Of the first record at or after each offset its time in milliseconds, where there is one."""
    asked = {place: (place[1], offset) for place, offset in places.items()}
    question: Question = lambda of: (times_here, AskedTimes(places=of))  # noqa: E731
    found = await _ask_leaders(console, caller, asked, question)
    return {place: each.offset for place, each in found.items() if not each.code and each.offset >= 0}


@route("GET", "/times", is_public=False)
async def times_here(console: Console, caller: Caller, asked: AskedTimes) -> list[_Row]:
    """Times of records."""
    rows: list[_Row] = []
    for topic, places in asked.places.items():
        for partition, offset in places:
            time, code = -1, ErrorCode.NONE
            try:
                caller.check(DESCRIBE_TOPIC, topic)
                time = await console.records.time_of(topic, partition, offset)
            except ApiError as error:
                code = error.code
            rows.append((topic, partition, time, code))
    return rows


@route("GET", "/offsets", is_public=False)
async def offsets_here(console: Console, caller: Caller, asked: Asked) -> list[_Row]:
    """Offsets of partitions."""
    request: DictOf[types.ListOffsetsRequest] = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": asked.timestamp}
                    for index in partitions
                ],
            }
            for name, partitions in asked.places.items()
        ],
    }
    answer: DictOf[types.ListOffsetsResponse] = await caller.ask(ApiKey.LIST_OFFSETS, request)
    return [
        (
            topic["name"],
            each["partition_index"],
            each.get("offset", -1),
            each.get("error_code", ErrorCode.NONE),
        )
        for topic in answer["topics"]
        for each in topic["partitions"]
    ]


PAGES: Final[Sequence[Page]] = ()
