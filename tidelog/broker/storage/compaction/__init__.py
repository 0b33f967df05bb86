"""Log compaction: the last record of each key stays, and older ones are removed.

- `cleaner`: one clean of one log: builds the offset map, then writes the segments again
- `compactable`: the interface between an open log and its cleaner
- `markers`: which markers of transactions a cleaner removes, so that they do not grow without bound
- `offset_map`: the last offset of each key in the part of a log that is cleaned, in bounded memory
- `retention`: which records and batches of a log a cleaner keeps
- `selection`: what a cleaner may clean, which log is the dirtiest, and which segments become one
- `transactions`: which transactions of a stretch of a log were committed, and which were aborted
"""
