"""The pipeline on Spark: the source and the sink `tidelog`, and the jobs.

- `data_source`: the Spark data source `tidelog`
- `driver`: the files of a checkpoint, as the driver's Java sees them
- `durable_files`: small JSON files that survive a power cut, each complete or absent
- `offsets`: the offset ranges of a read, computed from the requested positions and the bounds of the logs
- `paths`: folders and files that settings name: which are local paths, and the lock of a folder
- `schema`: the columns of the source, as Spark's types: those of its Kafka source, and who wrote the record
- `workers`: what the Python processes of Spark tell users
- `writers`: the sink of `format("tidelog")`, for batches and streams: stores rows as records
- `arrow/`: batches to Arrow and back, without a Python object per record
- `exactly_once/`: delivery=exactly_once: the rows of any query, stored once
- `examples/`: examples to copy and change
- `jobs/`: jobs on Spark over topics
- `mirror/`: delivery=mirror: the rows of source partitions, stored once
- `options/`: the options of source and sink: Spark's texts in, checked values out
- `segments/`: reads of segment files without a broker
- `sink/`: what all writes share
- `source/`: reads, as batches and as streams
- `spark/`: what starts Spark
"""
