"""Reads, as batches and as streams.

- `batch_source`: batch reads of the data source: the ranges are planned on the driver, and read in the tasks
- `clients`: connections that stay open between the tasks of a worker and the questions of a planner
- `fetch`: record batches from a broker as they lie in its log, for Spark's tasks and its planner
- `filters`: what the filters of a query say of places, offsets and times, so that a read leaves out what they
  exclude
- `losses`: offsets that were deleted before a read reached them, saved so that the job can count them
- `micro_batches`: the next offsets of a stream, computed from its current offsets and the bounds of the logs
- `reading`: what batch and stream reads share: the bounds of the logs, the tasks, and the records of a task
- `stream_source`: the stream side of `format("tidelog")`: micro-batches with admission control
"""
