"""Log compaction: the last record of each key stays, and older ones are removed."""
