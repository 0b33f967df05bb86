"""The settings of jobs: how a table of them is declared, and how a file and flags fill it.

A job NAME has a table `pipeline.jobs.NAME_settings.NameSettings`, whose `check()` finds contradictions. A
cluster in a table (`cluster_setting`) is written as its settings, each with the cluster's prefix:
`to_bootstrap_servers`. Owns the meaning of a settings file: TOML, names as in the table. A section named
after a job overrides the settings above all sections; sections of other jobs are ignored, so that one file
serves several jobs. Flags override both. Imports nothing slow, because the command line reads the tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options.common import PATIENCE_MS
from tidelog.protocol.settings import ConfigError, Setting, hold_checked, setting, settings_of
from tidelog.wire.cluster_config import ClusterConfig

JOBS: Final = ("archive", "audit", "mirror", "replay", "stats")
SERVERS: Final = "bootstrap_servers"
_PREFIX: Final = "cluster_prefix"
_PACKAGES: Final = "spark.jars.packages"
# Between group, artifact and version.
_COLONS: Final = 2


@dataclass(frozen=True, slots=True)
class CommonSettings:
    """What every command of a job takes beside the job's own settings."""

    master: str = setting("local[*]", "Spark master.")
    name: str | None = setting(
        None, "Name of the application in Spark. Without it: tidelog and the job.", metavar="TEXT"
    )
    conf: tuple[str, ...] = setting((), "Setting of Spark. May be repeated.", metavar="KEY=VALUE")
    packages: tuple[str, ...] = setting(
        (),
        "Maven coordinates of packages that Spark loads, with commas between. May be repeated.",
        metavar="GROUP:ARTIFACT:VERSION",
    )
    metrics_file: str | None = setting(
        None, "Write the job's numbers to this file, for Prometheus.", metavar="FILE"
    )

    def __post_init__(self) -> None:
        hold_checked(self)

    @property
    def spark_settings(self) -> dict[str, str]:
        """The settings of Spark that `conf` and `packages` ask for. Raises OptionError for what is none."""
        pairs = [pair.partition("=") for pair in self.conf]
        settings = {key.strip(): value for key, _, value in pairs}
        for key, equals, value in pairs:
            if not equals or not key.strip().startswith("spark."):
                raise OptionError(
                    f"conf: {key + equals + value!r} is not like spark.executor.memory=1g (KEY=VALUE, where"
                    " KEY begins with spark.)"
                )
        for key, flag in (("spark.master", "master"), ("spark.app.name", "name")):
            if key in settings:
                raise OptionError(f"conf: {key} is the setting {flag}: give {flag} instead")
        coordinates = [each.strip() for given in self.packages for each in given.split(",") if each.strip()]
        if wrong := [each for each in coordinates if each.count(":") != _COLONS]:
            raise OptionError(f"packages: {wrong[0]!r} is not like GROUP:ARTIFACT:VERSION")
        known = settings.get(_PACKAGES, "").split(",")
        together = ",".join(filter(None, [*known, *coordinates]))
        return settings | ({_PACKAGES: together} if together else {})


def cluster_setting(default: Any, description: str, *, prefix: str = "") -> Any:
    """A field of a job's table that is the way to a cluster, with `prefix` before its settings' names."""

    def read(value: object) -> ClusterConfig | None:
        if isinstance(value, ClusterConfig) or (value is None and default is None):
            return value
        raise ConfigError(f"{prefix}cluster: expected a ClusterConfig, got {type(value).__name__}")

    return setting(default, description, read=read, metavar="HOST:PORT", cluster_prefix=prefix)


def cluster_prefix(each: Setting) -> str | None:
    """What goes before the names of the cluster's settings, None for a setting that is no cluster."""
    prefix: str | None = each.extras.get(_PREFIX)
    return prefix


def names_of(table: Any) -> set[str]:
    """The names that a file may give for a table."""
    names = set()
    for each in settings_of(table):
        prefix = cluster_prefix(each)
        parts = (
            [each.attribute]
            if prefix is None
            else [prefix + one.attribute for one in settings_of(ClusterConfig)]
        )
        names.update(parts)
    return names


def table_of(job: str) -> Any:
    """The table of a job's settings."""
    return getattr(import_module(f"tidelog.pipeline.jobs.{job}_settings"), f"{job.capitalize()}Settings")


def choose(job: str, file: Mapping[str, Any], flags: Mapping[str, Any], *tables: Any) -> dict[str, Any]:
    """What holds for a job: `file` as it was parsed, then `flags`, of which None and [] are not given.

    Raises OptionError for a name that none of `tables` has.
    """
    known = {name for table in tables for name in names_of(table)}
    chosen: dict[str, Any] = {}
    sections = {name: value for name, value in file.items() if isinstance(value, dict)}
    if strange := sorted(sections.keys() - set(JOBS)):
        raise OptionError(f"[{strange[0]}] is no job; tables are {', '.join(f'[{name}]' for name in JOBS)}")
    above = {name: value for name, value in file.items() if name not in sections}
    for values in (above, sections.get(job, {})):
        if unknown := sorted(values.keys() - known):
            raise OptionError(f"unknown setting {unknown[0]!r}; {job} knows {', '.join(sorted(known))}")
        chosen |= values
    return chosen | {name: value for name, value in flags.items() if value is not None and value != []}


def make_settings(table: Any, values: Mapping[str, Any]) -> Any:
    """The table's instance, with those of `values` that are its settings.

    Raises OptionError for a value that a setting cannot hold, or where one is missing.
    """
    parts: dict[str, Any] = {}
    missing = []
    try:
        for each in settings_of(table):
            if (prefix := cluster_prefix(each)) is not None:
                own = {one.attribute: prefix + one.attribute for one in settings_of(ClusterConfig)}
                given = {name: values[outward] for name, outward in own.items() if outward in values}
                if SERVERS in given:
                    given.setdefault("bootstrap_refused_timeout_ms", PATIENCE_MS)
                    parts[each.attribute] = ClusterConfig(**given)
                elif given or each.is_required:
                    missing.append(prefix + SERVERS)
            elif each.attribute in values:
                parts[each.attribute] = values[each.attribute]
            elif each.is_required:
                missing.append(each.attribute)
        if missing:
            raise OptionError(f"missing: {', '.join(missing)}")
        return table(**parts)
    except ValueError as error:
        raise OptionError(str(error)) from None
