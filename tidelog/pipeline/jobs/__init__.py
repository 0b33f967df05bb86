"""Jobs on Spark over topics. Each module has `build(spark, settings)`; `tidelog pipeline NAME` runs it.

- `archive`: the archive: topics to date-partitioned Parquet, each record once, for any reader
- `archive_compaction`: joins the small files of an archive into large ones, exactly, beside any reader
- `archive_files`: the files of an archive: their names, their contents, and how Spark writes them
- `archive_log`: the log of an archive: why plain Parquet files are exact for any reader
- `archive_settings`, `audit_settings`, `mirror_settings`, `replay_settings`, `stats_settings`: the table of
  settings of each job
- `audit`: the audit: whether partitions hold every record of each producer once, in order
- `copies`: checks the topics that a job reads and their copies, and creates missing copies
- `job`: what all jobs have in common: progress, reports, and numbers for Prometheus
- `mirror`: the mirror: copies topics to topics, each record once
- `mirror_origin`: checks that a copy's records come from the topic to be mirrored
- `mirror_topics`: which topics a mirror reads, and the name of each copy
- `outputs`: where a job puts its results
- `projection`: which records a job passes on, and how it changes them: `where` and `select` in SQL
- `quantities`: numbers as people read them
- `replay`: the replay: writes an archive or a topic back into a topic, each record once
- `replay_sources`: the sources of a replay: the files of an archive, or a topic
- `replay_topics`: the topics that a replay writes to
- `settings`: the settings of jobs: how a table of them is declared, and how a file and flags fill it
- `stats`: the stats: records and bytes per second, sizes, lag
- `stats_plot`: the picture of the stats job: a column of panels for each topic, with time to the right
- `stats_sketches`: the arithmetic of the stats job on DataFrames
"""
