"""What the options of source and sink have in common: their tables, names, and the way to the cluster.

Owns how Spark's options become text by name: names in any case, with or without the prefix `kafka.` of
Spark's own source. The settings of a cluster go by Kafka's names and are `ClusterConfig`'s. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from tidelog.client.cluster_config import OPTIONS as CLUSTER_OPTIONS
from tidelog.client.cluster_config import ClusterConfig, cluster_from_options
from tidelog.pipeline.source.offsets import OptionError


class Option(NamedTuple):
    """An option of Spark's: the text that holds where it is not given ("": none), and what it does."""

    default: str
    description: str


OptionTable: TypeAlias = Mapping[str, Option]


def read_options(
    options: Mapping[str, str], table: OptionTable, ignored: Iterable[str] = ()
) -> dict[str, str]:
    """What was given, by small names without the prefix. Raises OptionError for an unknown name."""
    given = {name.lower().removeprefix("kafka."): text.strip() for name, text in options.items()}
    known = sorted({*CLUSTER_OPTIONS, *table})
    if unknown := sorted(given.keys() - {name.lower() for name in known} - set(ignored)):
        raise OptionError(f"unknown option {unknown[0]!r}; known are {', '.join(known)}")
    return given


def text_of(given: Mapping[str, str], table: OptionTable, name: str) -> str:
    """What was given for an option, else its default."""
    return given.get(name.lower(), table[name].default)


def read_cluster(given: Mapping[str, str], *, client_id: str) -> ClusterConfig | None:
    """The way to the cluster that options say, None where they name no server.

    `client_id` holds where the options name none. Raises OptionError.
    """
    try:
        return cluster_from_options({"client.id": client_id, **given})
    except ValueError as error:
        raise OptionError(str(error)) from None


def no_servers() -> OptionError:
    return OptionError("option bootstrap.servers is missing, for example localhost:9092")
