"""Groups: their list, one of them with its lag, and the reset of what it committed.

Owns the routes and pages of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ApiRoute, Console, Listing, Page, Parameters
from tidelog.broker.console.views import group_reset, groups
from tidelog.broker.coordinator.offsets.reset import Reset, ResetTo
from tidelog.broker.security.required_access import READ_GROUP, whole
from tidelog.protocol.errors import ApiError, ErrorCode

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
        """Raises ApiError where `value` is missing, or has no use."""
        if (self.value is None) == (self.to in _WITH_VALUE):
            needs = "needs" if self.value is None else "has no"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"to={self.to} {needs} value")
        if self.to in (ResetTo.OFFSET, ResetTo.TIMESTAMP) and (self.value or 0) < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"value: expected 0 or more, got {self.value}")
        return group_reset.Wanted(
            self.group_id, Reset(self.to, self.value or 0), self.topics, self.partitions
        )


async def _groups(console: Console, caller: Caller, asked: GroupsAsked) -> groups.Groups:
    wanted = groups.Filter(asked.text, asked.state, asked.type, asked.order == "lag")
    return await groups.listed(console.services, caller, wanted, asked.offset, asked.limit)


async def _group(console: Console, caller: Caller, asked: GroupAsked) -> groups.Group:
    return await groups.described(console.services, caller, asked.group_id, asked.offset, asked.limit)


async def _preview(console: Console, caller: Caller, asked: ResetAsked) -> group_reset.ResetPlan:
    return group_reset.shown(await group_reset.preview(console.services, caller, asked.wanted))


async def _reset(console: Console, caller: Caller, asked: ResetAsked) -> group_reset.ResetPlan:
    return group_reset.shown(await group_reset.reset(console.services, caller, asked.wanted))


GROUPS: Final = ApiRoute("GET", "/api/v1/groups", _groups, GroupsAsked, groups.Groups, "The groups.")
GROUP: Final = ApiRoute(
    "GET", "/api/v1/group", _group, GroupAsked, groups.Group, "A group: members, assignment, offsets and lag."
)
PREVIEW: Final = ApiRoute(
    "GET",
    "/api/v1/group/reset",
    _preview,
    ResetAsked,
    group_reset.ResetPlan,
    "What a reset of a group's offsets would change.",
)
RESET: Final = ApiRoute(
    "POST",
    "/api/v1/group/reset",
    _reset,
    ResetAsked,
    group_reset.ResetPlan,
    "Reset what a group without members committed.",
    (whole(READ_GROUP, field="group_id"),),
    logged=("group_id", "to", "value", "topics", "partitions"),
)

ROUTES: Final[Sequence[ApiRoute]] = (GROUPS, GROUP, PREVIEW, RESET)
PAGES: Final[Sequence[Page]] = (
    Page("/console/groups", "Groups", "groups.html", {"groups": GROUPS}),
    Page("/console/groups/group", "Group", "group.html", {"group": GROUP}, is_detail=True),
)
