"""Share groups: where each share partition is, and what its members hold.

Owns the shapes. Offsets come from the handler that clients ask; what is in flight from the broker that leads
a partition (`broker/share`), which alone has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypedDict

from tidelog.broker.cluster.catalog import SHARE_STATE_TOPIC
from tidelog.broker.configuration.group_settings import share_group_config
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.views.of_cluster import OfCluster
from tidelog.broker.security.required_access import DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

_MOST_DELIVERIES = 10


class ShareOffset(TypedDict):
    """The start of a share partition: all records before it are done. Null: not known."""

    topic: str
    partition: int
    start_offset: int | None
    lag: int | None
    """Records that are to be delivered yet."""
    oldest_ms: int | None
    """How old the first record is that is not acknowledged; 0 without one."""


class ShareOffsets(TypedDict):
    """The share partitions of a group."""

    group_id: str
    rows: list[ShareOffset]
    dead_letter_topic: str
    """Where records go that no member accepted. Empty: there is none, or the caller may not describe it."""
    dead_letter_problem: str
    """Why it cannot have them; empty if it can."""


class InFlight(TypedDict):
    """What members hold or may get again of a share partition, at the broker that leads it."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    in_flight: int
    """Records between the two that are not done."""
    acquired: int
    """Those that a member holds."""
    members: int
    """How many hold some."""
    deliveries: dict[int, int]
    """How often delivered -> number of records, of those in flight."""


class InFlightRows(OfCluster):
    """The share partitions of a group that are in memory: those that are being read."""

    group_id: str
    rows: list[InFlight]


async def share_offsets(
    services: Services,
    caller: Caller,
    ask_times: Callable[[Mapping[tuple[str, int], int]], Awaitable[Mapping[tuple[str, int], int]]],
    group_id: str,
) -> ShareOffsets:
    """Those that the caller may describe; none of a group that is no share group. Raises ApiError."""
    asked: DictOf[types.DescribeShareGroupOffsetsRequest] = {
        "groups": [{"group_id": group_id, "topics": None}]
    }
    (group,) = (await caller.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, asked))["groups"]
    if group.get("error_code") != ErrorCode.GROUP_ID_NOT_FOUND:
        check_code(group.get("error_code", 0), group.get("error_message"))
    rows: list[ShareOffset] = [
        {
            "topic": topic["topic_name"],
            "partition": each["partition_index"],
            "start_offset": each["start_offset"] if each["start_offset"] >= 0 else None,
            "lag": lag if (lag := each.get("lag", -1)) >= 0 else None,
            "oldest_ms": None,
        }
        for topic in group.get("topics", ())
        for each in topic["partitions"]
    ]
    rows.sort(key=lambda row: (row["topic"], row["partition"]))
    wanted = {
        (row["topic"], row["partition"]): row["start_offset"]
        for row in rows
        if row["lag"] and row["start_offset"] is not None
    }
    times, now_ms = await ask_times(wanted) if wanted else {}, services.clock_ms()
    for row in rows:
        at = times.get((row["topic"], row["partition"]))
        row["oldest_ms"] = 0 if row["lag"] == 0 else None if at is None else max(0, now_ms - at)
    topic, problem = _dead_letters(services, caller, group_id)
    return {
        "group_id": group_id,
        "rows": rows,
        "dead_letter_topic": topic,
        "dead_letter_problem": problem,
    }


def _dead_letters(services: Services, caller: Caller, group_id: str) -> tuple[str, str]:
    name = share_group_config(services.config, services.catalog, group_id).dead_letter_topic
    if not name or not caller.may(DESCRIBE_TOPIC, name):
        return "", ""
    return name, services.share.partitions.dead_letter_topics.refusal(group_id, name) or ""


def in_flight(services: Services, caller: Caller, group_id: str) -> InFlightRows:
    """Of the partitions that this broker leads, those that the caller may describe."""
    rows: list[InFlight] = []
    held_partitions = []
    if services.catalog.topic(SHARE_STATE_TOPIC) is not None:  # Else nothing of share groups is imported.
        held_partitions = services.share.partitions.of_group(group_id)
    for held in held_partitions:
        name = services.catalog.name_of(held.key.topic_id)
        if not name or not caller.may(DESCRIBE_TOPIC, name):
            continue
        machine = held.machine
        deliveries: Counter[int] = Counter()
        acquired, members = 0, set()
        for first, end, run in machine.runs():
            if run.is_available or run.is_locked:
                deliveries[min(run.delivery_count, _MOST_DELIVERIES)] += end - first
            if run.is_locked:
                acquired += end - first
                members.add(run.member_id)
        rows.append(
            {
                "topic": name,
                "partition": held.key.partition,
                "start_offset": machine.start_offset,
                "end_offset": machine.end_offset,
                "in_flight": machine.in_flight_count,
                "acquired": acquired,
                "members": len(members),
                "deliveries": dict(sorted(deliveries.items())),
            }
        )
    rows.sort(key=lambda row: (row["topic"], row["partition"]))
    return {"group_id": group_id, "rows": rows}
