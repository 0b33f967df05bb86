"""What a write has to do: options and columns in, or a refusal that says what is accepted.

Owns the parsing of the sink's options and the check of its columns. Both are pure, and done when Spark plans
the write, so that nothing is refused half written. The sink refuses options that it does not know.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.client.producer.config import CODECS
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options import common
from tidelog.pipeline.options.tables import (
    AT_LEAST_ONCE,
    BATCH_BYTES,
    DELIVERY_TIMEOUT_MS,
    FOREIGN_TO_SINK,
    REQUEST_BYTES,
)
from tidelog.pipeline.options.tables import SINK_OPTIONS as OPTIONS
from tidelog.pipeline.paths import local_path, shared_folder
from tidelog.wire.cluster_config import ClusterConfig

MIRROR = "mirror"
EXACTLY_ONCE = "exactly_once"
SESSION_FOLDER = "tidelog-session"
POSITION_COLUMNS = ("source_topic", "source_partition", "source_offset")
_CONTENT_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
_CLIENT_ID = "tidelog-sink"
_OF_DELIVERY = {
    MIRROR: {"session.path", "mirror.plan", "mirror.gaps"},
    EXACTLY_ONCE: {"exactly_once.name", "exactly_once.batch"},
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
# Spark's own, which it hands to every sink.
_OF_SPARK = {"checkpointlocation", "queryname", "path"}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write. Sizes in bytes, times in milliseconds.

    `topic` goes before the column of that name. For delivery=mirror: `session_path` is the folder that holds
    the mirror's session, `plan` names what is done to the rows on their way, `allows_gaps` says that offsets
    may be missing between rows. For delivery=exactly_once: `name` is the write's ("": that of its query),
    `batch` its number outside of a stream, `checkpoint` the folder of the stream's checkpoint.
    """

    cluster: ClusterConfig
    topic: str | None
    delivery: str = AT_LEAST_ONCE
    compression_type: str = OPTIONS["compression.type"].default
    batch_bytes: int = BATCH_BYTES
    request_bytes: int = REQUEST_BYTES
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    session_path: str | None = None
    plan: str = ""
    allows_gaps: bool = False
    name: str = ""
    batch: int | None = None
    checkpoint: str | None = None


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Read the options of a write; names in any case, with or without Spark's `kafka.` prefix.

    Raises OptionError for an unknown name, a missing or a contradictory value.
    """
    given = common.read_options(options, OPTIONS, FOREIGN_TO_SINK, _OF_SPARK)
    cluster = common.read_cluster(given, client_id=_CLIENT_ID)
    if cluster is None:
        raise common.no_servers()
    delivery = common.choice_of(given, OPTIONS, "delivery", AT_LEAST_ONCE, EXACTLY_ONCE, MIRROR)
    for other, names in _OF_DELIVERY.items():
        if delivery != other and (stray := sorted(given.keys() & names)):
            raise OptionError(f"option {stray[0]} belongs to delivery={other}")
    return SinkOptions(
        cluster=cluster,
        topic=given.get("topic") or None,
        delivery=delivery,
        compression_type=common.choice_of(given, OPTIONS, "compression.type", *CODECS),
        batch_bytes=common.count_of("batch.size", common.text_of(given, OPTIONS, "batch.size")),
        request_bytes=common.count_of("max.request.size", common.text_of(given, OPTIONS, "max.request.size")),
        delivery_timeout_ms=common.count_of(
            "delivery.timeout.ms", common.text_of(given, OPTIONS, "delivery.timeout.ms")
        ),
        session_path=_session_path(given, is_stream=is_stream) if delivery == MIRROR else None,
        plan=given.get("mirror.plan", ""),
        allows_gaps=common.choice_of(given, OPTIONS, "mirror.gaps", "refuse", "allow") == "allow",
        **(_of_exactly_once(given, is_stream=is_stream) if delivery == EXACTLY_ONCE else {}),
    )


def _of_exactly_once(given: Mapping[str, str], *, is_stream: bool) -> dict[str, Any]:
    name, batch = given.get("exactly_once.name", ""), given.get("exactly_once.batch", "")
    checkpoint = given.get("checkpointlocation", "")
    if name and not _NAME.fullmatch(name):
        raise OptionError(f"exactly_once.name={name}: expected up to 100 letters, digits, - and _")
    if is_stream and batch:
        raise OptionError("a stream numbers its batches itself: leave out exactly_once.batch")
    if is_stream and not checkpoint:
        raise OptionError("delivery=exactly_once needs option checkpointLocation on the stream")
    if not is_stream and not (name and batch.isdecimal()):
        raise OptionError(
            "delivery=exactly_once in a batch needs exactly_once.name, a permanent name of this write, and"
            " exactly_once.batch, a number that is larger for each new batch. A repeated number is not"
            " written again"
        )
    return {
        "name": name,
        "batch": int(batch) if batch else None,
        "checkpoint": _checkpoint(checkpoint) if checkpoint else None,
    }


def _checkpoint(text: str) -> str:
    """An absolute local path, or the URI of another file system."""
    return text.rstrip("/") if (path := local_path(text)) is None else str(path.absolute())


def columns_left_out(schema: StructType, options: SinkOptions) -> list[str]:
    """The columns that a record does not have. Spark's Kafka sink leaves them out too."""
    return [name for name in schema.names if name not in _wanted(options)]


