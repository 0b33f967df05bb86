"""`tidelog quota`: how much users, client ids and addresses may send, receive and connect per second.

Uses `client.Admin`. Each change is printed on one line, so that scripts can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.cli.failures import Failure, run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, argument, option
from tidelog.cli.tables import print_table
from tidelog.protocol.quotas import ALL_QUOTAS, CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntity

if TYPE_CHECKING:
    from tidelog.client import Admin

app = typer.Typer(no_args_is_help=True, help="Limit what users, client ids and addresses may use.")
_DEFAULT = "<default>"

User: TypeAlias = Annotated[
    str | None, option("--user", help=f"A user, or {_DEFAULT} for users without a quota.")
]
ClientId: TypeAlias = Annotated[
    str | None, option("--client-id", help=f"A client id, or {_DEFAULT} for those without a quota.")
]
Ip: TypeAlias = Annotated[
    str | None, option("--ip", help=f"An address, or {_DEFAULT} for those without a quota.")
]


@app.command("set")
def set_quotas(
    quotas: Annotated[
        list[str],
        argument(
            metavar="NAME=VALUE",
            help="producer_byte_rate and consumer_byte_rate (bytes per second), request_percentage (of the "
            "broker's event loop, 100 is all of it), controller_mutation_rate (partitions created or deleted "
            "per second), or connection_creation_rate of an address (per second).",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    entity, values = _entity(user, client_id, ip), dict(map(_assignment, quotas))
    run_with_admin(lambda admin: admin.quotas.alter(entity, values), cluster)
    for name, value in values.items():
        print(f"set {name}={value:.15g} for {_place(entity)}")


@app.command()
def delete(
    quotas: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of quotas.", show_default="all")
    ] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Delete quotas of a user, a client id, both together, or an address."""
    for name in quotas or ():
        if name not in ALL_QUOTAS:
            raise typer.BadParameter(f"expected a NAME of {', '.join(ALL_QUOTAS)}, got {name!r}")
    entity = _entity(user, client_id, ip)

    async def work(admin: Admin) -> list[str]:
        there = (await admin.quotas.list()).get(entity, {})
        wanted = [name for name in quotas or there if name in there]
        if not wanted:
            raise Failure(f"{_place(entity)} has no such quota; `tidelog quota list` shows those that exist")
        await admin.quotas.alter(entity, dict.fromkeys(wanted))
        return wanted

    for name in run_with_admin(work, cluster):
        print(f"deleted {name} of {_place(entity)}")


@app.command("list")
def list_quotas(as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """List all quotas."""
    found = run_with_admin(lambda admin: admin.quotas.list(), cluster)
    absent = None if as_json else ""
    rows = [
        (
            *(_shown(dict(entity), kind) or absent for kind in ENTITY_TYPES),
            name,
            value if as_json else f"{value:,.15g}",
        )
        for entity, quotas in sorted(found.items(), key=lambda each: [(k, n or "") for k, n in each[0]])
        for name, value in quotas.items()
    ]
    print_table(("USER", "CLIENT ID", "IP", "QUOTA", "VALUE"), rows, as_json=as_json)


def _place(entity: QuotaEntity) -> str:
    return " and ".join(f"{kind} {name or _DEFAULT}" for kind, name in entity)


def _shown(named: dict[str, str | None], kind: str) -> str:
    return (named[kind] or _DEFAULT) if kind in named else ""


def _entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    given = {CLIENT_ID: client_id, IP: ip, USER: user}
    named = tuple(
        (kind, None if name == _DEFAULT else name) for kind, name in given.items() if name is not None
    )
    if not named or (ip is not None and len(named) > 1):
        raise typer.BadParameter("name --user, --client-id or both, or --ip alone")
    return named


def _assignment(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals or name not in ALL_QUOTAS:
        raise typer.BadParameter(f"expected NAME=VALUE with a NAME of {', '.join(ALL_QUOTAS)}, got {text!r}")
    try:
        return name, float(value)
    except ValueError:
        raise typer.BadParameter(f"{name}: expected a number, got {value!r}") from None
