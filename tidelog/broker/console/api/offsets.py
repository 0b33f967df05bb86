"""Offsets of partitions and times of records, whichever brokers lead them: for the lag of groups.

Owns the routes by which one broker asks another. Invariant: a partition whose leader is not there has a code.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.others import leader
from tidelog.broker.console.route import ApiRoute, Console, route
from tidelog.broker.console.shapes import Parameters
from tidelog.broker.security.required_access import DESCRIBE_TOPIC
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""
_Row: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, offset (or time) and code."""


class FoundOffset(NamedTuple):
    """The offset of a partition (-1 for none), or the code for which there is none."""

    offset: int
    code: ErrorCode


class Asked(Parameters, frozen=True, kw_only=True):
    """Topic -> partitions, each with a timestamp of ListOffsets, or with the offset of a record."""

    places: dict[str, list[tuple[int, int]]]


async def _ask_leaders(
    console: Console, caller: Caller, route: ApiRoute, places: Mapping[Place, int]
) -> dict[Place, FoundOffset]:
    by_broker: dict[int, list[Place]] = {}
    found: dict[Place, FoundOffset] = {}
    for place in places:
        try:
            by_broker.setdefault(leader(console.services, *place), []).append(place)
        except ApiError as error:
            found[place] = FoundOffset(-1, error.code)

    async def ask(node_id: int, led: list[Place]) -> None:
        of_broker: dict[str, list[tuple[int, int]]] = {}
        for topic, partition in led:
            of_broker.setdefault(topic, []).append((partition, places[topic, partition]))
        try:
            rows = await route.ask_broker(node_id, console, caller, Asked(places=of_broker))
        except ApiError as error:
            code = error.code
            rows = [(*place, -1, code) for place in led]
        for topic, partition, offset, code in rows:
            found[topic, partition] = FoundOffset(offset, ErrorCode(code))

    await asyncio.gather(*(ask(*each) for each in by_broker.items()))
    return found


async def offsets(
    console: Console, caller: Caller, places: Iterable[Place], timestamp: int
) -> dict[Place, FoundOffset]:
    """Of each place its offset, as ListOffsets gives it."""
    return await _ask_leaders(console, caller, offsets_here, dict.fromkeys(places, timestamp))


async def ages(
    console: Console, caller: Caller, places: Mapping[Place, int | None], now_ms: int
) -> dict[Place, int]:
    """How old in milliseconds the first record at or after each offset is, where there is one."""
    known = {place: offset for place, offset in places.items() if offset is not None}
    found = await _ask_leaders(console, caller, times_here, known)
    held = {place: each.offset for place, each in found.items() if not each.code and each.offset >= 0}
    return {place: max(0, now_ms - time_ms) for place, time_ms in held.items()}


@route("GET", "/times-at", is_public=False)
async def times_here(console: Console, caller: Caller, asked: Asked) -> list[_Row]:
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


@route("GET", "/offsets-at", is_public=False)
async def offsets_here(console: Console, caller: Caller, asked: Asked) -> list[_Row]:
    """Offsets of partitions."""
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
                for index, timestamp in places
            ],
        }
        for name, places in asked.places.items()
    ]
    request = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    answer = await caller.ask(ApiKey.LIST_OFFSETS, request)
    return [
        (topic["name"], each["partition_index"], each.get("offset", -1), each.get("error_code", 0))
        for topic in answer["topics"]
        for each in topic["partitions"]
    ]
