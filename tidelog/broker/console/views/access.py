"""Users and ACLs: who may do what, and why.

Owns nothing: decisions and reasons are the authorizer's. Invariants: a look at all ACLs or all users is in
steps; no password, salt or key is shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.console.views.of_cluster import Listed
from tidelog.broker.security.authorizer import SUPPORTED_OPERATIONS, Authorizer
from tidelog.broker.security.reasons import Reason, reason
from tidelog.protocol.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps

if TYPE_CHECKING:
    from tidelog.broker.security.acls import Acls
    from tidelog.broker.security.users import Users

OperationName = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "TWO_PHASE_COMMIT",
]
ResourceName = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]
PatternName = Literal["LITERAL", "PREFIXED"]
PermissionName = Literal["ALLOW", "DENY"]
_MOST_ASKED: Final = 1_000
_OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}


class User(TypedDict):
    """A user of SCRAM and PLAIN, and of the console."""

    name: str
    mechanisms: dict[str, int]
    """SASL's name of a mechanism -> iterations of its hash."""
    is_super: bool


class UserList(Listed):
    """A page of users, in the order of their names."""

    rows: list[User]
    super_users: list[str]
    """The principals of super.users, who may do everything."""


class AclRow(TypedDict):
    """An access control entry."""

    principal: str
    host: str
    permission: str
    operation: str
    resource_type: str
    resource_name: str
    pattern_type: str


class AclList(Listed):
    """ACLs, in the order in which they were made."""

    is_enabled: bool
    """Whether an authorizer is configured: else ACLs have no effect, and none can be made."""
    rows: list[AclRow]


class Why(TypedDict):
    """Whether a principal may do something, and why."""

    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str
    is_allowed: bool
    reason: str
    acl: AclRow | None
    """The ACL that decided; None: no ACL did."""
    remedy: str
    """The command that changes the decision; empty where it is allowed."""


class Holder(TypedDict):
    """What a principal may do with a resource."""

    principal: str
    operations: list[str]


class Who(TypedDict):
    """Who may do something with a resource: those whom an ACL on it names."""

    rows: list[Holder]
    is_complete: bool
    """Whether these are all: at most 1,000 principals are looked at."""


def users_of(
    users: Users, super_users: Iterable[str], search: str | None, offset: int, limit: int
) -> Steps[UserList]:
    """The users in whose name `search` is, from number `offset` on."""
    pace = Pace(CHECKS_PER_STEP)
    found = []
    for name in users.names():
        if search is None or search.lower() in name.lower():
            found.append(name)
        if pace.spent():
            yield
    found.sort()
    principals = sorted(super_users)
    rows: list[User] = [
        {
            "name": name,
            "mechanisms": {each.sasl_name: held.iterations for each, held in (users.get(name) or {}).items()},
            "is_super": f"User:{name}" in principals,
        }
        for name in found[offset : offset + limit]
    ]
    return {"total": len(found), "offset": offset, "limit": limit, "rows": rows, "super_users": principals}


def acls_of(acls: Acls, wanted: AclFilter, offset: int, limit: int) -> Steps[AclList]:
    """The ACLs that a filter selects, from number `offset` on."""
    pace = Pace(CHECKS_PER_STEP)
    found = []
    for acl in acls.all:
        if wanted.matches(acl):
            found.append(acl)
        if pace.spent():
            yield
    return {
        "is_enabled": acls.authorizer is not None,
        "total": len(found),
        "offset": offset,
        "limit": limit,
        "rows": [acl_row(acl) for acl in found[offset : offset + limit]],
    }


def acl_row(acl: Acl) -> AclRow:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": acl.permission.name,
        "operation": acl.operation.name,
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
    }


def why(
    authorizer: Authorizer | None,
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> Why:
    """Why a principal may do this from `host`, or not."""
    host = canonical_host(host)
    given = reason(authorizer, principal, host, operation, resource_type, name)
    return {
        "principal": principal,
        "host": host,
        "operation": operation.name,
        "resource_type": resource_type.name,
        "resource_name": name,
        "is_allowed": given.is_allowed,
        "reason": given.text,
        "acl": None if given.acl is None else acl_row(given.acl),
        "remedy": "" if given.is_allowed else _remedy(given, principal, operation, resource_type, name),
    }


def _remedy(
    given: Reason, principal: str, operation: Operation, resource_type: ResourceType, name: str
) -> str:
    if given.acl is not None:
        return f"tidelog acl delete {_written(given.acl)}"
    acl = Acl(resource_type, PatternType.LITERAL, name, principal, "*", operation, Permission.ALLOW)
    return f"tidelog acl add {_written(acl)}"


def _written(acl: Acl) -> str:
    """The arguments of the command for an ACL."""
    words = [acl.principal, "--operation", acl.operation.name.title().replace("_", "")]
    option = _OPTIONS.get(acl.resource_type)
    words += ["--cluster"] if option is None else [option, acl.resource_name]
    if acl.pattern_type == PatternType.PREFIXED:
        words.append("--prefixed")
    if acl.host != "*":
        words += ["--host", acl.host]
    if acl.permission == Permission.DENY:
        words.append("--deny")
    return shlex.join(words)


def who(
    authorizer: Authorizer | None, host: str, resource_type: ResourceType, name: str, limit: int
) -> Steps[Who]:
    """Those who may do something with a resource from `host`. User:* stands for everybody."""
    if authorizer is None:
        return {"rows": [], "is_complete": True}
    pace = Pace()
    rows: list[Holder] = []
    named = dict.fromkeys(islice(authorizer.principals_on(resource_type, name), _MOST_ASKED + 1))
    for principal in islice(named, _MOST_ASKED):
        if len(rows) >= limit:
            return {"rows": rows, "is_complete": False}
        allowed = authorizer.access(principal, host).allowed(resource_type, name)
        allowed &= SUPPORTED_OPERATIONS[resource_type]
        if allowed:
            names = [each.name for each in Operation if allowed >> each & 1]
            rows.append({"principal": principal, "operations": names})
        if pace.spent():
            yield
    return {"rows": rows, "is_complete": len(named) <= _MOST_ASKED}
