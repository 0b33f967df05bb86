"""Share groups: where each share partition is, and what its members hold.

Owns the routes. Offsets come from the handler that clients ask; what is in flight from the broker that leads
a partition (`broker/share`), which alone has it.
"""

from collections import Counter
from operator import itemgetter
from typing import Annotated, Final, TypedDict

from tidelog.broker.cluster.catalog import SHARE_STATE_TOPIC
from tidelog.broker.configuration.group_settings import share_group_config
from tidelog.broker.console.api.offsets import ages
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import OF_GROUP, Console, Spread, route
from tidelog.broker.console.shapes import From, OfCluster, OfGroup, row_of
from tidelog.broker.security.required_access import DESCRIBE_GROUP, DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

_MOST_DELIVERIES = 10
_PLACE: Final = itemgetter("topic", "partition")


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
    in_flight: Annotated[int, From("in_flight_count")]
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


async def offsets_of(console: Console, caller: Caller, group_id: str) -> list[ShareOffset]:
    """Those that the caller may describe, without ages; none of a group that is no share group. Raises
    ApiError."""
    asked = {"groups": [{"group_id": group_id, "topics": None}]}
    (group,) = (await caller.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, asked))["groups"]
    if group.get("error_code") != ErrorCode.GROUP_ID_NOT_FOUND:
        check_code(group.get("error_code", 0), group.get("error_message"))
    rows: list[ShareOffset] = [
        {
            "topic": topic["topic_name"],
            "partition": each["partition_index"],
            "start_offset": each["start_offset"] if each["start_offset"] >= 0 else None,
            "lag": lag if (lag := each.get("lag", -1)) >= 0 else None,
            "oldest_ms": 0 if lag == 0 else None,
        }
        for topic in group.get("topics", ())
        for each in topic["partitions"]
    ]
    return sorted(rows, key=_PLACE)


@route("GET", "/group/share", needs=DESCRIBE_GROUP, spread=OF_GROUP)
async def share_offsets(console: Console, caller: Caller, asked: OfGroup) -> ShareOffsets:
    """The share partitions of a group: their starts, and how old what is not acknowledged is."""
    rows = await offsets_of(console, caller, asked.group_id)
    starts = {(row["topic"], row["partition"]): row["start_offset"] for row in rows if row["lag"]}
    oldest = await ages(console, caller, starts, console.services.clock_ms())
    for row in rows:
        row["oldest_ms"] = oldest.get((row["topic"], row["partition"]), row["oldest_ms"])
    topic, problem = _dead_letters(console.services, caller, asked.group_id)
    return row_of(ShareOffsets, asked, rows=rows, dead_letter_topic=topic, dead_letter_problem=problem)


def _dead_letters(services: Services, caller: Caller, group_id: str) -> tuple[str, str]:
    name = share_group_config(services.config, services.catalog, group_id).dead_letter_topic
    if not name or not caller.may(DESCRIBE_TOPIC, name):
        return "", ""
    return name, services.share.partitions.dead_letter_topics.refusal(group_id, name) or ""


@route(
    "GET",
    "/group/in-flight",
    needs=DESCRIBE_GROUP,
    spread=Spread(
        join=lambda _, answers, asked: {
            "group_id": asked.group_id,
            "rows": sorted((row for answer in answers.values() for row in answer["rows"]), key=_PLACE),
        }
    ),
)
async def in_flight(console: Console, caller: Caller, asked: OfGroup) -> InFlightRows:
    """What members of a share group hold, and how often records were delivered."""
    services = console.services
    rows: list[InFlight] = []
    held_partitions = []
    if services.catalog.topic(SHARE_STATE_TOPIC) is not None:  # Else nothing of share groups is imported.
        held_partitions = services.share.partitions.of_group(asked.group_id)
    for held in held_partitions:
        name = services.catalog.name_of(held.key.topic_id)
        if not name or not caller.may(DESCRIBE_TOPIC, name):
            continue
        deliveries: Counter[int] = Counter()
        acquired, members = 0, set()
        for first, end, run in held.machine.runs():
            if run.is_available or run.is_locked:
                deliveries[min(run.delivery_count, _MOST_DELIVERIES)] += end - first
            if run.is_locked:
                acquired += end - first
                members.add(run.member_id)
        numbers = {"acquired": acquired, "members": len(members)}
        of_runs = {"topic": name, "deliveries": dict(sorted(deliveries.items()))}
        rows.append(row_of(InFlight, numbers, of_runs, held.machine, held.key))
    return {"group_id": asked.group_id, "rows": sorted(rows, key=_PLACE)}
