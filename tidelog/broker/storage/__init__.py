"""The log on disk: partitions, segments, indexes, producer state, and the only file that touches files."""
