"""The reset of what a group committed: first what it would change, then the change.

Owns the routes, the choice of the partitions and the order of the questions. Where an offset is reset to is
decided by `coordinator/offsets/reset`; what the caller may do, and whether a group takes a commit, by the
handlers of ListOffsets and OffsetCommit. Invariant: a group with members is not reset, because they would
overwrite it.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.console.api.groups import visible_lags
from tidelog.broker.console.api.offsets import Place, offsets
from tidelog.broker.console.api.share_groups import offsets_of
from tidelog.broker.console.api.topics import existing_topic
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import ALL, OF_GROUP, Console, route
from tidelog.broker.console.shapes import INT64, MOST_ROWS, OfGroup, PartitionNumber, row_of
from tidelog.broker.coordinator.offsets.reset import PartitionFacts, Reset, ResetTo
from tidelog.broker.handlers.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.broker.security.required_access import DESCRIBE_TOPIC, READ_GROUP
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

_WITH_VALUE: Final = (ResetTo.OFFSET, ResetTo.TIMESTAMP, ResetTo.SHIFT)


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


class ResetAsked(OfGroup, frozen=True, kw_only=True):
    """Which offsets are reset, and where to."""

    to: ResetTo
    value: (
        Annotated[int, Meta(ge=-INT64 - 1, le=INT64, description="Of offset, timestamp (ms) and shift.")]
        | None
    ) = None
    topics: tuple[str, ...] = ()
    """Only of these; else of all that the group committed in."""
    partitions: tuple[PartitionNumber, ...] = ()
    """Only these; else all."""

    @property
    def reset(self) -> Reset:
        """Raises ApiError if `value` is missing, or has no use."""
        if (self.value is None) == (self.to in _WITH_VALUE):
            needs = "needs" if self.value is None else "has no"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"to={self.to} {needs} value")
        if self.to in (ResetTo.OFFSET, ResetTo.TIMESTAMP) and (self.value or 0) < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"value: expected 0 or more, got {self.value}")
        return Reset(self.to, self.value or 0)


async def _plan(console: Console, caller: Caller, asked: ResetAsked) -> ResetPlan:
    """What a reset would change. Raises ApiError."""
    reset = asked.reset
    member_count, is_share = await _kind(caller, asked.group_id)
    refusal = ""
    if member_count:
        count = f"{member_count} members" if member_count > 1 else "1 member"
        refusal = f"the group has {count}: stop them first, or they overwrite the reset"
    if is_share:
        shared = await offsets_of(console, caller, asked.group_id)
        committed = {(row["topic"], row["partition"]): row["start_offset"] or 0 for row in shared}
    else:
        lags = visible_lags(console.services, caller, asked.group_id)
        committed = {each.place: each.committed.offset for each in lags}
    places = _places(console, caller, asked, committed)
    start = await _offsets(console, caller, places, EARLIEST_TIMESTAMP)
    end = await _offsets(console, caller, places, LATEST_TIMESTAMP)
    found: Mapping[Place, int] = {}
    if reset.to is ResetTo.TIMESTAMP:
        found = await _offsets(console, caller, places, reset.value)
    rows = []
    for place in sorted(start):
        at = found.get(place, -1)
        ends = PartitionFacts(start[place], end[place], committed.get(place), None if at < 0 else at)
        named = {"topic": place[0], "partition": place[1], "new_offset": reset.new_offset(ends)}
        rows.append(row_of(ResetRow, named, ends))
    facts = {"is_share": is_share, "member_count": member_count, "refusal": refusal}
    return row_of(ResetPlan, facts, asked, total=len(rows), rows=rows)


@route("GET", "/group/reset", spread=OF_GROUP)
async def preview(console: Console, caller: Caller, asked: ResetAsked) -> ResetPlan:
    """What a reset of a group's offsets would change."""
    plan = await _plan(console, caller, asked)
    return {**plan, "rows": plan["rows"][:MOST_ROWS]}


@route("POST", "/group/reset", needs=READ_GROUP, logged=ALL, spread=OF_GROUP)
async def reset(console: Console, caller: Caller, asked: ResetAsked) -> ResetPlan:
    """Reset what a group without members committed."""
    plan = await _plan(console, caller, asked)
    if plan["refusal"]:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, plan["refusal"])
    field = "start_offset" if plan["is_share"] else "committed_offset"
    topics: dict[str, list[dict[str, int]]] = {}
    for row in plan["rows"]:
        if row["new_offset"] is not None:
            partition = {"partition_index": row["partition"], field: row["new_offset"]}
            topics.setdefault(row["topic"], []).append(partition)
    if topics and plan["is_share"]:
        starts = [{"topic_name": name, "partitions": each} for name, each in topics.items()]
        await caller.change(ApiKey.ALTER_SHARE_GROUP_OFFSETS, {"group_id": asked.group_id, "topics": starts})
    elif topics:
        committed = [
            {"topic_id": existing_topic(console.services, name).topic_id, "partitions": each}
            for name, each in topics.items()
        ]
        no_member = {"generation_id_or_member_epoch": -1, "member_id": ""}
        commit = {"group_id": asked.group_id, "topics": committed, **no_member}
        await caller.change(ApiKey.OFFSET_COMMIT, commit)
    return {**plan, "rows": plan["rows"][:MOST_ROWS]}


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


def _places(console: Console, caller: Caller, asked: ResetAsked, committed: Iterable[Place]) -> list[Place]:
    """Raises ApiError if there is nothing to reset."""
    places: list[Place] = []
    for name in dict.fromkeys(asked.topics):
        caller.check(DESCRIBE_TOPIC, name)
        places += ((name, index) for index in range(len(existing_topic(console.services, name).partitions)))
    if not asked.topics:
        places = sorted(committed)
        if not places:
            message = f"group {asked.group_id!r} has committed nothing: name a topic"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    wanted = {*asked.partitions}
    return [place for place in places if not wanted or place[1] in wanted]


async def _offsets(
    console: Console, caller: Caller, places: Iterable[Place], timestamp: int
) -> dict[Place, int]:
    """Of each place its offset, -1 for none. Raises ApiError."""
    found = await offsets(console, caller, places, timestamp)
    for (topic, partition), each in found.items():
        check_code(each.code, f"{topic}-{partition}: {each.code.message}")
    return {place: each.offset for place, each in found.items()}
