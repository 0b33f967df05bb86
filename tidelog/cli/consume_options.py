"""The options of `tidelog consume`: where it begins, what it reads, when it stops, how it prints."""

from typing import Annotated, Literal, TypeAlias

import typer

from tidelog.cli.completion import group_names
from tidelog.cli.options import option, read_timestamp, topic_argument

Topics: TypeAlias = Annotated[list[str], topic_argument(metavar="TOPIC...", help="Names of topics.")]
FromBeginning: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--from-beginning", help="Begin with the oldest record. Without it, begin with the next new one."
    ),
]
Tail: TypeAlias = Annotated[
    int | None, option("--tail", min=0, help="Begin this number of offsets before each end.")
]
Offset: TypeAlias = Annotated[int | None, option("--offset", min=0, help="Begin at this offset.")]
FromTimestamp: TypeAlias = Annotated[
    int | None,
    option(
        "--from-timestamp",
        metavar="TIME",
        parser=read_timestamp,
        help="Begin with the first record that is not older than this time: milliseconds since 1970, or "
        "2026-11-21T13:00:00 (UTC).",
    ),
]
Partitions: TypeAlias = Annotated[
    list[int] | None, option("--partition", min=0, help="Read only this partition. May be repeated.")
]
Share: TypeAlias = Annotated[
    str | None,
    option(
        "--share",
        metavar="ID",
        autocompletion=group_names,
        help="Join this share group: each record goes to one of its members, and is accepted when it was "
        "printed.",
    ),
]
Group: TypeAlias = Annotated[
    str | None,
    option(
        "--group",
        metavar="ID",
        autocompletion=group_names,
        help="Join this consumer group: begin at its committed offsets, and commit the printed "
        "records. Without committed offsets, --from-beginning decides.",
    ),
]
Isolation: TypeAlias = Annotated[
    Literal["read_uncommitted", "read_committed"],
    typer.Option("--isolation", help="read_committed omits open and aborted transactions."),
]
MaxMessages: TypeAlias = Annotated[
    int | None, option("--max-messages", min=0, help="Stop after this number of records.")
]
TimeoutMs: TypeAlias = Annotated[
    int | None, option("--timeout-ms", min=1, help="Stop when no record arrives in this time.")
]
UntilEnd: TypeAlias = Annotated[
    bool, typer.Option("--until-end", help="Stop at the current ends of the partitions.")
]
Headers: TypeAlias = Annotated[
    bool, typer.Option("--headers", help="Print NAME=VALUE,... and a tab before each record.")
]
SchemaRegistry: TypeAlias = Annotated[
    str | None,
    option(
        "--schema-registry",
        metavar="URL",
        envvar="TIDELOG_SCHEMA_REGISTRY",
        help="Print Avro, Protobuf and JSON values of this schema registry as JSON.",
    ),
]
SchemaRegistryUser: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="TIDELOG_SCHEMA_REGISTRY_USER",
        metavar="USER:PASSWORD",
        help="User and password at the schema registry. Set the variable, so that others do not see it.",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print whole records as JSON, one object per line. Bytes that are not UTF-8 become "
        '{"base64": "…"}.',
    ),
]
Format: TypeAlias = Annotated[
    str | None,
    option(
        "--format",
        metavar="TEXT",
        help=r"Format of each record, for example '%t %p %o %k %s\n': topic, partition, offset, key, "
        "value. Also %T timestamp in milliseconds, %h headers, %K and %S the lengths of key and value.",
    ),
]
