"""What groups have committed: the machine that keeps it, and its records in `__consumer_offsets`."""
