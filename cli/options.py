"""Options that several commands share, declared once.

Owns their names, environment variables and help. Used in the signatures of the commands.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from tidelog.broker.configuration.settings import BOOTSTRAP_SERVERS_VARIABLE
from tidelog.client.cluster_config import ClusterConfig
from tidelog.client.producer_config import CODECS


def read_cluster(servers: str | ClusterConfig) -> ClusterConfig:
    """The way to the cluster that the option's text says. Raises BadParameter."""
    if isinstance(servers, ClusterConfig):
        return servers
    try:
        return ClusterConfig(servers)
    except ValueError:
        raise typer.BadParameter(f"expected HOST:PORT[,HOST:PORT...], not {servers!r}") from None


DEFAULT_CLUSTER = ClusterConfig()

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
Topic: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)
]
KeySeparator: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        metavar="TEXT",
        help="Text between key and value in a line. Without it, a line is a value.",
        show_default=False,
    ),
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option("--rate", min=0.001, help="Largest number of records per second.", show_default=False),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Compression: TypeAlias = Annotated[
    str, typer.Option("--compression", help=f"Compression of batches: {', '.join(CODECS)}.")
]


def compression_type(name: str) -> str | None:
    """What the client takes for the option's value. Raises BadParameter."""
    if name not in CODECS:
        raise typer.BadParameter(
            f"expected one of {', '.join(CODECS)}, not {name}", param_hint="--compression"
        )
    return None if name == "none" else name


def unescape(text: str) -> bytes:
    r"""An option's text as bytes, with \t, \n and \0 for what a shell makes hard to type."""
    return text.replace(r"\t", "\t").replace(r"\n", "\n").replace(r"\0", "\0").encode()