def _wanted(options: SinkOptions) -> tuple[str, ...]:
    return (*_CONTENT_COLUMNS, *(POSITION_COLUMNS if options.delivery == MIRROR else ()))


def check_columns(schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
    """Raises OptionError for columns that no record can be made of, or for a mode that is not append."""
    if overwrite:
        raise OptionError(
            "a topic cannot be overwritten, only appended to: use mode append. A stream with the output mode"
            " complete can write in foreachBatch"
        )
    types = {field.name: field.dataType for field in schema.fields if field.name in _wanted(options)}
    if "key" not in types and "value" not in types:
        raise OptionError(f"a record needs a column key or value; the columns are {', '.join(schema.names)}")
    if options.topic is None and "topic" not in types:
        raise OptionError("name the topic, by option topic or by a column of that name")
    if options.delivery == MIRROR and (missing := [name for name in POSITION_COLUMNS if name not in types]):
        raise OptionError(
            f"delivery=mirror needs to know where each row comes from: column {missing[0]} is missing. Add"
            " the source's columns topic AS source_topic, partition AS source_partition, offset AS"
            " source_offset, or use delivery=at_least_once"
        )
    for name, kind in types.items():
        expected, accepted = _TYPES[name]
        if not isinstance(kind, accepted) or (isinstance(kind, ArrayType) and not _is_headers(kind)):
            raise OptionError(f"column {name}: expected {expected}, got {kind.simpleString()}; cast it")


def _is_headers(kind: ArrayType) -> bool:
    """Also if the keys have a collation, which is a part of a type's name."""
    if not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType]
    return fields == [("key", StringType), ("value", BinaryType)]


_TYPES: Mapping[str, tuple[str, tuple[type[DataType], ...]]] = {
    "key": ("binary or string", (BinaryType, StringType)),
    "value": ("binary or string", (BinaryType, StringType)),
    "headers": ("array<struct<key:string,value:binary>>", (ArrayType,)),
    "topic": ("string", (StringType,)),
    "partition": ("int", (IntegralType,)),
    "timestamp": ("timestamp", (TimestampType, TimestampNTZType)),
    "source_topic": ("string", (StringType,)),
    "source_partition": ("int", (IntegralType,)),
    "source_offset": ("bigint", (IntegralType,)),
}
"""The columns of a write: the type that is expected, in words, and those that are accepted."""


def _session_path(given: Mapping[str, str], *, is_stream: bool) -> str:
    """The folder of the mirror's session, by default inside the checkpoint."""
    if text := given.get("session.path"):
        return str(shared_folder("session.path", text))
    if text := given.get("checkpointlocation") if is_stream else None:
        return str(shared_folder("checkpointLocation or session.path", text) / SESSION_FOLDER)
    raise OptionError(
        "delivery=mirror keeps a session between runs. Set option checkpointLocation on the stream"
        if is_stream
        else "delivery=mirror keeps a session between runs. Set option session.path: a folder that only this"
        " write uses"
    )
