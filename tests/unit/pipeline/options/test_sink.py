"""What a write may be asked to do, and what is refused before a row is sent."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.client import ClusterConfig
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options.common import PATIENCE_MS
from tidelog.pipeline.options.sink import SinkOptions, check_columns, parse_sink_options
from tidelog.pipeline.writers import make_writer

SERVERS = {"bootstrap.servers": "localhost:9092"}
MIRROR = SERVERS | {"delivery": "mirror"}
ONCE = SERVERS | {"delivery": "exactly_once"}
POSITION = {"source_topic": StringType(), "source_partition": IntegerType(), "source_offset": LongType()}


def headers(key: DataType) -> ArrayType:
    return ArrayType(StructType([StructField("key", key), StructField("value", BinaryType())]))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_names_are_sparks_in_any_case_with_or_without_its_prefix() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "Topic": "t", "COMPRESSION.TYPE": "ZSTD", "batch.size": "1000"}
    given |= {"kafka.max.request.size": "2000"}
    options = parse_sink_options(given | {"queryName": "q", "checkpointLocation": "/c"}, is_stream=True)
    cluster = ClusterConfig("a:1", client_id="tidelog-sink", bootstrap_refused_timeout_ms=PATIENCE_MS)
    assert options == SinkOptions(cluster, "t", compression_type="zstd", batch_bytes=1000, request_bytes=2000)


def test_a_mirrors_session_is_in_the_checkpoint_or_in_the_given_folder() -> None:
    in_checkpoint = parse_sink_options(MIRROR | {"checkpointLocation": "file:///data/c/"}, is_stream=True)
    assert in_checkpoint.session_path == "/data/c/tidelog-session"
    told = parse_sink_options(MIRROR | {"session.path": "/s", "mirror.gaps": "allow"}, is_stream=False)
    assert (told.session_path, told.allows_gaps) == ("/s", True)


def test_exact_delivery_has_a_checkpoint_in_a_stream_and_a_name_and_number_in_a_batch() -> None:
    stream = parse_sink_options(ONCE | {"checkpointLocation": "file:/c"}, is_stream=True)
    assert (stream.checkpoint, stream.name, stream.batch) == ("/c", "", None)
    for folder in ("s3a://bucket/c", "webhdfs://host/c", "dbfs:/c"):
        assert (
            parse_sink_options(ONCE | {"checkpointLocation": f"{folder}/"}, is_stream=True).checkpoint
            == folder
        )
    batch = parse_sink_options(
        ONCE | {"exactly_once.name": "n-1", "exactly_once.batch": "7"}, is_stream=False
    )
    assert (batch.checkpoint, batch.name, batch.batch) == (None, "n-1", 7)


@pytest.mark.parametrize(
    ("options", "is_stream", "message"),
    [
        ({}, True, r"bootstrap\.servers is missing"),
        (SERVERS | {"ackz": "all"}, True, "unknown option 'ackz'"),
        (SERVERS | {"kafka.key.serializer": "x"}, True, "option key.serializer is not supported: "),
        (SERVERS | {"delivery": "twice"}, True, "expected at_least_once, exactly_once or mirror"),
        (SERVERS | {"mirror.gaps": "allow"}, True, "belongs to delivery=mirror"),
        (SERVERS | {"compression.type": "rar"}, True, "expected none, gzip"),
        (SERVERS | {"batch.size": "-5"}, True, "expected a whole number above 0"),
        (MIRROR, True, "Set option checkpointLocation"),
        (MIRROR, False, r"Set option session\.path"),
        (MIRROR | {"checkpointLocation": "hdfs://host/c"}, True, "on a shared file system"),
        (MIRROR | {"session.path": "/s", "mirror.gaps": "yes"}, True, "expected refuse or allow"),
        (MIRROR | {"exactly_once.name": "n"}, False, "belongs to delivery=exactly_once"),
        (ONCE, True, "needs option checkpointLocation"),
        (ONCE | {"checkpointLocation": "/c", "exactly_once.batch": "1"}, True, "numbers its batches itself"),
        (ONCE | {"exactly_once.name": "n"}, False, r"exactly_once\.batch, a number"),
        (ONCE | {"exactly_once.batch": "1"}, False, r"needs exactly_once\.name"),
        (ONCE | {"exactly_once.name": "a.b", "exactly_once.batch": "1"}, False, "letters, digits"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(
    options: dict[str, str], is_stream: bool, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        parse_sink_options(options, is_stream=is_stream)


@pytest.mark.parametrize("text", [StringType(), StringType("UTF8_LCASE")], ids=["plain", "collated"])
def test_columns_of_a_record_pass(text: DataType) -> None:
    columns = {"key": text, "value": BinaryType(), "headers": headers(text), "timestamp": TimestampType()}
    check_columns(
        schema(**columns, topic=StringType(), partition=ShortType()),
        SinkOptions(ClusterConfig("a:1"), None),
        overwrite=False,
    )
    check_columns(
        schema(**columns, **POSITION), SinkOptions(ClusterConfig("a:1"), "t", "mirror"), overwrite=False
    )


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"partition": LongType()}, SinkOptions(ClusterConfig("a:1"), "t"), "needs a column key or value"),
        ({"value": StringType()}, SinkOptions(ClusterConfig("a:1"), None), "name the topic"),
        (
            {"value": LongType()},
            SinkOptions(ClusterConfig("a:1"), "t"),
            "value: expected binary or string, got bigint",
        ),
        (
            {"value": StringType(), "headers": MapType(StringType(), BinaryType())},
            SinkOptions(ClusterConfig("a:1"), "t"),
            "headers: expected array<struct<key:string,value:binary>>, got map<string,binary>",
        ),
        (
            {"value": StringType(), "headers": headers(BinaryType())},
            SinkOptions(ClusterConfig("a:1"), "t"),
            "headers: expected array<struct<key:string,value:binary>>, got array<struct<key:binary",
        ),
        (
            {"value": StringType()},
            SinkOptions(ClusterConfig("a:1"), "t", "mirror"),
            "column source_topic is missing",
        ),
    ],
)
def test_columns_that_make_no_record_are_refused(
    columns: dict[str, DataType], options: SinkOptions, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        check_columns(schema(**columns), options, overwrite=False)


def test_a_column_that_a_record_does_not_have_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = schema(value=StringType(), offset=LongType(), **POSITION)
    make_writer(SERVERS | {"topic": "t"}, given, overwrite=False, is_stream=False)
    (warning,) = caplog.messages
    assert "columns that are not written" in warning
    assert "offset, source_topic" in warning


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="use mode append"):
        check_columns(schema(value=StringType()), SinkOptions(ClusterConfig("a:1"), "t"), overwrite=True)
