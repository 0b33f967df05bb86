"""Groups: their list, one of them with its lag, and the reset of what it committed.

Owns the routes and pages of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from tidelog.broker.console.api.offsets import offsets
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, Listing, Page, Parameters, route
from tidelog.broker.console.spread import OF_GROUP, Spread, joined_rows
from tidelog.broker.console.views import group_reset, groups
from tidelog.broker.coordinator.offsets.reset import Reset, ResetTo
from tidelog.broker.security.required_access import READ_GROUP, whole
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_Value = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_WITH_VALUE: Final = (ResetTo.OFFSET, ResetTo.TIMESTAMP, ResetTo.SHIFT)


class GroupsAsked(Listing, frozen=True, kw_only=True):
    """Which groups are listed."""

    text: Annotated[str, Meta(description="A part of the group's id.")] = ""
    state: Annotated[str, Meta(description="Only groups in this state.")] = ""
    type: Annotated[Literal["", "classic", "consumer"], Meta(description="Only of this protocol.")] = ""
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


@route("GET", "/api/v1/groups", spread=Spread(join=_joined, is_widened=True))
async def _groups(console: Console, caller: Caller, asked: GroupsAsked) -> groups.Groups:
    """The groups."""
    wanted = groups.Filter(asked.text, asked.state, asked.type, asked.order == "lag")
    return await groups.listed(
        console.services, caller, _offsets(console, caller), wanted, asked.offset, asked.limit
    )


@route("GET", "/api/v1/group", spread=OF_GROUP)
async def _group(console: Console, caller: Caller, asked: GroupAsked) -> groups.Group:
    """A group: members, assignment, offsets and lag."""
    return await groups.described(
        console.services, caller, _offsets(console, caller), asked.group_id, asked.offset, asked.limit
    )


@route("GET", "/api/v1/group/reset", spread=OF_GROUP)
async def _preview(console: Console, caller: Caller, asked: ResetAsked) -> group_reset.ResetPlan:
    """What a reset of a group's offsets would change."""
    ask_offsets = _offsets(console, caller)
    plan = await group_reset.preview(console.services, caller, ask_offsets, asked.wanted)
    return group_reset.shown(plan)


@route(
    "POST",
    "/api/v1/group/reset",
    needs=(whole(READ_GROUP, field="group_id"),),
    logged=("group_id", "to", "value", "topics", "partitions"),
    spread=OF_GROUP,
)
async def _reset(console: Console, caller: Caller, asked: ResetAsked) -> group_reset.ResetPlan:
    """Reset what a group without members committed."""
    ask_offsets = _offsets(console, caller)
    plan = await group_reset.reset(console.services, caller, ask_offsets, asked.wanted)
    return group_reset.shown(plan)


PAGES: Final[Sequence[Page]] = (
    Page("/console/groups", "Groups", "groups.html", {"groups": _groups}),
    Page("/console/groups/group", "Group", "group.html", {"group": _group}, is_detail=True),
)
