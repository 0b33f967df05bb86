"""Committed offsets of groups: the machine that holds them, and its records in `__consumer_offsets`.

- `committed_offsets`: committed offsets of groups: a pure machine that takes commits, deletions and the time
- `offset_records`: one committed offset, and its encoding in the log of `__consumer_offsets`
- `reset`: where committed offsets are reset to
"""
