"""The reset of what a group committed: first what it would change, then the change.

Owns the choice of the partitions and the order of the questions. Where an offset is reset to is decided by
`coordinator/offsets/reset`; what the caller may do, and whether a group takes a commit, by the handlers of
ListOffsets and OffsetCommit. Invariant: a group with members is not reset, because they would overwrite it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.views.groups import AskOffsets, Places, visible_lags
from tidelog.broker.console.views.share_groups import share_offsets
from tidelog.broker.coordinator.offsets.reset import PartitionFacts, Reset, ResetTo
from tidelog.broker.handlers.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.broker.security.required_access import DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

_MOST_ROWS: Final = 500


class ResetRow(TypedDict):
    """One partition: what was committed, the ends of its log, and the new offset; null for none."""

    topic: str
    partition: int
    committed: int | None
    start_offset: int
    end_offset: int
    new_offset: int | None


class ResetPlan(TypedDict):
    """What a reset changes. `refusal` says why it is refused; empty if it is not."""

    group_id: str
    is_share: bool
    """Whether starts of share partitions are reset, not committed offsets."""
    member_count: int
    refusal: str
    total: int
    rows: list[ResetRow]
    """At most 500."""


class Wanted(NamedTuple):
    """Which offsets of which group are reset. Without topics: all that the group committed; without
    partitions: all."""

    group_id: str
    reset: Reset
    topics: Sequence[str] = ()
    partitions: Sequence[int] = ()


async def preview(services: Services, caller: Caller, ask_offsets: AskOffsets, wanted: Wanted) -> ResetPlan:
    """What `reset` would do. Raises ApiError."""
    member_count, is_share = await _kind(caller, wanted.group_id)
    refusal = ""
    if member_count:
        count = f"{member_count} members" if member_count > 1 else "1 member"
        refusal = f"the group has {count}: stop them first, or they overwrite the reset"
    committed = await _committed(services, caller, wanted.group_id, is_share=is_share)
    rows = await _rows(services, caller, ask_offsets, wanted, committed)
    return {
        "group_id": wanted.group_id,
        "is_share": is_share,
        "member_count": member_count,
        "refusal": refusal,
        "total": len(rows),
        "rows": rows,
    }


async def reset(services: Services, caller: Caller, ask_offsets: AskOffsets, wanted: Wanted) -> ResetPlan:
    """Commit the new offsets; durable at the return. Raises ApiError: NON_EMPTY_GROUP, or what the handlers
    of OffsetCommit and ListOffsets say."""
    plan = await preview(services, caller, ask_offsets, wanted)
    if plan["refusal"]:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, plan["refusal"])
    topics: dict[str, list[DictOf[types.OffsetCommitRequestPartition]]] = {}
    for row in plan["rows"]:
        if row["new_offset"] is not None:
            topics.setdefault(row["topic"], []).append(
                {"partition_index": row["partition"], "committed_offset": row["new_offset"]}
            )
    if topics and plan["is_share"]:
        starts: DictOf[types.AlterShareGroupOffsetsRequest] = {
            "group_id": wanted.group_id,
            "topics": [
                {
                    "topic_name": name,
                    "partitions": [
                        {"partition_index": each["partition_index"], "start_offset": each["committed_offset"]}
                        for each in partitions
                    ],
                }
                for name, partitions in topics.items()
            ],
        }
        altered = await caller.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, starts)
        check_code(altered["error_code"], altered.get("error_message"))
        for response in altered["responses"]:
            for each in response["partitions"]:
                check_code(each["error_code"], each.get("error_message"))
    elif topics:
        asked: DictOf[types.OffsetCommitRequest] = {
            "group_id": wanted.group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                {"topic_id": known.topic_id, "partitions": partitions}
                for name, partitions in topics.items()
                if (known := services.catalog.topic(name)) is not None
            ],
        }
        answer: DictOf[types.OffsetCommitResponse] = await caller.ask(ApiKey.OFFSET_COMMIT, asked)
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                check_code(partition["error_code"])
    return plan


def shown(plan: ResetPlan) -> ResetPlan:
    """The plan with as many rows as an answer may have."""
    return {**plan, "rows": plan["rows"][:_MOST_ROWS]}


async def _kind(caller: Caller, group_id: str) -> tuple[int, bool]:
    """How many members it has, and whether it is a share group. 0 also for a group that does not exist: its
    first commit makes it."""
    for api_key in (ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.DESCRIBE_GROUPS):
        field = "groups" if api_key == ApiKey.DESCRIBE_GROUPS else "group_ids"
        (group,) = (await caller.ask(api_key, {field: [group_id]}))["groups"]
        if group["error_code"] != ErrorCode.GROUP_ID_NOT_FOUND:
            check_code(group["error_code"], group.get("error_message"))
            return len(group["members"]), api_key == ApiKey.SHARE_GROUP_DESCRIBE
    return 0, False


async def _committed(
    services: Services, caller: Caller, group_id: str, *, is_share: bool
) -> dict[tuple[str, int], int]:
    if not is_share:
        lags = visible_lags(services, caller, group_id)
        return {(each.topic, each.partition): each.committed.offset for each in lags}
    rows = (await share_offsets(services, caller, _without_times, group_id))["rows"]
    return {(row["topic"], row["partition"]): row["start_offset"] or 0 for row in rows}


async def _without_times(_: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
    return {}


async def _rows(
    services: Services,
    caller: Caller,
    ask_offsets: AskOffsets,
    wanted: Wanted,
    committed: Mapping[tuple[str, int], int],
) -> list[ResetRow]:
    places = _places(services, caller, wanted, committed)
    start = await _offsets(ask_offsets, places, EARLIEST_TIMESTAMP)
    end = await _offsets(ask_offsets, places, LATEST_TIMESTAMP)
    found: Mapping[tuple[str, int], int] = {}
    if wanted.reset.to is ResetTo.TIMESTAMP:
        found = await _offsets(ask_offsets, places, wanted.reset.value)
    rows: list[ResetRow] = []
    for place in sorted(start):
        at = found.get(place, -1)
        facts = PartitionFacts(start[place], end[place], committed.get(place), None if at < 0 else at)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": facts.committed,
                "start_offset": facts.start_offset,
                "end_offset": facts.end_offset,
                "new_offset": wanted.reset.new_offset(facts),
            }
        )
    return rows


def _places(
    services: Services, caller: Caller, wanted: Wanted, committed: Iterable[tuple[str, int]]
) -> Places:
    """Raises ApiError if there is nothing to reset."""
    places: dict[str, list[int]] = {}
    for name in dict.fromkeys(wanted.topics):
        caller.check(DESCRIBE_TOPIC, name)
        topic = services.catalog.topic(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        places[name] = list(range(len(topic.partitions)))
    if not wanted.topics:
        for name, partition in sorted(committed):
            places.setdefault(name, []).append(partition)
        if not places:
            message = f"group {wanted.group_id!r} has committed nothing: name a topic"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if wanted.partitions:
        chosen = set(wanted.partitions)
        places = {name: [each for each in all_of if each in chosen] for name, all_of in places.items()}
    return places


async def _offsets(ask_offsets: AskOffsets, places: Places, timestamp: int) -> dict[tuple[str, int], int]:
    """(topic, partition) -> offset, -1 for none. Raises ApiError."""
    found = await ask_offsets(places, timestamp)
    for (topic, partition), each in found.items():
        check_code(each.code, f"{topic}-{partition}: {each.code.message}")
    return {place: each.offset for place, each in found.items()}
