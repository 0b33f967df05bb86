"""What Spark asks the data source before it reads: wrong options and schemas are refused with our words."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.offsets import OptionError

OPTIONS = {"bootstrap.servers": "localhost:9092", "subscribe": "t"}


def test_a_schema_of_the_users_own_is_refused() -> None:
    source = TidelogDataSource(OPTIONS)
    own = StructType(source.schema().fields[:1])
    with pytest.raises(OptionError, match=r"leave out \.schema"):
        source.reader(own)
    with pytest.raises(OptionError, match=r"leave out \.schema"):
        source.streamReader(own).initialOffset()
    assert source.reader(source.schema())


def test_what_only_a_stream_refuses_is_raised_by_its_first_question() -> None:
    source = TidelogDataSource(OPTIONS | {"endingOffsets": "latest"})
    stream = source.streamReader(source.schema())
    for ask in (stream.initialOffset, stream.getDefaultReadLimit):
        with pytest.raises(OptionError, match="a stream has no end"):
            ask()
    with pytest.raises(OptionError, match="a stream has no end"):
        stream.latestOffset({}, ReadAllAvailable())
