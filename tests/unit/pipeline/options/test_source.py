"""Options in Spark's words become what was asked for, or a reason why not."""

import pytest

from tidelog.pipeline.offsets import EARLIEST, LATEST, OptionError, Place
from tidelog.pipeline.options.source import parse_columns, parse_options, parse_stream_options
from tidelog.pipeline.schema import COLUMNS

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}


def test_defaults_read_everything() -> None:
    options = parse_options(BOOTSTRAP | {"subscribe": "a, b,a"})
    assert options.topics == ("a", "b")
    assert options.assigned is None
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.columns == COLUMNS
    assert options.min_partitions is None


def test_names_come_in_any_case_and_with_sparks_prefix() -> None:
    given_options = {"kafka.bootstrap.servers": "h:1", "SUBSCRIBE": "a", "startingOffsets": "Earliest"}
    assert str(parse_options(given_options).cluster) == "h:1"


def test_headers_are_there_unless_sparks_option_says_no() -> None:
    given = BOOTSTRAP | {"subscribe": "t"}
    asked = [parse_columns(given | {"includeHeaders": text}) for text in ("true", "false")]
    assert asked == [COLUMNS, tuple(name for name in COLUMNS if name != "headers")]
    both = given | {"includeHeaders": "false", "columns": "value, headers"}
    assert parse_columns(both) == ("value", "headers")


@pytest.mark.parametrize(
    "wrong",
    [{"subscribee": "t"}, {"startingOffsets": "soon"}, {"minPartitions": "0"}, {"maxTriggerDelay": "3 days"}],
    ids=str,
)
def test_load_refuses_what_neither_a_batch_nor_a_stream_can_have(wrong: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse_columns(BOOTSTRAP | {"subscribe": "t"} | wrong)


def test_a_group_to_commit_in_is_kept_by_brokers() -> None:
    given = {"subscribe": "t", "read.path": "/data", "commit.group.id": "g"}
    assert parse_stream_options(given | BOOTSTRAP).commit_group_id == "g"
    with pytest.raises(OptionError, match=r"give bootstrap\.servers too"):
        parse_stream_options(given)


@pytest.mark.parametrize(
    ("text", "delay_ms"), [("250", 250), ("90s", 90_000), ("15m", 900_000), ("1h", 3_600_000)]
)
def test_a_delay_has_a_unit(text: str, delay_ms: int) -> None:
    given = BOOTSTRAP | {"subscribe": "t", "minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    options = parse_stream_options(given)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (5, delay_ms)


def test_a_batch_cannot_wait_for_more_than_it_may_hold() -> None:
    """It would read some of what it waited for, and the rest would wait again."""
    limits = {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}
    with pytest.raises(OptionError, match="minOffsetsPerTrigger=6 is more than maxOffsetsPerTrigger=5"):
        parse_stream_options(BOOTSTRAP | {"subscribe": "t"} | limits)


def test_positions_and_assignments_are_sparks_json() -> None:
    options = parse_options(
        BOOTSTRAP
        | {
            "assign": '{"a":[0,1,0]}',
            "startingOffsets": '{"a":{"0":23,"1":-2}}',
            "endingOffsets": '{"a":{"0":-1,"1":7}}',
            "minPartitions": "8",
            "columns": "Offset, value",
        }
    )
    assert options.assigned == (Place("a", 0), Place("a", 1))
    assert options.starting == {Place("a", 0): 23, Place("a", 1): EARLIEST}
    assert options.ending == {Place("a", 0): LATEST, Place("a", 1): 7}
    assert options.min_partitions == 8
    assert options.columns == ("offset", "value")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "a"}, "bootstrap.servers is missing"),
        (BOOTSTRAP, "either subscribe"),
        (BOOTSTRAP | {"subscribe": "a", "assign": '{"a":[0]}'}, "either subscribe"),
        (BOOTSTRAP | {"subscribe": "a,,b"}, "empty topic name"),
        (BOOTSTRAP | {"subscribe": "a", "startingOfsets": "earliest"}, "unknown option 'startingofsets'"),
        (BOOTSTRAP | {"subscribe": "a", "startingOffsets": "latest"}, "read nothing"),
        (BOOTSTRAP | {"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "read nothing"),
        (BOOTSTRAP | {"subscribe": "a", "endingOffsets": "earliest"}, "read nothing"),
        (BOOTSTRAP | {"subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'}, "read nothing"),
        (BOOTSTRAP | {"subscribe": "a", "startingOffsets": "first"}, "neither earliest nor latest"),
        (BOOTSTRAP | {"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "-3 is not an offset"),
        (BOOTSTRAP | {"subscribe": "a", "startingOffsets": '{"a":{"0":true}}'}, "True is not an offset"),
        (BOOTSTRAP | {"subscribe": "a", "startingOffsets": '{"a":[1]}'}, "neither earliest"),
        (BOOTSTRAP | {"subscribe": "a", "startingOffsets": "[]"}, "not a JSON object"),
        (
            BOOTSTRAP | {"subscribe": "a", "startingOffsetsByTimestampStrategy": "no"},
            "error or latest",
        ),
        (BOOTSTRAP | {"assign": '{"a":0}'}, "assign"),
        (BOOTSTRAP | {"assign": '{"a":[-1]}'}, "below 0"),
        (BOOTSTRAP | {"assign": "{}"}, "must name partitions"),
        (BOOTSTRAP | {"subscribe": "a", "isolation.level": "committed"}, "expected read_uncommitted or"),
        (BOOTSTRAP | {"subscribe": "a", "minPartitions": "0"}, "above 0"),
        (BOOTSTRAP | {"subscribe": "a", "minPartitions": "x"}, "above 0"),
        (BOOTSTRAP | {"subscribe": "a", "columns": "key,velue"}, "'velue'"),
        (BOOTSTRAP | {"subscribe": "a", "columns": "key,key"}, "'key' is named twice"),
    ],
)
def test_a_wrong_option_is_refused_with_the_reason(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse_options(options)


def test_committed_records_and_segment_files_are_asked_for_by_option() -> None:
    plain = parse_options(BOOTSTRAP | {"subscribe": "a"})
    assert not plain.read_committed
    assert plain.read_paths == ()
    options = parse_options(
        {"subscribe": "a", "read.path": "/data, /other", "kafka.isolation.level": "read_committed"}
    )
    assert options.read_committed
    assert options.read_paths == ("/data", "/other")
    assert options.cluster is None
