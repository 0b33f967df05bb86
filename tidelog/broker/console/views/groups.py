"""Groups of both protocols: state, members, assignment, what they committed, and how far they are behind.

Owns the shapes. What a group is comes from the handlers that clients ask, so it shows what they show, to
those to whom they show it; what a lag is, from `coordinator/lag`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypedDict

from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.views.of_cluster import Listed, OfCluster
from tidelog.broker.coordinator.consumer_groups.consumer_protocol import read_assignment, read_subscription
from tidelog.broker.coordinator.group_coordinator import CatalogTopics
from tidelog.broker.coordinator.group_types import CLASSIC, CONSUMER, SHARE
from tidelog.broker.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE
from tidelog.broker.coordinator.lag import lags_of, records_behind
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset
from tidelog.broker.handlers.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.broker.security.required_access import DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode, ProtocolError
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, each

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

_MOST_MEMBERS: Final = 500
_CHECKS_PER_GROUP: Final = 10
_MOST_PLACES: Final = 20_000


class PartitionLag(NamedTuple):
    """The lag of a group in one partition: a `Lag` with its topic."""

    topic: str
    partition: int
    committed: CommittedOffset
    high_watermark: int | None
    lag: int | None


class GroupRow(TypedDict):
    """A group in a list. `lag` is the sum over the partitions that the caller may describe; null where it is
    not known."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    members: int
    topics: int
    partitions: int
    lag: int | None


class Groups(OfCluster, Listed):
    """A page of groups."""

    rows: list[GroupRow]


class Assigned(TypedDict):
    """Partitions of one topic that are assigned in a group."""

    topic: str
    partitions: list[int]


class Member(TypedDict):
    """A member; `assignment` is null where it is not written in the consumer protocol. `target` is what it
    will get, once other members have given it up; for the classic protocol it is null."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    epoch: int | None
    subscribed_topics: list[str]
    subscribed_regex: str | None
    assignment: list[Assigned] | None
    target: list[Assigned] | None


class CommittedRow(TypedDict):
    """What the group committed in a partition. `high_watermark` and `lag` are null where no broker
    serves it. `member_id` is the member that reads it, if one does."""

    topic: str
    partition: int
    committed: int
    start_offset: int | None
    high_watermark: int | None
    lag: int | None
    behind_ms: int | None
    """How old the first record is that is not committed; 0 without a lag, null if that is not known."""
    commit_timestamp_ms: int
    metadata: str
    member_id: str | None


class _Membership(TypedDict):
    group_id: str
    type: str
    protocol_type: str
    protocol: str
    state: str
    epoch: int | None
    assignment_epoch: int | None
    members: list[Member]
    """At most 500."""


class Group(_Membership, Listed):
    """A group. `protocol` is the assignor; the epochs are those of the consumer protocol. Partitions that a
    member has without a committed offset are in `without_commit`, and have no part in `lag`."""

    member_count: int
    lag: int | None
    without_commit: list[Assigned]
    rows: list[CommittedRow]
    now_ms: int


Places: TypeAlias = Mapping[str, Sequence[int]]
"""Topic -> partitions."""


class FoundOffset(NamedTuple):
    """The offset of a partition, or the code for which there is none."""

    offset: int
    code: ErrorCode


AskOffsets: TypeAlias = Callable[[Places, int], Awaitable[Mapping[tuple[str, int], FoundOffset]]]
"""The offsets of partitions, whichever brokers lead them, by the timestamp of ListOffsets."""
AskTimes: TypeAlias = Callable[[Mapping[tuple[str, int], int]], Awaitable[Mapping[tuple[str, int], int]]]
"""The times of records at offsets."""
_Ends: TypeAlias = Mapping[tuple[str, int], int]
"""The high watermarks of partitions that other brokers lead."""


class Filter(NamedTuple):
    """Which groups are listed; "" for all. `text` is a part of the group's id."""

    text: str = ""
    state: str = ""
    type: str = ""
    by_lag: bool = False
    """The largest lag first, else by id."""
    topic: str = ""


async def listed(
    services: Services, caller: Caller, ask_offsets: AskOffsets, wanted: Filter, offset: int, limit: int
) -> Groups:
    """The groups that the caller may describe. Raises ApiError."""
    asked: DictOf[types.ListGroupsRequest] = {
        "states_filter": [wanted.state] if wanted.state else [],
        "types_filter": [wanted.type] if wanted.type else [],
    }
    answer = await caller.ask(ApiKey.LIST_GROUPS, asked)
    check_code(answer["error_code"])
    found = sorted(
        (
            group
            for group in answer["groups"]
            if wanted.text in group["group_id"]
            and (not wanted.topic or _reads(services, caller, group["group_id"], wanted.topic))
        ),
        key=lambda group: group["group_id"],
    )
    shown = found if wanted.by_lag else found[offset : offset + limit]
    ends = await _ends_elsewhere(services, caller, ask_offsets, [group["group_id"] for group in shown])
    rows = await services.turns.run(_rows(services, caller, shown, ends, wanted.topic))
    if wanted.by_lag:
        rows.sort(key=lambda row: -1 if row["lag"] is None else row["lag"], reverse=True)
        rows = rows[offset : offset + limit]
    return {"total": len(found), "offset": offset, "limit": limit, "rows": rows}


