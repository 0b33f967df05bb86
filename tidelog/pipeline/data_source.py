"""The Spark data source `tidelog`: `spark.read.format("tidelog").option("subscribe", "topic").load()`.

Owns the interface to Spark: options in, a schema, and what reads or writes.

Invariants: Spark pickles these classes and runs them in Python workers: nothing here may hold a connection
between calls.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options import source
from tidelog.pipeline.options.ignored import warn_of_options
from tidelog.pipeline.options.tables import FOREIGN_TO_BATCH, FOREIGN_TO_SOURCE
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.workers import fails_plainly

if TYPE_CHECKING:
    from tidelog.pipeline.source.batch_source import TidelogReader


@fails_plainly
class TidelogDataSource(DataSource):  # type: ignore[misc]
    """Reads topics of a Kafka-compatible broker. The options are those of `pipeline.options.source`."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        """All columns, or those that option `columns` names; Spark does not push its own choice down.

        Raises OptionError for wrong options. Those without an effect are named in one warning.
        """
        schema = _schema_of(source.parse_columns(self.options))
        warn_of_options(self.options, FOREIGN_TO_SOURCE)
        return schema

    def reader(self, schema: StructType) -> "TidelogReader":
        from tidelog.pipeline.source.batch_source import TidelogReader

        warn_of_options(self.options, FOREIGN_TO_BATCH)
        return TidelogReader(_checked(source.parse_options(self.options), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from tidelog.pipeline.source.stream_source import RefusedStreamReader, TidelogStreamReader

        try:
            return TidelogStreamReader(_checked(source.parse_stream_options(self.options), schema))
        except OptionError as error:
            # An error here would reach the user as an UnboundLocalError of PySpark.
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from tidelog.pipeline.writers import make_writer

        return make_writer(self.options, schema, overwrite=overwrite, is_stream=False)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from tidelog.pipeline.writers import make_writer

        return make_writer(self.options, schema, overwrite=overwrite, is_stream=True)


def _schema_of(columns: Iterable[str]) -> StructType:
    return StructType([SCHEMA[name] for name in columns])


def _checked(options: source.SourceOptions, schema: StructType) -> source.SourceOptions:
    """Raises OptionError if the user gave a schema of their own."""
    if schema != _schema_of(options.columns):
        raise OptionError(
            "the columns of this source are fixed: leave out .schema(...), and select or convert columns"
            " after load()"
        )
    return options
