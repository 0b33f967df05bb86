"""Options that several commands share, declared once.

Owns their names, environment variables and help. Used in the signatures of the commands.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from tidelog.broker.configuration.settings import BOOTSTRAP_SERVERS_VARIABLE
from tidelog.cli.completion import group_names, topic_names
from tidelog.client.producer.config import CODECS
from tidelog.wire.cluster_config import ClusterConfig

_Command = TypeVar("_Command", bound=Callable[..., Any])


def read_cluster(servers: str | ClusterConfig) -> ClusterConfig:
    """The way to the cluster that the option's text says. Raises BadParameter."""
    if isinstance(servers, ClusterConfig):
        return servers
    try:
        return ClusterConfig(servers)
    except ValueError:
        raise typer.BadParameter(f"expected HOST:PORT[,HOST:PORT...], got {servers!r}") from None


def read_timestamp(text: str | int) -> int:
    """An option's text as milliseconds since 1970: that number, or a time of ISO 8601, in UTC if it names no
    zone. Raises BadParameter."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise typer.BadParameter(
            f"expected milliseconds since 1970 or a time like 2026-11-21T13:00:00, got {text!r}"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


DEFAULT_CLUSTER = ClusterConfig()

option = partial(typer.Option, show_default=False)
argument = partial(typer.Argument, show_default=False)
topic_argument = partial(argument, metavar="TOPIC", autocompletion=topic_names)
group_argument = partial(argument, metavar="GROUP", autocompletion=group_names)


ToCluster: TypeAlias = Annotated[
    ClusterConfig,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar=BOOTSTRAP_SERVERS_VARIABLE,
        metavar="HOST:PORT",
        parser=read_cluster,
        help="Broker to connect to first. It names the others.",
        show_default=True,
    ),
]
Topic: TypeAlias = Annotated[str, topic_argument(help="Name of the topic.")]
KeySeparator: TypeAlias = Annotated[
    str | None,
    option(
        "--key-separator",
        metavar="TEXT",
        help="Text between key and value in a line. Without it, a line is a value.",
    ),
]
Rate: TypeAlias = Annotated[
    float | None, option("--rate", min=0.001, help="Largest number of records per second.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Compression: TypeAlias = Annotated[
    str, typer.Option("--compression", help=f"Compression of batches: {', '.join(CODECS)}.")
]


def compression_type(name: str) -> str | None:
    """What the client takes for the option's value. Raises BadParameter."""
    if name not in CODECS:
        raise typer.BadParameter(
            f"expected one of {', '.join(CODECS)}, got {name}", param_hint="--compression"
        )
    return None if name == "none" else name


def assignment(text: str, hint: str | None) -> tuple[str, str]:
    """What NAME=VALUE names, and the value. Raises BadParameter for the option `hint`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint=hint)
    return name, value


def parameters_of(command: Callable[..., object]) -> list[Parameter]:
    """The arguments and options of a command, as typer reads them."""
    hints = get_type_hints(command, include_extras=True)
    return [each.replace(annotation=hints[each.name]) for each in signature(command).parameters.values()]


def with_parameters(command: _Command, parameters: Iterable[Parameter]) -> _Command:
    """Let typer see these arguments and options of a command, which are given to it by name. Arguments are
    first in the help."""
    seen = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    seen.sort(key=lambda each: isinstance(each.annotation.__metadata__[0], OptionInfo))
    command.__annotations__ = {each.name: each.annotation for each in seen}
    setattr(command, "__signature__", Signature(seen))  # noqa: B010 (functions have no such field)
    return command


def refuse_two(options: dict[str, bool]) -> None:
    """Raises BadParameter if more than one of these options was given."""
    given = [option for option, is_given in options.items() if is_given]
    if len(given) > 1:
        raise typer.BadParameter(f"give {given[0]} or {given[1]}, not both", param_hint=given[1])


def unescape(text: str) -> bytes:
    r"""An option's text as bytes, with \t, \n and \0 for what a shell makes hard to type."""
    return text.replace(r"\t", "\t").replace(r"\n", "\n").replace(r"\0", "\0").encode()
