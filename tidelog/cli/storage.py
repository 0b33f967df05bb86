"""`tidelog storage`: changes a data folder while no broker runs on it.

`rebuild-catalog` makes a new catalog from the folders of the partitions, if the old one is lost, damaged or
older than they are. It shows what it will write and asks first; nothing is deleted. `add-user` makes a user.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.failures import Failure, broker_failures
from tidelog.cli.options import option
from tidelog.cli.passwords import Iterations, Mechanisms, PasswordFile, mechanisms_of, read_password

if TYPE_CHECKING:
    from tidelog.broker.data_folder.catalog_rebuilding import Rebuilt

app = typer.Typer(no_args_is_help=True, help="Work on a data folder while no broker runs on it.")


@app.callback()
def _storage() -> None:
    """Work on a data folder while no broker runs on it."""


@app.command("rebuild-catalog")
def rebuild_catalog(
    data_dir: Annotated[Path, typer.Argument(metavar="DIR", help="Data folder of a stopped broker.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written. Write nothing.")
    ] = False,
    cluster_id: Annotated[
        str | None, typer.Option(help="Id of the cluster. Needed only if no file of the folder contains it.")
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option(min=0, help="Id of the broker, if no file of the folder contains it. Default: 1."),
    ] = None,
) -> None:
    """Create a new catalog from the folders of the partitions.

    The catalog is cluster.db and cluster.copy. The old files are kept.

    Use it if a broker does not start because its catalog is lost, damaged or older than the folders. Names,
    ids and partitions come from the folders. Settings come from what is left of the old catalog.
    """
    from tidelog.broker.data_folder.catalog_rebuilding import CatalogRebuilding
    from tidelog.broker.replicas.ownership import locked
    from tidelog.broker.storage.disk import Disk

    if not data_dir.is_dir():
        raise Failure(f"{data_dir} is not a folder")
    disk = Disk()
    with broker_failures(data_dir), locked(disk, data_dir, shared=False):
        rebuilding = CatalogRebuilding(data_dir, disk)
        rebuilt = rebuilding.plan(cluster_id=cluster_id, node_id=node_id)
        _show(data_dir, rebuilt)
        if not rebuilt.is_needed or dry_run:
            return
        if not yes:
            _ask()
        rebuilding.write(rebuilt)
    kept = f"; the old one is kept as {', '.join(rebuilt.kept)}" if rebuilt.kept else ""
    print(f"written{kept}. Now start the broker.")


@app.command("add-user")
def add_user(
    data_dir: Annotated[Path, typer.Argument(metavar="DIR", help="Data folder of a stopped broker.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")],
    password_file: PasswordFile = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = 4096,
    cluster_id: Annotated[
        str | None, option("--cluster-id", help="Id of the cluster, for a new folder. Default: a new id.")
    ] = None,
    node_id: Annotated[int, typer.Option("--node-id", min=0, help="Id of the broker, for a new folder.")] = 1,
) -> None:
    """Create a user, or change its password, while no broker runs.

    Without --password-file the command asks for the password, or reads the first line of the standard input.
    If the catalog is in etcd, use `tidelog cluster add-user`.
    """
    from tidelog.broker.data_folder.first_users import add_user
    from tidelog.broker.replicas.ownership import locked
    from tidelog.broker.security.users import new_credentials
    from tidelog.broker.storage.disk import Disk

    made = new_credentials(read_password(password_file), mechanisms_of(mechanisms), iterations)
    disk = Disk()
    with broker_failures(data_dir):
        disk.make_directory(data_dir)
        with locked(disk, data_dir, shared=False):
            is_new = add_user(data_dir, disk, user, made, node_id=node_id, cluster_id=cluster_id)
    print(f"{'made' if is_new else 'changed'} {user}")


def _show(data_dir: Path, rebuilt: Rebuilt) -> None:
    catalog = rebuilt.cluster.catalog
    for note in rebuilt.notes:
        print(f"note: {note}")
    if not rebuilt.is_needed:
        print(f"the catalog in {data_dir} is complete: there is nothing to do")
        return
    print(f"the new catalog of {data_dir}:")
    print(f"  cluster.id {catalog.cluster_id}, node.id {rebuilt.cluster.node_id}")
    print(f"  next producer id {catalog.next_producer_id}")
    for topic in sorted(catalog.topics(), key=lambda each: each.name):
        settings = "".join(f" {name}={value}" for name, value in sorted(topic.configs.items()))
        print(f"  topic {topic.name}  id {topic.topic_id}  partitions {len(topic.partitions)}{settings}")


def _ask() -> None:
    if not sys.stdin.isatty():
        raise Failure("nothing was written: give --yes, or run it in a terminal and answer")
    print("Write it? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure("nothing was written")