def _reads(services: Services, caller: Caller, group_id: str, topic: str) -> bool:
    return any(found.topic == topic for found in visible_lags(services, caller, group_id))


async def _ends_elsewhere(
    services: Services, caller: Caller, ask_offsets: AskOffsets, group_ids: Sequence[str]
) -> _Ends:
    """Those of the partitions in which groups committed and that other brokers lead; at most 20,000."""
    if len(services.catalog.brokers) < 2:
        return {}
    places: dict[str, set[int]] = {}

    def collect() -> Steps[None]:
        pace = Pace(CHECKS_PER_STEP)
        count = 0
        for group_id in group_ids:
            for found in visible_lags(services, caller, group_id):
                if found.high_watermark is None and count < _MOST_PLACES:
                    places.setdefault(found.topic, set()).add(found.partition)
                    count += 1
                if pace.spent():
                    yield

    await services.turns.run(collect())
    if not places:
        return {}
    found = await ask_offsets({topic: sorted(each) for topic, each in places.items()}, LATEST_TIMESTAMP)
    return {place: each.offset for place, each in found.items() if each.code == ErrorCode.NONE}


def _rows(
    services: Services, caller: Caller, groups: Iterable[Mapping[str, Any]], ends: _Ends, topic: str
) -> Steps[list[GroupRow]]:
    pace = Pace(CHECKS_PER_STEP)
    rows: list[GroupRow] = []
    for group in groups:
        machine = services.groups.machine_of(group["group_id"])
        partitions: Counter[str] = Counter()
        lag_sum = None
        for found in visible_lags(services, caller, group["group_id"], ends):
            if topic not in ("", found.topic):
                continue
            partitions[found.topic] += 1
            if (lag := found.lag) is not None:
                lag_sum = lag if lag_sum is None else lag_sum + lag
            if pace.spent():
                yield
        rows.append(
            {
                "group_id": group["group_id"],
                "type": group["group_type"],
                "protocol_type": group["protocol_type"],
                "state": group["group_state"],
                "members": 0 if machine is None else machine.member_count(group["group_id"]),
                "topics": len(partitions),
                "partitions": partitions.total(),
                "lag": lag_sum,
            }
        )
        if pace.spent(_CHECKS_PER_GROUP):
            yield
    return rows


def visible_lags(
    services: Services, caller: Caller, group_id: str, ends: _Ends | None = None
) -> Iterator[PartitionLag]:
    """Those in topics that the caller may describe."""
    machine = services.groups.machine_of(group_id)
    if machine is None:
        return
    for topic, of_topic in lags_of(machine, group_id, services.catalog, services.replicas):
        if caller.may(DESCRIBE_TOPIC, topic):
            for found in of_topic:
                yield _with_end(services, PartitionLag(topic, *found), ends or {})


def _with_end(services: Services, found: PartitionLag, ends: _Ends) -> PartitionLag:
    """With the end that the leader has: a follower's high watermark is an earlier one."""
    replica = services.replicas.get((found.topic, found.partition))
    if replica is not None and replica.is_follower:
        found = found._replace(high_watermark=None, lag=None)
    end = ends.get((found.topic, found.partition)) if found.high_watermark is None else None
    if end is None:
        return found
    return found._replace(high_watermark=end, lag=records_behind(found.committed, end))


def _sum(lags: Iterable[PartitionLag]) -> int | None:
    known = [lag for found in lags if (lag := found.lag) is not None]
    return sum(known) if known else None


async def described(
    services: Services,
    caller: Caller,
    ask_offsets: AskOffsets,
    ask_times: AskTimes,
    group_id: str,
    offset: int,
    limit: int,
) -> Group:
    """One group, with what it committed from row number `offset` on.

    Raises ApiError: GROUP_ID_NOT_FOUND, or that the caller may not describe it.
    """
    group = (
        await _with_epochs(caller, group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, CONSUMER)
        or await _with_epochs(caller, group_id, ApiKey.SHARE_GROUP_DESCRIBE, SHARE)
        or await _classic(services, caller, group_id)
    )
    readers = {
        (assigned["topic"], partition): member["member_id"]
        for member in group["members"]
        for assigned in member["assignment"] or ()
        for partition in assigned["partitions"]
    }
    ends = await _ends_elsewhere(services, caller, ask_offsets, [group_id])
    found = visible_lags(services, caller, group_id, ends)
    lags = await services.turns.run(each(lambda lag: lag, found, Pace(CHECKS_PER_STEP)))
    lags.sort(key=lambda lag: (lag.topic, lag.partition))
    shown = lags[offset : offset + limit]
    elsewhere: dict[str, list[int]] = {}
    for lag in shown:
        place = lag.topic, lag.partition
        if place in ends and place not in services.replicas:  # A replica knows its start itself.
            elsewhere.setdefault(lag.topic, []).append(lag.partition)
    starts = await ask_offsets(elsewhere, EARLIEST_TIMESTAMP) if elsewhere else {}
    rows = [_committed(services, lag, readers, starts) for lag in shown]
    waiting = {(row["topic"], row["partition"]): row["committed"] for row in rows if row["lag"]}
    times = await ask_times(waiting) if waiting else {}
    now_ms = services.clock_ms()
    for row in rows:
        at = times.get((row["topic"], row["partition"]))
        row["behind_ms"] = 0 if row["lag"] == 0 else None if at is None else max(0, now_ms - at)
    return {
        **group,
        "member_count": len(group["members"]),
        "members": group["members"][:_MOST_MEMBERS],
        "lag": _sum(lags),
        "without_commit": _without_commit(readers, lags),
        "total": len(lags),
        "offset": offset,
        "limit": limit,
        "rows": rows,
        "now_ms": now_ms,
    }


