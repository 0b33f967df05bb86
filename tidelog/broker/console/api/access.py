"""Users and ACLs: who may do what and why, and changes of both.

Owns the routes. They need what Kafka's requests for the same need. Decisions and reasons are the
authorizer's. Invariant: no password, salt or key is shown.
"""

import asyncio
import os
import shlex
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.console import shapes
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ALL, Console, route
from tidelog.broker.security.authorizer import SUPPORTED_OPERATIONS
from tidelog.broker.security.reasons import Reason, reason
from tidelog.broker.security.required_access import ALTER_CLUSTER, DESCRIBE_CLUSTER
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
from tidelog.protocol.steps import Pace, Steps

OperationName = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "TWO_PHASE_COMMIT",
]  # fmt: skip
ResourceName = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]
PatternName = Literal["LITERAL", "PREFIXED"]
PermissionName = Literal["ALLOW", "DENY"]
_MOST_ASKED: Final = 1_000
_OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}
_MOST_CHARACTERS: Final = 1_000
_ITERATIONS: Final = 8_192
Text = Annotated[str, Meta(max_length=_MOST_CHARACTERS)]
Name = Annotated[str, Meta(min_length=1, max_length=_MOST_CHARACTERS)]


class User(TypedDict):
    """A user of SCRAM and PLAIN, and of the console."""

    name: str
    mechanisms: dict[str, int]
    """SASL's name of a mechanism -> iterations of its hash."""
    is_super: bool


class Users(shapes.Listed):
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


class Acls(shapes.Listed):
    is_enabled: bool
    """Whether an authorizer is configured: else ACLs have no effect, and none can be made."""
    rows: list[AclRow]


class Why(TypedDict):
    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str
    is_allowed: bool
    reason: Annotated[str, shapes.From("text")]
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


class AskedUsers(shapes.Listing, frozen=True, kw_only=True):
    search: Text | None = None


class NewUser(shapes.Parameters, frozen=True, kw_only=True):
    name: Name
    password: Name
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    iterations: Annotated[int, Meta(ge=scram.LEAST_ITERATIONS, le=scram.MOST_ITERATIONS)] = _ITERATIONS


class DeletedUser(shapes.Parameters, frozen=True, kw_only=True):
    name: Name


class AskedAcls(shapes.Listing, frozen=True, kw_only=True):
    """Which ACLs: those of a principal, and those that count for a resource."""

    principal: Text | None = None
    resource_type: ResourceName | None = None
    resource_name: Text | None = None


class ChangedAcl(shapes.Parameters, frozen=True, kw_only=True):
    principal: Annotated[str, Meta(max_length=_MOST_CHARACTERS, description="Such as User:alice, or User:*.")]
    host: Text = "*"
    permission: PermissionName = "ALLOW"
    operation: OperationName
    resource_type: ResourceName
    resource_name: Text = CLUSTER_NAME
    pattern_type: PatternName = "LITERAL"


class OfResource(shapes.Parameters, frozen=True, kw_only=True):
    host: Text = "127.0.0.1"
    resource_type: ResourceName = "TOPIC"
    resource_name: Text = ""

    @property
    def resource(self) -> tuple[ResourceType, str]:
        kind = ResourceType[self.resource_type]
        return kind, CLUSTER_NAME if kind == ResourceType.CLUSTER else self.resource_name


class AskedWho(OfResource, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=shapes.MOST_ROWS)] = 100


class AskedWhy(OfResource, frozen=True, kw_only=True):
    """Who asks for what. Without a principal the answer is null."""

    principal: Annotated[str, Meta(max_length=_MOST_CHARACTERS, description="Such as User:alice.")] = ""
    operation: OperationName = "READ"


@route("GET", "/users", needs=DESCRIBE_CLUSTER)
def users(console: Console, caller: Caller, asked: AskedUsers) -> Steps[Users]:
    """All users, in the order of their names."""
    held, principals = console.services.users, sorted(console.services.config.super_user_names)
    sought = (asked.search or "").lower()
    names = yield from shapes.chosen(held.names(), lambda name: sought in name.lower())

    def row(name: str) -> User:
        mechanisms = {each.sasl_name: known.iterations for each, known in (held.get(name) or {}).items()}
        return {"name": name, "mechanisms": mechanisms, "is_super": f"User:{name}" in principals}

    return shapes.part_of(Users, sorted(names), asked, row, super_users=principals)


