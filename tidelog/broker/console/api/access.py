"""Users and ACLs: who may do what and why, and changes of both.

Owns the routes and pages. They need what Kafka's requests for the same need. Decisions and reasons are the
authorizer's. Invariant: no password, salt or key is shown.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import MOST_ROWS, Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.views.of_cluster import Listed
from tidelog.broker.security.authorizer import SUPPORTED_OPERATIONS, Authorizer
from tidelog.broker.security.reasons import Reason, reason
from tidelog.broker.security.required_access import ALTER_CLUSTER, DESCRIBE_CLUSTER, whole
from tidelog.protocol import scram
from tidelog.protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
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


_MOST_CHARACTERS: Final = 1_000
_ITERATIONS: Final = 8_192
Text = Annotated[str, Meta(max_length=_MOST_CHARACTERS)]
Name = Annotated[str, Meta(min_length=1, max_length=_MOST_CHARACTERS)]
Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_SEES: Final = whole(DESCRIBE_CLUSTER)
_CHANGES: Final = whole(ALTER_CLUSTER)


class AskedUsers(Listing, frozen=True, kw_only=True):
    """Which users are listed."""

    search: Text | None = None


class NewUser(Parameters, frozen=True, kw_only=True):
    """A user, or another password of a user."""

    name: Name
    password: Name
    mechanism: Mechanism = "SCRAM-SHA-512"
    iterations: Annotated[int, Meta(ge=scram.LEAST_ITERATIONS, le=scram.MOST_ITERATIONS)] = _ITERATIONS


class DeletedUser(Parameters, frozen=True, kw_only=True):
    """The user who is deleted, with all passwords."""

    name: Name


class AskedAcls(Listing, frozen=True, kw_only=True):
    """Which ACLs: those of a principal, and those that count for a resource."""

    principal: Text | None = None
    resource_type: ResourceName | None = None
    resource_name: Text | None = None


class ChangedAcl(Parameters, frozen=True, kw_only=True):
    """The ACL that is created or deleted."""

    principal: Annotated[str, Meta(max_length=_MOST_CHARACTERS, description="Such as User:alice, or User:*.")]
    host: Text = "*"
    permission: PermissionName = "ALLOW"
    operation: OperationName
    resource_type: ResourceName
    resource_name: Text = CLUSTER_NAME
    pattern_type: PatternName = "LITERAL"


class AskedWhy(Parameters, frozen=True, kw_only=True):
    """Who asks for what. Without a principal the answer is null."""

    principal: Annotated[str, Meta(max_length=_MOST_CHARACTERS, description="Such as User:alice.")] = ""
    host: Text = "127.0.0.1"
    operation: OperationName = "READ"
    resource_type: ResourceName = "TOPIC"
    resource_name: Text = ""


class AskedWho(Parameters, frozen=True, kw_only=True):
    """Which resource, and from which address."""

    host: Text = "127.0.0.1"
    resource_type: ResourceName = "TOPIC"
    resource_name: Text = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100


@route("GET", "/users", needs=_SEES)
def _users(console: Console, caller: Caller, asked: AskedUsers) -> Steps[UserList]:
    """All users."""
    users, super_users = console.services.users, console.services.config.super_user_names
    return users_of(users, super_users, asked.search, asked.offset, asked.limit)


@route("PUT", "/users", needs=_CHANGES, logged=("name", "mechanism", "iterations"))
async def _store_user(console: Console, caller: Caller, asked: NewUser) -> None:
    """Create a user, or change a password."""
    mechanism = scram.ScramMechanism[asked.mechanism.replace("-", "_")]
    salt = os.urandom(scram.SALT_BYTES)
    salted = await asyncio.to_thread(scram.salted_password, mechanism, asked.password, salt, asked.iterations)
    change = {
        "name": asked.name,
        "mechanism": mechanism,
        "iterations": asked.iterations,
        "salt": salt,
        "salted_password": salted,
    }
    await _alter_user(caller, {"deletions": [], "upsertions": [change]})


@route("DELETE", "/users", needs=_CHANGES, logged=("name",))
async def _delete_user(console: Console, caller: Caller, asked: DeletedUser) -> None:
    """Delete a user."""
    held = console.services.users.get(asked.name)
    if held is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {asked.name!r}")
    deletions = [{"name": asked.name, "mechanism": mechanism} for mechanism in held]
    await _alter_user(caller, {"deletions": deletions, "upsertions": []})


async def _alter_user(caller: Caller, changes: dict[str, object]) -> None:
    answer = await caller.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, changes)
    for result in answer["results"]:
        check_code(result["error_code"], result.get("error_message"))


@route("GET", "/acls", needs=_SEES)
def _acls(console: Console, caller: Caller, asked: AskedAcls) -> Steps[AclList]:
    """All ACLs."""
    kind = ResourceType.ANY if asked.resource_type is None else ResourceType[asked.resource_type]
    wanted = AclFilter(kind, PatternType.MATCH, asked.resource_name, asked.principal)
    return acls_of(console.services.acls, wanted, asked.offset, asked.limit)


@route("POST", "/acls", needs=_CHANGES, logged=ChangedAcl.__struct_fields__)
async def _create_acl(console: Console, caller: Caller, asked: ChangedAcl) -> None:
    """Create an ACL."""
    answer = await caller.ask(ApiKey.CREATE_ACLS, {"creations": [_fields(asked, "")]})
    for result in answer["results"]:
        check_code(result["error_code"], result["error_message"])


@route("DELETE", "/acls", needs=_CHANGES, logged=ChangedAcl.__struct_fields__)
async def _delete_acl(console: Console, caller: Caller, asked: ChangedAcl) -> None:
    """Delete an ACL."""
    answer = await caller.ask(ApiKey.DELETE_ACLS, {"filters": [_fields(asked, "_filter")]})
    for result in answer["filter_results"]:
        check_code(result["error_code"], result["error_message"])
        if not result["matching_acls"]:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "there is no such ACL")


def _fields(asked: ChangedAcl, suffix: str) -> dict[str, Any]:
    """The fields of a request of Kafka, whose filters have a suffix in their names."""
    pattern = "pattern_type_filter" if suffix else "resource_pattern_type"
    return {
        f"resource_type{suffix}": ResourceType[asked.resource_type],
        f"resource_name{suffix}": asked.resource_name,
        pattern: PatternType[asked.pattern_type],
        f"principal{suffix}": asked.principal,
        f"host{suffix}": asked.host,
        "operation": Operation[asked.operation],
        "permission_type": Permission[asked.permission],
    }


@route("GET", "/access/why", needs=_SEES)
async def _why(console: Console, caller: Caller, asked: AskedWhy) -> Why | None:
    """Why a user has a permission or not."""
    if not asked.principal:
        return None
    kind = ResourceType[asked.resource_type]
    return why(
        *(console.services.acls.authorizer, asked.principal, asked.host, Operation[asked.operation], kind),
        _resource_name(kind, asked.resource_name),
    )


@route("GET", "/access/who", needs=_SEES)
def _who(console: Console, caller: Caller, asked: AskedWho) -> Steps[Who]:
    """The users with a permission on a resource."""
    kind = ResourceType[asked.resource_type]
    name = _resource_name(kind, asked.resource_name)
    return who(console.services.acls.authorizer, asked.host, kind, name, asked.limit)


def _resource_name(kind: ResourceType, name: str) -> str:
    return CLUSTER_NAME if kind == ResourceType.CLUSTER else name


PAGES: Final[Sequence[Page]] = (
    page("/access", "Access", "access", users=_users, why=_why, who=_who),
    page("/access/acls", "ACLs", "acls", is_detail=True, acls=_acls),
)
