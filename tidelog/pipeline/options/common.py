"""What the options of source and sink have in common: their names, and the way to the cluster.

Owns how Spark's options become text by name: names in any case, with or without the prefix `kafka.` of
Spark's own source. The settings of a cluster have Kafka's names and are those of `ClusterConfig`. Pure.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options.tables import Foreign, OptionTable
from tidelog.wire.cluster_config import OPTIONS as CLUSTER_OPTIONS
from tidelog.wire.cluster_config import ClusterConfig, cluster_from_options

# What Spark's TableCatalog puts before the options of a table.
_OF_TABLES: Final = "option."


def read_options(
    options: Mapping[str, str], table: OptionTable, foreign: Foreign, of_spark: Collection[str] = ()
) -> dict[str, str]:
    """What was given, by small names without the prefix. Raises OptionError for an unknown name, and for one
    that would change what is read or written."""
    given = {_small(name): text.strip() for name, text in options.items()}
    if any(name.startswith(_OF_TABLES) for name in given):
        raise OptionError(
            "Spark keeps the options of a table in a catalog, but reads it without them, if its source is in"
            " Python: use CREATE TEMPORARY VIEW … USING tidelog OPTIONS (…)"
        )
    reasons = {name.lower(): reason for name, reason in foreign.refused.items()}
    if refused := sorted(given.keys() & reasons.keys()):
        raise OptionError(f"option {refused[0]} is not supported: {reasons[refused[0]]}")
    names = {name.lower(): name for name in sorted({*CLUSTER_OPTIONS, *table})}
    dropped = {name.lower() for name in foreign.ignored}
    if unknown := sorted(given.keys() - names.keys() - dropped - set(of_spark)):
        close = get_close_matches(unknown[0], names, n=1, cutoff=0.8)
        advice = f"did you mean {names[close[0]]}?" if close else f"known are {', '.join(names.values())}"
        raise OptionError(f"unknown option {unknown[0]!r}; {advice}")
    return {name: text for name, text in given.items() if name not in dropped}


def without_effect(options: Mapping[str, str], foreign: Foreign) -> dict[str, str]:
    """The options that were given and are ignored, and why."""
    reasons = {name.lower(): reason for name, reason in foreign.ignored.items()}
    return {name: reasons[_small(name)] for name in sorted(options) if _small(name) in reasons}


def _small(name: str) -> str:
    return name.lower().removeprefix("kafka.")


def text_of(given: Mapping[str, str], table: OptionTable, name: str) -> str:
    """What was given for an option, else its default."""
    return given.get(name.lower(), table[name].default)


def choice_of(given: Mapping[str, str], table: OptionTable, name: str, *choices: str) -> str:
    """One of `choices`, given in any case. Raises OptionError for another text."""
    text = text_of(given, table, name).lower()
    if text not in choices:
        raise OptionError(f"{name}={text}: expected {', '.join(choices[:-1])} or {choices[-1]}")
    return text


def count_of(name: str, text: str) -> int:
    """A number of at least 1. Raises OptionError for another text."""
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"{name}={text}: expected a whole number above 0")
    return int(text)


PATIENCE_MS: Final = 40_000
"""A task of Spark waits for a broker that is being restarted, as for one that does not answer."""
_PATIENCE: Final = {"bootstrap.refused.timeout.ms": str(PATIENCE_MS)}


def read_cluster(given: Mapping[str, str], *, client_id: str) -> ClusterConfig | None:
    """The way to the cluster that options say, None if they name no server.

    `client_id` holds where the options name none. Raises OptionError.
    """
    try:
        return cluster_from_options({"client.id": client_id, **_PATIENCE, **given})
    except ValueError as error:
        raise OptionError(str(error)) from None


def no_servers() -> OptionError:
    return OptionError("option bootstrap.servers is missing, for example localhost:9092")
