"""Groups: their list, one of them with its lag, and the reset of what it committed.

Owns the routes and pages of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from tidelog.broker.console.api.offsets import offsets, record_times
from tidelog.broker.console.api.topics import one_topic
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.spread import OF_GROUP, Spread, joined_rows, rows_up_to
from tidelog.broker.console.views import group_reset, groups
from tidelog.broker.console.views.share_groups import InFlightRows, ShareOffsets, in_flight, share_offsets
from tidelog.broker.coordinator.offsets.reset import Reset, ResetTo
from tidelog.broker.security.required_access import DELETE_GROUP, DESCRIBE_GROUP, READ_GROUP, whole
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_Value = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_WITH_VALUE: Final = (ResetTo.OFFSET, ResetTo.TIMESTAMP, ResetTo.SHIFT)


class GroupsAsked(Listing, frozen=True, kw_only=True):
    """Which groups are listed."""

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


class ResetAsked(Parameters, frozen=True, kw_only=True):
    """Which offsets are reset, and where to."""

    group_id: str
    to: ResetTo
    value: Annotated[_Value | None, Meta(description="Of offset, timestamp (ms) and shift.")] = None
    topics: tuple[str, ...] = ()
    """Only of these; else of all that the group committed in."""
    partitions: tuple[Annotated[int, Meta(ge=0, le=2**31 - 1)], ...] = ()
    """Only these; else all."""

    @property
    def wanted(self) -> group_reset.Wanted:
        """Raises ApiError if `value` is missing, or has no use."""
        if (self.value is None) == (self.to in _WITH_VALUE):
            needs = "needs" if self.value is None else "has no"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"to={self.to} {needs} value")
        if self.to in (ResetTo.OFFSET, ResetTo.TIMESTAMP) and (self.value or 0) < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"value: expected 0 or more, got {self.value}")
        return group_reset.Wanted(
            self.group_id, Reset(self.to, self.value or 0), self.topics, self.partitions
        )


def _offsets(console: Console, caller: Caller) -> groups.AskOffsets:
    return partial(offsets, console, caller)


def _joined(_: Services, answers: Mapping[int, Any], asked: GroupsAsked) -> dict[str, Any]:
    def largest_first(row: groups.GroupRow) -> tuple[int, str]:
        return 1 if row["lag"] is None else -row["lag"], row["group_id"]

    key = largest_first if asked.order == "lag" else itemgetter("group_id")
    return joined_rows(answers, asked, key)


@route("GET", "/groups", spread=Spread(join=_joined, rows=rows_up_to))
async def groups_route(console: Console, caller: Caller, asked: GroupsAsked) -> groups.Groups:
    """The groups."""
    wanted = groups.Filter(asked.search, asked.state, asked.type, asked.order == "lag", asked.topic)
    return await groups.listed(
        console.services, caller, _offsets(console, caller), wanted, asked.offset, asked.limit
    )


@route("GET", "/group", spread=OF_GROUP)
async def _group(console: Console, caller: Caller, asked: GroupAsked) -> groups.Group:
    """A group: members, assignment, offsets and lag."""
    return await groups.described(
        *(console.services, caller, _offsets(console, caller), partial(record_times, console, caller)),
        *(asked.group_id, asked.offset, asked.limit),
    )


class OfGroup(Parameters, frozen=True, kw_only=True):
    """Which group."""

    group_id: str


@route("GET", "/group/share", needs=whole(DESCRIBE_GROUP, field="group_id"), spread=OF_GROUP)
async def _share_offsets(console: Console, caller: Caller, asked: OfGroup) -> ShareOffsets:
    """The share partitions of a group: their starts, and how old what is not acknowledged is."""
    ask_times = partial(record_times, console, caller)
    return await share_offsets(console.services, caller, ask_times, asked.group_id)


@route(
    "GET",
    "/group/in-flight",
    needs=whole(DESCRIBE_GROUP, field="group_id"),
    spread=Spread(
        join=lambda _, answers, asked: {
            "group_id": asked.group_id,
            "rows": sorted(
                (row for answer in answers.values() for row in answer["rows"]),
                key=itemgetter("topic", "partition"),
            ),
        }
    ),
)
async def _in_flight(console: Console, caller: Caller, asked: OfGroup) -> InFlightRows:
    """What members of a share group hold, and how often records were delivered."""
    return in_flight(console.services, caller, asked.group_id)


@route("DELETE", "/group", needs=whole(DELETE_GROUP, field="group_id"), logged=("group_id",), spread=OF_GROUP)
async def _delete(console: Console, caller: Caller, asked: OfGroup) -> None:
    """Delete a group without members, with what it committed."""
    answer = await caller.ask(ApiKey.DELETE_GROUPS, {"groups_names": [asked.group_id]})
    for result in answer["results"]:
        check_code(result["error_code"])


@route("GET", "/group/reset", spread=OF_GROUP)
async def _preview(console: Console, caller: Caller, asked: ResetAsked) -> group_reset.ResetPlan:
    """What a reset of a group's offsets would change."""
    ask_offsets = _offsets(console, caller)
    plan = await group_reset.preview(console.services, caller, ask_offsets, asked.wanted)
    return group_reset.shown(plan)


@route(
    "POST",
    "/group/reset",
    needs=whole(READ_GROUP, field="group_id"),
    logged=("group_id", "to", "value", "topics", "partitions"),
    spread=OF_GROUP,
)
async def _reset(console: Console, caller: Caller, asked: ResetAsked) -> group_reset.ResetPlan:
    """Reset what a group without members committed."""
    ask_offsets = _offsets(console, caller)
    plan = await group_reset.reset(console.services, caller, ask_offsets, asked.wanted)
    return group_reset.shown(plan)


PAGES: Final[Sequence[Page]] = (
    page("/topics/{topic}/groups", "Groups of a topic", "groups", topic=one_topic, groups=groups_route),
    page("/groups", "Groups", "groups", groups=groups_route),
    page("/groups/group", "Group", "group", is_detail=True, group=_group),
    page(
        "/groups/share",
        "Share group",
        "share_group",
        is_detail=True,
        group=_group,
        offsets=_share_offsets,
        flights=_in_flight,
    ),
)
