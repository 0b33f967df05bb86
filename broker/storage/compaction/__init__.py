"""Log compaction: the last record of each key stays, and older ones are removed.

`selection` says what may be cleaned, `offset_map` and `retention` which records stay, `cleaner` writes
segments again, and `swap` puts them in the place of the old ones. `compactable` is what an open log gives for
it.
"""
