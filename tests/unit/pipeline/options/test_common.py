"""Source and sink take the settings of a cluster by Kafka's names, whichever there are."""

import pickle

import pytest

from tests.unit.wire.cluster_settings import OBJECTS, another, with_another
from tidelog.client import ClusterConfig
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options.common import read_options, text_of
from tidelog.pipeline.options.sink import parse_sink_options
from tidelog.pipeline.options.source import parse_options
from tidelog.pipeline.options.tables import Foreign, Option
from tidelog.protocol.settings import settings_of

OF_TEXT = [each for each in settings_of(ClusterConfig) if each.attribute not in OBJECTS]
TABLE = {"someThing": Option("yes", "What."), "other.thing": Option("", "What.")}
NOTHING = Foreign({}, {})


def test_names_come_in_any_case_with_or_without_the_prefix() -> None:
    given = read_options(
        {"SOMEthing": " no ", "kafka.other.thing": "x", "path": "p"}, TABLE, NOTHING, {"path"}
    )
    assert given == {"something": "no", "other.thing": "x", "path": "p"}
    assert text_of(given, TABLE, "someThing") == "no"
    assert text_of({}, TABLE, "someThing") == "yes"


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(OptionError, match=r"option 'somethin'; did you mean someThing\?"):
        read_options({"someThin": "1"}, TABLE, NOTHING)
    with pytest.raises(OptionError, match=r"option 'thing'; known are .*bootstrap\.servers.*someThing"):
        read_options({"thing": "x"}, TABLE, NOTHING)


@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_every_setting_of_a_cluster_is_an_option_of_source_and_sink(prefix: str) -> None:
    """A setting that is added to the way to a cluster needs no change in the pipeline."""
    for each in OF_TEXT:
        given = {name: str(value) for name, value in with_another(each).items()}
        options = {"bootstrap.servers": "a:1"} | {
            prefix + name.replace("_", "."): value for name, value in given.items()
        }
        read = parse_options(options | {"subscribe": "t"})
        written = parse_sink_options(options, is_stream=False)
        for held in (read.cluster, written.cluster, pickle.loads(pickle.dumps(written)).cluster):
            assert getattr(held, each.attribute) == another(each), each


def test_a_value_that_a_clusters_setting_cannot_hold_is_an_option_error() -> None:
    options = {"subscribe": "t", "bootstrap.servers": "a:1", "request.timeout.ms": "soon"}
    with pytest.raises(OptionError, match=r"request\.timeout\.ms: expected a whole number .* got 'soon'"):
        parse_options(options)
    with pytest.raises(OptionError, match="expected host:port"):
        parse_options({"subscribe": "t", "bootstrap.servers": "a:b"})
