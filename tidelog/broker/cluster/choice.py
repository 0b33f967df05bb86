"""Which of the two places of the catalog counts, the SQLite file or its copy.

Each commit goes to SQLite first, to the copy second, and is acknowledged then. So a whole copy holds all that
was acknowledged: it replaces a SQLite file that is damaged, lost, or at an older revision. A whole SQLite
file counts beside a damaged copy that names no later revision, but only if the copy's end is known or the
last stop was clean: SQLite treats the first damage in its log as the log's end, and a missing log as an empty
one. In all other cases nothing shows what is missing, and the start fails.

Pure.
"""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tidelog.broker.cluster.facts import StoredCluster, catalog_digest
from tidelog.broker.cluster.store import StoreError


@dataclass(frozen=True, slots=True)
class Found:
    """What one of the two places holds.

    Without `cluster` it holds nothing (then there is no `problem`) or is damaged. `newest_revision` is the
    latest that any part of it names, or -1; `salvaged` is what precedes the damage.
    """

    cluster: StoredCluster | None = None
    problem: str = ""
    newest_revision: int = -1
    salvaged: StoredCluster | None = None
    is_end_known: bool = False

    @property
    def is_absent(self) -> bool:
        return self.cluster is None and not self.problem

    @property
    def state(self) -> str:
        if self.cluster is not None:
            return f"at revision {self.cluster.catalog.revision}"
        return f"damaged ({self.problem})" if self.problem else "missing or empty"


class Source(Enum):
    """The place from which a store is opened."""

    NOTHING = "nothing"
    DATABASE = "database"
    COPY = "copy"


def copy_path(database: Path) -> Path:
    """Where the copy of a SQLite file lies."""
    return database.with_suffix(".copy")


def choose(path: Path, database: Found, copy: Found, *, was_clean: bool) -> Source:
    """What counts; `was_clean`: the last broker was stopped, not killed.

    Raises StoreError, whose message says what to do, where that cannot be known.
    """
    if database.is_absent and copy.is_absent:
        return Source.NOTHING
    if copy.cluster is not None:
        return _beside_whole_copy(path, database, copy.cluster)
    name = copy_path(path).name
    if database.cluster is None or not (was_clean or copy.is_end_known):
        after = "" if database.cluster is None else ", after a crash, and may have lost what came after it"
        raise StoreError(
            f"{path} is {database.state}{after}; its copy {name} is {copy.state}. {advice(path)}"
        )
    stored = database.cluster.catalog.revision
    if stored < copy.newest_revision:
        raise StoreError(
            f"{path} is at revision {stored} and has lost what came after it: its copy {name}, "
            f"which is {copy.state}, knows of revision {copy.newest_revision}. {advice(path)}"
        )
    return Source.DATABASE


def _beside_whole_copy(path: Path, database: Found, copied: StoredCluster) -> Source:
    if database.cluster is None:
        return Source.COPY
    stored, copy, name = database.cluster.catalog, copied.catalog, copy_path(path).name
    if stored.cluster_id != copy.cluster_id or database.cluster.node_id != copied.node_id:
        raise StoreError(
            f"{path} is of cluster.id {stored.cluster_id}, node.id {database.cluster.node_id}, "
            f"its copy {name} of cluster.id {copy.cluster_id}, node.id {copied.node_id}; "
            "move away the one that does not belong here"
        )
    if stored.revision == copy.revision and catalog_digest(database.cluster) != catalog_digest(copied):
        raise StoreError(
            f"{path} and its copy {name} are both whole at revision {stored.revision} and differ: "
            "move away the one that does not belong here"
        )
    return Source.COPY if stored.revision < copy.revision else Source.DATABASE


def advice(path: Path) -> str:
    """What to do about a catalog that is lost."""
    return (
        "Put both back from a backup; or make a new catalog of the partitions' folders with "
        f"`tidelog storage rebuild-catalog {path.parent}`"
    )
