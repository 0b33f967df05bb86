"""The pipeline on Spark: the source and the sink `tidelog`, and the jobs."""
