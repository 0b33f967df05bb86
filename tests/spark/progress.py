"""What a stream reports of its micro-batches."""

from typing import Any

from pyspark.sql.streaming import StreamingQuery


def batches(query: StreamingQuery) -> list[Any]:
    """The progress of each micro-batch that had rows: a stream that found none for 10 s reports that too."""
    return [progress for progress in query.recentProgress if progress.numInputRows]


def sizes(query: StreamingQuery) -> list[int]:
    """The rows of each."""
    return [progress.numInputRows for progress in batches(query)]
