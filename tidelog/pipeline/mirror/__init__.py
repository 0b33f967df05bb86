"""delivery=mirror: the rows of source partitions, stored once.

- `session_folder`: the session of a mirror: its state across runs, as small files in one folder
- `tail`: which rows of a source partition a destination partition holds, read from its log
- `task`: one task of a mirror: its input is rows with their source positions; it stores or skips each row
- `writer`: why the mirror is exact: each row of a source partition is stored once
"""
