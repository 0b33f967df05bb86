"""Users and ACLs: who may do what and why, and changes of both.

Owns the routes and pages. They need what Kafka's requests for the same need.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import MOST_ROWS, Console, Listing, Page, Parameters, route
from tidelog.broker.console.views.access import (
    AclList,
    OperationName,
    PatternName,
    PermissionName,
    ResourceName,
    UserList,
    Who,
    Why,
    acls_of,
    users_of,
    who,
    why,
)
from tidelog.broker.security.required_access import ALTER_CLUSTER, DESCRIBE_CLUSTER, whole
from tidelog.protocol import scram
from tidelog.protocol.acls import CLUSTER_NAME, AclFilter, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

_MOST_CHARACTERS: Final = 1_000
_ITERATIONS: Final = 8_192
Text = Annotated[str, Meta(max_length=_MOST_CHARACTERS)]
Name = Annotated[str, Meta(min_length=1, max_length=_MOST_CHARACTERS)]
Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_SEES: Final = (whole(DESCRIBE_CLUSTER),)
_CHANGES: Final = (whole(ALTER_CLUSTER),)
_OF_ACL: Final = (
    "principal",
    "host",
    "permission",
    "operation",
    "resource_type",
    "resource_name",
    "pattern_type",
)


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


@route("GET", "/api/v1/users", needs=_SEES)
async def _users(console: Console, caller: Caller, asked: AskedUsers) -> UserList:
    """All users."""
    services = console.services
    super_users = services.config.super_user_names
    return await services.turns.run(
        users_of(services.users, super_users, asked.search, asked.offset, asked.limit)
    )


@route("PUT", "/api/v1/users", needs=_CHANGES, logged=("name", "mechanism", "iterations"))
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


@route("DELETE", "/api/v1/users", needs=_CHANGES, logged=("name",))
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


@route("GET", "/api/v1/acls", needs=_SEES)
async def _acls(console: Console, caller: Caller, asked: AskedAcls) -> AclList:
    """All ACLs."""
    kind = ResourceType.ANY if asked.resource_type is None else ResourceType[asked.resource_type]
    wanted = AclFilter(kind, PatternType.MATCH, asked.resource_name, asked.principal)
    services = console.services
    return await services.turns.run(acls_of(services.acls, wanted, asked.offset, asked.limit))


@route("POST", "/api/v1/acls", needs=_CHANGES, logged=_OF_ACL)
async def _create_acl(console: Console, caller: Caller, asked: ChangedAcl) -> None:
    """Create an ACL."""
    answer = await caller.ask(ApiKey.CREATE_ACLS, {"creations": [_fields(asked, "")]})
    for result in answer["results"]:
        check_code(result["error_code"], result["error_message"])


@route("DELETE", "/api/v1/acls", needs=_CHANGES, logged=_OF_ACL)
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


@route("GET", "/api/v1/access/why", needs=_SEES)
async def _why(console: Console, caller: Caller, asked: AskedWhy) -> Why | None:
    """Why a user has a permission or not."""
    if not asked.principal:
        return None
    kind = ResourceType[asked.resource_type]
    return why(
        *(console.services.acls.authorizer, asked.principal, asked.host, Operation[asked.operation], kind),
        _resource_name(kind, asked.resource_name),
    )


@route("GET", "/api/v1/access/who", needs=_SEES)
async def _who(console: Console, caller: Caller, asked: AskedWho) -> Who:
    """The users with a permission on a resource."""
    services, kind = console.services, ResourceType[asked.resource_type]
    name = _resource_name(kind, asked.resource_name)
    return await services.turns.run(who(services.acls.authorizer, asked.host, kind, name, asked.limit))


def _resource_name(kind: ResourceType, name: str) -> str:
    return CLUSTER_NAME if kind == ResourceType.CLUSTER else name


PAGES: Final[Sequence[Page]] = (
    Page("/console/access", "Access", "access.html", {"users": _users, "why": _why, "who": _who}),
    Page("/console/access/acls", "ACLs", "acls.html", {"acls": _acls}, is_detail=True),
)
