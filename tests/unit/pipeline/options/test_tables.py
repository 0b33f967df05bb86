"""Each option of Kafka's clients is honoured, ignored with a warning, or refused with the reason."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest

from docs.compatibility import KAFKA
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options import tables
from tidelog.pipeline.options.common import without_effect
from tidelog.pipeline.options.sink import parse_sink_options
from tidelog.pipeline.options.source import parse_options, parse_stream_options
from tidelog.wire.cluster_config import OPTIONS as CLUSTER_OPTIONS
from tidelog.wire.cluster_config import ClusterConfig


class Side(NamedTuple):
    """The source, or the sink: its options, the others, the client of Kafka, and what parses them."""

    own: tables.OptionTable
    foreign: tables.Foreign
    kafkas: str
    parse: Callable[[Mapping[str, str]], Any]
    given: Mapping[str, str]


SERVERS = {"kafka.bootstrap.servers": "a:1"}
SIDES = {
    "source": Side(
        tables.SOURCE_OPTIONS,
        tables.FOREIGN_TO_SOURCE,
        "consumer",
        parse_options,
        SERVERS | {"subscribe": "t"},
    ),
    "sink": Side(
        tables.SINK_OPTIONS,
        tables.FOREIGN_TO_SINK,
        "producer",
        partial(parse_sink_options, is_stream=False),
        SERVERS | {"topic": "t"},
    ),
}


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Side:
    return SIDES[request.param]


def test_each_setting_of_kafkas_clients_has_one_row(side: Side) -> None:
    """Those of the other client too: one dict of options may serve a read and a write."""
    honoured = {*side.own, *CLUSTER_OPTIONS}
    ignored, refused = side.foreign.ignored.keys(), side.foreign.refused.keys()
    kafkas = KAFKA["settings"]
    assert {*kafkas["consumer"], *kafkas["producer"]} - honoured - ignored - refused == set()
    assert [honoured & ignored, honoured & refused, ignored & refused] == [set(), set(), set()]


def test_what_cannot_change_a_result_is_ignored_with_the_reason(side: Side) -> None:
    plain = side.parse(side.given)
    for name, reason in side.foreign.ignored.items():
        if name.lower() not in {each.lower() for each in side.given}:
            for given in (name, f"kafka.{name}", name.upper()):
                assert side.parse({**side.given, given: "1"}) == plain, name
                assert without_effect({given: "1"}, side.foreign) == {given: reason}


def test_what_would_change_a_result_is_refused_with_a_remedy(side: Side) -> None:
    for name, reason in side.foreign.refused.items():
        with pytest.raises(OptionError) as caught:
            side.parse({**side.given, f"kafka.{name}": "x"})
        assert str(caught.value) == f"option {name} is not supported: {reason}"


def test_one_warning_names_all_that_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    options = {"subscribe": "t", "kafka.acks": "1", "kafka.client.rack": "a", "topic": "t"}
    TidelogDataSource({**SERVERS, **options}).schema()
    (warning,) = caplog.messages
    assert warning == (
        "options without an effect here: kafka.acks (it is for writing), kafka.client.rack (the leader reads"
        " and writes), topic (it is for writing)"
    )


def test_options_of_streams_are_ignored_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    options = {**SIDES["source"].given, "maxOffsetsPerTrigger": "7"}
    assert parse_stream_options(options).max_offsets_per_trigger == 7
    source = TidelogDataSource(options)
    source.reader(source.schema())
    (warning,) = caplog.messages
    assert "maxOffsetsPerTrigger (a batch has no micro-batches)" in warning


def test_every_option_says_what_it_does(side: Side) -> None:
    assert [name for name, option in side.own.items() if not option.description.endswith(".")] == []


def test_a_setting_of_a_cluster_is_an_option_of_both() -> None:
    for side in SIDES.values():
        cluster = side.parse({**side.given, "kafka.request.timeout.ms": "7"}).cluster
        assert isinstance(cluster, ClusterConfig)
        assert cluster.request_timeout_ms == 7
