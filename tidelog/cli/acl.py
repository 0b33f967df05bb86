"""`tidelog acl`: list, add and delete access control entries.

Uses `client.Admin`. Each changed ACL is printed on one line, so that scripts can read it. Operations are
written as in Kafka's tools: Read, DescribeConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.cli.failures import Failure, run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, argument, option
from tidelog.cli.tables import print_table
from tidelog.protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from tidelog.client import Admin

app = typer.Typer(no_args_is_help=True, help="List, add and delete access control entries (ACLs).")

Principals: TypeAlias = Annotated[
    list[str], argument(metavar="PRINCIPAL", help="For example User:alice; User:* is everyone.")
]
Operations: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--operation", metavar="OPERATION", help="For example Read, Write, Describe, All. May be repeated."
    ),
]
TopicNames: TypeAlias = Annotated[
    list[str] | None, option("--topic", help="Name of a topic; * is all. May be repeated.")
]
Groups: TypeAlias = Annotated[
    list[str] | None, option("--group", help="Id of a group; * is all. May be repeated.")
]
TransactionalIds: TypeAlias = Annotated[
    list[str] | None, option("--transactional-id", help="Transactional id; * is all. May be repeated.")
]
OnCluster: TypeAlias = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefixed: TypeAlias = Annotated[bool, typer.Option("--prefixed", help="All names that begin like this.")]
Hosts: TypeAlias = Annotated[
    list[str] | None, option("--host", help="IP address of the client; * is all. May be repeated.")
]


@app.command("list")
def list_acls(
    principal: Annotated[str | None, option("--principal", help="Only those of this principal.")] = None,
    topic: TopicNames = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    of_cluster: OnCluster = False,
    as_json: AsJson = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Print ACLs.

    With the name of a resource: those that apply to it, also those with * or a prefix.
    """
    resources = _resources(topic, group, transactional_id, of_cluster)
    filters = [AclFilter(kind, PatternType.MATCH, name, principal) for kind, name in resources] or [
        AclFilter(principal=principal)
    ]

    async def look(admin: Admin) -> list[Acl]:
        return [acl for wanted in filters for acl in await admin.acls.list(wanted)]

    found = run_with_admin(look, cluster)
    rows = [
        (
            acl.principal,
            acl.permission.name.lower(),
            written(acl.operation),
            _kind(acl.resource_type),
            acl.resource_name,
            acl.pattern_type.name.lower(),
            acl.host,
        )
        for acl in sorted(dict.fromkeys(found), key=lambda acl: (acl.principal, acl))
    ]
    columns = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST")
    print_table(columns, rows, as_json=as_json)


@app.command()
def add(
    principals: Principals,
    operation: Operations = None,
    topic: TopicNames = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    of_cluster: OnCluster = False,
    prefixed: Prefixed = False,
    host: Hosts = None,
    deny: Annotated[
        bool, typer.Option("--deny", help="Deny instead of allow. A denial overrides all permissions.")
    ] = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Allow operations to principals, or deny them."""
    for principal in principals:
        if not principal.startswith("User:"):  # An ACL of another type matches no user.
            raise typer.BadParameter(f"expected a principal as User:NAME, got {principal!r}")
    resources = _resources(topic, group, transactional_id, of_cluster)
    if not resources:
        raise typer.BadParameter("name a resource: --topic, --group, --transactional-id or --cluster")
    if not operation:
        raise typer.BadParameter(f"name an operation with --operation: {_known_operations()}")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    acls = [
        Acl(kind, pattern, name, principal, where, read_operation(what), permission)
        for principal in principals
        for kind, name in resources
        for where in host or [WILDCARD]
        for what in operation
    ]
    run_with_admin(lambda admin: admin.acls.create(acls), cluster)
    for acl in acls:
        print(f"added {described(acl)}")


@app.command()
def delete(
    principals: Principals,
    operation: Operations = None,
    topic: TopicNames = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    of_cluster: OnCluster = False,
    prefixed: Prefixed = False,
    host: Hosts = None,
    deny: Annotated[
        bool, typer.Option("--deny", help="Only ACLs that deny; else only those that allow.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="All ACLs of these principals.")] = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Delete ACLs.

    These are the ACLs that `add` made with the same options, or with --all all ACLs of a principal.
    """
    resources = _resources(topic, group, transactional_id, of_cluster)
    if every == bool(resources):
        raise typer.BadParameter("name a resource with --topic, --group …, or give --all")
    if every:
        filters = [AclFilter(principal=principal) for principal in principals]
    else:
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        permission = Permission.DENY if deny else Permission.ALLOW
        hosts: list[str | None] = [*host] if host else [None]
        filters = [
            AclFilter(kind, pattern, name, principal, where, what, permission)
            for principal in principals
            for kind, name in resources
            for where in hosts
            for what in (list(map(read_operation, operation)) if operation else [Operation.ANY])
        ]
    deleted = run_with_admin(lambda admin: admin.acls.delete(filters), cluster)
    for acl in deleted:
        print(f"deleted {described(acl)}")
    if not deleted:
        raise Failure("no such ACL; `tidelog acl list` shows all")


def _resources(
    topics: list[str] | None, groups: list[str] | None, transactional_ids: list[str] | None, of_cluster: bool
) -> list[tuple[ResourceType, str]]:
    named = [(ResourceType.TOPIC, name) for name in topics or ()]
    named += [(ResourceType.GROUP, name) for name in groups or ()]
    named += [(ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids or ()]
    return [*named, (ResourceType.CLUSTER, CLUSTER_NAME)] if of_cluster else named


def read_operation(text: str) -> Operation:
    """The operation that a user wrote, in any case: Read, describe-configs, DESCRIBE_CONFIGS."""
    plain = text.replace("_", "").replace("-", "").lower()
    for operation in Operation:
        if operation != Operation.ANY and operation.name.replace("_", "").lower() == plain:
            return operation
    raise typer.BadParameter(f"expected one of {_known_operations()}, got {text!r}", param_hint="--operation")


def written(operation: Operation) -> str:
    """As Kafka's tools write it: DescribeConfigs."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def described(acl: Acl) -> str:
    """One line about an ACL."""
    verb = acl.permission.name.lower()
    prefix = "prefix " if acl.pattern_type == PatternType.PREFIXED else ""
    what = f"{_kind(acl.resource_type)} {prefix}{acl.resource_name}"
    return f"{acl.principal} {verb} {written(acl.operation)} {what} from {acl.host}"


def _kind(resource_type: ResourceType) -> str:
    return resource_type.name.lower().replace("_", "-")


def _known_operations() -> str:
    return ", ".join(written(each) for each in Operation if each != Operation.ANY)
