"""Offsets of partitions, whichever brokers lead them: for the lag of groups, and for its reset.

Owns the route by which one broker asks another. Invariant: a partition whose leader is not there has a code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.others import leader
from tidelog.broker.console.route import Console, Parameters, route
from tidelog.broker.console.views.groups import FoundOffset, Places
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

_Row: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, offset and code."""


class Asked(Parameters, frozen=True, kw_only=True):
    """Which offsets, by the timestamp of ListOffsets."""

    places: dict[str, list[int]]
    timestamp: int


async def offsets(
    console: Console, caller: Caller, places: Places, timestamp: int
) -> Mapping[tuple[str, int], FoundOffset]:
    """Of each place its offset, as ListOffsets gives it: -1 for none."""
    by_broker: dict[int, dict[str, list[int]]] = {}
    found: dict[tuple[str, int], FoundOffset] = {}
    for topic, partitions in places.items():
        for partition in partitions:
            try:
                node_id = leader(console.services, topic, partition)
            except ApiError as error:
                found[topic, partition] = FoundOffset(-1, error.code)
            else:
                by_broker.setdefault(node_id, {}).setdefault(topic, []).append(partition)

    async def ask(node_id: int, of_broker: dict[str, list[int]]) -> None:
        asked = Asked(places=of_broker, timestamp=timestamp)
        try:
            is_own = node_id == console.services.node_id
            rows = (
                await offsets_here.handle(console, caller, asked)
                if is_own
                else await console.others.ask(node_id, caller, offsets_here, asked)
            )
        except ApiError as error:
            rows = [
                (topic, partition, -1, error.code)
                for topic, partitions in of_broker.items()
                for partition in partitions
            ]
        for topic, partition, offset, code in rows:
            found[topic, partition] = FoundOffset(offset, ErrorCode(code))

    await asyncio.gather(*(ask(*each) for each in by_broker.items()))
    return found


@route("GET", "/offsets")
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
