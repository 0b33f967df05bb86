"""`tidelog user`: make, list and delete the users that clients authenticate as.

Uses `client.Admin`. A password comes from a prompt, a file or the standard input, never from an argument,
which every process of the machine could read. `tidelog storage add-user` makes the first user of a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.cli.failures import run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, argument
from tidelog.cli.passwords import Iterations, Mechanisms, PasswordFile, mechanisms_of, read_password
from tidelog.cli.tables import print_table

if TYPE_CHECKING:
    from tidelog.client import Admin

app = typer.Typer(no_args_is_help=True, help="Create, list and delete users.")
User: TypeAlias = Annotated[str, argument(metavar="USER", help="Name of the user.")]


@app.command()
def add(
    user: User,
    password_file: PasswordFile = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = 4096,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Create a user, or change its password.

    Without --password-file the command asks for the password, or reads the first line of the standard input.
    """
    chosen = mechanisms_of(mechanisms)
    password = read_password(password_file)

    async def work(admin: Admin) -> None:
        await admin.users.set_password(user, password, mechanisms=chosen, iterations=iterations)

    run_with_admin(work, cluster)
    print(f"stored {user} for {', '.join(each.sasl_name for each in chosen)}")


@app.command("list")
def list_users(as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Print all users and the mechanisms of their passwords."""
    rows = [
        (user.name, mechanism, iterations)
        for user in run_with_admin(lambda admin: admin.users.list(), cluster)
        for mechanism, iterations in user.iterations.items()
    ]
    print_table(("USER", "MECHANISM", "ITERATIONS"), rows, as_json=as_json)


@app.command()
def delete(
    users: Annotated[list[str], argument(metavar="USER", help="Names of users.")],
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Delete users. A connection that a user has stays open until it has to authenticate again."""

    async def work(admin: Admin) -> None:
        for user in users:
            await admin.users.delete(user)
            print(f"deleted {user}")

    run_with_admin(work, cluster)
