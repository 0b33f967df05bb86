"""CreateAcls, DescribeAcls and DeleteAcls: access control entries.

Owns the three answers, and which ACLs and filters are valid. Invariants: each ACL and each filter of a
request fails alone; without an authorizer all are refused with SECURITY_DISABLED, as in Kafka; an answer
comes once the change is durable, and each later request is decided by it.

Source: Kafka's AclApis and AclControlManager, KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps, each

MAX_CHANGES: Final = 10_000
"""As in Kafka: the most ACLs, or filters, of one request."""
MAX_WIDE_FILTERS: Final = 100
"""The most filters of one request that are compared with all ACLs, because they leave something open."""
MAX_TEXT_CHARACTERS: Final = 1_000
_E = TypeVar("_E", bound=IntEnum)


class AclsHandler:
    """Serves CreateAcls, DescribeAcls and DeleteAcls 1-3."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._acls = services.acls

    # Refusals are raised before the first await: then dispatch answers a long request in steps.

    def create_acls(
        self, context: RequestContext, request: types.CreateAclsRequest
    ) -> Awaitable[DictOf[types.CreateAclsResponse]]:
        self._check_enabled()
        if len(request.creations) > MAX_CHANGES:
            raise _too_many("ACLs", len(request.creations), MAX_CHANGES)
        return self._create(request)

    async def _create(self, request: types.CreateAclsRequest) -> DictOf[types.CreateAclsResponse]:
        read = await self._services.turns.run(each(_acl_or_error, request.creations, Pace()))
        await self._acls.create([acl for acl in read if isinstance(acl, Acl)])
        return {"results": [_result(acl if isinstance(acl, ApiError) else None) for acl in read]}

    async def describe_acls(
        self, context: RequestContext, request: types.DescribeAclsRequest
    ) -> DictOf[types.DescribeAclsResponse]:
        self._check_enabled()
        found = await self._services.turns.run(self._matching(_filter(request), Pace()))
        resources: dict[
            tuple[ResourceType, str, PatternType], list[DictOf[types.DescribeAclsResponseAcl]]
        ] = {}
        for acl in found:
            resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(
                _entry(acl)
            )
        return {
            "error_code": ErrorCode.NONE,
            "resources": [
                {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": entries}
                for (kind, name, pattern), entries in resources.items()
            ],
        }

    def delete_acls(
        self, context: RequestContext, request: types.DeleteAclsRequest
    ) -> Awaitable[DictOf[types.DeleteAclsResponse]]:
        self._check_enabled()
        if len(request.filters) > MAX_CHANGES:
            raise _too_many("filters", len(request.filters), MAX_CHANGES)
        return self._delete(request)

    async def _delete(self, request: types.DeleteAclsRequest) -> DictOf[types.DeleteAclsResponse]:
        await self._acls.catch_up()
        found = await self._services.turns.run(self._found(request.filters))
        await self._acls.delete([acl for acls in found if not isinstance(acls, ApiError) for acl in acls])
        return {"filter_results": [_deleted(acls) for acls in found]}

    def _check_enabled(self) -> None:
        if self._acls.authorizer is None:
            raise ApiError(
                ErrorCode.SECURITY_DISABLED, "No Authorizer is configured: set authorizer.class.name"
            )

    def _found(
        self, filters: Sequence[types.DeleteAclsRequestFilter]
    ) -> Steps[list[Sequence[Acl] | ApiError]]:
        """What each filter selects, or why it is refused."""
        pace = Pace()
        wide = 0
        found: list[Sequence[Acl] | ApiError] = []
        for asked in filters:
            try:
                wanted = _filter(asked)
                exact = _only_acl(wanted)
                if exact is not None:
                    found.append([exact] if self._acls.exists(exact) else [])
                else:
                    wide += 1
                    if wide > MAX_WIDE_FILTERS:
                        raise _too_many("filters that leave something open", wide, MAX_WIDE_FILTERS)
                    found.append((yield from self._matching(wanted, pace)))
            except ApiError as error:
                found.append(again(error))
            if pace.spent():
                yield
        return found

    def _matching(self, wanted: AclFilter, pace: Pace) -> Steps[list[Acl]]:
        matches = yield from each(wanted.matches, acls := self._acls.all, pace)
        return [acl for acl, is_match in zip(acls, matches, strict=True) if is_match]


def _acl_or_error(asked: types.CreateAclsRequestCreation) -> Acl | ApiError:
    try:
        return _acl(asked)
    except ApiError as error:
        return again(error)


def _acl(asked: types.CreateAclsRequestCreation) -> Acl:
    """The ACL that a request names. Raises ApiError(INVALID_REQUEST)."""
    acl = Acl(
        _member(ResourceType, asked.resource_type, "resource type"),
        _member(PatternType, asked.resource_pattern_type, "pattern type"),
        asked.resource_name,
        asked.principal,
        canonical_host(asked.host),
        _member(Operation, asked.operation, "operation"),
        _member(Permission, asked.permission_type, "permission type"),
    )
    kind, separator, name = acl.principal.partition(":")
    if acl.resource_type == ResourceType.ANY:
        problem = "Invalid resourceType ANY"
    elif acl.resource_type == ResourceType.DELEGATION_TOKEN:
        problem = "delegation tokens are not served"
    elif acl.resource_type == ResourceType.USER:
        problem = "an ACL on a user is about delegation tokens, which are not served"
    elif acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = f"Invalid patternType {acl.pattern_type.name}"
    elif acl.operation == Operation.ANY:
        problem = "Invalid operation ANY"
    elif acl.permission == Permission.ANY:
        problem = "Invalid permissionType ANY"
    elif acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.resource_name:
        problem = "Resource name should not be empty"
    elif not (kind and separator and name):
        problem = f"expected a principal as Type:name, for example User:alice, got {acl.principal[:100]!r}"
    elif not acl.host:
        problem = "expected an address or * as host, got an empty text"
    elif max(len(acl.resource_name), len(acl.principal), len(acl.host)) > MAX_TEXT_CHARACTERS:
        problem = f"name, principal and host may have at most {MAX_TEXT_CHARACTERS} characters each"
    else:
        return acl
    raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _filter(asked: types.DescribeAclsRequest | types.DeleteAclsRequestFilter) -> AclFilter:
    """The filter that a request names. Raises ApiError(INVALID_REQUEST)."""
    return AclFilter(
        _member(ResourceType, asked.resource_type_filter, "resource type"),
        _member(PatternType, asked.pattern_type_filter, "pattern type"),
        asked.resource_name_filter,
        asked.principal_filter,
        None if asked.host_filter is None else canonical_host(asked.host_filter),
        _member(Operation, asked.operation, "operation"),
        _member(Permission, asked.permission_type, "permission type"),
    )


def _only_acl(wanted: AclFilter) -> Acl | None:
    """The one ACL that a filter can select; None if it leaves something open."""
    if (
        None in (wanted.resource_name, wanted.principal, wanted.host)
        or wanted.resource_type == ResourceType.ANY
        or wanted.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or wanted.operation == Operation.ANY
        or wanted.permission == Permission.ANY
    ):
        return None
    return Acl._make(wanted)


def _member(kind: type[_E], number: int, what: str) -> _E:
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{each.value} ({each.name})" for each in kind)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown {what}: expected {known}, got {number}") from None


def _too_many(what: str, count: int, most: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REQUEST, f"{count} {what} in one request are too many: at most {most} are allowed"
    )


def _result(error: ApiError | None) -> DictOf[types.CreateAclsResponseResult]:
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}


def _entry(acl: Acl) -> DictOf[types.DescribeAclsResponseAcl]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _deleted(acls: Sequence[Acl] | ApiError) -> DictOf[types.DeleteAclsResponseFilterResult]:
    if isinstance(acls, ApiError):
        return {"error_code": acls.code, "error_message": acls.message}
    matching: list[DictOf[types.DeleteAclsResponseMatchingAcl]] = [
        {
            **_result(None),
            "resource_type": acl.resource_type,
            "resource_name": acl.resource_name,
            "pattern_type": acl.pattern_type,
            **_entry(acl),
        }
        for acl in acls
    ]
    return {**_result(None), "matching_acls": matching}