def _without_commit(assigned: Iterable[tuple[str, int]], lags: Iterable[PartitionLag]) -> list[Assigned]:
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted({*assigned} - {(lag.topic, lag.partition) for lag in lags}):
        partitions.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": each} for topic, each in partitions.items()]


def _committed(
    services: Services,
    found: PartitionLag,
    readers: Mapping[tuple[str, int], str],
    starts: Mapping[tuple[str, int], FoundOffset],
) -> CommittedRow:
    replica = services.replicas.get((found.topic, found.partition))
    elsewhere = starts.get((found.topic, found.partition))
    start_offset = None if elsewhere is None or elsewhere.code else elsewhere.offset
    return {
        "topic": found.topic,
        "partition": found.partition,
        "committed": found.committed.offset,
        "start_offset": start_offset if replica is None else replica.log.log_start_offset,
        "high_watermark": found.high_watermark,
        "lag": found.lag,
        "behind_ms": None,
        "commit_timestamp_ms": found.committed.commit_timestamp_ms,
        "metadata": found.committed.metadata,
        "member_id": readers.get((found.topic, found.partition)),
    }


async def _with_epochs(caller: Caller, group_id: str, api_key: ApiKey, kind: str) -> _Membership | None:
    """A group of the consumer protocol or a share group, which are described alike."""
    answer = await caller.ask(api_key, {"group_ids": [group_id]})
    (group,) = answer["groups"]
    if group["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check_code(group["error_code"], group.get("error_message"))
    return {
        "group_id": group_id,
        "type": kind,
        "protocol_type": CONSUMER_PROTOCOL_TYPE if kind == CONSUMER else SHARE,
        "protocol": group["assignor_name"],
        "state": group["group_state"],
        "epoch": group["group_epoch"],
        "assignment_epoch": group["assignment_epoch"],
        "members": [
            {
                "member_id": member["member_id"],
                "instance_id": member.get("instance_id"),
                "client_id": member["client_id"],
                "client_host": member["client_host"],
                "rack_id": member["rack_id"],
                "epoch": member["member_epoch"],
                "subscribed_topics": list(member["subscribed_topic_names"]),
                "subscribed_regex": member.get("subscribed_topic_regex"),
                "assignment": _assigned(member["assignment"]),
                "target": _assigned(member["target_assignment"]) if kind == CONSUMER else None,
            }
            for member in group["members"]
        ],
    }


def _assigned(assignment: Mapping[str, Any]) -> list[Assigned]:
    return [
        {"topic": topic["topic_name"], "partitions": list(topic["partitions"])}
        for topic in assignment["topic_partitions"]
    ]


async def _classic(services: Services, caller: Caller, group_id: str) -> _Membership:
    answer = await caller.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [group_id]})
    (group,) = answer["groups"]
    check_code(group["error_code"], group.get("error_message"))
    return {
        "group_id": group_id,
        "type": CLASSIC,
        "protocol_type": group["protocol_type"],
        "protocol": group["protocol_data"],
        "state": group["group_state"],
        "epoch": None,
        "assignment_epoch": None,
        "members": [
            _classic_member(services, caller, group["protocol_type"], member) for member in group["members"]
        ],
    }


def _classic_member(
    services: Services, caller: Caller, protocol_type: str, member: Mapping[str, Any]
) -> Member:
    topics: list[str] = []
    assignment: list[Assigned] | None = None
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        known = CatalogTopics(services.catalog)
        try:
            subscription = read_subscription(member["member_metadata"], known)
            topics = [name for name in subscription.topic_names if caller.may(DESCRIBE_TOPIC, name)]
            assignment = [
                {"topic": name, "partitions": sorted(partitions)}
                for topic_id, partitions in read_assignment(
                    member["member_assignment"], known
                ).assigned.items()
                if (name := known.topic_name(topic_id)) is not None and caller.may(DESCRIBE_TOPIC, name)
            ]
        except ProtocolError:
            assignment = None
    return {
        "member_id": member["member_id"],
        "instance_id": member["group_instance_id"],
        "client_id": member["client_id"],
        "client_host": member["client_host"],
        "rack_id": None,
        "epoch": None,
        "subscribed_topics": topics,
        "subscribed_regex": None,
        "assignment": assignment,
        "target": None,
    }
