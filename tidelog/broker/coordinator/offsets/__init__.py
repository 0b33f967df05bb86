"""Committed offsets of groups: the machine that holds them, and its records in `__consumer_offsets`."""
