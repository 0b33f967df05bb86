"""`--command-config FILE`: the way to a cluster from a file with Kafka's property names, for every command.

Owns: how a file becomes settings, and how each command that has `--bootstrap-servers` gets the option. A flag
overrides the file.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.failures import reading
from tidelog.cli.options import DEFAULT_CLUSTER, option, parameters_of, with_parameters
from tidelog.protocol.settings import ConfigError, Setting
from tidelog.wire.cluster_config import OPTIONS, keywords_from_options
from tidelog.wire.properties import parse_properties

COMMAND_CONFIG = Setting(
    "command_config",
    str,
    None,
    "Read security.protocol, sasl.jaas.config, ssl.truststore.location and so on from this file.",
    is_optional=True,
    extras={"metavar": "FILE"},
)
_FLAG = Annotated[str | None, option("--command-config", metavar="FILE", help=COMMAND_CONFIG.description)]
_CLUSTER = "cluster"


def read_command_config(file: Path) -> dict[str, Any]:
    """The file's settings as keywords of `ClusterConfig`.

    Raises Failure if it cannot be read, BadParameter for a property that is unknown or has a wrong value.
    """
    with reading(file):
        text = file.read_text()
    try:
        properties = parse_properties(text)
        if unknown := sorted(properties.keys() - OPTIONS):
            close = difflib.get_close_matches(unknown[0], OPTIONS, n=1, cutoff=0.8)
            advice = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(OPTIONS))}"
            raise ConfigError(f"unknown property {unknown[0]!r}: {advice}")
        return keywords_from_options(properties)
    except ValueError as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--command-config") from None


def take_command_configs(flags: dict[str, Any], prefixes: Iterable[str]) -> None:
    """Replace each option's file in the flags of a job by its settings. Other flags go before it.

    Raises as `read_command_config`.
    """
    for prefix in prefixes:
        file = flags.pop(prefix + COMMAND_CONFIG.attribute, None)
        if file is not None:
            for name, value in read_command_config(Path(file)).items():
                if flags.get(prefix + name) is None:
                    flags[prefix + name] = value


def add_command_config(app: typer.Typer) -> None:
    """Give the option to each command of `app`, and of what is below it, that connects to a cluster."""
    for command in app.registered_commands:
        if command.callback is not None and _CLUSTER in inspect.signature(command.callback).parameters:
            command.callback = _with_option(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_command_config(group.typer_instance)


def _with_option(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def command(**given: Any) -> None:
        file = given.pop(COMMAND_CONFIG.attribute)
        if file is not None:
            given[_CLUSTER] = _merged(given[_CLUSTER], read_command_config(Path(file)))
        function(**given)

    flag = inspect.Parameter(
        COMMAND_CONFIG.attribute, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_FLAG
    )
    return with_parameters(command, [*parameters_of(function), flag])


def _merged(cluster: Any, keywords: dict[str, Any]) -> Any:
    if cluster is not DEFAULT_CLUSTER:
        keywords = {**keywords, "bootstrap_servers": str(cluster)}
    try:
        return replace(DEFAULT_CLUSTER, **keywords)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--command-config") from None
