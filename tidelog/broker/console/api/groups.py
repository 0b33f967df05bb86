"""Groups of all protocols: state, members, assignment, what they committed, and how far they are behind.

Owns the routes. What a group is comes from the handlers that clients ask, so it shows what they show, to
those to whom they show it; what a lag is, from `coordinator/lag`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypedDict

from msgspec import Meta

from tidelog.broker.console.api.offsets import Place, ages, offsets
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import ALL, OF_GROUP, Console, Spread, joined_rows, route, rows_up_to
from tidelog.broker.console.shapes import From, Listed, Listing, OfGroup, Rows, chosen, part_of, row_of
from tidelog.broker.coordinator.consumer_groups.consumer_protocol import read_assignment, read_subscription
from tidelog.broker.coordinator.group_coordinator import CatalogTopics
from tidelog.broker.coordinator.group_types import CLASSIC, CONSUMER, SHARE
from tidelog.broker.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE
from tidelog.broker.coordinator.lag import lags_of, records_behind
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset
from tidelog.broker.handlers.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.broker.security.required_access import DELETE_GROUP, DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode, ProtocolError
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps

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

    @property
    def place(self) -> Place:
        return self.topic, self.partition


class GroupRow(TypedDict):
    """A group in a list. `lag` is the sum over the partitions that the caller may describe; null where it is
    not known."""

    group_id: str
    type: Annotated[str, From("group_type")]
    protocol_type: str
    state: Annotated[str, From("group_state")]
    members: int
    topics: int
    partitions: int
    lag: int | None


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
    committed: Annotated[int, From("committed.offset")]
    start_offset: int | None
    high_watermark: int | None
    lag: int | None
    behind_ms: int | None
    """How old the first record is that is not committed; 0 without a lag, null if that is not known."""
    commit_timestamp_ms: Annotated[int, From("committed.commit_timestamp_ms")]
    metadata: Annotated[str, From("committed.metadata")]
    member_id: str | None


class Group(Listed):
    """A group. `protocol` is the assignor; the epochs are those of the consumer protocol. Partitions that a
    member has without a committed offset are in `without_commit`, and have no part in `lag`."""

    group_id: str
    type: str
    protocol_type: str
    protocol: str
    state: str
    epoch: int | None
    assignment_epoch: int | None
    members: list[Member]
    """At most 500."""
    member_count: int
    lag: int | None
    without_commit: list[Assigned]
    rows: list[CommittedRow]
    now_ms: int


_Ends: TypeAlias = Mapping[Place, int]
"""The high watermarks of partitions that other brokers lead."""


class GroupsAsked(Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(description="A part of the group's id.")] = ""
    topic: Annotated[str, Meta(description="Only groups that committed offsets of it; their lag there.")] = ""
    state: Annotated[str, Meta(description="Only groups in this state.")] = ""
    type: Annotated[
        Literal["", "classic", "consumer", "share"], Meta(description="Only of this protocol.")
    ] = ""
    order: Annotated[Literal["group_id", "lag"], Meta(description="lag: the largest first.")] = "group_id"


class GroupAsked(Listing, frozen=True, kw_only=True):
    """Which group is shown. `offset` and `limit` are of the partitions that it committed."""

    group_id: str


def _largest_lag_first(row: GroupRow) -> tuple[int, str]:
    return 1 if row["lag"] is None else -row["lag"], row["group_id"]


def _joined(_: Services, answers: Mapping[int, Any], asked: GroupsAsked) -> dict[str, Any]:
    return joined_rows(answers, asked, _largest_lag_first if asked.order == "lag" else itemgetter("group_id"))


@route("GET", "/groups", spread=Spread(join=_joined, rows=rows_up_to))
async def groups(console: Console, caller: Caller, asked: GroupsAsked) -> Rows[GroupRow]:
    """The groups."""
    services = console.services
    states, types = ([each] if each else [] for each in (asked.state, asked.type))
    answer = await caller.ask(ApiKey.LIST_GROUPS, {"states_filter": states, "types_filter": types})
    check_code(answer["error_code"])

    def is_wanted(group: Mapping[str, Any]) -> bool:
        topic, group_id = asked.topic, group["group_id"]
        if asked.search not in group_id:
            return False
        return not topic or any(each.topic == topic for each in visible_lags(services, caller, group_id))

    found = sorted(filter(is_wanted, answer["groups"]), key=itemgetter("group_id"))
    shown = found if asked.order == "lag" else found[asked.offset : asked.offset + asked.limit]
    ends = await _ends_elsewhere(console, caller, [group["group_id"] for group in shown])
    rows = await services.turns.run(_rows(services, caller, shown, ends, asked.topic))
    if asked.order == "lag":
        rows.sort(key=_largest_lag_first)
        rows = rows[asked.offset : asked.offset + asked.limit]
    return {"total": len(found), "offset": asked.offset, "limit": asked.limit, "rows": rows}


async def _ends_elsewhere(console: Console, caller: Caller, group_ids: Iterable[str]) -> _Ends:
    """Those of the partitions in which groups committed and that other brokers lead; at most 20,000."""
    services = console.services
    if console.others.is_alone:
        return {}

    def collect() -> Steps[set[Place]]:
        pace = Pace(CHECKS_PER_STEP)
        places: set[Place] = set()
        for group_id in group_ids:
            for found in visible_lags(services, caller, group_id):
                if found.high_watermark is None and len(places) < _MOST_PLACES:
                    places.add(found.place)
                if pace.spent():
                    yield
        return places

    found = await offsets(console, caller, await services.turns.run(collect()), LATEST_TIMESTAMP)
    return {place: each.offset for place, each in found.items() if not each.code}


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
        numbers = {"topics": len(partitions), "partitions": partitions.total(), "lag": lag_sum}
        members = 0 if machine is None else machine.member_count(group["group_id"])
        rows.append(row_of(GroupRow, numbers, group, members=members))
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
        if not caller.may(DESCRIBE_TOPIC, topic):
            continue
        for each in of_topic:
            found = PartitionLag(topic, *each)
            replica = services.replicas.get(found.place)
            if replica is not None and replica.is_follower:  # The end that its leader has is a later one.
                found = found._replace(high_watermark=None, lag=None)
            end = (ends or {}).get(found.place) if found.high_watermark is None else None
            if end is not None:
                found = found._replace(high_watermark=end, lag=records_behind(found.committed, end))
            yield found


@route("GET", "/group", spread=OF_GROUP)
async def group(console: Console, caller: Caller, asked: GroupAsked) -> Group:
    """A group: members, assignment, offsets and lag."""
    services, group_id = console.services, asked.group_id
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
    ends = await _ends_elsewhere(console, caller, [group_id])
    found = visible_lags(services, caller, group_id, ends)
    lags = sorted(await services.turns.run(chosen(found, bool)), key=lambda lag: lag.place)
    shown = lags[asked.offset : asked.offset + asked.limit]
    # A replica knows its start itself.
    elsewhere = [lag.place for lag in shown if lag.place in ends and lag.place not in services.replicas]
    starts = await offsets(console, caller, elsewhere, EARLIEST_TIMESTAMP)
    now_ms = services.clock_ms()
    behind = await ages(
        console, caller, {lag.place: lag.committed.offset for lag in shown if lag.lag}, now_ms
    )

    def row(lag: PartitionLag) -> CommittedRow:
        replica, start = services.replicas.get(lag.place), starts.get(lag.place)
        start_offset = None if start is None or start.code else start.offset
        return row_of(
            *(CommittedRow, lag),
            start_offset=start_offset if replica is None else replica.log.log_start_offset,
            behind_ms=0 if lag.lag == 0 else behind.get(lag.place),
            member_id=readers.get(lag.place),
        )

    known = [lag.lag for lag in lags if lag.lag is not None]
    members = {"members": group["members"][:_MOST_MEMBERS], "member_count": len(group["members"])}
    without_commit = _by_topic({*readers} - {lag.place for lag in lags})
    more = {"lag": sum(known) if known else None, "without_commit": without_commit, "now_ms": now_ms}
    return part_of(Group, lags, asked, row, group_id=group_id, **group | members | more)


def _by_topic(places: Iterable[Place]) -> list[Assigned]:
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        partitions.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": each} for topic, each in partitions.items()]


async def _with_epochs(caller: Caller, group_id: str, api_key: ApiKey, kind: str) -> dict[str, Any] | None:
    """A group of the consumer protocol or a share group, which are described alike."""
    (group,) = (await caller.ask(api_key, {"group_ids": [group_id]}))["groups"]
    if group["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check_code(group["error_code"], group.get("error_message"))

    def row(member: Mapping[str, Any]) -> Member:
        return row_of(
            *(Member, member),
            instance_id=member.get("instance_id"),
            epoch=member["member_epoch"],
            subscribed_topics=list(member["subscribed_topic_names"]),
            subscribed_regex=member.get("subscribed_topic_regex"),
            assignment=_assigned(member["assignment"]),
            target=_assigned(member["target_assignment"]) if kind == CONSUMER else None,
        )

    protocol_type = CONSUMER_PROTOCOL_TYPE if kind == CONSUMER else SHARE
    named = {"type": kind, "protocol_type": protocol_type, "protocol": group["assignor_name"]}
    epochs = {"epoch": group["group_epoch"], "assignment_epoch": group["assignment_epoch"]}
    return {**named, **epochs, "state": group["group_state"], "members": list(map(row, group["members"]))}


def _assigned(assignment: Mapping[str, Any]) -> list[Assigned]:
    return [
        {"topic": topic["topic_name"], "partitions": list(topic["partitions"])}
        for topic in assignment["topic_partitions"]
    ]


async def _classic(services: Services, caller: Caller, group_id: str) -> dict[str, Any]:
    (group,) = (await caller.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [group_id]}))["groups"]
    check_code(group["error_code"], group.get("error_message"))
    protocol_type = group["protocol_type"]
    members = [_classic_member(services, caller, protocol_type, each) for each in group["members"]]
    named = {"type": CLASSIC, "protocol_type": protocol_type, "protocol": group["protocol_data"]}
    epochs = {"epoch": None, "assignment_epoch": None}
    return {**named, **epochs, "state": group["group_state"], "members": members}


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
    unknown = dict.fromkeys(("rack_id", "epoch", "subscribed_regex", "target"))
    identity = {"instance_id": member["group_instance_id"], "subscribed_topics": topics}
    return row_of(Member, unknown, identity, member, assignment=assignment)


@route("DELETE", "/group", needs=DELETE_GROUP, logged=ALL, spread=OF_GROUP)
async def delete_group(console: Console, caller: Caller, asked: OfGroup) -> None:
    """Delete a group without members, with what it committed."""
    await caller.change(ApiKey.DELETE_GROUPS, {"groups_names": [asked.group_id]})