@route("PUT", "/users", needs=ALTER_CLUSTER, logged=("name", "mechanism", "iterations"))
async def store_user(console: Console, caller: Caller, asked: NewUser) -> None:
    """Create a user, or change a password."""
    mechanism = scram.ScramMechanism[asked.mechanism.replace("-", "_")]
    salt = os.urandom(scram.SALT_BYTES)
    salted = await asyncio.to_thread(scram.salted_password, mechanism, asked.password, salt, asked.iterations)
    change = {"name": asked.name, "mechanism": mechanism, "iterations": asked.iterations}
    changes = {"deletions": [], "upsertions": [{**change, "salt": salt, "salted_password": salted}]}
    await caller.change(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, changes)


@route("DELETE", "/users", needs=ALTER_CLUSTER, logged=ALL)
async def delete_user(console: Console, caller: Caller, asked: DeletedUser) -> None:
    """Delete a user."""
    held = console.services.users.get(asked.name)
    if held is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {asked.name!r}")
    deletions = [{"name": asked.name, "mechanism": mechanism} for mechanism in held]
    await caller.change(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": deletions, "upsertions": []})


@route("GET", "/acls", needs=DESCRIBE_CLUSTER)
def acls(console: Console, caller: Caller, asked: AskedAcls) -> Steps[Acls]:
    """All ACLs, in the order in which they were made."""
    kind = ResourceType.ANY if asked.resource_type is None else ResourceType[asked.resource_type]
    wanted = AclFilter(kind, PatternType.MATCH, asked.resource_name, asked.principal)
    held = console.services.acls
    found = yield from shapes.chosen(held.all, wanted.matches)
    return shapes.part_of(
        Acls, found, asked, partial(shapes.row_of, AclRow), is_enabled=held.authorizer is not None
    )


@route("POST", "/acls", needs=ALTER_CLUSTER, logged=ALL)
async def create_acl(console: Console, caller: Caller, asked: ChangedAcl) -> None:
    """Create an ACL."""
    await caller.change(ApiKey.CREATE_ACLS, {"creations": [_fields(asked, "")]})


@route("DELETE", "/acls", needs=ALTER_CLUSTER, logged=ALL)
async def delete_acl(console: Console, caller: Caller, asked: ChangedAcl) -> None:
    """Delete an ACL."""
    answer = await caller.change(ApiKey.DELETE_ACLS, {"filters": [_fields(asked, "_filter")]})
    if not answer["filter_results"][0]["matching_acls"]:
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


@route("GET", "/access/why", needs=DESCRIBE_CLUSTER)
async def why(console: Console, caller: Caller, asked: AskedWhy) -> Why | None:
    """Why a user has a permission or not."""
    if not asked.principal:
        return None
    host, operation = canonical_host(asked.host), Operation[asked.operation]
    kind, name = asked.resource
    given = reason(console.services.acls.authorizer, asked.principal, host, operation, kind, name)
    return shapes.row_of(
        *(Why, given, asked),
        host=host,
        resource_name=name,
        acl=None if given.acl is None else shapes.row_of(AclRow, given.acl),
        remedy="" if given.is_allowed else _remedy(given, asked.principal, operation, kind, name),
    )


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


@route("GET", "/access/who", needs=DESCRIBE_CLUSTER)
def who(console: Console, caller: Caller, asked: AskedWho) -> Steps[Who]:
    """The users with a permission on a resource. User:* stands for everybody."""
    authorizer = console.services.acls.authorizer
    if authorizer is None:
        return {"rows": [], "is_complete": True}
    kind, name = asked.resource
    pace = Pace()
    rows: list[Holder] = []
    named = dict.fromkeys(islice(authorizer.principals_on(kind, name), _MOST_ASKED + 1))
    for principal in islice(named, _MOST_ASKED):
        if len(rows) >= asked.limit:
            return {"rows": rows, "is_complete": False}
        allowed = authorizer.access(principal, asked.host).allowed(kind, name) & SUPPORTED_OPERATIONS[kind]
        if allowed:
            names = [each.name for each in Operation if allowed >> each & 1]
            rows.append({"principal": principal, "operations": names})
        if pace.spent():
            yield
    return {"rows": rows, "is_complete": len(named) <= _MOST_ASKED}
